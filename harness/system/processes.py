"""Processes: what they have open, and how to end one without ever hitting another."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import TargetError

_LIMIT_S: Final = 20.0


@dataclass(frozen=True)
class Link:
    """What a process refers to, by a link in the folder `base` of /proc."""

    pid: int
    base: str
    name: str
    target: str


def open_files() -> Iterator[Link]:
    """Open files of all processes that we may look into.

    A killed process whose first thread has ended, but not all of them, shows them by its threads.
    """
    for pid in _numbers():
        whole = f"/proc/{pid}"
        threads = (f"{whole}/task/{thread}" for thread in _listed(f"{whole}/task"))
        for base in (whole,) if _listed(f"{whole}/fd") else threads:
            for name in _listed(f"{base}/fd"):
                yield from _link(pid, base, f"fd/{name}")


def users_below(folder: Path) -> list[int]:
    """Processes with an open file or their working folder at or below a folder."""
    found = set()
    for pid in _numbers():
        kinds = ("cwd", "root")
        folders = [link for kind in kinds for link in _link(pid, f"/proc/{pid}", kind)]
        found |= {link.pid for link in folders if Path(link.target).is_relative_to(folder)}
    found |= {link.pid for link in open_files() if Path(link.target).is_relative_to(folder)}
    return sorted(found)


def users(file: Path) -> list[int]:
    """Processes that have a file or device open."""
    return sorted({link.pid for link in open_files() if link.target == str(file)})


def start_time(pid: int) -> int | None:
    """When a process started, in ticks since boot; with its number it is unique. None: it ended."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if facts[0] in "ZX" else int(facts[19])


def is_killed(pid: int) -> bool:
    """Whether a process has been sent SIGKILL, which it has not been able to follow yet."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (signal.SIGKILL - 1) & 1 for mask in pending)


@dataclass(frozen=True)
class Process:
    """A process for good: `fd` never stands for another one."""

    pid: int
    fd: int


@contextlib.contextmanager
def opened(pid: int) -> Iterator[Process | None]:
    """The process that has this number now, or None."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield Process(pid, fd)
    finally:
        os.close(fd)


def end(process: Process, first: signal.Signals, limit_s: float = _LIMIT_S) -> None:
    """Ends a process, with the signal `first` or, if it does not within `limit_s`, with SIGKILL.

    One that was stopped goes on. Raises TargetError if not even SIGKILL ends it.
    """
    for last_word in (first, signal.SIGKILL):
        for number in (last_word, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process.fd, number)
        if select.select([process.fd], [], [], limit_s)[0]:
            return
    raise TargetError(f"process {process.pid} does not end, even when killed: see /proc")


def _numbers() -> list[int]:
    return sorted(int(name) for name in _listed("/proc") if name.isdigit())


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - Path.iterdir would raise later, while iterating
    except OSError:  # it ended, or is not ours to see
        return []


def _link(pid: int, base: str, name: str) -> Iterator[Link]:
    with contextlib.suppress(OSError):
        yield Link(pid, base, name, os.readlink(f"{base}/{name}"))  # noqa: PTH115 - it is not a path, always
