"""What the compiled core was built of: digests of its parts, and of what a bound name stands on."""

from __future__ import annotations

import hashlib
import json
import runpy
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from harness import _core
from harness.errors import DataFolderError


@cache
def described() -> dict[str, Any]:
    """As core/sources.py says: `parts`, `names`, `always`, `version`."""
    found: dict[str, Any] = json.loads(_core.sources)
    return found


def version() -> str:
    """Of the whole core."""
    return str(described()["version"])


def parts_behind(names: Iterable[str]) -> list[str]:
    """What these bound names stand on, in order; a name that is not known stands on everything."""
    core = described()
    parts: dict[str, Any] = core["parts"]
    wanted = [part for name in names for part in core["names"].get(name, parts)]
    reached: set[str] = set()
    while wanted:
        part = wanted.pop()
        if part not in reached:
            reached.add(part)
            wanted += parts[part]["includes"]
    return sorted(reached)


def digest(names: Iterable[str]) -> str:
    """Of all parts behind these bound names."""
    core = described()
    parts = core["parts"]
    text = [core["always"], *(f"{part} {parts[part]['digest']}" for part in parts_behind(names))]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()


def check(folder: Path) -> None:
    """Whether the core in use is built of the sources in `folder`, if there are any.

    Raises DataFolderError: results would be taken for those of sources that never ran.
    """
    script = folder / "sources.py"
    if not script.is_file():
        return
    there = runpy.run_path(str(script))["describe"](folder)
    if any(described()[key] != there[key] for key in there):
        raise DataFolderError("the compiled core is not that of harness/core: run make env")
