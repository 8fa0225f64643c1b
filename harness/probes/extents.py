"""Files' extents, from a recording of the probe `ext4_extents`.

ext4 allocates a file in pieces; an extent here is what is contiguous in the file and on the device
when the file loses its first block. An inode that is used again is another file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.parquet as pq

_DATA: Final = 0x20
"""EXT4_MB_HINT_DATA (fs/ext4/ext4.h): blocks of a regular file, not of its tree or of a folder."""

_TREE: Final = 0x1
"""EXT4_FREE_BLOCKS_METADATA: a block of a file's tree, which also goes when extents are merged."""

_COLUMNS: Final = ("event", "time_ns", "inode", "logical_block", "block", "blocks", "flags")


@dataclass(frozen=True)
class Piece:
    """What one allocation gave a file, in blocks of the file system."""

    logical_block: int
    block: int
    blocks: int


@dataclass
class File:
    """A file's allocations in their order. `freed_ns` 0: it still has all of them."""

    inode: int
    created_ns: int
    pieces: list[Piece] = field(default_factory=list)
    freed_ns: int = 0

    def extents(self) -> list[Piece]:
        """The pieces by their place in the file, joined where they are contiguous."""
        joined: list[Piece] = []
        for piece in sorted(self.pieces, key=lambda p: p.logical_block):
            last = joined[-1] if joined else None
            if (
                last
                and last.logical_block + last.blocks == piece.logical_block
                and last.block + last.blocks == piece.block
            ):
                whole = last.blocks + piece.blocks
                joined[-1] = Piece(last.logical_block, last.block, whole)
            else:
                joined.append(piece)
        return joined


def files(recording: Path) -> list[File]:
    """All files that were given blocks, in the order of their first one."""
    table = pq.read_table(recording, columns=list(_COLUMNS)).sort_by("time_ns")
    columns = [table[name].to_pylist() for name in _COLUMNS]
    found: list[File] = []
    present: dict[int, File] = {}
    for event, time_ns, inode, logical, block, blocks, flags in zip(*columns, strict=True):
        if event == "allocate" and flags & _DATA and blocks:  # 0: there were none to be had
            file = present.get(inode)
            if file is None or file.freed_ns:
                file = present[inode] = File(inode, time_ns)
                found.append(file)
            file.pieces.append(Piece(logical, block, blocks))
        elif event == "free" and not flags & _TREE and inode in present:
            file = present[inode]
            file.freed_ns = file.freed_ns or time_ns
    return found


def length_histogram(lengths: Iterable[int]) -> list[int]:
    """How many lengths (at least 1) are in [2^i, 2^(i+1)), for each i up to the longest."""
    values = np.fromiter(lengths, dtype=np.int64)
    if not len(values):
        return []
    return [int(n) for n in np.bincount(np.floor(np.log2(values)).astype(np.int64))]


def freed_within(found: Sequence[File], begin_ns: int, end_ns: int) -> list[File]:
    """Those that lost their first block in a span of boot time, half-open."""
    return [file for file in found if begin_ns <= file.freed_ns < end_ns]
