"""Locks as a proof of life: a process that was killed holds none, whatever it was called.

A lock is a flock on a file of ours; children that are given the descriptor hold it, too. Nothing
here trusts a path in another process, which may be of a mount namespace where it means something
else: a holder is who has the lock of this very file (device and inode, as the kernel says them of
a lock) at this moment. And it is ended only if it is ours: of our account, of our namespace of
processes, and started after the lock was made. Whoever else holds it is left, and told: the one who
made it, for instance, or another container's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.errors import TargetError
from harness.system import mounts, processes
from harness.system.processes import Link, Process

_HELD: Final = re.compile(
    r"^lock:\s.*\bFLOCK\s+ADVISORY\s+WRITE\s+-?\d+\s+([0-9a-f]+):([0-9a-f]+):(\d+)\s",
    re.MULTILINE,
)
_INODE: Final = re.compile(r"^ino:\s*(\d+)$", re.MULTILINE)
_MOMENT_S: Final = 0.1
_MOUNT: Final = re.compile(r"^mnt_id:\s*(\d+)$", re.MULTILINE)


def hold(path: Path) -> int:
    """Makes the file if need be, and holds its lock until the descriptor is closed.

    Waits for whoever holds it.
    """
    fd = _opened(path)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return _signed(fd)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _signed(fd: int) -> int:
    os.ftruncate(fd, 0)
    os.write(fd, f"{processes.now()} {processes.world()}\n".encode())
    return fd


def hold_now(path: Path) -> int | None:
    """The same, but for a moment's looks of others it waits for nobody; None: somebody holds it."""
    fd = _opened(path)
    deadline = time.monotonic() + _MOMENT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(fd)
                return None
            time.sleep(_MOMENT_S / 100)
        else:
            return _signed(fd)


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
    if not found:  # nobody of ours has it, or who had it has ended since the look
        return _state(path) == "free"
    return all(processes.is_ending(pid) for pid in found)


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
    """Processes that hold the lock of this very file; not this one."""
    wanted = _identity(path)
    if wanted is None:
        return []
    links = (link for link in processes.open_files() if _is_named(link, path.name))
    found = {link.pid for link in links if wanted in _held_through(link)}
    return sorted(found - {os.getpid()})


def _is_named(link: Link, name: str) -> bool:
    """Whether it may be the file: in every mount namespace it has this name, wherever it lies."""
    return link.target.removesuffix(" (deleted)").endswith(f"/{name}")


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Major and minor of the file system and the inode, as the kernel's locks have them.

    These are not always what stat says: see overlayfs and Btrfs.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        info = Path(f"/proc/self/fdinfo/{fd}").read_text()
        inode, mount = _INODE.search(info), _MOUNT.search(info)
        number = next((m.number for m in mounts.table() if mount and m.ident == mount[1]), None)
        facts = os.fstat(fd)
    finally:
        os.close(fd)
    if number is None:  # of a file system that is not mounted here any more
        number = f"{os.major(facts.st_dev)}:{os.minor(facts.st_dev)}"
    major, minor = number.split(":")
    return int(major), int(minor), int(inode[1]) if inode else facts.st_ino


def _held_through(link: Link) -> set[tuple[int, int, int]]:
    """What an open file holds the locks of. Its own file system, which may hang, is not asked."""
    with contextlib.suppress(OSError):
        info = Path(link.base, link.name.replace("fd/", "fdinfo/", 1)).read_text()
        return {(int(a, 16), int(b, 16), int(inode)) for a, b, inode in _HELD.findall(info)}
    return set()


def wake_holders(path: Path) -> None:
    """Lets holders that are ours and were stopped (SIGSTOP) go on."""
    for pid in holders(path):
        with _ours(path, pid) as process:
            if process is not None:
                processes.send(process, signal.SIGCONT)


def check_holders(path: Path) -> None:
    """Whether all holders are ours, to be ended. Raises TargetError if one is not.

    One that has been killed ends by itself, whoever it was, once what it waits for has gone.
    """
    left = _not_ours(path)
    if left:  # between the signal and the flag of its end a process shows neither
        time.sleep(_MOMENT_S)
        left &= _not_ours(path)
    if left:
        who = ", ".join(map(str, sorted(left)))
        raise TargetError(
            f"process {who} holds {path} and is not known as ours: it was left alone, "
            "with all that belongs to it"
        )


def _not_ours(path: Path) -> set[int]:
    """Who holds the lock, is not ours to be ended, and does not end by itself just now."""
    living = (pid for pid in holders(path) if not processes.is_ending(pid))
    return {pid for pid in living if not _may_be_ended(path, pid)}


def end_holders(path: Path) -> list[int]:
    """Ends whoever holds the lock, if all are ours: asks first, then kills. Returns their numbers.

    Raises TargetError if one does not even end then, and, before any is, as `check_holders`.
    """
    check_holders(path)
    ended = []
    for pid in holders(path):
        with _ours(path, pid) as process:
            if process is not None:
                processes.end(process, signal.SIGTERM)
                ended.append(pid)
    return ended


@contextlib.contextmanager
def _ours(path: Path, pid: int) -> Iterator[Process | None]:
    """The process, if it is ours to be ended, and holds the lock now."""
    with processes.opened(pid) as process:
        # Only now the number cannot become another's.
        yield process if _may_be_ended(path, pid) and pid in holders(path) else None


def _may_be_ended(path: Path, pid: int) -> bool:
    """Whether a holder is of our account and our namespace, and started after the lock was made.

    Or has ended already, but for a thread that cannot yet: then it has no namespace any more, and a
    signal changes nothing.
    """
    if processes.start_time(pid) is None:
        return True
    made, _, world = _noted(path).partition(" ")
    started = processes.began(pid)
    return (
        processes.owner(pid) == os.geteuid()
        and world == processes.world() == processes.world(pid)
        and started is not None
        and started >= int(made)
    )


def _noted(path: Path) -> str:
    """When the lock was made, and where; empty if nobody says."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""
