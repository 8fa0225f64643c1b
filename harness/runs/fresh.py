"""Whether what was made is still of its inputs: by content, so that nothing to do takes no time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.system.files import digest_of, write_atomically


def digest(places: Iterable[Path], *also: str) -> str:
    """Of files, and of all files in folders, by name and content; and of texts."""
    found = (path for place in places for path in _files(place))
    return digest_of(((str(path), path) for path in found), "\n".join(also))


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    elif place.is_dir():
        inside = (path for path in place.rglob("*") if "__pycache__" not in path.parts)
        yield from sorted(path for path in inside if path.is_file())


class Made:
    """What was made of which inputs, noted beside it; a note that cannot be read is none."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".made.json"

    def is_fresh(self, name: str, digest: str, product: Path) -> bool:
        """Whether it is there, and was made of these inputs."""
        return product.is_file() and self._notes().get(name) == digest

    def note(self, name: str, digest: str) -> None:
        """It is made."""
        notes = {**self._notes(), name: digest}
        write_atomically(self._path, (json.dumps(notes, indent=1) + "\n").encode())

    def _notes(self) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found
