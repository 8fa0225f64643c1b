"""Loop devices over our files, each with a mark that nobody else has.

The mark is the name that the kernel keeps for a loop device (lo_file_name, linux/loop.h). It stays
when the file below has died or its mount has gone, when all that sysfs still says is "/". A loop
device is looked at and detached through one open descriptor: as long as that is open, its number
cannot become another's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.devices.live.front.base import QueueLimits
from harness.system import block_queue, loop_devices, writeback

LARGEST_REQUEST_BYTES: Final = 512 << 10
"""A loop device takes 128 pieces of memory at a time: what is larger is split where memory happens
to lie, differently every time."""

_BLOCK: Final = Path("/sys/block")
_OTHER: Final = 4
_LIMIT_S: Final = 3.0
_GLANCE_S: Final = 1.0
"""Others' losetup and udev open a loop device for a moment to look at it."""


def attach(file: Path) -> Path:
    """A new loop device over a file, with direct I/O; its mark is the file's path.

    One system call makes it: a process that is killed has made it or has not. Raises TargetError.
    """
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        # A kernel that does not ask for the size itself (6.12 is one) takes the one that it has
        # heard of, and of a FUSE file it has heard nothing: the loop device would be empty.
        os.fstat(fd)
        device, loop = loop_devices.attach(fd, _mark(file))
        os.close(loop)
    finally:
        os.close(fd)
    return device


def limit_queue(device: Path, limits: QueueLimits) -> None:
    """The block layer sees the drive that the limits are of, as far as the kernel lets it."""
    where = _BLOCK / device.name
    settings = (
        ("rotational", int(limits.rotational)),
        ("max_sectors_kb", LARGEST_REQUEST_BYTES >> 10),
        ("discard_max_bytes", limits.discard_bytes),
        ("scheduler", "none"),
        # A kernel (6.18) that has been told the scheduler says that it lets 128 in, lets in as many
        # as before, and takes 128 for nothing new: so another number first.
        ("nr_requests", _OTHER if limits.at_a_time != _OTHER else _OTHER + 1),
        ("nr_requests", limits.at_a_time),
    )
    for name, value in settings:
        with contextlib.suppress(OSError):  # a kernel that does not let it be set
            (where / "queue" / name).write_text(str(value))
    writeback.do_not_throttle(block_queue.number_of(device.name))


def _renew(device: Path) -> None:
    """Removes a loop device that nothing uses, so that whoever needs one gets it made anew.

    A queue's settings outlast what lies below it, and not all of them can be taken back: with a
    limit of 0 for discards the kernel (6.18) takes their granularity for 0 and refuses every other
    size, and it does not say how many requests it really lets in.
    """
    deadline = time.monotonic() + _GLANCE_S
    while not _is_removed(device) and time.monotonic() < deadline:
        time.sleep(0.01)


def _is_removed(device: Path) -> bool:
    """Tries to; also true if it is not ours any more: somebody has taken it, or was quicker."""
    try:
        loop_devices.remove(device)
    except OSError as error:
        return error.errno != errno.EBUSY or (_BLOCK / device.name / "loop").exists()
    return True


def over(file: Path) -> list[Path]:
    """Loop devices with this file's mark."""
    found = []
    for device in _candidates(file):
        with _opened(device) as loop:
            if loop is not None and _is_marked(loop, file):
                found.append(device)
    return sorted(found)


def detach(file: Path, limit_s: float = _LIMIT_S) -> list[Path]:
    """Detaches the loop devices over a file; returns those that are in use even after `limit_s`.

    These detach themselves as soon as the last user has gone. The others go altogether, with the
    queue of the drive that they stood for.
    """
    detached = []
    for device in _candidates(file):
        with _opened(device) as loop:
            if loop is not None and _is_marked(loop, file):
                detached.append(device)
                writeback.lift(block_queue.number_of(device.name))
                with contextlib.suppress(OSError):  # somebody else was quicker
                    loop_devices.clear(loop)
    deadline = time.monotonic() + limit_s
    while (left := over(file)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for device in detached:
        if device not in left:
            _renew(device)
    return left


def _candidates(file: Path) -> list[Path]:
    """Those that sysfs does not rule out; others' are not even opened."""
    possible = {str(file), "/"}
    found = []
    for backing in _BLOCK.glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if backing.read_text().rstrip("\n").removesuffix(" (deleted)") in possible:
                found.append(Path("/dev") / backing.parts[3])
    return found


@contextlib.contextmanager
def _opened(device: Path) -> Iterator[int | None]:
    try:
        fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _is_marked(loop: int, file: Path) -> bool:
    return loop_devices.name_of(loop) == _mark(file)


def _mark(file: Path) -> bytes:
    mark = os.fsencode(file)
    assert len(mark) <= loop_devices.LONGEST_NAME
    return mark
