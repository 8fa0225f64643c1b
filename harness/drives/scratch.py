"""Files and loop devices that an experiment may overwrite: found to be ours, or refused.

Fail closed. A target is used only if this program has made it (a new file), or if it carries this
program's marker, or if it is a loop device with nothing at all on it. Everything else, whatever the
permissions allow, is somebody's data; so is a loop device on which something else has been made
beside the marker. Drives are not accepted here.

A target is opened once, and locked and held open for as long as it is used: no other run has it
then, and the number of a loop device that is open cannot become another image's.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.drives import device_locks, discovery, fingerprint
from harness.errors import DiskFull, TargetError
from harness.system import fio_names, loop_devices, mounts
from harness.units import format_bytes

HEADER_BYTES: Final = 1 << 20
"""What lies before this offset on a target belongs to the harness."""

MARKER: Final = b"FLASHLAB SCRATCH: everything on this device may be overwritten\n"

# Every file system, RAID, LVM and partition table signature lies in one of these.
_SIGNATURE_BYTES: Final = 1 << 20
_SPARE_BYTES: Final = 64 << 20
_LOOP_MAJOR: Final = 7
_HEADER_BLOCK_BYTES: Final = 4096
_IN_MEMORY: Final = ("tmpfs", "ramfs", "devtmpfs")


@dataclass(frozen=True)
class Scratch:
    """A target that may be overwritten from HEADER_BYTES to `size_bytes`: a `Target`.

    `held`: the descriptor through which it was checked and marked; -1 in a plan.
    """

    path: Path
    size_bytes: int
    held: int = -1

    def permit(self, step: str, written_bytes: int) -> None:
        """See targets.Target: its path leads to what is held, and that carries our marker."""
        del written_bytes
        if self.held < 0:
            raise TargetError(f"{self.path} is not held: {step} is refused")
        if not _is_at(self.held, self.path):
            raise TargetError(f"{step}: {self.path} is not what it was when it was marked: refused")
        if not _is_marked(self.held):
            raise TargetError(f"{step}: {self.path} does not carry our marker any more: refused")


def check(path: Path, needed_bytes: int, *, cached: bool = False) -> None:
    """Raises TargetError or DiskFull, with the reason, unless `path` may be used.

    `cached`: also on a file system that has no O_DIRECT. Leaves nothing behind.
    """
    for name in (path.absolute(), Path(os.path.realpath(path))):
        fio_names.check(name)
    if path.is_symlink() or path.exists():
        _check_existing(Path(os.path.realpath(path)), needed_bytes, cached=cached)
    else:
        _check_new(path, needed_bytes, cached=cached)


@contextmanager
def use(path: Path, needed_bytes: int, *, cached: bool = False) -> Iterator[Scratch]:
    """The target: checked, marked, of at least the needed size, and no other run's meanwhile.

    A file is deleted afterwards. Raises TargetError (also if another run has it) or DiskFull, and
    then leaves nothing behind.
    """
    check(path, needed_bytes, cached=cached)
    real = Path(os.path.realpath(path))  # of a link that leads to itself, that link
    is_new = not real.exists()
    held = _open(real, is_new=is_new)
    is_ours = is_new
    try:
        if stat.S_ISBLK(os.fstat(held).st_mode):
            device_locks.take(held, real, device_locks.UDEV_PATIENCE_S)
            _check_loop_device(real, os.fstat(held))
            _check_content(real, held, needed_bytes)
            _mark(real, held)
            yield Scratch(real, _size_of(held), held)
            return
        _take_file(real, held, is_new=is_new)
        is_ours = True
        _fill(real, held, needed_bytes)
        yield Scratch(real, needed_bytes, held)
    finally:
        if is_ours and _is_at(held, real):
            real.unlink()
        os.close(held)


@contextmanager
def block_device(target: Scratch) -> Iterator[Path]:
    """What lies behind the header as a block device, past the page cache: a file takes no TRIM.

    A loop device, which goes with its last user, however that ends. Raises TargetError.
    """
    # Opened anew: what the loop device has of it may outlast the run, and the lock must not.
    backing = os.open(f"/proc/self/fd/{target.held}", os.O_RDWR | os.O_CLOEXEC)
    try:
        device, loop = loop_devices.attach(
            backing,
            offset_bytes=HEADER_BYTES,
            size_bytes=target.size_bytes - HEADER_BYTES,
            is_temporary=True,
        )
    finally:
        os.close(backing)
    try:
        yield device
    finally:
        os.close(loop)


def _check_new(path: Path, needed_bytes: int, *, cached: bool) -> None:
    parent = path.parent
    if not parent.is_dir():
        raise TargetError(f"{path}: there is no folder {parent}: create it or choose another path")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise TargetError(f"{path}: {parent} is not writable: choose another path")
    if _is_below_dev(parent):
        raise TargetError(
            f"{path}: there is no such device, and no file is made below /dev: give the path of a "
            "loop device that exists, or of a file elsewhere"
        )
    if not cached and not _has_direct_io(parent):
        raise TargetError(
            f"{path}: {parent} is on a file system without O_DIRECT, such as one in memory: what "
            "is measured there is the page cache; choose another path, or ask for it with --cached"
        )
    free = os.statvfs(parent)
    free_bytes = free.f_bavail * free.f_frsize
    if free.f_flag & os.ST_RDONLY:
        raise TargetError(f"{path}: {parent} is mounted read-only: choose another path")
    if free_bytes < needed_bytes + _SPARE_BYTES:
        raise DiskFull(
            f"{path}: the experiment needs {format_bytes(needed_bytes)}, "
            f"{format_bytes(free_bytes)} are free: free some, or choose a smaller --scale"
        )


def _is_below_dev(folder: Path) -> bool:
    """Whether it is in /dev, where a file would be a typo of a device; its mounts are no part."""
    real = Path(os.path.realpath(folder))
    return real.is_relative_to("/dev") and real.stat().st_dev == Path("/dev").stat().st_dev


def _has_direct_io(folder: Path) -> bool:
    """Tried with a file that has no name, and is gone when it is closed.

    Newer kernels take the flag on file systems in memory, too, where it means nothing.
    """
    if fingerprint.storage_of(folder)["file_system"] in _IN_MEMORY:
        return False
    flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
    try:
        plain = os.open(folder, flags, 0o600)
    except OSError:
        return True  # a file system without such files says nothing of O_DIRECT
    try:
        os.close(os.open(f"/proc/self/fd/{plain}", os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC))
    except OSError as error:
        return error.errno != errno.EINVAL
    finally:
        os.close(plain)
    return True


def _check_existing(path: Path, needed_bytes: int, *, cached: bool) -> None:
    try:
        info = path.stat()
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror}") from error
    if stat.S_ISDIR(info.st_mode):
        raise TargetError(f"{path} is a directory: give the path of a file to make in it")
    if stat.S_ISREG(info.st_mode):
        _check_existing_file(path, needed_bytes, cached=cached)
    elif stat.S_ISBLK(info.st_mode):
        _check_loop_device(path, info)
        _check_direct(path, info, cached=cached)
        with path.open("rb") as device:
            _check_content(path, device.fileno(), needed_bytes)
    else:
        raise TargetError(f"{path} is neither a file nor a block device")


def _check_existing_file(path: Path, needed_bytes: int, *, cached: bool) -> None:
    if not os.access(path, os.R_OK | os.W_OK):
        raise TargetError(f"{path} is not writable: choose another path")
    if loop := _loop_over(path):
        raise TargetError(f"{path} is the backing file of {loop}: choose another path")
    if _is_swap(path):
        raise TargetError(f"{path} is a swap file: choose another path")
    with path.open("rb") as file:
        _check_made_by_us(path, file.fileno())
    _check_new(path, max(needed_bytes - path.stat().st_blocks * 512, 0), cached=cached)


def _check_made_by_us(path: Path, fd: int) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode) or not _is_marked(fd):
        raise TargetError(
            f"{path} exists and was not made by this program: choose a path that does not exist "
            "yet (nothing was changed)"
        )


def _check_loop_device(path: Path, info: os.stat_result) -> None:
    if os.major(info.st_rdev) != _LOOP_MAJOR:
        raise TargetError(f"{path} is a drive: only files and loop devices can be used here")
    sysfs = Path("/sys/dev/block") / f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"
    if loop_devices.is_over_device(path):
        raise TargetError(
            f"{path} is a loop device over a drive, which it does not hold, nor who else uses it: "
            "claim the drive (harness hardware claim), or give a loop device over a file"
        )
    if found := mounts.of_device(Path("/dev") / sysfs.resolve().name):
        raise TargetError(f"{path} is mounted at {found[-1].point}: unmount it first")
    if _is_swap(path):
        raise TargetError(f"{path} is used as swap: switch that off first")
    if any((sysfs / "holders").glob("*")) or any(sysfs.glob(f"{path.name}p*")):
        raise TargetError(f"{path} is held by another device or has partitions: choose another")
    if (sysfs / "ro").read_text().strip() != "0" or not os.access(path, os.R_OK | os.W_OK):
        raise TargetError(f"{path} is not writable: set it up without --read-only, or be root")


def _check_direct(path: Path, info: os.stat_result, *, cached: bool) -> None:
    """O_DIRECT on a loop device may end in the page cache of what is below."""
    sysfs = Path("/sys/dev/block") / f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"
    if not cached and (sysfs / "loop" / "dio").read_text().strip() != "1":
        raise TargetError(
            f"{path} reads and writes the page cache of what is below, so that is what would be "
            f"measured: losetup --direct-io=on {path}, or ask with --cached"
        )


def _check_content(path: Path, fd: int, needed_bytes: int) -> None:
    """Of an open loop device: it is large enough, and nobody's data."""
    size_bytes = _size_of(fd)
    if size_bytes < needed_bytes:
        raise TargetError(
            f"{path} holds {format_bytes(size_bytes)}, {format_bytes(needed_bytes - size_bytes)} "
            "less than the experiment needs: choose a larger one, or a smaller --scale"
        )
    if not _is_ours_or_blank(fd, size_bytes):
        raise TargetError(
            f"{path} is not blank and does not carry this program's marker: if nothing on it is "
            f"needed, clear it yourself (wipefs -a, then blkdiscard -z) and run again"
        )
    # What a run of ours leaves begins behind its header, where nobody looks for a signature.
    if found := discovery.signatures(path):
        raise TargetError(
            f"{path} is not this program's alone ({'; '.join(found)}): if nothing on it is needed, "
            "clear it yourself (wipefs -a) and run again"
        )


def _is_ours_or_blank(fd: int, size_bytes: int) -> bool:
    head = os.pread(fd, _SIGNATURE_BYTES, 0)
    tail = os.pread(fd, _SIGNATURE_BYTES, max(size_bytes - _SIGNATURE_BYTES, 0))
    return head.startswith(MARKER) or not (any(head) or any(tail))


def _is_swap(path: Path) -> bool:
    return path in mounts.swaps()


def _loop_over(path: Path) -> str | None:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            if backing.read_text().rstrip("\n") == str(path):
                return f"/dev/{backing.parts[3]}"
    return None


def _size_of(fd: int) -> int:
    return os.lseek(fd, 0, os.SEEK_END)


def _is_at(fd: int, path: Path) -> bool:
    """Whether a path leads to the very file that is open, or to the device."""
    held = os.fstat(fd)
    try:
        there = path.lstat()
    except OSError:
        return False
    if stat.S_ISBLK(held.st_mode):
        return stat.S_ISBLK(there.st_mode) and there.st_rdev == held.st_rdev
    return os.path.samestat(there, held)


def _is_marked(fd: int) -> bool:
    """Looks at the device itself: what was written to a loop device's image is not in its cache."""
    if stat.S_ISBLK(os.fstat(fd).st_mode):
        os.posix_fadvise(fd, 0, _HEADER_BLOCK_BYTES, os.POSIX_FADV_DONTNEED)
    return os.pread(fd, len(MARKER), 0) == MARKER


def _open(path: Path, *, is_new: bool) -> int:
    """For reading and writing; nothing that is there is truncated."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags | (os.O_CREAT | os.O_EXCL if is_new else 0), 0o600)
    except OSError as error:
        doing = "made" if is_new else "opened"
        raise TargetError(f"{path}: cannot be {doing}: {error.strerror}") from error


def _take_file(path: Path, fd: int, *, is_new: bool) -> None:
    """No other run has it, and it is ours: new, or left by a run that was killed."""
    if not is_new:  # without a marker it may be one that another run has just made: not yet locked
        _check_made_by_us(path, fd)
    device_locks.take(fd, path, 0.0)
    if not _is_at(fd, path):
        raise TargetError(f"{path} was deleted by another run a moment ago: try again")


def _fill(path: Path, fd: int, size_bytes: int) -> None:
    """The marker, and nothing else, on all the space that it needs."""
    try:
        os.pwrite(fd, _header(), 0)  # first: without it nobody would delete it after a kill
        os.ftruncate(fd, _HEADER_BLOCK_BYTES)
        os.posix_fallocate(fd, 0, size_bytes)
        os.fsync(fd)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DiskFull(
                f"{path}: no space for {format_bytes(size_bytes)}: free some, or choose a smaller "
                "--scale"
            ) from error
        raise TargetError(f"{path}: {error.strerror}") from error


def _mark(path: Path, fd: int) -> None:
    """Marks an open loop device. Raises TargetError if somebody holds it exclusively."""
    try:
        alone = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        raise TargetError(f"{path} is held by somebody else: {error.strerror}") from error
    try:
        os.pwrite(fd, _header(), 0)
        os.fsync(fd)
    finally:
        os.close(alone)


def _header() -> bytes:
    text = MARKER + json.dumps({"format": 1, "pid": os.getpid()}).encode() + b"\n"
    return text.ljust(_HEADER_BLOCK_BYTES, b"\0")
