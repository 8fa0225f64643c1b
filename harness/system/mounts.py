"""What is mounted where, and how to end it without hanging."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import TargetError
from harness.system import block_queue, processes
from harness.system.programs import find_program

_LIMIT_S: Final = 20.0
_NUMBERS: Final = Path("/sys/dev/block")


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
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    split = [(line.split(), line.split(" - ")[-1].split()) for line in lines]
    return [Mount(f[0], f[2], Path(_unescaped(f[4])), _unescaped(g[1])) for f, g in split]


def of_device(device: Path) -> list[Mount]:
    """Where a block device is mounted, innermost first.

    Of one that the kernel has ended: mounts of that name without a device.
    """
    mounted = table()[::-1]
    try:
        number = block_queue.number_of(device.name)
    except FileNotFoundError:
        named = [mount for mount in mounted if mount.source == str(device)]
        return [mount for mount in named if not (_NUMBERS / mount.number).exists()]
    return [mount for mount in mounted if mount.number == number]


def users_elsewhere(device: Path) -> list[int]:
    """Processes in whose mount namespaces a block device is mounted, if it is not in ours."""
    try:
        number = block_queue.number_of(device.name)
    except FileNotFoundError:
        return []
    own = os.readlink("/proc/self/ns/mnt")  # noqa: PTH115 - it is not a path
    return [pid for pid, line in processes.mount_tables(but=own) if line.split()[2] == number]


def is_point(path: Path) -> bool:
    """Whether something is mounted at exactly this path."""
    return any(mount.point == path for mount in table())


def number_of(folder: Path) -> str:
    """The device that a folder lies on, as in '7:3'."""
    number = folder.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def below(folder: Path) -> list[Path]:
    """Where something is mounted at or below a folder."""
    return [mount.point for mount in table() if mount.point.is_relative_to(folder)]


def unmount(mount: Mount) -> str:
    """Unmounts a file system, and says how.

    If it is in use (somebody's working folder, an open file) it leaves the mount table at once, and
    ends when its last user does. Raises TargetError if something else is mounted over it, Hangs if
    the device below does not answer.
    """
    on_top = [other for other in table() if other.point == mount.point][-1:]
    if on_top and on_top[0].ident != mount.ident:
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


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)
