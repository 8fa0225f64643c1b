"""How busy this machine's processors are, as the kernel counts them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
_COUNTED: Final = 8
"""user, nice, system, idle, iowait, irq, softirq, steal; what guests take is part of user's."""

_FREE: Final = (1, 3, 4)
"""Idle, waiting for a drive, or at work that is `nice`: that gives way to what is measured."""


@dataclass(frozen=True)
class ProcessorTimes:
    """Of all processors together since the machine started, in the kernel's ticks."""

    busy: int
    all: int

    def busy_ratio_since(self, before: ProcessorTimes) -> float:
        """Which part of their time was used, but for niced work, or taken by other machines."""
        passed = self.all - before.all
        return (self.busy - before.busy) / passed if passed else 0.0


def read(stat: Path = _STAT) -> ProcessorTimes:
    """What has been counted until now. Raises OSError."""
    first = stat.read_text(encoding="ascii").partition("\n")[0]
    ticks = [int(word) for word in first.split()[1:][:_COUNTED]]
    free = sum(ticks[at] for at in _FREE)
    return ProcessorTimes(busy=sum(ticks) - free, all=sum(ticks))
