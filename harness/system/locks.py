"""Locks as a proof of life: a process that was killed holds none, whatever it was called.

A lock is a flock on a file of ours; children that are given the descriptor hold it, too. Nothing
here trusts a process's name or a number that was written down: whoever is to be ended is found by
the lock that it holds at this moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.system import processes

_HELD: Final = re.compile(r"^lock:\s.*\bFLOCK\s+ADVISORY\s+WRITE\b", re.MULTILINE)


def hold(path: Path) -> int:
    """Makes the file if need be, and holds its lock until the descriptor is closed.

    Waits for whoever holds it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock. Not if there is no such file."""
    return _state(path) == "held"


def is_lost(path: Path) -> bool:
    """Whether whoever held the lock is no more, or has been killed and only cannot end yet.

    A killed process that waits for a device that does not answer keeps its locks meanwhile.
    """
    state = _state(path)
    if state != "held":
        return state == "free"
    found = holders(path)
    return bool(found) and all(processes.is_killed(pid) for pid in found)


def _state(path: Path) -> str:
    """Looks with a shared lock, so that several may look at once, and nobody seems to hold it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return "missing"
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    else:  # who gives a lock up deletes its file first
        return "free" if _is_at(fd, path) else "missing"
    finally:
        os.close(fd)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def folder_lock(folder: Path, *, shared: bool) -> Iterator[bool]:
    """Holds the lock of a folder, alone or with others who share it. False: there is no folder."""
    while True:
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            if _is_at(fd, folder):
                yield True
                return
        finally:
            os.close(fd)


def holders(path: Path) -> list[int]:
    """Processes that hold the lock, by their open file that it is on; not this one."""
    found = set()
    for link in processes.open_files():
        if link.target == str(path) and _holds(link):
            found.add(link.pid)
    return sorted(found - {os.getpid()})


def _holds(link: processes.Link) -> bool:
    with contextlib.suppress(OSError):
        info = Path(link.base, link.name.replace("fd/", "fdinfo/", 1)).read_text()
        return _HELD.search(info) is not None
    return False


def wake_holders(path: Path) -> None:
    """Lets holders that were stopped (SIGSTOP) go on."""
    for pid in holders(path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def end_holders(path: Path) -> list[int]:
    """Ends whoever holds the lock: asks first, then kills. Returns their numbers.

    Raises TargetError if one does not even end then.
    """
    ended = []
    for pid in holders(path):
        with processes.opened(pid) as process:
            # Only now the number cannot become another's.
            if process is not None and pid in holders(path):
                processes.end(process, signal.SIGTERM)
                ended.append(pid)
    return ended
