"""What the kernel counts of a block device by itself: `/sys/block/DEV/stat`. Needs no root."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from harness.errors import TargetError
from harness.system import kernel_partitions

SECTOR_BYTES: Final = 512
"""Unit of every sector count of the block layer, whatever the device's own block is."""

_MULTIPATH: Final = "nvme-subsystem"
_SETTLE_S: Final = 0.005
_SYSFS: Final = Path("/sys/dev/block")


@dataclass(frozen=True)
class BlockCounters:
    """Requests completed and sectors moved since the device exists, or between two readings.

    `ios` are requests after merging. A flush that carries no data counts as one write of no
    sectors for each caller, and as one flush for each that the device got.
    Linux, Documentation/block/stat.rst.
    """

    read_ios: int
    read_merges: int
    read_sectors: int
    write_ios: int
    write_merges: int
    write_sectors: int
    discard_ios: int
    discard_merges: int
    discard_sectors: int
    flush_ios: int

    def __sub__(self, before: BlockCounters) -> BlockCounters:
        names = [field.name for field in fields(self)]
        return BlockCounters(**{n: getattr(self, n) - getattr(before, n) for n in names})


def block_device(path: Path) -> Path:
    """The sysfs folder of a whole block device. Raises TargetError for anything else.

    The part of a claimed drive that is not its header stands for the drive: nobody else uses it.
    With the kernel's own NVMe multipath (drivers/nvme/host/multipath.c) requests are those of
    hidden devices, whose numbers it does not tell.
    """
    try:
        info = path.stat()
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror}: name a block device") from error
    if not stat.S_ISBLK(info.st_mode):
        raise TargetError(f"{path} is not a block device: name one, such as /dev/loop0")
    folder = _SYSFS / f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"
    if _MULTIPATH in folder.resolve().parts:
        raise TargetError(
            f"{path}: this kernel hides the requests of an NVMe drive that may have several paths: "
            "boot with nvme_core.multipath=N"
        )
    if not (folder / "partition").exists():
        return folder
    if kernel_partitions.is_claimed_part(folder):
        return folder.resolve().parent
    raise TargetError(f"{path} is a partition: the kernel counts whole devices, name that one")


def begin_sector(path: Path) -> int:
    """Where a block device begins on the drive whose requests the kernel shows."""
    info = path.stat()
    start = _SYSFS / f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}" / "start"
    return int(start.read_text()) if start.is_file() else 0


def kernel_number(path: Path, *, of_requests: bool = True) -> int:
    """The device's number as tracepoints have it (dev_t of the kernel: 12 and 20 bits).

    Requests have the drive's, a file system the partition's that it lies on.
    """
    number = path.stat().st_rdev
    major, minor = os.major(number), os.minor(number)
    if of_requests:
        major, minor = (int(n) for n in (block_device(path) / "dev").read_text().split(":"))
    return major << 20 | minor


def queues(path: Path) -> int:
    """How many hardware queues the drive has; 1 of one that the kernel gives none."""
    return max(1, len(list((block_device(path) / "mq").glob("[0-9]*"))))


def read(path: Path) -> BlockCounters:
    """The device's counters now. Raises TargetError."""
    numbers = [int(text) for text in (block_device(path) / "stat").read_text().split()]
    if len(numbers) < 17:
        raise TargetError(f"{path}: this kernel does not count flushes: use Linux 5.5 or newer")
    kept = [*numbers[0:3], *numbers[4:7], *numbers[11:14], numbers[15]]
    names = [field.name for field in fields(BlockCounters)]
    return BlockCounters(**dict(zip(names, kept, strict=True)))


def in_flight(path: Path) -> int:
    """Requests that the device has and has not answered."""
    return sum(int(n) for n in (block_device(path) / "inflight").read_text().split())


def unchanged(path: Path, since: BlockCounters) -> bool:
    """Whether nothing has begun, and nothing has ended, since these were its counters at rest."""
    return not in_flight(path) and read(path) == since


def quiet(path: Path, timeout_s: float) -> tuple[BlockCounters, int]:
    """Waits until nothing is in flight and nothing ends; the counters then, and the boot time (ns).

    Two readings of the counters, a few milliseconds apart, must agree, and nothing may be in flight
    around them: so every request has ended before the returned time, counters and all, or begins
    after it. Raises TargetError if the device is not left alone within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        before = read(path)
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        busy = in_flight(path)
        time.sleep(_SETTLE_S)  # not a wait for an event: the time in which nothing may change
        if not busy and unchanged(path, before):
            return before, now_ns
        if time.monotonic() > deadline:
            raise TargetError(
                f"{path} is not left alone: requests are still in flight after {timeout_s:g} s; "
                "record while nobody else uses the device, or stop the workload first"
            )
