"""What is mounted where, and how to end it without hanging."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import TargetError
from harness.system import block_queue, kernel_tables, processes
from harness.system.programs import find_program

_LIMIT_S: Final = 20.0
_NUMBERS: Final = Path("/sys/dev/block")
_BLOCK: Final = Path("/sys/class/block")
_SWAPS: Final = Path("/proc/swaps")
_SELF: Final = Path("/proc/self")
_NO_DEVICE: Final = "0:"


class Hangs(TargetError):
    """An unmount does not come to an end: whoever serves the device does not answer."""


@dataclass(frozen=True)
class Mount:
    """A line of the mount table; `number` is the device's, as in '7:3', `source` what it was called
    when it was mounted.
    """

    ident: str
    number: str
    point: Path
    source: str


def table() -> list[Mount]:
    """All mounts, in the order in which they lie on each other."""
    return [_mount(line) for line in kernel_tables.lines(Path("/proc/self/mountinfo"))]


def _mount(line: str) -> Mount:
    before, _, behind = line.partition(" - ")
    fields = kernel_tables.fields(before)
    return Mount(fields[0], fields[2], Path(fields[4]), kernel_tables.fields(behind)[1])


def of_device(device: Path) -> list[Mount]:
    """Where a block device or a partition of it is mounted, innermost first.

    Of one that the kernel has ended: mounts of that name without a device.
    """
    mounted = table()[::-1]
    try:
        nodes = _nodes(device)
    except FileNotFoundError:
        name = re.compile(rf"{re.escape(str(device))}(p\d+)?")
        named = [mount for mount in mounted if name.fullmatch(mount.source)]
        return [mount for mount in named if not (_NUMBERS / mount.number).exists()]
    return [mount for mount in mounted if _is_of(mount, nodes)]


def users_elsewhere(device: Path) -> list[int]:
    """Processes in whose mount namespaces a block device or a partition of it is mounted, if it is
    not in ours.
    """
    try:
        nodes = _nodes(device)
    except FileNotFoundError:
        return []
    own = os.readlink("/proc/self/ns/mnt")  # noqa: PTH115 - it is not a path
    tables = processes.mount_tables(but=own)
    return [pid for pid, line in tables if _is_of(_mount(line), nodes)]


def is_claimed(device: Path) -> bool:
    """Whether anybody has a block device, or a partition of it, for himself: a file system, its
    journal, swap, another device, a program. The kernel knows them all (open(2), O_EXCL).

    Raises OSError if it cannot be opened, but for one that has gone.
    """
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        is_gone = error.errno in (errno.ENOENT, errno.ENXIO, errno.ENODEV)
        if is_gone and not (_BLOCK / device.name).exists():  # else only its node is missing
            return False
        if error.errno != errno.EBUSY:
            raise
        return True
    return False


def swaps_on(device: Path) -> list[Path]:
    """What the kernel swaps to of a block device: itself, its partitions, files on them."""
    try:
        nodes = _nodes(device)
    except FileNotFoundError:
        return []
    return [path for path in swaps() if path in nodes.values() or _numbers(path) & nodes.keys()]


def swaps() -> list[Path]:
    """What the kernel swaps to: devices and files. One without swap has no such table."""
    if not _SWAPS.exists() and _SELF.exists():
        return []
    return kernel_tables.swaps(_SWAPS)


def _numbers(path: Path) -> set[str]:
    """Of the device that a file is, and of that which it lies on."""
    try:
        facts = path.stat()
    except OSError:
        return set()
    found = [facts.st_dev, facts.st_rdev] if stat.S_ISBLK(facts.st_mode) else [facts.st_dev]
    return {_number(each) for each in found}


def _number(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"


def users(device: Path) -> list[int]:
    """Processes that have a block device, or a partition of it, open."""
    try:
        nodes = list(_nodes(device).values())
    except FileNotFoundError:
        nodes = [device]
    return sorted({pid for node in nodes for pid in processes.users(node)})


def holders(device: Path) -> list[str]:
    """Block devices that the kernel has made of one, or of a partition of it."""
    marks = [*(_BLOCK / device.name).glob("holders/*"), *(_BLOCK / device.name).glob("*/holders/*")]
    return sorted({mark.name for mark in marks})


def _nodes(device: Path) -> dict[str, Path]:
    """By number, the device and its partitions. Raises FileNotFoundError if it has gone."""
    found = {block_queue.number_of(device.name): device}
    for mark in (_BLOCK / device.name).glob("*/partition"):
        with suppress(FileNotFoundError):  # deleted meanwhile
            number = (mark.parent / "dev").read_text().strip()
            found[number] = device.with_name(mark.parent.name)
    return found


def _is_of(mount: Mount, nodes: Mapping[str, Path]) -> bool:
    """Btrfs, which may have several devices, has a number of its own."""
    if mount.number.startswith(_NO_DEVICE):
        return Path(mount.source) in nodes.values()
    return mount.number in nodes


def is_point(path: Path) -> bool:
    """Whether something is mounted at exactly this path."""
    return any(mount.point == path for mount in table())


def number_of(folder: Path) -> str:
    """The device that a folder lies on, as in '7:3'."""
    return _number(folder.stat().st_dev)


def below(folder: Path) -> list[Path]:
    """Where something is mounted at or below a folder."""
    return [mount.point for mount in table() if mount.point.is_relative_to(folder)]


def unmount(mount: Mount) -> str:
    """Unmounts a file system, and says how.

    If it is in use (somebody's working folder, an open file) it leaves the mount table at once, and
    ends when its last user does. Raises TargetError if something else is mounted over it, Hangs if
    the device below does not answer.
    """
    there = [other for other in table() if other.point == mount.point]
    if mount not in there:  # and what may have come there since has perhaps its number, not its all
        return f"{mount.point} was unmounted already"
    if there[-1] != mount:
        raise TargetError(f"another mount covers {mount.point}: unmount that, then run this again")
    said = _umount(mount.point)
    if not said:
        return f"unmounted {mount.point}"
    if mount not in table():
        return f"{mount.point} was unmounted already"
    users = processes.users_below(mount.point)
    _call("sync", "--file-system", str(mount.point))
    if said := _umount(mount.point, "--lazy"):
        raise TargetError(f"{mount.point}: {said}")
    who = f"process {', '.join(map(str, users))}" if users else "somebody"
    return f"unmounted {mount.point} lazily: it ends when {who} leaves it"


def sync(point: Path, limit_s: float = _LIMIT_S) -> None:
    """Writes back all that a file system has not written yet. Raises TargetError, and Hangs if that
    takes longer than the limit.
    """
    if said := _call("sync", "--file-system", str(point), limit_s=limit_s):
        raise TargetError(f"{point}: {said}")


def drop(point: Path) -> None:
    """Takes whatever is mounted at a path out of the mount table, even if it is dead."""
    while is_point(point):
        said = _umount(point, "--lazy")
        if said and is_point(point):  # and not that somebody else was quicker
            raise TargetError(f"{point}: {said}")


def abort(point: Path) -> None:
    """Ends a FUSE connection: whoever waits for it gets an error. The mount may stay.

    A killed process that still waits for a file of its own could otherwise never end.
    """
    if is_point(point):
        _umount(point, "--force")


def _umount(point: Path, *options: str) -> str:
    """What umount complained of, if it did."""
    return _call("umount", "--internal-only", *options, str(point))


def _call(program: str, *arguments: str, limit_s: float = _LIMIT_S) -> str:
    process = subprocess.Popen(
        [find_program(program), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, said = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        process.kill()  # it ends when the kernel lets it; nobody waits for that
        raise Hangs(f"{program} {arguments[-1]} does not end") from error
    return (" ".join(said.split()) or "failed") if process.returncode else ""
