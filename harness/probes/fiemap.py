"""Where a file lies on its device, as the file system says (the ioctl FS_IOC_FIEMAP).

Linux, Documentation/filesystems/fiemap.rst. Other than `extents`, which follows every allocation of
a recording, this asks for the place that a file has now.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from harness.errors import TargetError
from harness.system import given

_IOCTL: Final = 0xC020660B
_HEAD: Final = struct.Struct("=QQLLLL")
"""start, length, flags, mapped extents, room for extents, reserved"""

_EXTENT: Final = struct.Struct("=QQQ2QL3L")
"""logical, physical, length, two reserved, flags, three reserved"""

_SYNC: Final = 0x1
_LAST: Final = 0x1
_NOWHERE: Final = 0x2 | 0x4 | 0x8 | 0x200 | 0x400
"""Flags of what has no place of its own: unknown, delayed, encoded, inside an inode, a tail."""

_AT_ONCE: Final = 512


def file_extents(
    file: Path, begin_bytes: int = 0, end_bytes: int | None = None
) -> list[tuple[int, int]]:
    """Where a file, or [begin, end) of it, lies on the device below its file system.

    Byte ranges [begin, end) of that device, by their place in the file; neighbours are joined.
    Holes have none; blocks that were allocated and not written yet do. What waits in memory is
    written first. Raises TargetError for a file system that does not say it, or does not keep
    the file in blocks of its own.
    """
    ranges: list[tuple[int, int]] = []
    with given.opened(file) as fd:
        end = os.fstat(fd).st_size if end_bytes is None else end_bytes
        for logical, physical, length in _mapped(fd, file, begin_bytes, end):
            skipped = max(begin_bytes - logical, 0)
            begin = physical + skipped
            until = physical + min(length, end - logical)
            if ranges and ranges[-1][1] == begin:
                begin = ranges.pop()[0]
            ranges.append((begin, until))
    return ranges


def _mapped(fd: int, file: Path, begin: int, end: int) -> list[tuple[int, int, int]]:
    """(logical, physical, length) of all extents that touch [begin, end) of the file."""
    found: list[tuple[int, int, int]] = []
    while begin < end:
        piece = _ask(fd, file, begin, end - begin)
        for logical, physical, length, flags in piece:
            if flags & _NOWHERE:
                raise TargetError(f"{file}: parts of it have no place of their own on the device")
            found.append((logical, physical, length))
        if not piece or piece[-1][3] & _LAST:
            break
        begin = piece[-1][0] + piece[-1][2]
    return found


def _ask(fd: int, file: Path, begin: int, length: int) -> list[tuple[int, int, int, int]]:
    request = bytearray(_HEAD.size + _AT_ONCE * _EXTENT.size)
    _HEAD.pack_into(request, 0, begin, length, _SYNC, 0, _AT_ONCE, 0)
    try:
        fcntl.ioctl(fd, _IOCTL, request)
    except OSError as error:
        raise TargetError(
            f"{file}: its file system does not say where it lies ({error.strerror})"
        ) from error
    count = _HEAD.unpack_from(request)[3]
    rows = (_EXTENT.unpack_from(request, _HEAD.size + i * _EXTENT.size) for i in range(count))
    return [(row[0], row[1], row[2], row[5]) for row in rows]
