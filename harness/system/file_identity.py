"""Which file one is: an inode's number is given to another file as soon as the first is deleted."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_AT_EMPTY_PATH: Final = 0x1000
_STATX_INO: Final = 0x100
_STATX_BTIME: Final = 0x800
_STATX_BYTES: Final = 256
_MASK: Final = struct.Struct("=I")
_INODE: Final = struct.Struct("=Q")
_BIRTH: Final = struct.Struct("=qI")
_DEVICE: Final = struct.Struct("=II")
_MASK_AT, _INODE_AT, _BIRTH_AT, _DEVICE_AT = 0, 32, 80, 136
"""Where they are in `struct statx` (statx(2), include/uapi/linux/stat.h)."""


class FileIdentity(NamedTuple):
    """A file's: the numbers of its device, its inode's, and when it was born, in ns since 1970.

    `born_ns`: -1 where the file system does not say, and then nothing tells it from a later file.
    """

    major: int
    minor: int
    inode: int
    born_ns: int

    @property
    def is_unique(self) -> bool:
        """Whether no other file can ever have it."""
        return self.born_ns >= 0


def of(file: Path | int) -> FileIdentity:
    """Of what is at a path, be it a link, or of an open file. Raises OSError."""
    if isinstance(file, Path):
        place, name, flags = _AT_FDCWD, os.fsencode(file), _AT_SYMLINK_NOFOLLOW
    else:
        place, name, flags = file, b"", _AT_EMPTY_PATH
    said = ctypes.create_string_buffer(_STATX_BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.statx(place, name, flags, _STATX_INO | _STATX_BTIME, said):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(file))
    (known,) = _MASK.unpack_from(said, _MASK_AT)
    (inode,) = _INODE.unpack_from(said, _INODE_AT)
    seconds, nanoseconds = _BIRTH.unpack_from(said, _BIRTH_AT)
    born_ns = seconds * 1_000_000_000 + nanoseconds if known & _STATX_BTIME else -1
    major, minor = _DEVICE.unpack_from(said, _DEVICE_AT)
    return FileIdentity(major, minor, inode, born_ns)
