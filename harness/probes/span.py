"""The recorded span of time, and the phases that it falls into."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from harness.probes.lines import Output


class Span:
    """Boot times [start_ns, end_ns) in ns, 0 and None while it has not begun and not ended.

    marks: (name, boot time in ns) of each phase's begin. token: what the script takes for a mark.
    """

    def __init__(self) -> None:
        self.token = f"fl{os.getpid() % 10**6:06d}{time.monotonic_ns() % 10**6:06d}"
        self.start_ns = 0
        self.end_ns: int | None = None
        self.marks: list[tuple[str, int]] = []

    def mark(self, name: str) -> None:
        """Begins a phase."""
        self._switch_phase()
        self.marks.append((name, time.clock_gettime_ns(time.CLOCK_BOOTTIME)))

    def _switch_phase(self) -> None:
        """The kernel tells the script when a thread gets a name: the one mark that costs others
        nothing, and that has been seen when the call returns.
        """
        comm = Path("/proc/thread-self/comm")
        before = comm.read_text()
        comm.write_text(self.token)
        comm.write_text(before)

    def phase(self, number: int) -> str | None:
        """The name of a phase as the script numbers them; None before the first and after the
        last.
        """
        return self.marks[number - 1][0] if 0 < number < len(self.marks) else None

    def counted(self, output: Output, name: str) -> int:
        """The sum of a counter that the script keeps per phase."""
        entries = output.per_key(name)
        return sum(value[0] for key, value in entries if self.phase(key[0]) is not None)

    def rows(self, table: pa.Table, times: Sequence[str]) -> pa.Table:
        """The rows whose time is in the span: the first of these columns that a row has.

        A row without any is in it, and every row is if there are no such columns.
        """
        if not self.start_ns:  # still starting: whatever there is was before
            return table.slice(0, 0)
        if not times:
            return table
        moments = pc.coalesce(*(table[name] for name in times), pa.scalar(self.start_ns))
        keep = pc.greater_equal(moments, self.start_ns)
        if self.end_ns is not None:
            keep = pc.and_(keep, pc.less(moments, self.end_ns))
        return table.filter(keep)
