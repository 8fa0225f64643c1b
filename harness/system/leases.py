"""What a run has started, made or changed and must not outlive it: servers, folders, settings.

    with leases.open_lease() as lease:
        folder = lease.new_folder(Path("/tmp"), "flashlab-pg-")
        process = lease.start([...], ending=signal.SIGQUIT)

A lease is a folder below /run/flashlab/.leases (without root: in the user's own place), with a lock
that the run holds for as long as it lives, and notes:

    TOKEN/lock            held by the run
    TOKEN/process-PID     which process it is, and the signal that ends it
    TOKEN/folder-TOKEN    the path of a folder, noted before it is made
    TOKEN/cgroup-TOKEN    the path of a control group, noted before it is made
    TOKEN/mount-TOKEN     the folder that something of ours is mounted at, or is about to be
    TOKEN/partitions-TOKEN  the number of a claimed drive that the kernel has partitions of for us
    TOKEN/queue-TOKEN     a drive, and its queue's settings as they were before we changed any
    TOKEN/bound-TOKEN     a device, and what of it might be dirty before we bounded it

A process is ours if it has the number and start time, in the boot, that were noted; it notes them
itself, before it becomes the program that it is to be. A folder is ours if it has the noted path
and, in a file in it, the note's token. Names prove nothing, but for a control group, which can have
no file of ours in it: the note's token is in its name, and nobody else knows that. A drive is the
noted one as long as it has its sequence number, which the kernel gives to no other in that boot.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import DeviceError, HarnessError, TargetError
from harness.system import (
    block_queue,
    cgroups,
    kernel_partitions,
    launch,
    locks,
    mounts,
    processes,
    workqueues,
    writeback,
)
from harness.system.cgroups import Cgroup
from harness.system.programs import find_program

_DEVICES: Final = Path("/run/flashlab")
_FOR_ROOT: Final = _DEVICES / ".leases"
_TOKEN_FILE: Final = ".flashlab-lease"  # noqa: S105
_PROCESS: Final = {"pid": int, "identity": str, "ending": int}
_QUEUE: Final = {"drive": str, "boot": str, "sequence": str, "settings": dict, "changing": list}
_BOUND: Final = {"drive": str, "boot": str, "sequence": str, "ratio": str, "strict": str}
_OF_DRIVES: Final[Mapping[str, Mapping[str, type]]] = {"queue": _QUEUE, "bound": _BOUND}
_KILLED_S: Final = 20.0
_LAST_PID: Final = 1 << 22
"""PID_MAX_LIMIT of include/linux/threads.h."""


@dataclass(frozen=True)
class Lease:
    """What a living run has; `folder` holds its notes."""

    folder: Path

    def new_folder(self, parent: Path, prefix: str) -> Path:
        """A new folder that only we may enter; deleted with the lease. Raises TargetError.

        Its path has no links in it: so the mount table has what will be mounted there.
        """
        token = secrets.token_hex(8)
        path = parent.resolve() / f"{prefix}{token}"
        note = self.folder / f"folder-{token}"
        note.write_text(json.dumps(str(path)))
        try:
            path.mkdir(mode=0o700)
            (path / _TOKEN_FILE).write_text(token)
        except OSError as error:
            _delete_folder(note)
            raise TargetError(f"{path}: {error.strerror}: choose another folder") from error
        return path

    def delete_folder(self, path: Path) -> None:
        """Deletes one of our folders with all that is in it. Raises TargetError."""
        for note in self.folder.glob("folder-*"):
            if _noted_path(note) == path:
                _delete_folder(note)

    def new_cgroup(self) -> Cgroup:
        """A new control group; it ends with the lease, with all in it. Raises TargetError."""
        hierarchy = cgroups.find_hierarchy()
        token = secrets.token_hex(8)
        name = f"flashlab-{token}"
        (self.folder / f"cgroup-{token}").write_text(json.dumps(str(hierarchy.folder / name)))
        return cgroups.make(name, hierarchy)

    def note_mount(self, folder: Path) -> None:
        """Whatever will be mounted at one of our folders is unmounted with the lease."""
        note = self.folder / f"mount-{secrets.token_hex(8)}"
        note.write_text(json.dumps(str(folder)))

    def note_partitions(self, number: str) -> None:
        """The kernel's partitions of a claimed drive ('8:0') are removed with the lease."""
        note = self.folder / f"partitions-{secrets.token_hex(8)}"
        note.write_text(json.dumps(number))

    def note_queue(self, drive: str, changing: Sequence[str]) -> None:
        """A drive's queue settings are put back with the lease; before the first is changed.

        `drive`: its name in /sys/block. `changing`: which are to be changed, in this order. What a
        run that is no more has left of its own is put back first, or it would be noted, and put
        back by `clean` in the middle of this run. Raises TargetError.
        """
        with locks.folder_lock(_root(), shared=False):
            for left in _drive_notes("queue", _dead(), drive):
                _end_queue(left)
            settings = {"settings": block_queue.noted(drive), "changing": list(changing)}
            self._note_drive("queue", drive, settings)

    def note_bound(self, drive: str) -> None:
        """What may be dirty of a drive is put back with the lease; before it is bounded.

        `drive`: its name in /sys/block. What a run that is no more has left of its own is put back
        first, as of `note_queue`. Raises TargetError.
        """
        with locks.folder_lock(_root(), shared=False):
            for left in _drive_notes("bound", _dead(), drive):
                _end_bound(left)
            ratio, strict = writeback.bound_of(block_queue.number_of(drive))
            self._note_drive("bound", drive, {"ratio": ratio, "strict": strict})

    def _note_drive(self, kind: str, drive: str, facts: Mapping[str, Any]) -> None:
        sequence = block_queue.sequence(drive)
        there = {"drive": drive, "boot": processes.boot(), "sequence": sequence}
        note = self.folder / f"{kind}-{secrets.token_hex(8)}"
        note.write_text(json.dumps({**there, **facts}))

    def start(
        self,
        command: Sequence[str],
        *,
        ending: signal.Signals = signal.SIGTERM,
        cgroup: Cgroup | None = None,
        dies_with_us: bool = False,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Starts a process that `clean` ends with that signal if we cannot; options as of Popen.

        It and its children are in the control group, if one is given. `dies_with_us`: the kernel
        kills it (not its children) as soon as we are no more. Raises MissingTool.
        """
        # Before it looks whether we are there, so that there is no time between the two.
        dying = [find_program("setpriv"), "--pdeathsig", "KILL", "--"] if dies_with_us else []
        group = str(cgroup.processes_file) if cgroup else ""
        notes = [str(self.folder), str(os.getpid()), str(int(ending)), group]
        return subprocess.Popen(
            [*dying, sys.executable, "-I", "-S", launch.__file__, *notes, *command], **options
        )


@contextlib.contextmanager
def open_lease() -> Iterator[Lease]:
    """A lease for as long as the block runs; then its folders go, and processes that still live."""
    folder, lock = _new_lease()
    try:
        yield Lease(folder)
    finally:
        failed = [problem for kind in _KINDS for problem in _end_all([folder], kind)[1]]
        if not failed:
            shutil.rmtree(folder)
        os.close(lock)
    if failed:
        raise TargetError("; ".join(failed))


def call(
    command: Sequence[str], *, dies_with_us: bool = False, limit_s: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs a program to its end, in a lease of its own: after a kill, `clean` ends it.

    `dies_with_us`: the kernel kills it at once then, for what would go on to overwrite a device; of
    a program's own children it knows nothing. Raises MissingTool, TargetError, and DeviceError for
    one that does not end within `limit_s`, which is killed; who cannot even end then is in its
    lease, for `clean`.
    """
    pipe = subprocess.PIPE
    with open_lease() as lease:
        process = lease.start(
            command, dies_with_us=dies_with_us, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
        try:
            out, said = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it waits for the drive
                process.wait(_KILLED_S)
            raise DeviceError(
                f"{Path(command[0]).name} did not end within {limit_s:.0f} s: see whether the "
                "drive still works (dmesg)"
            ) from error
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            for pipe_end in (process.stdout, process.stderr):
                assert pipe_end is not None
                pipe_end.close()
    return subprocess.CompletedProcess(command, process.returncode, out, said)


def end_processes() -> tuple[list[str], list[str]]:
    """Ends processes of runs that are no more, and the control groups that they were in, and puts
    back drives' queue settings and what may be dirty of them.

    Returns what was done, and what could not be.
    """
    with locks.folder_lock(_root(), shared=False):
        dead = _dead()
        ended = [_end_all(dead, kind) for kind in ("process", "cgroup", "queue", "bound")]
        done = [line for lines, _ in ended for line in lines]
        return done, [line for _, lines in ended for line in lines]


def delete_folders() -> tuple[list[str], list[str]]:
    """Unmounts what is mounted at folders of runs that are no more, deletes these folders, and
    forgets the runs; after their processes. Partitions that the kernel has for them go, too.
    """
    root = _root()
    with locks.folder_lock(root, shared=False):
        dead = _dead()
        done, failed = _end_all(dead, "mount")
        for kind in ("partitions", "folder"):
            more_done, more_failed = _end_all(dead, kind)
            done, failed = done + more_done, failed + more_failed
        for lease in dead:
            if not any(note for kind in _KINDS for note in lease.glob(f"{kind}-*")):
                shutil.rmtree(lease, ignore_errors=True)
        for empty in (root, _DEVICES) if root == _FOR_ROOT else (root,):
            with contextlib.suppress(OSError):
                empty.rmdir()
    return done, failed


def queue_of(drive: str) -> dict[str, str]:
    """A drive's queue settings as the next run finds them: as they were before those changed any
    that are no more. `drive`: its name in /sys/block.
    """
    with locks.folder_lock(_root(), shared=True):
        for note in _drive_notes("queue", _dead(), drive):
            facts = _noted_facts(note, _QUEUE)
            if facts and _is_there(facts):
                return dict(facts["settings"])
    return block_queue.noted(drive)


def free_workqueues() -> None:
    """The kernel's own work runs where it did before live devices that were killed.

    It would be measured. A device's folder lies beside the leases, and has a lock as they have
    (devices/live/registry). Only root's can be; raises TargetError.
    """
    if os.geteuid() != 0:
        return
    with locks.folder_lock(_DEVICES, shared=False):  # no name becomes another device's meanwhile
        noted = [folder for folder in _DEVICES.glob("*") if (folder / workqueues.NOTE).exists()]
        living = [folder / workqueues.NOTE for folder in noted if _is_alive(folder)]
        for folder in noted:
            if folder / workqueues.NOTE not in living:
                workqueues.put_back(folder / workqueues.NOTE, living)


def _root() -> Path:
    if os.geteuid() == 0:
        return _FOR_ROOT
    own = Path(f"/run/user/{os.geteuid()}")
    shared = Path(tempfile.gettempdir())
    return (own if own.is_dir() else shared) / f"flashlab-leases-{os.geteuid()}"


def _new_lease() -> tuple[Path, int]:
    """A lease's folder and the descriptor that holds its lock."""
    root = _root()
    while True:
        try:
            for each in (root.parent, root):
                each.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise TargetError(
                f"{root}: {error.strerror}: it has to be a folder of yours"
            ) from error
        _check_owner(root)
        with locks.folder_lock(root, shared=True) as there:
            if there:
                folder = root / secrets.token_hex(8)
                folder.mkdir(mode=0o700)
                return folder, locks.hold(folder / "lock")


def _check_owner(folder: Path) -> None:
    """A folder that somebody else has made could name what he wants us to end or delete."""
    facts = folder.lstat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise TargetError(f"{folder} is not only yours: remove it")


def _dead() -> list[Path]:
    """Leases whose run is no more."""
    return [lease for lease in _all() if not _is_alive(lease)]


def _all() -> list[Path]:
    root = _root()
    if not root.is_dir():
        return []
    _check_owner(root)
    return [path for path in sorted(root.iterdir()) if path.is_dir()]


def _is_alive(lease: Path) -> bool:
    lock = lease / "lock"
    return locks.is_held(lock) and not locks.is_lost(lock)


def _end_all(leases: Sequence[Path], kind: str) -> tuple[list[str], list[str]]:
    """Ends what leases have noted of one kind; returns what was done, and what could not be."""
    action = _KINDS[kind]
    done, failed = [], []
    for note in (note for lease in leases for note in sorted(lease.glob(f"{kind}-*"))):
        try:
            done.append(action(note))
        except HarnessError as error:
            failed.append(str(error))
        except OSError as error:
            failed.append(f"{note}: {error}")
    return [line for line in done if line], failed


def _end_process(note: Path) -> str:
    """Ends a noted process, if it still is the one; returns what was done."""
    done = ""
    facts = _noted_facts(note, _PROCESS)
    if facts:
        pid = facts["pid"]
        if not 0 < pid <= _LAST_PID or facts["ending"] not in list(signal.Signals):
            raise _wrong(note)
        with processes.opened(pid) as process:
            if process is not None and processes.identity(pid) == facts["identity"]:
                processes.end(process, signal.Signals(facts["ending"]))
                done = f"ended process {pid}"
    note.unlink(missing_ok=True)
    return done


def _end_cgroup(note: Path) -> str:
    """Ends a noted control group and what is still in it; returns what was done."""
    path = _noted_path(note)
    done = ""
    if path is not None and path.is_dir() and path.name.endswith(_token(note)):
        ended = cgroups.at(path).remove()
        done = f"removed {path}" + (f" and {ended} processes in it" if ended else "")
    note.unlink(missing_ok=True)
    return done


def _end_queue(note: Path) -> str:
    """Puts a noted drive's queue settings back, if it still is the one; returns what was done."""
    return _end_setting(note, "queue", "queue settings", _put_queue_back)


def _put_queue_back(facts: Mapping[str, Any]) -> str:
    drive, settings = facts["drive"], facts["settings"]
    if block_queue.noted(drive) == settings:
        return ""
    block_queue.put_back(drive, settings, facts["changing"])
    return f"put back the queue settings of {drive}"


def _end_bound(note: Path) -> str:
    """Lifts the bound of a noted drive, if it still is the one; returns what was done."""
    return _end_setting(note, "bound", "bound", _lift_bound)


def _lift_bound(facts: Mapping[str, Any]) -> str:
    drive, was = facts["drive"], (facts["ratio"], facts["strict"])
    number = block_queue.number_of(drive)
    if writeback.bound_of(number) == was:
        return ""
    writeback.lift_bound(number, *was)
    return f"lifted the bound of {drive}'s dirty pages"


def _end_setting(
    note: Path, kind: str, what: str, put_back: Callable[[Mapping[str, Any]], str]
) -> str:
    """What a run that is no more had noted waits for a living one that uses the drive."""
    facts = _noted_facts(note, _OF_DRIVES[kind])
    done = ""
    if facts and _is_there(facts):
        if _is_used(note, kind, facts["drive"]):
            return _left(what, facts["drive"])
        done = put_back(facts)
    note.unlink(missing_ok=True)
    return done


def _left(what: str, drive: str) -> str:
    return f"left the {what} of {drive} to a run that uses it: clean up after it"


def _is_there(facts: Mapping[str, Any]) -> bool:
    """Whether a noted drive still is the one."""
    is_of_now = facts["boot"] == processes.boot()  # sequence numbers begin again with the next
    return is_of_now and bool(facts["sequence"] == block_queue.sequence(facts["drive"]) != "")


def _is_used(note: Path, kind: str, drive: str) -> bool:
    """Whether a living run has a note of that kind of the drive, and this one's run is no more."""
    return not _is_alive(note.parent) and bool(_drive_notes(kind, filter(_is_alive, _all()), drive))


def _drive_notes(kind: str, leases: Iterable[Path], drive: str) -> list[Path]:
    """Their notes of one kind of this drive; a wrong one is of none, and `clean` tells it."""
    found = []
    for note in (note for lease in leases for note in sorted(lease.glob(f"{kind}-*"))):
        with contextlib.suppress(TargetError):
            if _drive_in(note, kind) == drive:
                found.append(note)
    return found


def _drive_in(note: Path, kind: str) -> str | None:
    """Which drive it is of, by its name; of partitions by its number. None as of `_read`."""
    if kind == "partitions":
        return _noted_text(note)
    facts = _noted_facts(note, _OF_DRIVES[kind])
    return str(facts["drive"]) if facts else None


def _end_mount(note: Path) -> str:
    """Unmounts what is mounted at a noted folder; returns what was done."""
    path = _noted_path(note)
    done = [mounts.unmount(mount) for mount in mounts.table()[::-1] if mount.point == path]
    note.unlink(missing_ok=True)
    return "; ".join(done)


def _end_partitions(note: Path) -> str:
    """Removes the kernel's partitions of a noted drive, if it is ours; returns what was done.

    A living run that has taken the drive since has them in use, and removes them at its end.
    """
    number = _noted_text(note)
    if number is not None and _is_used(note, "partitions", number):
        return _left("kernel's partitions", number)
    done = kernel_partitions.remove_ours(number, unmounted=True) if number is not None else ""
    note.unlink(missing_ok=True)
    return done


def _delete_folder(note: Path) -> str:
    """Deletes a noted folder, if it is the one; returns what was done."""
    path = _noted_path(note)
    if path is None or not path.is_dir() or path.is_symlink() or not _is_ours(path, note):
        note.unlink(missing_ok=True)
        return ""
    if inside := mounts.below(path.resolve()):
        raise TargetError(f"{path}: something is mounted at {inside[0]}: unmount it first")
    try:
        _check_whole(path)
        shutil.rmtree(path)
    except OSError as error:
        raise TargetError(f"{path}: not deleted: {error}") from error
    note.unlink(missing_ok=True)
    return f"deleted {path}"


def _check_whole(folder: Path | str, above: int | None = None) -> None:
    """Raises OSError if a folder below is of another file system, whatever the mount table says.

    Follows no links, as rmtree. `above`: the folder that it is in, and of whose it has to be.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        if above is not None and os.fstat(fd).st_dev != os.fstat(above).st_dev:
            raise OSError(errno.EXDEV, "in it is one of another file system", str(folder))
        with os.scandir(fd) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in names:
            _check_whole(name, fd)
    finally:
        os.close(fd)


def _is_ours(path: Path, note: Path) -> bool:
    """By its token; without one, only an empty folder that we were killed in making."""
    try:
        return (path / _TOKEN_FILE).read_text() in (_token(note), "")
    except FileNotFoundError:
        return not any(path.iterdir())


def _token(note: Path) -> str:
    return note.name.rpartition("-")[2]


def _noted_path(note: Path) -> Path | None:
    path = _noted_text(note)
    return Path(path) if path is not None else None


def _noted_text(note: Path) -> str | None:
    """A note of one text; None as of `_read`. Raises TargetError for what is no such note."""
    text = _read(note)
    if text is not None and (not isinstance(text, str) or "\0" in text):
        raise _wrong(note)
    return text


def _noted_facts(note: Path, kinds: Mapping[str, type]) -> dict[str, Any] | None:
    """A note of facts, of these kinds; None as of `_read`. Raises TargetError for anything else."""
    facts = _read(note)
    if facts is None:
        return None
    if not isinstance(facts, dict) or {k: type(v) for k, v in facts.items()} != dict(kinds):
        raise _wrong(note)
    return facts


def _read(note: Path) -> Any:
    """What was noted; None if we were killed while noting it, which comes before all else.

    Raises TargetError for what cannot be read.
    """
    try:
        return json.loads(note.read_text())
    except (FileNotFoundError, ValueError):
        return None
    except (OSError, RecursionError) as error:
        raise _wrong(note) from error


def _wrong(note: Path) -> TargetError:
    """It is left alone, with all that it may stand for."""
    return TargetError(f"{note} is no note of ours: see what it names, then remove it")


_KINDS: Final[dict[str, Callable[[Path], str]]] = {
    "process": _end_process,
    "cgroup": _end_cgroup,
    "queue": _end_queue,
    "bound": _end_bound,
    "mount": _end_mount,
    "partitions": _end_partitions,
    "folder": _delete_folder,
}
"""What a lease notes, and what ends it; in the order in which things have to end."""
