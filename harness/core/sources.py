"""What the core is built of: a digest per part, and which parts stand behind each bound name.

Run by CMake, which puts the answer (JSON) into the module: `harness._core.sources`. A part is a
folder; what includes what follows from the sources, so that a result depends on the parts that it
passes through and on no other (harness/runs/code.py).
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

_KINDS: Final = (".cpp", ".hpp", ".c", ".h")
_INCLUDE: Final = re.compile(r'^#include "([^"/]+)/([^"]+)"', re.MULTILINE)
_BOUND: Final = re.compile(r'(?:\(\s*m\s*,|\bm\.(?:def|attr)\()\s*"(\w+)"')
_LIBRARY: Final = "preload"
"""What is loaded into database servers; it lies beside the module and has no bound name."""


def describe(core: Path) -> dict[str, Any]:
    """`parts`: folder, or file of bindings -> digest and the folders that it includes; `names`:
    bound name -> the parts that it stands on at once; `always`: what every name depends on, the
    build and the module itself.
    """
    folders = sorted(path for path in core.iterdir() if path.is_dir() and path.name != "bind")
    parts = {folder.name: _part(folder) for folder in folders if _sources(folder)}
    names: dict[str, list[str]] = {"__file__": [_LIBRARY]}
    for path in _sources(core / "bind"):
        bindings, included = _bindings(path, core)
        uses = sorted(included & parts.keys())
        part = f"bind/{path.name}"
        for name in _BOUND.findall(path.read_text(encoding="utf-8")):
            parts[part] = {"digest": _digest(bindings, core), "includes": uses}
            names[name] = sorted({*names.get(name, []), *uses, part})
    module = [path for path in _sources(core / "bind") if path.name == "module.cpp"]
    always = _digest([core / "CMakeLists.txt", *module], core)
    return {"parts": parts, "names": names, "always": always}


def _bindings(path: Path, core: Path) -> tuple[list[Path], set[str]]:
    """A file of bindings with what it includes of others, and what stands behind these headers;
    folders that all of them include.
    """
    found: set[str] = set()
    waiting, seen = [path], {path}
    while waiting:
        for folder, file in _INCLUDE.findall(waiting.pop().read_text(encoding="utf-8")):
            header = core / folder / file
            if folder != "bind":
                found.add(folder)
                continue
            new = {each for each in (header, header.with_suffix(".cpp")) if each.is_file()} - seen
            seen |= new
            waiting += new
    return sorted(seen), found


def _part(folder: Path) -> dict[str, Any]:
    files = _sources(folder)
    included = {part for path in files for part, _ in _INCLUDE.findall(path.read_text("utf-8"))}
    return {"digest": _digest(files, folder), "includes": sorted(included - {folder.name})}


def _sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in _KINDS)


def _digest(files: list[Path], base: Path) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(base)} ".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def main() -> None:
    """`sources.py CORE OUTPUT`: writes a C++ raw string, in pieces that compilers take."""
    core, output = Path(sys.argv[1]), Path(sys.argv[2])
    found = describe(core)
    found["version"] = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    text = json.dumps(found, sort_keys=True)
    pieces = [text[i : i + 4096] for i in range(0, len(text), 4096)]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n".join(f'R"~({piece})~"' for piece in pieces) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
