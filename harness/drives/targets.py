"""What may be overwritten, and the destructive steps that are taken on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.errors import TargetError


@dataclass(frozen=True)
class Step:
    """One destructive step, as it is shown in a plan and run by the guard.

    `command`: argv as it is run, and shown literally. `written_bytes`: what it writes at most.
    """

    what: str
    command: tuple[str, ...]
    written_bytes: int
    expected_s: float

    def check_names(self, path: Path) -> None:
        """Raises TargetError unless a word of its command, or an option's value, is this path.

        A step is made before the drive is held, and what a node stands for may change meanwhile.
        """
        if not any(str(path) in (word, word.partition("=")[2]) for word in self.command):
            raise TargetError(
                f"'{self.what}' was planned for another device than {path} "
                f"({' '.join(self.command)}): refused; plan again"
            )


class Target(Protocol):
    """What may be overwritten, and whether it still may."""

    @property
    def path(self) -> Path:
        """A block device or file, as fio, mkfs and so on open it."""
        ...

    @property
    def size_bytes(self) -> int:
        """Of what lies at `path`."""
        ...

    def permit(self, step: str, written_bytes: int) -> None:
        """Before every destructive step: it still is the drive, and may be written so much more.

        Raises TargetError.
        """
        ...
