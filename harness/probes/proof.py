"""Whether a recording is complete: rows against the script's own totals and the kernel's counters.

Pure: takes what was counted, gives what disagrees.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from harness.probes.counters import SECTOR_BYTES, BlockCounters


@dataclass
class Moved:
    """Requests and sectors of one operation."""

    ios: int = 0
    sectors: int = 0


@dataclass
class Tally:
    """What is in a trace.

    ops: per operation. rows: as printed, those outside of the recorded span too. outside: of
    these, how many. unknown: rows of unknown latency. first_writes: writes at LBA 0.
    """

    ops: dict[str, Moved] = field(default_factory=dict)
    rows: int = 0
    outside: int = 0
    unknown: int = 0
    first_writes: int = 0

    def of(self, op: str) -> Moved:
        """What one operation moved, to be added to."""
        return self.ops.setdefault(op, Moved())

    def add(self, table: pa.Table) -> None:
        """Counts requests that are in the trace."""
        groups = table.select(["op", "sectors"]).group_by("op")
        for row in groups.aggregate([("sectors", "sum"), ("sectors", "count")]).to_pylist():
            moved = self.of(row["op"])
            moved.ios += row["sectors_count"]
            moved.sectors += row["sectors_sum"]
        self.unknown += table["latency_ns"].null_count
        first = pc.and_(pc.equal(table["lba"], 0), pc.equal(table["op"].cast(pa.string()), "write"))
        self.first_writes += pc.sum(first).as_py() or 0

    def merge(self, other: Tally) -> None:
        """Adds what is in no row."""
        for op, moved in other.ops.items():
            self.of(op).ios += moved.ios
            self.of(op).sectors += moved.sectors
        self.first_writes += other.first_writes


def as_facts(tally: Tally) -> dict[str, dict[str, int]]:
    """What each operation moved, as a trace says it of itself."""
    return {op: asdict(moved) for op, moved in tally.ops.items()}


@dataclass(frozen=True)
class Printed:
    """What the script and bpftrace said at the end."""

    lost: int = 0
    bad: int = 0
    ended: bool = True
    rows: int | None = None
    empty_writes: int = 0
    flushes_unseen: int = 0


_WRITES: Final = ("write", "other")


def of_output(tally: Tally, printed: Printed) -> list[str]:
    """What is wrong with the output by itself."""
    problems = []
    if not printed.ended:
        problems.append("bpftrace ended before its script did")
    if printed.lost:
        problems.append(f"bpftrace lost {printed.lost} events")
    if printed.bad:
        problems.append(f"{printed.bad} lines could not be read")
    if printed.rows is not None and printed.rows != tally.rows:
        problems.append(f"the script printed {printed.rows} rows, {tally.rows} arrived")
    return problems


def of_counters(tally: Tally, printed: Printed, kernel: BlockCounters) -> list[str]:
    """Where rows and the kernel's counters of the device disagree.

    Writes: the kernel counts a flush without data as a write of no sectors, which is no row; the
    script counts these apart (`empty_writes`). It cannot tell them from the second end of a write
    at LBA 0 that was flushed, and nothing else says that it missed one, so where there were
    flushes the number of writes is bounded from below only. Their sectors must agree in any case.
    """
    wanted = {
        "read": (kernel.read_ios, kernel.read_sectors),
        "write": (kernel.write_ios, kernel.write_sectors),
        "discard": (kernel.discard_ios, kernel.discard_sectors),
        "flush": (kernel.flush_ios, 0),
    }
    problems = []
    for op, (ios, sectors) in wanted.items():
        low, high, moved = _span(tally, printed, op)
        if not low <= ios <= high:
            rows = f"{low}" if low == high else f"at least {low}"
            kind = "flushes" if op == "flush" else f"{op}s"
            problems.append(f"{kind}: {rows} by the trace, {ios} by /sys/block")
        if moved != sectors:
            problems.append(f"{op} sectors: {moved} by the trace, {sectors} by /sys/block")
    return problems


def _span(tally: Tally, printed: Printed, op: str) -> tuple[int, int, int]:
    """Least and greatest number of requests that the kernel may have counted, and the sectors."""
    names = _WRITES if op == "write" else (op,)
    moved = [tally.ops.get(name, Moved()) for name in names]
    ios, sectors = sum(m.ios for m in moved), sum(m.sectors for m in moved)
    if op == "flush":
        return ios + printed.flushes_unseen, ios + printed.flushes_unseen, 0
    if op != "write":
        return ios, ios, sectors
    ios += printed.empty_writes
    ambiguous = min(tally.first_writes, printed.empty_writes)
    flushed = printed.empty_writes or tally.ops.get("flush", Moved()).ios
    return ios - ambiguous, sys.maxsize if flushed else ios, sectors


_DEVICE: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "read_ios": (("read",), "ios"),
    "write_ios": (("write",), "ios"),
    "trim_ios": (("discard",), "ios"),
    "flush_ios": (("flush",), "ios"),
    "read_bytes": (("read",), "sectors"),
    "write_bytes": (("write",), "sectors"),
    "trim_bytes": (("discard",), "sectors"),
}


def of_device(tally: Tally, printed: Printed, moved: Mapping[str, Any]) -> list[str]:
    """Where rows and the device's own counters disagree: those of the known names that it has."""
    problems = []
    for name, (ops, what) in _DEVICE.items():
        if name not in moved:
            continue
        mine = sum(getattr(tally.ops.get(op, Moved()), what) for op in ops)
        mine = mine * SECTOR_BYTES if what == "sectors" else mine
        mine += printed.flushes_unseen if name == "flush_ios" else 0
        if mine != int(moved[name]):
            problems.append(f"{name}: {mine} by the trace, {moved[name]} by the device")
    return problems
