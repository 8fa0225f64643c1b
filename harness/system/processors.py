"""How busy this machine's processors are, as the kernel counts them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
_COUNTED: Final = 8
"""user, nice, system, idle, iowait, irq, softirq, steal; what guests take is part of user's."""

_IDLE: Final = (3, 4)


@dataclass(frozen=True)
class ProcessorTimes:
    """Of all processors together since the machine started, in the kernel's ticks."""

    busy: int
    all: int

    def busy_ratio_since(self, before: ProcessorTimes) -> float:
        """Which part of the processors' time was used, or taken by other machines; 0 of none."""
        passed = self.all - before.all
        return (self.busy - before.busy) / passed if passed else 0.0


def read(stat: Path = _STAT) -> ProcessorTimes:
    """What has been counted until now. Raises OSError."""
    first = stat.read_text(encoding="ascii").partition("\n")[0]
    ticks = [int(word) for word in first.split()[1:][:_COUNTED]]
    idle = sum(ticks[at] for at in _IDLE)
    return ProcessorTimes(busy=sum(ticks) - idle, all=sum(ticks))
