"""What is to keep a database page whole when the power fails while it is written.

InnoDB's doublewrite buffer writes each page twice. ext4's data journal writes each block twice, and
is said to make the doublewrite buffer unnecessary (MS-DJ paper, sections 2 and 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harness.errors import UnknownName


@dataclass(frozen=True)
class PageWrites:
    """A mode: ext4's journal mode, InnoDB's doublewrite, and the journal's stream on the drive.

    `journal_stream`: the journal's blocks go to a stream of their own. `file_system_block_bytes`:
    what ext4 journals as one.
    """

    title: str
    journal_mode: str
    doublewrite: bool
    journal_stream: bool = False
    file_system_block_bytes: int = 4096


MODES: Final[Mapping[str, PageWrites]] = {
    "oj_dwb": PageWrites("OJ + DWB", "ordered", doublewrite=True),
    "oj": PageWrites("OJ - DWB", "ordered", doublewrite=False),
    "dj": PageWrites("DJ - DWB", "journal", doublewrite=False),
    "msdj": PageWrites("MS-DJ - DWB", "journal", doublewrite=False, journal_stream=True),
    "dj_16k": PageWrites(
        "DJ - DWB, 16 KiB blocks", "journal", doublewrite=False, file_system_block_bytes=16384
    ),
}
"""The paper's three modes, the control without protection, and a file-system block per page."""


def find(name: str) -> PageWrites:
    """A mode by its name. Raises UnknownName."""
    if name not in MODES:
        raise UnknownName("mode", name, MODES)
    return MODES[name]
