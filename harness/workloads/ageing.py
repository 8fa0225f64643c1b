"""Ageing: a job that writes a region of a drive again and again before anything is measured.

MS-DJ paper, set-up: fio over a region of 40 GB. What it wrote stays, as far as the drive knows,
until somebody writes there again or discards it; mke2fs is told not to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.errors import BadParameter, UnknownName

PATTERNS: Final = {"random": "randwrite", "sequential": "write"}
"""Orders in which a region is written, and fio's names for them."""

_SECTOR_BYTES: Final = 512


@dataclass(frozen=True, kw_only=True)
class Ageing:
    """What is written where.

    region_bytes: how much of the drive, from begin_bytes on. written_bytes: how much is written to
    it; every block once before any one twice. block_bytes: of one write. pattern: one of PATTERNS;
    `seed` orders random ones.
    """

    region_bytes: int
    written_bytes: int
    block_bytes: int = 4096
    begin_bytes: int = 0
    pattern: str = "random"
    queue_depth: int = 32
    seed: int = 0

    def check(self, device_bytes: int) -> None:
        """Raises BadParameter for what does not fit a device of that size, UnknownName."""
        if self.pattern not in PATTERNS:
            raise UnknownName("pattern", self.pattern, PATTERNS)
        for name in ("region_bytes", "written_bytes", "block_bytes", "begin_bytes"):
            value = getattr(self, name)
            if value < (name != "begin_bytes") or value % _SECTOR_BYTES:
                raise BadParameter(
                    f"ageing: {name} {value}: must be a positive multiple of {_SECTOR_BYTES}"
                )
        if self.region_bytes % self.block_bytes or self.written_bytes % self.block_bytes:
            raise BadParameter(
                f"ageing: region_bytes {self.region_bytes} and written_bytes {self.written_bytes} "
                f"must be multiples of block_bytes {self.block_bytes}"
            )
        if self.begin_bytes + self.region_bytes > device_bytes:
            raise BadParameter(
                f"ageing: the region ends at {self.begin_bytes + self.region_bytes} B, the device "
                f"at {device_bytes} B: choose a smaller region"
            )


def job(ageing: Ageing) -> dict[str, str | int]:
    """Fio's options by name."""
    return {
        "rw": PATTERNS[ageing.pattern],
        "bs": ageing.block_bytes,
        "offset": ageing.begin_bytes,
        "size": ageing.region_bytes,
        "io_size": ageing.written_bytes,
        "direct": 1,
        "ioengine": "libaio",
        "iodepth": ageing.queue_depth,
        "randseed": ageing.seed + 1,
        "allrandrepeat": 1,
        "end_fsync": 1,
        "thread": 1,
    }
