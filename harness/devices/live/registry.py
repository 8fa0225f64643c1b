"""Which live devices there are: one folder each below /run/flashlab, and what it proves.

    NAME/device-TOKEN  the device's mark: all that is in the kernel of it is found by this path
    NAME/front         which front end it has (see front/): that knows what there is in the kernel
    NAME/lock          held by the device's process for as long as it lives
    NAME/owner         held by whoever wants the device to end with it; gone if nobody does
    NAME/control.sock  see control.py
    NAME/processors    what the kernel's own work ran on before the device changed it (workqueues)
    NAME/unfinished    files that are not worth anything before they are finished: paths, and of
                       those that anybody else could have made, too, which file it is
    NAME/spec.json     what was asked for;  NAME/about.json  what came of it;  NAME/log

A device is made in a folder without a name (.new-*) and goes through one (.old-*), so that a name
is either a whole device's or free. Everything that belongs to a device is found through this:
its process by the lock that it holds, its block device by the mark, file systems by the block
device's number. So `clean` touches nothing that is not ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from harness.devices.live import front
from harness.devices.live.front.base import Leftovers
from harness.errors import BadParameter, HarnessError, TargetError, UnknownName
from harness.system import file_identity, locks, mounts, workqueues
from harness.system.file_identity import FileIdentity

ROOT: Final = Path("/run/flashlab")
AGAIN: Final = "again"
"""What a device's process is told that takes over the block device of a dead one."""

_NAME: Final = re.compile(r"^[a-z0-9][a-z0-9_-]{0,31}$")
_NEW: Final = ".new-"
_OLD: Final = ".old-"
_FILE: Final = "device-"
_FRONT: Final = "front"
_ATTEMPTS: Final = 3
_LAZILY: Final = "lazily"
_SILENT: Final = "its file system does not answer: ended without writing it back"
_FREED: Final = "put back the processors of the kernel's own work"


@dataclass(frozen=True)
class Unfinished:
    """A file that is worth nothing without its device.

    `identity`: None: whatever has the name, which nobody else could have thought of.
    """

    path: Path
    identity: FileIdentity | None = None

    def as_line(self) -> str:
        """As it is noted."""
        whose = [str(self.path), *self.identity] if self.identity else str(self.path)
        return json.dumps(whose) + "\n"

    @classmethod
    def of_line(cls, line: str) -> Self:
        """As it was noted. Raises ValueError."""
        match json.loads(line):
            case str(path):
                return cls(Path(path))
            case [str(path), int(major), int(minor), int(inode), int(born_ns)]:
                return cls(Path(path), FileIdentity(major, minor, inode, born_ns))
        raise ValueError(line)

    def is_there(self) -> bool:
        """Whether it is, and nobody has it locked, as a live device has its store. Not, if nothing
        tells it from a later file of its inode.

        Raises OSError.
        """
        if not stat.S_ISREG(self.path.lstat().st_mode) or locks.is_held(self.path):
            return False
        known = self.identity
        return known is None or (known.is_unique and file_identity.of(self.path) == known)


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
        """The device's mark."""
        names = os.listdir(self.folder) if self.folder.is_dir() else []  # noqa: PTH208 - no stat
        return self.folder / next((n for n in names if n.startswith(_FILE)), _FILE)

    @property
    def front(self) -> str:
        """Its front end's name. A device of a version that knew only one has no note of it."""
        try:
            return (self.folder / _FRONT).read_text()
        except FileNotFoundError:
            return front.DEFAULT

    def leftovers(self) -> Leftovers:
        """What the kernel has of it. Raises UnknownName if its front end is another version's."""
        return front.named(self.front).leftovers(self.file)

    @property
    def socket(self) -> Path:
        """Where its process listens."""
        return self.folder / "control.sock"

    @property
    def log(self) -> Path:
        """What its process said."""
        return self.folder / "log"

    @property
    def lock(self) -> Path:
        """Held by its process."""
        return self.folder / "lock"

    @property
    def processors(self) -> Path:
        """A note, if the device wants the kernel's own work on its processor."""
        return self.folder / workqueues.NOTE

    def bind_workqueues(self, processor: int) -> None:
        """The kernel's own work runs there, until `free_workqueues`. Raises TargetError."""
        workqueues.bind(self.processors, processor, [o.processors for o in _others(self)])

    def free_workqueues(self) -> bool:
        """As it was, unless another device wants it; whether that was done. Raises TargetError."""
        living = [other.processors for other in _others(self) if not other.is_dead()]
        return workqueues.put_back(self.processors, living)

    def about(self) -> dict[str, Any]:
        """What came of the creation: pid, block device and more; empty before it has ended well."""
        return _json(self.folder / "about.json")

    def is_recoverable(self) -> bool:
        """Whether another process may serve it after its own has died."""
        return bool(_json(self.folder / "spec.json").get("recoverable"))

    def is_alive(self) -> bool:
        """Whether the device's process is there, if only because it cannot end."""
        return locks.is_held(self.lock)

    def is_dead(self) -> bool:
        """Whether the device's process has ended or was killed."""
        return not self.is_alive() or locks.is_lost(self.lock)

    def is_abandoned(self) -> bool:
        """Whether somebody wanted the device to end with it, or was making it, and is no more."""
        return locks.is_lost(self.folder / "owner")

    def is_owned(self) -> bool:
        """Whether somebody lives who wants the device to end with it, or is making it."""
        owner = self.folder / "owner"
        return locks.is_held(owner) and not locks.is_lost(owner)

    def last_words(self) -> str:
        """The last line that its process said."""
        try:
            said = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            said = []
        return said[-1] if said else "it said nothing"

    def note_unfinished(self, *paths: Path) -> None:
        """The device's process is about to make these files, whose names nobody can think of:
        without it they are worth nothing.
        """
        with (self.folder / "unfinished").open("a") as notes:
            notes.writelines(Unfinished(path).as_line() for path in paths)

    def note_made(self, path: Path, fd: int) -> None:
        """The device's process has just made this file; another one at this path is not meant.

        A process that is killed before it says so leaves an empty file: nothing proves whose it is.
        """
        with (self.folder / "unfinished").open("a") as notes:
            notes.write(Unfinished(path, file_identity.of(fd)).as_line())

    def forget_unfinished(self, *paths: Path) -> None:
        """These have been finished, or deleted."""
        self._rewrite([file for file in self.unfinished() if file.path not in paths])

    def _rewrite(self, files: Iterable[Unfinished]) -> None:
        part = self.folder / "unfinished.part"
        part.write_text("".join(file.as_line() for file in files))
        part.rename(self.folder / "unfinished")

    def unfinished(self) -> list[Unfinished]:
        """What was noted; a line that was cut off was noted of nothing yet."""
        try:
            lines = (self.folder / "unfinished").read_text().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):
                found.append(Unfinished.of_line(line))
        return found


@dataclass
class Creation:
    """Held by whoever makes a device: its place, and the locks that keep `clean` away from it."""

    place: Place
    lock: int
    owner: int

    def hand_over(self) -> None:
        """The device's process lives: from now on only that holds its lock."""
        os.close(self.lock)

    def disown(self) -> None:
        """The device shall outlive its maker. The file goes first: see `locks`."""
        (self.place.folder / "owner").unlink(missing_ok=True)
        os.close(self.owner)

    def undo(self) -> None:
        """Removes all traces of an attempt."""
        remove_traces(self.place)
        os.close(self.lock)
        os.close(self.owner)


def begin(name: str, profile: str, front_end: str) -> Creation:
    """A folder for a new device: `name`, or the first free one that the profile suggests.

    Its locks are held before it has its name, so that nobody takes it for a dead device's. Raises
    BadParameter or TargetError, and then makes nothing.
    """
    if name and not _NAME.match(name):
        raise BadParameter(
            f"name {name!r}: lower-case letters, digits, - and _ only, at most 32 of them"
        )
    with _root():
        try:
            unnamed = Path(tempfile.mkdtemp(prefix=_NEW, dir=ROOT))
        except OSError as error:
            raise TargetError(
                f"{ROOT}: {error.strerror}: live devices need a writable /run"
            ) from error
        lock, owner = (locks.hold(unnamed / which) for which in ("lock", "owner"))
        (unnamed / f"{_FILE}{secrets.token_hex(4)}").touch(mode=0o600)
        (unnamed / _FRONT).write_text(front_end)
        for candidate in [name] if name else _names_for(profile):
            with contextlib.suppress(OSError):
                unnamed.rename(ROOT / candidate)
                return Creation(Place(candidate), lock, owner)
        shutil.rmtree(unnamed)
    for fd in (lock, owner):
        os.close(fd)
    raise TargetError(
        f"there is a device called {name}: choose another --name, or `harness device remove {name}`"
    )


def reopen(place: Place) -> int:
    """The lock of a device whose process has died, held for another one to serve it.

    What the dead process had not finished goes. Raises TargetError if its process lives, or cannot
    end yet, if somebody else recovers it, or if the device has gone.
    """
    with _root():  # nobody cleans meanwhile
        existing(place.name)
        if place.is_alive():
            raise TargetError(f"{place.name} need not be recovered: its process is there")
        lock = locks.hold_now(place.lock)
        if lock is None:
            raise TargetError(f"{place.name} is being recovered by somebody else")
        _delete_unfinished(place)
        (place.folder / "unfinished").unlink(missing_ok=True)
        owner = place.folder / "owner"
        if locks.is_lost(owner):  # whoever wanted it to end with him is no more
            owner.unlink()
        place.socket.unlink(missing_ok=True)
        place.free_workqueues()
    return lock


@contextlib.contextmanager
def _root() -> Iterator[None]:
    """The folder of all devices, made if need be, and not removed meanwhile."""
    while True:
        try:
            ROOT.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise TargetError(
                f"{ROOT}: {error.strerror}: live devices need a writable /run"
            ) from error
        with locks.folder_lock(ROOT, shared=True) as there:
            if there:
                yield
                return


def _names_for(profile: str) -> Iterator[str]:
    stem = re.sub(r"[^a-z0-9_-]", "-", Path(profile).stem.lower()).lstrip("-_")[:24] or "device"
    yield stem
    yield from (f"{stem}-{i}" for i in range(2, 1000))


def list_names() -> list[str]:
    """Names of all devices, those that only left traces included. Raises TargetError."""
    try:
        names = os.listdir(ROOT)  # noqa: PTH208 - the entries need not be looked at
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TargetError(f"{ROOT}: {error.strerror}: live devices need root") from error
    return sorted(name for name in names if _NAME.match(name))


def _others(place: Place) -> list[Place]:
    return [Place(name) for name in list_names() if name != place.name]


def existing(name: str) -> Place:
    """A device's place. Raises UnknownName."""
    if name not in list_names():
        raise UnknownName("live device", name, list_names())
    return Place(name)


def clean(*, everything: bool = False) -> tuple[list[str], list[str]]:
    """Removes what killed processes have left behind; with `everything`, living devices as well.

    A device goes if its process is dead, or if its owner is; a living one of a living owner never,
    since that measures on it: who wants it to end removes it by its name. What does not go does not
    keep the others. Returns what was done and what could not be, a line each.
    """
    done: list[str] = []
    failed: list[str] = []
    names = list_names()
    with locks.folder_lock(ROOT, shared=False):  # one at a time, and nobody begins a device
        for place in map(Place, names):
            left_behind = place.is_dead() or place.is_abandoned()
            if not (everything or left_behind):
                continue
            if not left_behind and place.is_owned():
                done.append(
                    f"{place.name}: left to the run that made it: "
                    f"`harness device remove --force {place.name}` ends it"
                )
                continue
            try:
                done += _remove_traces(place)
            except (HarnessError, OSError) as error:  # what it has in the kernel may go meanwhile
                failed.append(f"{place.name}: {error}")
        for prefix in (_NEW, _OLD):
            for unnamed in ROOT.glob(f"{prefix}*"):
                _delete(unnamed)
                gone = not os.path.lexists(unnamed)
                done += [f"removed {unnamed}"] if gone else []
                failed += [] if gone else [f"{unnamed} cannot be removed"]
        with contextlib.suppress(OSError):
            ROOT.rmdir()
    return done, failed


def remove_traces(place: Place) -> list[str]:
    """Ends the device's process, if it lives, and removes all that belongs to it.

    Returns what was done. Raises TargetError for what cannot be, and leaves the folder then, so
    that it is found again.
    """
    with locks.folder_lock(ROOT, shared=False):  # nobody else gets the name meanwhile
        return _remove_traces(place)


def _remove_traces(place: Place) -> list[str]:
    if not place.folder.is_dir():
        return []
    left = place.leftovers()
    locks.check_holders(place.lock)
    _check_no_swap(place, left)
    locks.wake_holders(place.lock)
    done = _unmount_while_it_lives(place, left)
    _check_free(place, left, done)
    left.abort()  # nothing is left to be written, and its process may wait for itself
    done += [f"ended process {pid}" for pid in locks.end_holders(place.lock)]
    for _ in range(_ATTEMPTS):  # somebody may be mounting it just now
        done += _unmount_all(left)
        patient = not any(_LAZILY in line for line in done)
        detached = _detach(left, patient=patient)
        if not left.block_devices() or not _is_mounted(left):
            break
    done += [*detached, *left.drop()]
    done += [_FREED] if place.free_workqueues() else []
    done += _delete_unfinished(place)
    discard(place)
    return [f"{place.name}: {line}" for line in [*done, f"removed {place.folder}"]]


def _check_no_swap(place: Place, left: Leftovers) -> None:
    """Memory of any process may be there, and nowhere else; once it is lost nobody can have it."""
    if place.is_dead() and not place.is_recoverable():
        return
    swaps = [swap for device in left.block_devices() for swap in mounts.swaps_on(device)]
    if swaps:
        raise TargetError(f"the kernel swaps to {swaps[0]}: swapoff {swaps[0]} first")


def _check_free(place: Place, left: Leftovers, done: list[str]) -> None:
    """Whether the kernel still has something there that was not written back: another device, a
    journal, a file system of several devices or of another mount namespace. Whoever has it open
    himself is ended, which is what he who asks for it wants.
    """
    if place.is_dead() or any(_LAZILY in line or line == _SILENT for line in done):
        return
    for device in left.block_devices():
        if not mounts.is_claimed(device) or mounts.users(device):
            continue
        whose = ", ".join(mounts.holders(device)) or "a file system, perhaps in another namespace"
        pids = " ".join(map(str, locks.holders(place.lock)))
        raise TargetError(
            f"the kernel still uses {device} ({whose}): end that first; after `kill {pids}`, by "
            "which what is not written is lost, it goes"
        )


def _unmount_while_it_lives(place: Place, left: Leftovers) -> list[str]:
    """Unmounts, so that what the kernel still has to write is written; not if that hangs."""
    if place.is_dead():
        return []
    try:
        return _unmount_all(left)
    except mounts.Hangs:
        return [_SILENT]


def unmount_all(place: Place) -> list[str]:
    """Unmounts every file system on a device; returns how. Raises TargetError."""
    return _unmount_all(place.leftovers())


def _unmount_all(left: Leftovers) -> list[str]:
    return [mounts.unmount(m) for device in left.block_devices() for m in mounts.of_device(device)]


def _is_mounted(left: Leftovers) -> bool:
    return any(mounts.of_device(device) for device in left.block_devices())


def _detach(left: Leftovers, *, patient: bool) -> list[str]:
    attached = left.block_devices()
    busy = left.detach(limit_s=3.0 if patient else 0.5)
    return [
        f"{device} is in use, and detaches itself after its last user"
        if device in busy
        else f"detached {device}"
        for device in attached
    ]


def _delete_unfinished(place: Place) -> list[str]:
    deleted = []
    for file in place.unfinished():
        with contextlib.suppress(OSError):
            if file.is_there():
                file.path.unlink()
                deleted.append(f"deleted {file.path}, which was not finished")
            elif file.identity is not None and not file.identity.is_unique:
                deleted.append(f"left {file.path}: its file system does not say which file it is")
    return deleted


def discard(place: Place) -> None:
    """Frees a device's name at once, then deletes its folder."""
    gone = ROOT / f"{_OLD}{secrets.token_hex(4)}"
    with contextlib.suppress(FileNotFoundError):  # its process was quicker
        place.folder.rename(gone)
        _delete(gone)


def _delete(folder: Path) -> None:
    """Deletes a folder that has no name any more, and what is left mounted in it."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    for point in mounts.below(folder):
        mounts.drop(point)
    shutil.rmtree(folder, ignore_errors=True)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
