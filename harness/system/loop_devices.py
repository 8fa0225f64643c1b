"""Loop devices, each made by one system call: a process that is killed has made it or has not."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from pathlib import Path
from typing import Any, BinaryIO, Final

from harness.errors import TargetError

CONTROL: Final = Path("/dev/loop-control")
LONGEST_NAME: Final = 63

_CLR_FD: Final = 0x4C01
_GET_STATUS64: Final = 0x4C05
_CONFIGURE: Final = 0x4C0A
_CTL_ADD: Final = 0x4C80
_CTL_REMOVE: Final = 0x4C81
_CTL_GET_FREE: Final = 0x4C82
_AUTOCLEAR: Final = 4
_DIRECT_IO: Final = 16

# struct loop_info64: device, inode, rdevice, offset, sizelimit; number, encryption (2), flags;
# file name; the rest is about encryption.
_INFO: Final = struct.Struct("=5Q4I64s64s32s2Q")
_CONFIG_HEAD: Final = struct.Struct("=2I")
_CONFIG_TAIL: Final = bytes(64)
_ATTEMPTS: Final = 100
_GLANCE_S: Final = 0.01
"""Others' losetup and udev open a loop device for a moment to look at it."""


def attach(
    backing: int,
    name: bytes = b"",
    *,
    offset_bytes: int = 0,
    size_bytes: int = 0,
    is_temporary: bool = False,
) -> tuple[Path, int]:
    """A new loop device over an open file, with direct I/O, and a descriptor of it to be closed.

    The kernel makes it anew, with a queue of its own: one that is free keeps the settings of whom
    it was before, and so does one that a killed run has left and that went with its last user.

    `name`: what the kernel keeps as its name (lo_file_name). `size_bytes`: of the file from
    `offset_bytes` on; 0: all. `is_temporary`: it goes with its last user, however that ends.
    Raises TargetError.
    """
    assert len(name) <= LONGEST_NAME
    flags = _DIRECT_IO | (_AUTOCLEAR if is_temporary else 0)
    place = (0, 0, 0, offset_bytes, size_bytes)
    info = _INFO.pack(*place, 0, 0, 0, flags, name, b"", b"", 0, 0)
    for _ in range(_ATTEMPTS):
        if (made := _attach_free(_CONFIG_HEAD.pack(backing, 0) + info + _CONFIG_TAIL)) is not None:
            return made
        time.sleep(_GLANCE_S)
    raise TargetError(
        "every free loop device was taken by somebody else, or is held open, so that its queue may "
        "be set as somebody else left it: run this again"
    )


def _attach_free(config: bytes) -> tuple[Path, int] | None:
    """A loop device and a descriptor of it, or None if another was quicker."""
    device = None
    try:
        with CONTROL.open("rb") as control:
            number = fcntl.ioctl(control, _CTL_GET_FREE)
            device = Path(f"/dev/loop{number}")
            if not _is_made_anew(control, number):
                return None
        loop = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if device is not None and not Path(f"/sys/block/{device.name}").exists():
            return None  # somebody has just removed it
        raise TargetError(
            f"no loop device is left ({error.filename or CONTROL}: {error.strerror}): be root, "
            "detach one (losetup -l), or let this container have more of /dev/loop*"
        ) from error
    try:
        fcntl.ioctl(loop, _CONFIGURE, config)
    except OSError as error:
        os.close(loop)
        if error.errno == errno.EBUSY:
            return None
        raise TargetError(f"{device}: {error.strerror}: Linux 5.8 or newer is needed") from error
    return device, loop


def _is_made_anew(control: BinaryIO, number: int) -> bool:
    """Removes a free loop device and makes it again; False if somebody else has it meanwhile."""
    try:
        fcntl.ioctl(control, _CTL_REMOVE, number)
        fcntl.ioctl(control, _CTL_ADD, number)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENODEV, errno.EEXIST):
            raise
        return False
    return True


def clear(loop: int) -> None:
    """Detaches an open loop device; if somebody else has it open, it goes with the last of them."""
    fcntl.ioctl(loop, _CLR_FD)


def name_of(loop: int) -> bytes | None:
    """The name that the kernel keeps for an open loop device; None if it is over nothing."""
    status = _status(loop)
    return None if status is None else bytes(status[9]).split(b"\0")[0]


def is_over_device(path: Path) -> bool:
    """Whether a loop device is over a block device, and no file. Raises TargetError.

    The kernel says it of what it has open (lo_rdevice), whatever the path that it keeps leads to.
    """
    try:
        loop = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror}") from error
    try:
        status = _status(loop)
    finally:
        os.close(loop)
    return status is not None and status[2] != 0


def _status(loop: int) -> tuple[Any, ...] | None:
    """What the kernel says of an open loop device, as in `_INFO`; None if it is over nothing."""
    info = bytearray(_INFO.size)
    try:
        fcntl.ioctl(loop, _GET_STATUS64, info)
    except OSError:
        return None
    return _INFO.unpack(info)


def remove(device: Path) -> None:
    """The kernel forgets a loop device that nothing uses. Raises OSError if something does."""
    with CONTROL.open("rb") as control:
        fcntl.ioctl(control, _CTL_REMOVE, int(device.name.removeprefix("loop")))
