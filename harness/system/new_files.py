"""New files for a writer alone, in folders that others may write to and whose names they know.

What they have put there is not followed, and not taken for ours.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import BinaryIO


def new_file(path: Path) -> BinaryIO:
    """A new file, locked for as long as it is open.

    Raises OSError; FileExistsError if anything is there, be it a link that leads nowhere.
    """
    file = path.open("xb")  # O_EXCL: not even a link is followed
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def new_file_over(path: Path) -> BinaryIO:
    """The same; a file that is there goes, unless it is locked: then somebody writes it now.

    Raises OSError; FileExistsError for that, and for anything but a file.
    """
    while True:
        with contextlib.suppress(FileNotFoundError):
            _remove_left(path)
        file = new_file(path)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # taken for one that nobody writes before it was locked


def name_new(part: Path, path: Path) -> None:
    """Gives a file that is finished its name, if nobody has taken that meanwhile.

    Raises OSError; FileExistsError if anything is there, and then the file keeps the name it has.
    """
    try:
        os.link(part, path, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(
                errno.EEXIST, "something of that name exists", str(path)
            ) from None
        part.rename(path)
    else:
        part.unlink()


def _remove_left(path: Path) -> None:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise FileExistsError(errno.EEXIST, "there is something else than a file", str(path))
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError as error:
        raise FileExistsError(errno.EEXIST, "somebody else writes it", str(path)) from error
    finally:
        os.close(fd)
