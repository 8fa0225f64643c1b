"""A server process's own time: for how long it ran, or was ready to and waited for a processor.

What is left of the clock's time it slept, above all for a drive. Linux,
Documentation/scheduler/sched-stats.rst: /proc/<pid>/schedstat.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SCHEDSTAT: Final = "/proc/{}/schedstat"


@dataclass(frozen=True)
class Moment:
    """A time of CLOCK_BOOTTIME, in ns, and what a process of one thread has had until then, in ns.

    `runnable_ns`: running, or waiting for a processor. Of a process that runs just then the kernel
    has counted up to its last tick (1 to 10 ms). None where the kernel does not count it
    (CONFIG_SCHED_INFO).
    """

    at_ns: int
    runnable_ns: int | None

    def runnable_since(self, before: Moment) -> int | None:
        """For how long the process was runnable since then, in ns; None if it was not counted."""
        if self.runnable_ns is None or before.runnable_ns is None:
            return None
        return self.runnable_ns - before.runnable_ns


def moment(pid: int) -> Moment:
    """Now, of the process with this number."""
    return Moment(time.clock_gettime_ns(time.CLOCK_BOOTTIME), _runnable_ns(pid))


def _runnable_ns(pid: int) -> int | None:
    try:
        running, waiting, _ = Path(_SCHEDSTAT.format(pid)).read_text(encoding="ascii").split()
    except FileNotFoundError:
        return None
    return int(running) + int(waiting)
