"""Two partitions that only the kernel knows: the header that marks a drive as ours, and the rest.

Nothing is written for them. The header's is held exclusively for as long as a run lasts, so that
nobody else can take the drive, while file systems may be mounted on the rest of it. BLKPG:
include/uapi/linux/blkpg.h; exclusive opens: open(2), O_EXCL without O_CREAT.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import TargetError

SECTOR_BYTES: Final = 512
"""sysfs counts in these, whatever the drive's own sectors are."""

HEADER_BYTES: Final = 1 << 20
"""What lies before this offset on a claimed drive belongs to the guard."""

MARKER: Final = b"FLASHLAB CLAIMED DRIVE: everything on this drive may be overwritten\n"

HEADER, DATA = 1, 2
_SYSFS: Final = Path("/sys/dev/block")
_BLKPG: Final = 0x1269
_ADD, _DELETE = 1, 2


class _InUse(TargetError):
    """Somebody has it mounted or open."""


class _Partition(ctypes.Structure):
    _fields_ = (
        ("start", ctypes.c_longlong),
        ("length", ctypes.c_longlong),
        ("pno", ctypes.c_int),
        ("devname", ctypes.c_char * 64),
        ("volname", ctypes.c_char * 64),
    )


class _Argument(ctypes.Structure):
    _fields_ = (
        ("op", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("datalen", ctypes.c_int),
        ("data", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Extent:
    """A partition's place: number, first byte, bytes."""

    number: int
    begin_bytes: int
    length_bytes: int


def layout(size_bytes: int) -> tuple[Extent, Extent]:
    """The two partitions of a drive of that size; the second ends at a whole MiB."""
    data_bytes = (size_bytes - HEADER_BYTES) // (1 << 20) * (1 << 20)
    return Extent(HEADER, 0, HEADER_BYTES), Extent(DATA, HEADER_BYTES, data_bytes)


def found(disk: Path) -> tuple[Extent, ...]:
    """The partitions that the kernel has of a disk, by its folder in sysfs; by number."""
    extents = [
        Extent(_number(part / "partition"), _bytes(part / "start"), _bytes(part / "size"))
        for part in disk.iterdir()
        if (part / "partition").exists()
    ]
    return tuple(sorted(extents, key=lambda extent: extent.number))


def is_claimed_part(part: Path) -> bool:
    """Whether a partition, by its folder in sysfs, is what experiments use of a claimed drive."""
    disk = part.resolve().parent
    ours = layout(_bytes(disk / "size"))
    return found(disk) == ours and _number(part / "partition") == DATA


def add(fd: int, extent: Extent) -> None:
    """Tells the kernel of a partition of the open disk. Raises TargetError."""
    _call(fd, _ADD, extent)


def remove(fd: int, extent: Extent) -> None:
    """Lets the kernel forget one. Raises TargetError if it is in use."""
    _call(fd, _DELETE, extent)


def remove_ours(number: str, *, unmounted: bool = False) -> str:
    """Removes both from the drive with a number ('8:0'), if they are there and it carries our mark.

    `unmounted`: what killed runs have mounted there is not, any more. Returns what was done. Raises
    TargetError if they are in use.
    """
    folder = _SYSFS / number
    if not folder.exists():
        return ""
    disk = folder.resolve()
    extents = found(disk)
    ours = layout(_bytes(disk / "size"))
    if not extents or any(extent not in ours for extent in extents):
        return ""
    fd = os.open(Path("/dev") / disk.name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.pread(fd, len(MARKER), 0) != MARKER:
            return ""
        for extent in extents:
            remove(fd, extent)
    except _InUse as error:
        advice = (
            f"see who uses it (findmnt, fuser /dev/{disk.name}?*)"
            if unmounted
            else "if a run was killed, harness clean unmounts what it has left there"
        )
        raise TargetError(f"{disk.name}: {error}: {advice}") from error
    finally:
        os.close(fd)
    return f"removed the kernel's partitions of {disk.name}"


def _call(fd: int, operation: int, extent: Extent) -> None:
    partition = _Partition(extent.begin_bytes, extent.length_bytes, extent.number, b"", b"")
    pointer = ctypes.cast(ctypes.byref(partition), ctypes.c_void_p)
    argument = _Argument(operation, 0, ctypes.sizeof(partition), pointer)
    try:
        fcntl.ioctl(fd, _BLKPG, argument)
    except OSError as error:
        doing = "added" if operation == _ADD else "removed"
        is_used = error.errno == errno.EBUSY and operation == _DELETE
        raise (_InUse if is_used else TargetError)(
            f"kernel partition {extent.number} could not be {doing}: {error.strerror}"
        ) from error


def _number(path: Path) -> int:
    return int(path.read_text())


def _bytes(path: Path) -> int:
    return _number(path) * SECTOR_BYTES
