"""Which live devices there are: one folder each below /run/flashlab, and what it proves.

    NAME/device        the file that the core serves; the loop device lies over it
    NAME/lock          locked by the device's process for as long as it lives
    NAME/owner         locked by whoever wants the device to end with it, if anybody does
    NAME/control.sock  see control.py
    NAME/spec.json     what was asked for;  NAME/about.json  what came of it;  NAME/log

Everything that belongs to a device is found through these paths: the loop device by its backing
file, the FUSE mount by its place, file systems by the loop device below them. So `clean` touches
nothing that is not ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import BadParameter, HarnessError, TargetError, UnknownName
from harness.programs import find_program

ROOT: Final = Path("/run/flashlab")
_NAME: Final = re.compile(r"^[a-z0-9][a-z0-9_-]{0,31}$")
_UNNAMED: Final = ".new-"
_LIMIT_S: Final = 20.0
_LOOP_CTL_REMOVE: Final = 0x4C81  # linux/loop.h


@dataclass(frozen=True)
class Place:
    """A device's folder. `name` may be used in commands."""

    name: str

    @property
    def folder(self) -> Path:
        """Everything about the device."""
        return ROOT / self.name

    @property
    def file(self) -> Path:
        """What the loop device lies over."""
        return self.folder / "device"

    @property
    def socket(self) -> Path:
        """Where its process listens."""
        return self.folder / "control.sock"

    @property
    def log(self) -> Path:
        """What its process said."""
        return self.folder / "log"

    def about(self) -> dict[str, Any]:
        """What came of the creation: pid, loop device and more; empty before it has ended well."""
        return _json(self.folder / "about.json")

    def is_alive(self) -> bool:
        """Whether the device's process lives."""
        return _is_locked(self.folder / "lock")

    def is_abandoned(self) -> bool:
        """Whether somebody wanted the device to end with it, and is no more."""
        owner = self.folder / "owner"
        return owner.exists() and not _is_locked(owner)


def new_place(name: str) -> tuple[Place, int]:
    """A folder for a new device, and a descriptor that holds its lock.

    The lock is taken before the folder has its name, so that nobody takes it for a dead device's.
    Raises BadParameter or TargetError, and then makes nothing.
    """
    if not _NAME.match(name):
        raise BadParameter(
            f"name {name!r}: lower-case letters, digits, - and _ only, at most 32 of them"
        )
    place = Place(name)
    try:
        ROOT.mkdir(mode=0o700, exist_ok=True)
        unnamed = Path(tempfile.mkdtemp(prefix=_UNNAMED, dir=ROOT))
    except OSError as error:
        raise TargetError(f"{ROOT}: {error.strerror}: live devices need root") from error
    lock = _locked(unnamed / "lock")
    try:
        unnamed.rename(place.folder)
    except OSError as error:
        shutil.rmtree(unnamed)
        os.close(lock)
        raise TargetError(
            f"there is a device called {name}: choose another --name, or remove it"
        ) from error
    return place, lock


def free_name(profile: str) -> str:
    """A name that no device has, from the profile's: 'mx500', 'mx500-2', ..."""
    stem = re.sub(r"[^a-z0-9_-]", "-", Path(profile).stem.lower())[:24]
    taken = set(list_names())
    return next(n for n in (stem, *(f"{stem}-{i}" for i in range(2, 10_000))) if n not in taken)


def list_names() -> list[str]:
    """Names of all devices, those that only left traces included."""
    if not ROOT.is_dir():
        return []
    return sorted(path.name for path in ROOT.iterdir() if path.is_dir() and _NAME.match(path.name))


def existing(name: str) -> Place:
    """A device's place. Raises UnknownName."""
    if name not in list_names():
        raise UnknownName("live device", name, list_names())
    return Place(name)


def owned(place: Place) -> int:
    """Makes the device's life depend on the caller's: a descriptor, to be kept open for as long."""
    return _locked(place.folder / "owner")


def clean(*, everything: bool = False) -> list[str]:
    """Removes what killed processes have left behind; with `everything`, living devices as well.

    A device goes if its process is dead, or if its owner is. Returns what was done, a line each.
    """
    done = []
    for name in list_names():
        place = Place(name)
        if everything or not place.is_alive() or place.is_abandoned():
            done += remove_traces(place)
    for unnamed in ROOT.glob(f"{_UNNAMED}*"):
        if not _is_locked(unnamed / "lock") and time.time() - unnamed.stat().st_mtime > _LIMIT_S:
            shutil.rmtree(unnamed)
            done.append(f"removed {unnamed}")
    with contextlib.suppress(OSError):
        ROOT.rmdir()
    return done


def remove_traces(place: Place) -> list[str]:
    """Ends the device's process, if it lives, and removes all that belongs to it."""
    done = []
    for loop in loops_over(place.file):
        for mount in mounts_of(loop):
            _run("umount", str(mount))
            done.append(f"{place.name}: unmounted {mount}")
    if place.is_alive() and (pid := place.about().get("pid")):
        _end(place, pid)
        done.append(f"{place.name}: ended process {pid}")
    for loop in loops_over(place.file):
        was_limited = not may_discard(loop)
        _run("losetup", "--detach", str(loop))
        _wait_until(lambda: not loops_over(place.file), f"{loop} stays attached")
        if was_limited:
            renew(loop)
        done.append(f"{place.name}: detached {loop}")
    while _is_mount(place.file):
        _run("umount", "--lazy", str(place.file))
        done.append(f"{place.name}: unmounted {place.file}")
    if place.folder.exists():
        shutil.rmtree(place.folder)
        done.append(f"{place.name}: removed {place.folder}")
    return done


def loops_over(file: Path) -> list[Path]:
    """Loop devices over a file."""
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if backing.read_text().rstrip("\n").removesuffix(" (deleted)") == str(file):
                found.append(Path("/dev") / backing.parts[3])
    return sorted(found)


def may_discard(loop: Path) -> bool:
    """Whether a loop device takes TRIM commands, as far as its queue's limit goes."""
    try:
        limit = (Path("/sys/block") / loop.name / "queue/discard_max_bytes").read_text()
    except OSError:
        return True
    return int(limit) > 0


def renew(loop: Path) -> None:
    """Removes a loop device that nothing uses, so that whoever needs one gets it made anew.

    A queue's limits outlast what lies below it, and a limit of 0 for discards cannot be taken back:
    the kernel (6.18) then takes their granularity for 0 and refuses every other size.
    """
    with contextlib.suppress(OSError):  # somebody has taken it meanwhile
        fd = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, _LOOP_CTL_REMOVE, int(loop.name.removeprefix("loop")))
        finally:
            os.close(fd)


def mounts_of(device: Path) -> list[Path]:
    """Where a block device is mounted, innermost first."""
    number = _number_of(device)
    found = [Path(fields[4]) for fields in _mount_table() if fields[2] == number]
    return found[::-1]


def _number_of(device: Path) -> str:
    return (Path("/sys/block") / device.name / "dev").read_text().strip()


def _is_mount(file: Path) -> bool:
    return any(_unescaped(fields[4]) == str(file) for fields in _mount_table())


def _mount_table() -> list[list[str]]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [[_unescaped(field) for field in line.split()] for line in lines]


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)


def _end(place: Place, pid: int) -> None:
    """The lock says that the process lives, so its number is still its own."""
    for last_word in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, last_word)
        with contextlib.suppress(HarnessError):
            _wait_until(lambda: not place.is_alive(), f"process {pid} does not end")
            return


def _wait_until(holds: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not holds():
        if time.monotonic() > deadline:
            raise TargetError(f"{otherwise}: see who uses it (fuser, lsof), then run this again")
        time.sleep(0.02)


def _locked(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _run(program: str, *arguments: str) -> None:
    command = [find_program(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TargetError(f"{program}: {' '.join(done.stderr.split())}")
