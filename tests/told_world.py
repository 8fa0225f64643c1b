"""What a front end says that it makes of requests is what the device sees."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import time
from collections.abc import Callable

from harness.devices.live import LiveDevice
from harness.devices.live.front.base import Told


def check(device: LiveDevice, told: Told) -> None:
    """Asks the block device for one thing after the other, and counts what arrives."""

    def seen(do: Callable[[], object]) -> dict[str, int]:
        _wait_for_udev(device)
        device.reset()
        do()
        replies = device.stats()["live"]
        ops = ("read", "write", "trim", "flush")
        return {op: replies[f"{op}_replies"] for op in ops if replies[f"{op}_replies"]}

    largest = told.largest_request_bytes
    fd = os.open(device.path, os.O_RDWR | os.O_DIRECT)
    try:
        assert seen(lambda: os.pwrite(fd, aligned(largest), 0)) == {"write": 1}
        assert seen(lambda: os.preadv(fd, [aligned(largest)], 0)) == {"read": 1}
        # How many more than that depends on where the memory lies (BIO_MAX_VECS).
        split = seen(lambda: os.pwrite(fd, aligned(4 * largest), 0))
        assert split.keys() == {"write"}
        assert split["write"] >= 4
    finally:
        os.close(fd)
    fd = os.open(device.path, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
    try:
        # The system call flushes once more, at its end, whatever became of its write.
        flushes = {"fua": 1, "write and flush": 2}[told.fua]
        durable = seen(lambda: os.pwrite(fd, aligned(4096), 0))
        assert durable == {"write": 1, "flush": flushes}
    finally:
        os.close(fd)
    zero = ["fallocate", "--punch-hole", "--offset", "0", "--length", "65536", str(device.path)]
    zeroed = seen(lambda: subprocess.run(zero, check=True))
    assert told.write_zeroes in zeroed


def _wait_for_udev(device: LiveDevice) -> None:
    """It reads a device that is new, or that somebody could write to has closed."""
    if udevadm := shutil.which("udevadm"):
        subprocess.run([udevadm, "settle"], check=False)  # fails where no udevd runs
    seen = None
    while seen != (now := device.stats()["live"]["read_replies"]):
        seen = now
        time.sleep(0.1)


def aligned(size_bytes: int) -> mmap.mmap:
    """Zeros in memory, as direct I/O wants them."""
    return mmap.mmap(-1, size_bytes)
