"""The recorded requests of a run with a data journal, on other drives: what a stream is worth.

TpmC mixes what the drive can do with what the server waits for. Here the kernel's own requests of a
run (its block trace) go to a drive as fast as that takes them, eight at a time, as many as there
were connections. What is left is the drive: its time, and its write amplification, with the journal
in a stream of its own and without.

A trace holds the measured interval and nothing of what was before it. So the drive is filled in
order and takes all requests twice; the second time counts. What the server's load and its order
left on flash is not in it: write amplification is some per cent below the run's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.devices.model import Device
from harness.devices.profiles import NamedRange, SsdProfile
from harness.devices.write_shares import REST, Share, Shares, since
from harness.errors import BadParameter, TraceError
from harness.probes import analysis
from harness.units import format_bytes
from harness.workloads.traces import Chunk, Op, from_arrays

QUEUE_DEPTH: Final = 8
_PAGE_BYTES: Final = 4096
"""Of ext4's journal."""

_PAGE_SECTORS: Final = _PAGE_BYTES // 512
_SQL: Final = """
    SELECT op = 'write' AS is_write, lba::BIGINT AS lba, sectors::BIGINT AS sectors
    FROM trace WHERE op IN ('read', 'write') ORDER BY issued_ns, lba
"""


@dataclass(frozen=True)
class Requests:
    """Reads and writes in the order in which the kernel issued them: equally long 1-D arrays.

    `op`: uint8, as in traces. `lba`, `sectors`: int64, in sectors of 512 B.
    """

    op: NDArray[np.uint8]
    lba: NDArray[np.int64]
    sectors: NDArray[np.int64]

    @classmethod
    def of(cls, trace: Path) -> Requests:
        """Those of a block trace (probes, block_io). Raises TraceError."""
        rows = analysis.query(trace, _SQL)
        if not rows.is_write.any():
            raise TraceError(str(trace), 1, "has no write")
        op = np.where(rows.is_write, np.uint8(Op.WRITE), np.uint8(Op.READ))
        return cls(op, rows.lba.to_numpy(), rows.sectors.to_numpy())

    def chunks(self) -> Iterator[Chunk]:
        """As a trace without times, for a replay at a queue depth."""
        none = np.zeros(len(self.op), np.int64)
        return from_arrays(
            {"time_ns": none, "op": self.op, "lba": self.lba, "sectors": self.sectors}
        )

    def journal_of(self, size_bytes: int) -> tuple[int, int]:
        """Bytes [begin, end) of the place of that size that was written most.

        That is ext4's journal: in one piece, as mke2fs makes it, and written all over again and
        again. Raises BadParameter for a size that is no whole number of its pages, or more than
        was written.
        """
        writes = self.op == np.uint8(Op.WRITE)
        first = self.lba[writes] // _PAGE_SECTORS
        behind = -(-(self.lba[writes] + self.sectors[writes]) // _PAGE_SECTORS)
        pages, rest = divmod(size_bytes, _PAGE_BYTES)
        if rest or not 0 < pages <= behind.max():
            raise BadParameter(f"no journal of {format_bytes(size_bytes)} is in these requests")
        steps = np.zeros(behind.max() + 1, np.int64)
        np.add.at(steps, first, 1)
        np.add.at(steps, behind, -1)
        before = np.concatenate(([0], np.cumsum(np.cumsum(steps))))
        begin = int(np.argmax(before[pages:] - before[:-pages]))
        return begin * _PAGE_BYTES, (begin + pages) * _PAGE_BYTES


@dataclass(frozen=True)
class Replayed:
    """What a drive made of the requests: its own time, and bytes programmed over bytes written."""

    elapsed_s: float
    waf_ratio: float
    journal_waf_ratio: float


def replay(profile: SsdProfile, requests: Requests, journal: tuple[int, int]) -> Replayed:
    """The requests on a drive of that profile; with placement `range` the journal has stream 1.

    Raises BadParameter for a drive that they do not fit into, or that has no second stream.
    """
    stream = int(profile.parameters.placement.value == "range")
    device = Device(profile)
    device.precondition(fill_ratio=1.0)
    device.set_ranges([NamedRange("journal", *journal, stream)])
    device.replay(requests.chunks(), queue_depth=QUEUE_DEPTH)
    before, begin_ns = _shares(device), device.now_ns
    device.replay(requests.chunks(), queue_depth=QUEUE_DEPTH)
    made = since(_shares(device), before)
    whole = made["journal"] + made[REST]
    return Replayed((device.now_ns - begin_ns) / 1e9, whole.waf, made["journal"].waf)


def _shares(device: Device) -> Shares:
    frame = device.shares().query("kind == 'range'").set_index("name")
    parts = frame[[field.name for field in fields(Share)]]
    return {str(row.Index): Share(*map(int, row[1:])) for row in parts.itertuples()}
