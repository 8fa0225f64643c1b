"""What the probes of block requests share: operations, columns, requests without an end, proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.probes import proof
from harness.probes.counters import BlockCounters
from harness.probes.lines import Output
from harness.probes.probe import WORD, Probe, integers
from harness.probes.proof import Printed, Tally

OPS: Final = {"R": "read", "W": "write", "D": "discard", "F": "flush", "N": "other"}
"""First letter of the kernel's rwbs, without the leading F of a preflush. `other` is what the
kernel has no letter for, such as writing zeroes; it counts these as writes."""

COLUMNS: Final = [
    *integers("issued_ns", "latency_ns", "completed_ns", "lba", "sectors"),
    pa.field("op", WORD),
]
"""issued_ns, completed_ns: since boot, null if it was not seen. latency_ns: first issue to last
completion, null if it is not known. lba, sectors: of 512 bytes."""

_FLUSH: Final = ord("F")
_LEAST_TIME_NS: Final = 4096
"""In place of a time, less than this is a number of requests."""

Waiting = tuple[int, int, int]
"""A request that was issued and whose end nobody saw: key (end << 8 | letter), time, sectors.

A count instead of a time stands for as many requests with the same end, and the sectors are what
they have together.
"""


@dataclass(frozen=True)
class BlockProbe(Probe):
    """Its rows are requests, in COLUMNS and others, which the kernel's counters must agree with."""

    counted: ClassVar[bool] = True
    times: ClassVar[tuple[str, ...]] = ("completed_ns", "issued_ns")

    def count(self, table: pa.Table, tally: Tally) -> None:
        """Requests and sectors per operation."""
        tally.add(table)

    def problems(
        self, tally: Tally, printed: Printed, kernel: BlockCounters, device: Mapping[str, int]
    ) -> list[str]:
        """All counters."""
        found = proof.of_counters(tally, printed, kernel)
        return found + proof.of_device(tally, printed, device)


def op_of(letter: int) -> str:
    """The operation of a key's last byte."""
    return OPS.get(chr(letter & 0xFF), "other")


def request_columns(
    completed: NDArray[np.int64],
    latency: NDArray[np.int64],
    lba: NDArray[np.int64],
    sectors: NDArray[np.int64],
    op: pa.Array,
) -> list[pa.Array]:
    """COLUMNS of requests that ended; a latency of 0 is not known."""
    unknown = latency == 0
    known = [pa.array(completed - latency, mask=unknown), pa.array(latency, mask=unknown)]
    return [*known, *map(pa.array, (completed, lba, sectors)), op]


def waiting(output: Output) -> list[Waiting]:
    """What the script's maps have as issued at its end. Flushes are counted where they begin."""
    entries = [*output.per_key("issued"), *output.per_key("second")]
    return [(key[0], value[0], value[1]) for key, value in entries if key[0] & 0xFF != _FLUSH]


def how_many(value: int) -> int:
    """The requests of a map's entry: one if it has a time, else as many as it says."""
    return 1 if value >= _LEAST_TIME_NS else value


def issued_before(value: int, start_ns: int) -> bool:
    """Whether a map's entry has a time, and it is before another."""
    return _LEAST_TIME_NS <= value < start_ns


def unseen_rows(schema: pa.Schema, entries: Sequence[Waiting]) -> pa.Table:
    """Requests that were issued and whose end nobody saw.

    Of several with the same end no more is known than what they have together.
    """
    rows: list[dict[str, object]] = []
    for key, value, sectors in entries:
        op, number = op_of(key), how_many(value)
        issued_ns = value if value >= _LEAST_TIME_NS else None
        each, rest = divmod(sectors, number)
        for size in [each + rest, *[each] * (number - 1)]:
            lba = 0 if op == "flush" else (key >> 8) - size
            rows.append({"issued_ns": issued_ns, "lba": lba, "sectors": size, "op": op})
    return pa.Table.from_pylist(rows, schema=schema)
