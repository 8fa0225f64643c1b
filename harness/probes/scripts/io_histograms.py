"""Latencies and sizes of a device's requests, per phase and operation, counted in the kernel.

Columns: phase, op, measure (latency_ns or size_sectors), from_value and to_value (inclusive),
count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa

from harness.probes.block_requests import BlockProbe, how_many, issued_before, op_of, waiting
from harness.probes.lines import JsonMaps, Output
from harness.probes.probe import Ending, Raw, integers
from harness.probes.proof import Tally
from harness.probes.span import Span


@dataclass(frozen=True)
class IoHistograms(BlockProbe):
    """The probe."""

    json: ClassVar[bool] = True
    times: ClassVar[tuple[str, ...]] = ()
    recountable: ClassVar[bool] = False

    @property
    def fields(self) -> int:
        """No lines are rows."""
        return 0

    def decode(self, raw: Raw) -> pa.Table:
        """No rows."""
        del raw
        return self.schema.empty_table()

    def count(self, table: pa.Table, tally: Tally) -> None:
        """A row is a bin; its requests are counted of the maps, at the end."""

    def ending(self, output: Output, span: Span) -> Ending:
        """All of it: the rows of the span's phases, and what they moved."""
        assert isinstance(output, JsonMaps)
        rows = list(_bins(output, span))
        moved = Tally(first_writes=span.counted(output, "first"))
        for row in rows:
            moved.of(row["op"]).ios += row["count"] if row["measure"] == "size_sectors" else 0
        for (phase, letter), (sectors, *_) in output.per_key("sectors"):
            if span.phase(phase) is not None:
                moved.of(op_of(letter)).sectors += sectors
        for key, value, sectors in waiting(output):
            if not issued_before(value, span.start_ns):
                moved.of(op_of(key)).ios += how_many(value)
                moved.of(op_of(key)).sectors += sectors
        return Ending(
            printed=[pa.Table.from_pylist(rows, schema=self.schema)],
            moved=moved,
            empty_writes=span.counted(output, "empty"),
            flushes_begun=span.counted(output, "flushes_begun"),
        )


def _bins(output: JsonMaps, span: Span) -> Iterator[dict[str, Any]]:
    for measure, by_key in output.histograms.items():
        for key, bins in by_key.items():
            number, letter = (int(n) for n in key.split(","))
            phase = span.phase(number)
            for low, high, count in bins if phase is not None else []:
                row = (phase, op_of(letter), measure, low, high, count)
                yield dict(zip(PROBE.schema.names, row, strict=True))


PROBE: Final = IoHistograms(
    __file__,
    "latencies and sizes per phase, counted in the kernel: long runs",
    pa.schema(
        [
            *(pa.field(name, pa.string()) for name in ("phase", "op", "measure")),
            *integers("from_value", "to_value", "count"),
        ]
    ),
)
