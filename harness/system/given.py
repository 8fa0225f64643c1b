"""Files in a folder that belongs to somebody else, such as a server's user.

Who owns a folder can put a link, a pipe or another file where we look for ours, at any moment. So
the folder is opened once, everything is reached from that descriptor, no link is followed, and what
is no plain file is left alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.errors import TargetError

_LOOK: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """A descriptor of a folder. Raises TargetError if it is none, or a link to one."""
    try:
        fd = os.open(folder, os.O_DIRECTORY | _LOOK)
    except OSError as error:
        raise TargetError(f"{folder}: {error.strerror}: it has to be a folder, no link") from error
    try:
        yield fd
    finally:
        os.close(fd)


def create(folder: Path, name: str, mode: int = 0o600) -> int:
    """A descriptor of a file that was not there; the caller closes it. Raises TargetError."""
    with opened_folder(folder) as place:
        try:
            fd = os.open(name, _NEW, mode, dir_fd=place)
        except OSError as error:
            raise TargetError(
                f"{folder / name}: {error.strerror}: choose a folder that nobody else uses"
            ) from error
    os.fchmod(fd, mode)  # whatever the umask is
    return fd


@contextlib.contextmanager
def opened(file: Path) -> Iterator[int]:
    """A descriptor to read a plain file by. Raises OSError for anything else, and for a link."""
    fd = os.open(file, _LOOK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(f"{file} is no file")
        yield fd
    finally:
        os.close(fd)


def read_text(file: Path, most_bytes: int = 1 << 16) -> str | None:
    """What a plain file begins with; None if there is none."""
    try:
        with opened(file) as fd:
            return os.read(fd, most_bytes).decode(errors="replace")
    except OSError:
        return None


def files(folder: Path) -> Iterator[int]:
    """Descriptors of all plain files in and below a folder, each open until the next is asked for.

    What goes away meanwhile is left out. Raises TargetError if there is no such folder.
    """
    with opened_folder(folder) as top:
        for _, _, names, place in os.fwalk(dir_fd=top):
            for name in names:
                with contextlib.suppress(OSError):
                    fd = os.open(name, _LOOK, dir_fd=place)
                    try:
                        if stat.S_ISREG(os.fstat(fd).st_mode):
                            yield fd
                    finally:
                        os.close(fd)


def empty(folder: Path) -> None:
    """Deletes what is in a folder; of a link, the link. Raises TargetError if it is no folder."""
    with opened_folder(folder) as place:
        for name in os.listdir(place):  # noqa: PTH208 - by its descriptor
            if stat.S_ISDIR(os.lstat(name, dir_fd=place).st_mode):
                shutil.rmtree(name, dir_fd=place)
            else:
                os.unlink(name, dir_fd=place)


def give(folder: Path, ids: tuple[int, int]) -> None:
    """Files and folders below one become somebody's (user, group), the folder itself his group's.

    He may do in it what he likes; others who have his user but not his group cannot enter. Links
    stay whose they are, and so does a file that has another name elsewhere: it may be one that he
    could not write to. Raises TargetError if it is no folder.
    """
    with opened_folder(folder) as top:
        os.fchown(top, os.geteuid(), ids[1])
        os.fchmod(top, 0o770)
        for _, folders, names, place in os.fwalk(dir_fd=top):
            for name in (*folders, *names):
                with contextlib.suppress(FileNotFoundError):
                    _give_one(name, place, ids)


def _give_one(name: str, place: int, ids: tuple[int, int]) -> None:
    fd = os.open(name, _PLACE, dir_fd=place)
    try:
        facts = os.fstat(fd)
        plain = stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1
        if (plain or stat.S_ISDIR(facts.st_mode)) and (facts.st_uid, facts.st_gid) != ids:
            os.chown(f"/proc/self/fd/{fd}", *ids)  # of what is open, whatever has its name now
    finally:
        os.close(fd)
