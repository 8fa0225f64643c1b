"""Processes: what they have open, and how to end one without ever hitting another."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import TargetError
from harness.system import kernel_tables

_LIMIT_S: Final = 20.0
_EXITING: Final = 0x4
"""PF_EXITING, of the kernel's include/linux/sched.h."""
_SET_IO_FLUSHER: Final = 57
"""PR_SET_IO_FLUSHER, of the kernel's include/uapi/linux/prctl.h."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def flush_io() -> bool:
    """Whoever gets memory in this thread never waits for dirty pages of others to be written.

    For a process that these are written through, by itself or by who waits for its locks. Threads
    and processes that this one starts from now on have it from it; so does the program that it
    becomes. Says whether the kernel lets us (CAP_SYS_RESOURCE, Linux 5.6).
    """
    arguments = map(ctypes.c_ulong, (1, 0, 0, 0))
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_SET_IO_FLUSHER, *arguments) == 0)


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


def mount_tables(*, but: str) -> Iterator[tuple[int, str]]:
    """A process of every mount namespace that we may look into, with each line of its table.

    `but`: not of this namespace ('mnt:[...]').
    """
    seen = {but}
    for pid in _numbers():
        with contextlib.suppress(OSError):
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")  # noqa: PTH115 - it is not a path
            if namespace not in seen:
                seen.add(namespace)
                lines = kernel_tables.lines(Path(f"/proc/{pid}/mountinfo"))
                yield from ((pid, line) for line in lines)


def start_time(pid: int) -> int | None:
    """When a process started, in ticks since boot; with its number it is unique. None: it ended."""
    facts = _facts(pid)
    return None if not facts or facts[0] in "ZX" else int(facts[19])


def _facts(which: int | str) -> list[str]:
    """What the kernel says of a process or thread, from its state on (proc(5), stat).

    Empty: it ended.
    """
    try:
        return Path(f"/proc/{which}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def identity(pid: int) -> str:
    """What no other process has, of this machine or another, in this boot or another.

    Its number and what that is a number in (boot, namespace of process numbers), and its start
    time. A killed one whose first thread has ended keeps it until all have. Empty: it ended.
    """
    started = began(pid)
    return "" if started is None else f"{pid} {started} {world()}"


def began(pid: int) -> int | None:
    """As `start_time`; a killed process whose first thread has ended has it until all have."""
    facts = _facts(pid)
    return int(facts[19]) if facts else None


def now() -> int:
    """The present time as start times are counted: ticks since boot."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") // 1_000_000_000


def world(pid: int | None = None) -> str:
    """What a process's number is a number in: the boot and its namespace; of ourselves, or of one.

    Empty if it may not be known.
    """
    try:
        namespace = os.readlink(f"/proc/{pid or 'self'}/ns/pid")  # noqa: PTH115 - it is no path
    except OSError:
        return ""
    return f"{boot()} {namespace}"


def boot() -> str:
    """What no other boot has, of this machine or another."""
    return _BOOT.read_text().strip()


def owner(pid: int) -> int | None:
    """The account that a process acts as. None: it ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[2]) for line in lines if line.startswith("Uid:")), None)


def is_ending(pid: int) -> bool:
    """Whether a process has been sent SIGKILL, or ends already, and only is not gone yet.

    The signal is pending until the process follows it; then its flags say that it ends, while its
    memory is freed and its files are closed.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (signal.SIGKILL - 1) & 1 for mask in pending) or _exits(pid)


def _exits(pid: int) -> bool:
    """Whether every thread of a process is on its way out (proc(5), stat: flags)."""
    threads = (_facts(f"{pid}/task/{thread}") for thread in _listed(f"/proc/{pid}/task"))
    return all(not facts or int(facts[6]) & _EXITING for facts in threads)


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
            send(process, number)
        if select.select([process.fd], [], [], limit_s)[0]:
            return
    raise TargetError(f"process {process.pid} does not end, even when killed: see /proc")


def send(process: Process, number: signal.Signals) -> None:
    """Sends a signal, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(process.fd, number)


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
