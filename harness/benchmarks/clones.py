"""Clean clones of the checkout, and whether two of them hold the same."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_COMPARED: Final = ("data/raw", "data/results", "data/figures", "data/metrics", "dvc.lock")
"""What a reproduction makes."""


def clone(root: Path, folder: Path) -> None:
    """What is committed in `root`, as somebody gets it."""
    command = ["git", "clone", "--quiet", "--no-hardlinks", str(root), str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def changed_environment() -> dict[str, str]:
    """Ours, without what would lead a clone's `make` to this checkout's Python."""
    ours = ("VIRTUAL_ENV", "MAKEFLAGS", "UV_PROJECT_ENVIRONMENT")
    return {name: value for name, value in os.environ.items() if name not in ours}


def digests(clone: Path) -> dict[str, str]:
    """SHA-256 of each file that a reproduction has made there, by its path."""
    files = [file for part in _COMPARED for file in _files(clone / part)]
    return {
        str(file.relative_to(clone)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.name != ".gitignore"
    }


def different(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Of two clones' `digests`: files that not both have, or have otherwise."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
