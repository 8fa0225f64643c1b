"""Tables of the kernel's below /proc, in which names are bytes.

Of these the kernel escapes space, tab, newline and backslash, and nothing else (seq_path(),
fs/seq_file.c): by Python's own ideas of a line's or a word's end other white space cuts a name.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_GAP: Final = re.compile("[ \t]+")
_DELETED: Final = " (deleted)"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def lines(path: Path) -> list[str]:
    """A table's lines. Raises OSError."""
    return os.fsdecode(path.read_bytes()).rstrip("\n").split("\n")


def fields(line: str) -> list[str]:
    """A line's words, as they are."""
    return [_ESCAPED.sub(_character, word) for word in _GAP.split(line.strip(" \t"))]


def swaps(path: Path) -> list[Path]:
    """The devices and files of a table of swap (proc(5), /proc/swaps). Raises OSError."""
    names = [fields(line)[0] for line in lines(path)[1:]]
    return [Path(name.removesuffix(_DELETED)) for name in names]


def _character(octal: re.Match[str]) -> str:
    return chr(int(octal[1], 8))
