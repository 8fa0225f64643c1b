"""The one oracle for what a test has left behind on this machine, or taken away from it.

    before = leaks.look(raw / "postgres" / "*")
    ...
    assert leaks.changes(before) == []

It looks at loop devices, mounts, everything below /run/flashlab (live devices and leases), control
groups, folders of ours among the temporary ones, processes that work in any of these, and at the
paths that a test names. Other runs may be at work at the same time (pytest-xdist, another checkout,
somebody's own device): what is theirs is not counted. A row with this process's PREFIX is surely
ours and has to be as it was at once; one that says nothing of whose it is gets a minute, in which
its owner would have cleaned it away.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.devices.live import registry
from harness.errors import TargetError
from harness.probes import bpftrace
from harness.system import cgroups, leases, locks

PREFIX: Final = f"t{os.getpid()}-"
"""Begins the names of what tests of this process make."""

MARK: Final = "FLASHLAB_TESTS_OF"
"""A variable that all have that we start, even a daemon that is init's child."""

os.environ[MARK] = PREFIX

_LIMIT_S: Final = 60.0
_TOKEN: Final = re.compile(r"/run/flashlab/.|/flashlab-[a-z-]*[0-9a-f]{16}\b")
"""What the harness makes: below its own folder, or with a lease's token in its name."""
_MAY_GO: Final = re.compile(rf"{_TOKEN.pattern}|^loop loop\d+ /? ?\d?$")
"""What another run may take away; a loop device whose file has gone does not say whose it was."""
_GOES_BY_ITSELF: Final = re.compile(r"^loop .*\(deleted\) 1$")
"""A detached loop device without a file: the kernel takes it away when nobody has it open."""
_OF_TESTS: Final = re.compile(r"/pytest-of-|/flashlab-test-|/dev/shm/\w|/tmp/tmp|/t\d+-\d")
"""What tests make: without our PREFIX it is of tests elsewhere."""


@dataclass(frozen=True)
class Seen:
    """What there was at a moment; `watched` are the patterns of paths that were looked for, too."""

    rows: frozenset[str]
    watched: tuple[Path, ...]

    def own(self, kind: str) -> set[str]:
        """Our rows of one kind: loop, mount, file, cgroup, folder, process, watched."""
        return {row for row in self.rows if row.startswith(f"{kind} ") and PREFIX in row}


def look(*watched: Path) -> Seen:
    """What there is now, without what is surely of others."""
    living = _of_living_others()
    return Seen(frozenset(row for row in _rows(watched) if not _is_others(row, living)), watched)


def changes(before: Seen, *, patient: bool = False) -> list[str]:
    """Rows that have come since then, or gone though nobody else can have taken them away.

    `patient`: ours get as much time as those that may be another's.
    """
    deadline = time.monotonic() + _LIMIT_S
    found = _differences(before, look(*before.watched))
    while True:
        surely_ours = any(PREFIX in row or row.startswith("watched ") for row in found)
        surely_ours &= not all(row.startswith("process ") for row in found)  # it may be ending
        if not found or (surely_ours and not patient) or time.monotonic() > deadline:
            return sorted(found)
        time.sleep(0.05)
        found &= _differences(before, look(*before.watched))


def _differences(before: Seen, now: Seen) -> set[str]:
    gone = {row for row in before.rows - now.rows if PREFIX in row or not _MAY_GO.search(row)}
    return {row for row in gone if not _GOES_BY_ITSELF.search(row)} | (now.rows - before.rows)


@contextlib.contextmanager
def nothing_left(*watched: Path) -> Iterator[None]:
    """Fails if what runs in the block leaves anything behind."""
    before = look(*watched)
    yield
    left = changes(before)
    assert left == [], "\n".join(left)  # pytest explains what is asserted in tests only


def _rows(watched: tuple[Path, ...]) -> Iterator[str]:
    for device in Path("/sys/block").glob("loop*/loop"):
        below, clears = (_read(device / name) for name in ("backing_file", "autoclear"))
        yield f"loop {device.parts[3]} {below} {clears}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if f" / {bpftrace.TRACEFS} " not in line:  # the first probe mounts it, and leaves it so
            yield f"mount {line}"
    for top, folders, names in os.walk(registry.ROOT):  # looks at no file: nobody may serve it
        paths = (Path(top, name) for name in (*folders, *names))
        yield from (f"file {path}" for path in paths if path != leases._root())  # that stays
    with contextlib.suppress(TargetError):  # a machine without control groups
        for group in cgroups.find_hierarchy().folder.glob("flashlab-*"):
            yield f"cgroup {group}"
    for folder in Path(tempfile.gettempdir()).glob("flashlab-*"):
        yield f"folder {folder}"
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        words = _read(process).replace("\0", " ")
        if _TOKEN.search(words):
            yield f"process {process.parts[2]} {words}"
    for pattern in watched:
        yield from (f"watched {path}" for path in pattern.parent.glob(pattern.name))


def _is_others(row: str, living: set[str]) -> bool:
    if PREFIX in row or row.startswith("watched "):
        return False
    if row.startswith(("loop ", "mount ")) and not _MAY_GO.search(row):
        return True  # at a place that neither the harness nor a test would choose
    return bool(_OF_TESTS.search(row)) or any(path in row for path in living)


def _of_living_others() -> set[str]:
    """What stands in rows of living others: their devices and leases, and what these note."""
    return _of_others_runs() | set(_of_others_devices())


def _of_others_devices() -> Iterator[str]:
    """Devices that shall outlive their makers, and what is mounted from them, wherever it is."""
    for lock in registry.ROOT.glob("*/lock"):
        holders = [] if (lock.parent / "owner").exists() else locks.holders(lock)
        if holders and not any(_is_ours(pid) for pid in holders):
            yield str(lock.parent)
            if device := registry.Place(lock.parent.name).about().get("device"):
                yield f" {device} "


def _of_others_runs() -> set[str]:
    """Paths of live devices and leases that another process holds, and what these leases note."""
    holders = _lock_holders()
    found = set()
    for lock in (*registry.ROOT.glob("*/owner"), *leases._root().glob("*/lock")):
        if (pid := holders.get(_inode(lock))) is None or _is_ours(pid):
            continue
        found.add(str(lock.parent))
        for note in lock.parent.glob("*-*"):
            kind, _, rest = note.name.partition("-")
            if kind in ("folder", "cgroup", "mount"):
                found.add(str(leases._read(note)))
            elif kind == "process":
                found.add(f"process {rest} ")
    return found - {"None"}


def _lock_holders() -> dict[int, int]:
    """By a locked file's inode, who holds it."""
    found = {}
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK":
            found[int(words[5].rpartition(":")[2])] = int(words[4])
    return found


def _is_ours(pid: int) -> bool:
    """Whether a process is this one, or one that it has started."""
    if f"{MARK}={PREFIX}" in _read(Path(f"/proc/{pid}/environ")).split("\0"):
        return True
    while pid > 1:
        if pid == os.getpid():
            return True
        stat = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        pid = int(stat[1]) if stat else 0
    return False


def _inode(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_ino
    return -1


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
