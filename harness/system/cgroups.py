"""Control groups that bound the memory of a server and of the page cache that it fills.

Version 1's memory controller or version 2's, whichever this machine has. A group is made through a
lease (harness/system/leases.py), so that `harness clean` finds the one of a killed run. Linux,
Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
"""

from __future__ import annotations

import errno
import signal
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from harness.errors import TargetError
from harness.system import kernel_tables, processes

_LIMIT_S: Final = 20.0
_LOOK_S: Final = 0.01
_CONTROLLER: Final = "memory"
_CGROUPS: Final = Path("/proc/cgroups")
_UNLIMITED: Final = 1 << 62


@dataclass(frozen=True)
class Memory:
    """What a group has at a moment, in bytes.

    `anonymous`: its processes' own. `shared`: shared memory. `cache`: file pages, without shared
    memory. `kernel`: page tables, file-system objects and the like; 0 where it is not counted.
    """

    anonymous: int
    shared: int
    cache: int
    kernel: int
    dirty: int


@dataclass(frozen=True)
class Hierarchy:
    """Where groups can be made: a folder that has the memory controller, and its version."""

    version: int
    folder: Path


@dataclass(frozen=True)
class Cgroup:
    """A control group, by its folder."""

    version: int
    folder: Path

    @property
    def processes_file(self) -> Path:
        """A process that writes 0 into it is in the group."""
        return self.folder / "cgroup.procs"

    def set_limit(self, limit_bytes: int) -> None:
        """Bounds all memory of the group, page cache included; what is too much is dropped.

        Raises TargetError if it cannot be dropped.
        """
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        try:
            (self.folder / name).write_text(str(limit_bytes))
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise TargetError(
                    f"{limit_bytes} B are too few for what already runs: allow more memory"
                ) from error
            raise TargetError(f"{self.folder / name}: {error.strerror}") from error

    def memory(self) -> Memory:
        """What the group has now."""
        stat = _pairs(self.folder / "memory.stat")
        if self.version == 1:
            kernel = _number(self.folder / "memory.kmem.usage_in_bytes")
            own, file = stat.get("rss", 0), stat.get("cache", 0)
            dirty = stat.get("dirty", 0) + stat.get("writeback", 0)
        else:
            kernel = stat.get("kernel", 0)
            own, file = stat.get("anon", 0), stat.get("file", 0)
            dirty = stat.get("file_dirty", 0) + stat.get("file_writeback", 0)
        shared = stat.get("shmem", 0)
        return Memory(own, shared, max(file - shared, 0), kernel, dirty)

    def dirtyable_bytes(self) -> int:
        """Of what the kernel lets a share be dirty: file pages, and what is free below the group's
        limits and those of the groups above it. More than any machine has if nothing limits it.

        Version 2; there `vm.dirty_ratio` is of this, too (mem_cgroup_wb_stats(), mm/memcontrol.c).
        """
        stat = _pairs(self.folder / "memory.stat")
        free = [
            limit - _number(folder / "memory.current")
            for folder in (self.folder, *self.folder.parents)
            for limit in _limits(folder)
        ]
        files = stat.get("active_file", 0) + stat.get("inactive_file", 0)
        return files + max(min(free, default=_UNLIMITED), 0)

    def killed(self) -> int:
        """How many of its processes the kernel has killed because the limit was too low."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        return _pairs(self.folder / name).get("oom_kill", 0)

    def members(self) -> list[int]:
        """Its processes."""
        try:
            return sorted({int(line) for line in self.processes_file.read_text().split()})
        except OSError:
            return []

    def end_processes(self) -> int:
        """Kills whatever is in the group, until nothing is; returns how many that were.

        Raises TargetError if one does not end.
        """
        ended = 0
        while members := self.members():
            for pid in members:
                with processes.opened(pid) as process:
                    # Only now the number cannot become another's.
                    if process is not None and pid in self.members():
                        processes.end(process, signal.SIGKILL)
                        ended += 1
        return ended

    def remove(self) -> int:
        """Ends the group and what is in it; returns how many processes that were.

        Raises TargetError.
        """
        ended = self.end_processes()
        deadline = time.monotonic() + _LIMIT_S
        while self.folder.is_dir():
            try:
                self.folder.rmdir()
            except OSError as error:  # what has just ended still counts for a moment
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise TargetError(f"{self.folder}: {error.strerror}: remove it") from error
                time.sleep(_LOOK_S)
        _made.discard(self)
        return ended


_made: set[Cgroup] = set()


def made() -> list[Cgroup]:
    """The groups that this process has made, and not removed."""
    return list(_made.copy())


def bound_writeback(file: Path = _CGROUPS) -> bool:
    """Whether the kernel judges dirty pages by their group as well as by their device.

    So it does where memory and block I/O are both controlled by version 2 (inode_cgwb_enabled(),
    include/linux/backing-dev.h). Such a controller has the hierarchy 0, or is not listed at all.
    """
    lines = [line.split() for line in file.read_text().splitlines()]
    hierarchies = {line[0]: line[1] for line in lines}
    return all(hierarchies.get(name, "0") == "0" for name in (_CONTROLLER, "blkio"))


def version(file: Path = _CGROUPS) -> int:
    """Of the control groups that bound memory on this machine, 1 or 2."""
    lines = file.read_text().splitlines() if file.exists() else []
    hierarchies = [line.split()[1] for line in lines if line.startswith(f"{_CONTROLLER}\t")]
    return 2 if hierarchies in ([], ["0"]) else 1


def make(name: str, hierarchy: Hierarchy) -> Cgroup:
    """A new group. Raises TargetError."""
    folder = hierarchy.folder / name
    try:
        folder.mkdir()
    except OSError as error:
        raise TargetError(
            f"{folder}: {error.strerror}: a server's page cache is bounded by a control group, "
            "which needs root"
        ) from error
    group = Cgroup(hierarchy.version, folder)
    if _machine_swaps():
        _keep_in_memory(group)
    _made.add(group)
    return group


def _machine_swaps() -> bool:
    return len(Path("/proc/swaps").read_text().splitlines()) > 1


def _keep_in_memory(group: Cgroup) -> None:
    """What of the processes' own goes to swap would be page cache that nobody allowed."""
    name = "memory.swappiness" if group.version == 1 else "memory.swap.max"
    try:
        (group.folder / name).write_text("0")
    except OSError as error:
        group.remove()
        raise TargetError(
            f"{group.folder / name}: {error.strerror}: a server's memory would be swapped out to "
            "make room for its page cache: switch swap off (swapoff -a) for the run"
        ) from error


def at(folder: Path) -> Cgroup:
    """The group that lies there."""
    return Cgroup(1 if (folder / "memory.limit_in_bytes").exists() else 2, folder)


def find_hierarchy(
    mounts: Path = Path("/proc/self/mountinfo"), own: Path = Path("/proc/self/cgroup")
) -> Hierarchy:
    """Where this machine lets us make groups with a memory limit.

    Version 1: below our own group, so that its limit counts as well. Version 2: processes lie in
    leaves only, so below the nearest of our ancestors that gives the controller to its children.
    Raises TargetError.
    """
    groups = _own_groups(own)
    for line in kernel_tables.lines(mounts):
        left, _, right = line.partition(" - ")
        root, point = kernel_tables.fields(left)[3:5]
        kind, _, options = right.split(" ", maxsplit=2)
        if kind == "cgroup" and _CONTROLLER in options.split(","):
            return Hierarchy(1, _below(Path(point), root, groups.get(_CONTROLLER, "/")))
        if kind == "cgroup2":
            inner = _below(Path(point), root, groups.get("", "/"))
            if (found := _giving(inner, Path(point))) is not None:
                return Hierarchy(2, found)
    raise TargetError(
        "this machine has no memory controller for control groups: mount cgroup2 (with "
        "`+memory` in cgroup.subtree_control) or version 1's memory hierarchy"
    )


def _own_groups(file: Path) -> dict[str, str]:
    """Our own group's path by controller; version 2's by the empty name."""
    found = {}
    for line in file.read_text().splitlines():
        _, names, path = line.split(":", 2)
        found.update(dict.fromkeys(names.split(","), path))
    return found


def _below(point: Path, root: str, path: str) -> Path:
    """The folder of a group, seen through a mount that shows the hierarchy from `root` on."""
    try:
        folder = point / PurePosixPath(path).relative_to(root)
    except ValueError:
        return point
    return folder if folder.is_dir() else point


def _giving(inner: Path, top: Path) -> Path | None:
    for folder in (inner, *inner.parents):
        control = folder / "cgroup.subtree_control"
        if control.is_file() and _CONTROLLER in control.read_text().split():
            return folder
        if folder == top:
            break
    return None


def _limits(folder: Path) -> list[int]:
    """The bounds of a group's memory in version 2; none for the root, or for what is no group."""
    said = []
    for name in ("memory.max", "memory.high"):
        try:
            said.append((folder / name).read_text().strip())
        except OSError:
            return []
    return [int(text) for text in said if text != "max"]


def _pairs(file: Path) -> dict[str, int]:
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0
