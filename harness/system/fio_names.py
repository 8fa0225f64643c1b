"""How fio is told of a file: it takes one name for several if a colon is in it.

It opens, makes and overwrites each of these, and none of them need be ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.errors import TargetError

_SEPARATES: Final = ":\\"
"""What fio(1) makes several file names of one by, and what keeps it from that."""


def argument(path: Path) -> str:
    """The argument that names one file. Raises TargetError as `check`."""
    check(path)
    return f"--filename={path}"


def check(path: Path) -> None:
    """Raises TargetError for what fio takes for several names."""
    if any(character in str(path) for character in _SEPARATES):
        raise TargetError(
            f"{path}: fio takes a name with a colon or a backslash for several files, and would "
            "write to each: choose another path"
        )
