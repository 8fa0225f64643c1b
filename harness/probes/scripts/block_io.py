"""Every request that a device completed, one row each.

Columns: block_requests.COLUMNS; flags, the kernel's letters (rwbs); error. A line has the time of
the end, latency << 24 | sectors, and LBA << 24 | code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from harness.probes import analysis
from harness.probes.block_requests import (
    COLUMNS,
    OPS,
    BlockProbe,
    request_columns,
    unseen_rows,
    waiting,
)
from harness.probes.lines import Output
from harness.probes.probe import WORD, Ending, Raw, numbers, words
from harness.probes.span import Span

_SECTOR_BITS: Final = 24
_LOW: Final = (1 << _SECTOR_BITS) - 1
_PREFLUSH: Final = 0x100000
_ERROR: Final = 0x200000


@dataclass(frozen=True)
class BlockIo(BlockProbe):
    """The probe."""

    @property
    def fields(self) -> int:
        """Three numbers, packed: a row costs the workload what its text costs."""
        return 3

    def decode(self, raw: Raw) -> pa.Table:
        """Unpacks them."""
        completed, packed, place = map(numbers, raw)
        codes, index = np.unique(place & _LOW, return_inverse=True)
        letters = [rwbs(int(code)) for code in codes]
        known = request_columns(
            completed,
            packed >> _SECTOR_BITS,
            place >> _SECTOR_BITS,
            packed & _LOW,
            words([op for op, _ in letters], index),
        )
        flags = words([flags for _, flags in letters], index)
        failed = (codes & _ERROR) != 0
        return pa.Table.from_arrays([*known, flags, pa.array(failed[index])], schema=self.schema)

    def ending(self, output: Output, span: Span) -> Ending:
        """Rows that had not filled an event, ends without an issue, and issues without an end."""
        fill = {key[0]: value[0] for key, value in output.per_key("fill")}
        rows = [v for key, v in output.per_key("row") if key[1] < fill.get(key[0], 0)]
        pieces = [value for _, value in output.per_key("piece")]
        ends = [(when, size, lba << _SECTOR_BITS | code) for lba, size, when, code in pieces]
        unseen = waiting(output)
        return Ending(
            printed=self._decoded(rows),
            others=self._decoded(ends) + ([unseen_rows(self.schema, unseen)] if unseen else []),
            empty_writes=span.counted(output, "empty"),
            flushes_begun=span.counted(output, "flushes_begun"),
        )

    def _decoded(self, rows: Sequence[Sequence[int]]) -> list[pa.Table]:
        columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
        return [self.decode(columns)] if columns else []


def rwbs(code: int) -> tuple[str, str]:
    """The operation's name and the kernel's letters of a request, of the code in a line."""
    letters = "".join(chr(64 + (code >> 5 * i & 31)) for i in range(4)).rstrip("@")
    return OPS.get(letters[:1], "other"), ("F" if code & _PREFLUSH else "") + letters


PROBE: Final = BlockIo(
    __file__,
    "every request of a device",
    pa.schema([*COLUMNS, pa.field("flags", WORD), pa.field("error", pa.bool_())]),
    analysis.TABLES,
)
