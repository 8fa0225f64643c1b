"""Discards, one row each: block_requests.COLUMNS, and the reads in flight at the issue."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from harness.errors import BadParameter
from harness.probes import analysis
from harness.probes.block_requests import (
    COLUMNS,
    BlockProbe,
    op_of,
    request_columns,
    unseen_rows,
    waiting,
)
from harness.probes.lines import Output
from harness.probes.probe import Ending, Raw, integers, numbers, words
from harness.probes.span import Span

_UNROLL: Final = 64
"""Processors that the script can add up: a loop of bpftrace has its length when it is compiled."""


@dataclass(frozen=True)
class Discards(BlockProbe):
    """The probe."""

    proven_op: ClassVar[str | None] = "discard"

    @property
    def fields(self) -> int:
        """End, latency, LBA, sectors, reads in flight."""
        return 5

    def arguments(self, device: Path, span: Span) -> list[str]:
        """The device's number, and how many processors count. Raises BadParameter if too many."""
        processors = os.cpu_count() or 1
        if processors > _UNROLL:
            raise BadParameter(
                f"the probe 'discards' counts for at most {_UNROLL} processors, here are "
                f"{processors}: record with block_io, it has all of it in its rows"
            )
        return [super().arguments(device, span)[0], str(processors)]

    def decode(self, raw: Raw) -> pa.Table:
        """The columns as they are, all of the same operation."""
        completed, latency, lba, sectors, reads = map(numbers, raw)
        op = words(["discard"], np.zeros(len(lba), np.int64))
        known = request_columns(completed, latency, lba, sectors, op)
        return pa.Table.from_arrays([*known, pa.array(reads)], schema=self.schema)

    def ending(self, output: Output, span: Span) -> Ending:
        """Discards without an end; it follows reads, too, but has no rows of them."""
        del span
        unseen = [entry for entry in waiting(output) if op_of(entry[0]) == "discard"]
        return Ending(others=[unseen_rows(self.schema, unseen)] if unseen else [])


PROBE: Final = Discards(
    __file__,
    "discards, and reads beside them",
    pa.schema([*COLUMNS, *integers("reads_in_flight")]),
    analysis.TABLES,
)
