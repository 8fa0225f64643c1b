"""File systems on a device under test: made, mounted, unmounted; nothing writes to them later.

mke2fs is told all that its version, its configuration, the clock or chance would otherwise decide.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from harness.errors import DiskFull, HarnessError, TargetError
from harness.system import block_queue, leases, mounts, writeback
from harness.system.ext4_spec import BLOCK_BYTES, INODE_BYTES, PLAIN, Ext4Spec, check_journal
from harness.system.leases import Lease
from harness.system.programs import find_program

_LEAST_BYTES: Final = 16 << 20

_MIB: Final = 1 << 20
_BLOCK_SIZE: Final = re.compile(r"^Block size: +(\d+)$", re.MULTILINE)
_JOURNAL_DEVICE: Final = re.compile(r"^Journal device:\s+(0x[0-9a-f]+)$", re.MULTILINE)
_EXTENTS_HEAD: Final = ["Level", "Entries", "Logical", "Physical", "Length", "Flags"]
_EXTENT: Final = re.compile(r" *\d+/ *\d+ +\d+/ *\d+ +(\d+) - +(\d+) +(\d+) - +(\d+) +(\d+) *")

_IDENTITY: Final = "f1a5b1ab-0000-4000-8000-000000000001"
_JOURNAL_IDENTITY: Final = "f1a5b1ab-0000-4000-8000-000000000002"
_FEATURES: Final = (
    "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,"
    "large_file,huge_file,dir_nlink,extra_isize,metadata_csum,encrypt"
)
"""`encrypt`, which no file uses: with it ext4's page cache has single pages, as in kernels before
6.16, which the papers' are. Without it, newer ones have folios of many pages, which come, are read,
and go as a whole (ext4_should_enable_large_folio)."""

_EXTENDED: Final = f"lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed={_IDENTITY}"
_FOUND: Final = 1 | 2 | 4  # corrected, needs a reboot, left
_OPERATIONAL: Final = 8
_OPTIONS: Final = "noatime,nodev,nosuid,noinit_itable"
_SYSFS: Final = Path("/sys/dev/block")
_KERNEL_LOG: Final = "/dev/kmsg"
_LONGEST_RECORD: Final = 8192


_OF_EXT4: Final = re.compile(r"EXT4-fs(?: \w+)?(?: \((?:device )?([^):]+)[^)]*\))?")


class NotMounted(TargetError):
    """The kernel's ext4 says why it does not mount it: for what is on the device, not for want of
    something on this machine.
    """


@contextlib.contextmanager
def ext4(device: Path, spec: Ext4Spec = PLAIN) -> Iterator[Path]:
    """A new ext4 on a block device, mounted at a folder of ours while the block runs.

    Root only. Raises MissingTool, DiskFull, TargetError (also for a journal that does not fit, and
    for a device without discard, if it is to have it).
    """
    if spec.discard:
        _check_discard(device)
    make(device, spec)
    with mounted(device, spec) as folder:
        yield folder


@contextlib.contextmanager
def ext4_in(target: Path, offset_bytes: int, spec: Ext4Spec) -> Iterator[Path]:
    """A new ext4 in a part of a file or device, mounted through a loop device while the block runs.

    The loop device goes with the mount, and reads and writes past the page cache of what is below.
    `spec` has a size. Errors as of `ext4`.
    """
    if spec.discard and target.is_block_device():
        _check_discard(target)
    make(target, spec, offset_bytes=offset_bytes)
    place = ["loop", f"offset={offset_bytes}", f"sizelimit={spec.size_bytes}"]
    with _mounted(target, [*place, *spec.mount_options]) as folder:
        loop = device_of(folder)
        if spec.discard:
            _check_discard(loop)  # of a file: what lies below it decides
        _run("losetup", "--direct-io=on", str(loop))
        with _bounded(folder, spec.dirty_bytes):
            yield folder


def make(target: Path, spec: Ext4Spec = PLAIN, *, offset_bytes: int = 0) -> None:
    """Writes an empty ext4 into a file or block device, to be mounted by `mounted`.

    Errors as of `ext4`.
    """
    sized = spec.sized(_size_of(target) - offset_bytes)
    run_mke2fs(make_command(target, sized, offset_bytes=offset_bytes))


@contextlib.contextmanager
def mounted(device: Path, spec: Ext4Spec = PLAIN, *, journal: Path | None = None) -> Iterator[Path]:
    """An ext4 that is there already, mounted at a folder of ours while the block runs.

    The kernel replays its journal if it was not unmounted. Of `spec` only that counts which a mount
    is told. `journal`: the device that has its journal, if it is another one. Raises NotMounted,
    with ext4's words, if ext4 refuses it, and TargetError if something else does.
    """
    options = [*spec.mount_options]
    if journal is not None:  # whatever number that device had when the file system was made
        options.append(f"journal_path={journal}")
    with (
        _mounted(device, options) as folder,
        _bounded(folder, spec.dirty_bytes),
    ):
        yield folder


@contextlib.contextmanager
def _bounded(folder: Path, limit_bytes: int) -> Iterator[None]:
    """What may be dirty of the device below, while the block runs; 0: as much as the kernel lets.

    After a kill `clean`, or the next run that bounds it, lifts it.
    """
    if not limit_bytes:
        yield
        return
    number = mounts.number_of(folder)
    with leases.open_lease() as lease:
        lease.note_bound(block_queue.folder_of(number).name)
        with writeback.limited(number, limit_bytes):
            yield


def check(device: Path) -> str:
    """What e2fsck complains of in an ext4 that is not mounted; empty if it is clean.

    Changes nothing. Raises MissingTool, and TargetError if e2fsck could not look: its exit code
    then has more than the bits of e2fsck(8) that tell of errors found. The bit of an operational
    error is one of these if the device can be read: so ends a look at a broken superblock.
    """
    command = [find_program("e2fsck"), "-fn", str(device)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    found = _FOUND | (_OPERATIONAL if _can_be_read(device) else 0)
    if done.returncode < 0 or done.returncode & ~found:
        said = " ".join((done.stderr or done.stdout).split())
        raise TargetError(f"{device} was not checked: e2fsck: {said or done.returncode}")
    return "" if done.returncode == 0 else f"e2fsck: {done.stdout} {done.stderr}"


def _can_be_read(device: Path) -> bool:
    try:
        with device.open("rb") as file:
            return len(file.read(4096)) == 4096
    except OSError:
        return False


def device_of(folder: Path) -> Path:
    """The block device that a folder's file system lies on."""
    return Path("/dev") / (_SYSFS / mounts.number_of(folder)).resolve().name


def journal_device(device: Path) -> Path | None:
    """The device that an ext4's journal is on, if that is another one; None if it is inside.

    As the superblock of a mounted file system has it: the kernel notes the device of journal_path
    there. Raises TargetError (no ext4), MissingTool.
    """
    found = _JOURNAL_DEVICE.search(_run("dumpe2fs", "-h", str(device)))
    if found is None:
        return None
    number = int(found[1], 16)
    return Path("/dev") / (_SYSFS / f"{os.major(number)}:{os.minor(number)}").resolve().name


def journal_extents(target: Path, offset_bytes: int = 0) -> list[tuple[int, int]]:
    """Where an ext4 has its journal: byte ranges [begin, end) of `target`, in the journal's order.

    Read from the file system itself (debugfs: the extents of the journal's inode, 8), which may be
    mounted; the place never changes after mke2fs. `target` is a device or file in which the file
    system begins at `offset_bytes`. Neighbours are joined; a large journal has gaps where block
    groups have their tables. Raises TargetError if there is no such journal, MissingTool.
    """
    place = f"{target}?offset={offset_bytes}" if offset_bytes else str(target)
    found = _BLOCK_SIZE.search(_run("debugfs", "-R", "show_super_stats -h", place))
    if found is None:
        raise TargetError(f"{place} holds no ext4: make one first")
    said = _run("debugfs", "-R", "dump_extents -l <8>", place)
    ranges: list[tuple[int, int]] = []
    for first, blocks in _physical(said, place):
        begin = offset_bytes + first * int(found[1])
        end = begin + blocks * int(found[1])
        if ranges and ranges[-1][1] == begin:
            begin = ranges.pop()[0]
        ranges.append((begin, end))
    return ranges


def _physical(said: str, place: str) -> Iterator[tuple[int, int]]:
    """First block and length of each extent in what debugfs said of a journal."""
    lines = said.splitlines()
    if len(lines) < 2 or lines[0].split() != _EXTENTS_HEAD:
        raise TargetError(f"{place} has no journal of its own: debugfs says {said[:80]!r}")
    expected = 0
    for line in lines[1:]:
        match = _EXTENT.fullmatch(line)
        if match is None:
            raise TargetError(f"{place}: debugfs says {line!r} of the journal, which is no extent")
        first, last, begin, end, length = map(int, match.groups())
        if first != expected or {last - first + 1, end - begin + 1} != {length}:
            raise TargetError(f"{place}: the journal's extents are not whole, see {line!r}")
        expected = last + 1
        yield begin, length


def trim(folder: Path) -> None:
    """Discards all that a mounted file system does not use (fstrim). Raises TargetError."""
    _check_discard(device_of(folder))
    _run("fstrim", str(folder))


def discard(device: Path, begin_bytes: int, length_bytes: int) -> None:
    """Discards a part of a block device that nothing is mounted on (blkdiscard).

    Raises TargetError, MissingTool.
    """
    _check_discard(device)
    place = [f"--offset={begin_bytes}", f"--length={length_bytes}"]
    _run("blkdiscard", *place, str(device))


def _check_discard(device: Path) -> None:
    """The kernel mounts with `discard` what cannot discard, and then does nothing."""
    if not block_queue.discards(block_queue.drive_of(device)):
        raise TargetError(
            f"{device} knows no discard (its queue/discard_max_bytes is 0): use another device, or "
            "trim none"
        )


def run_mke2fs(command: Sequence[str]) -> None:
    """Runs what make_command has returned. Raises TargetError, DiskFull, MissingTool."""
    # Its own answer to what is not said here, and a time that is always the same.
    fixed = {"MKE2FS_CONFIG": os.devnull, "E2FSPROGS_FAKE_TIME": "1", "SOURCE_DATE_EPOCH": "1"}
    _run(*command, env=fixed)


def make_command(
    target: Path, spec: Ext4Spec, *, offset_bytes: int = 0, journal: Path | None = None
) -> tuple[str, ...]:
    """mke2fs's arguments for a file system as `ext4` makes it; `spec` has a size.

    `journal`: a device that has its journal, made by journal_command. mke2fs takes sizes in KiB if
    they end in k. Errors as of `ext4`.
    """
    whole, block = spec.size_bytes, spec.block_bytes
    if whole < _LEAST_BYTES:
        raise TargetError(
            f"{target}: {whole} B are too few for a file system: at least {_LEAST_BYTES} B"
        )
    if journal is None:
        place = f"size={spec.journal_bytes_in(whole) // _MIB}"
    else:
        place = f"device={journal}"
    return (
        *("mke2fs", "-t", "ext4", "-F", "-q", "-b", str(block), "-m", "0"),
        *("-N", str(spec.inodes)),
        *("-I", str(INODE_BYTES), "-O", _FEATURES, "-U", _IDENTITY, "-J", place),
        *("-E", _EXTENDED + (f",offset={offset_bytes}" if offset_bytes else "")),
        *(str(target), f"{whole // block * block // 1024}k"),
    )


def journal_command(target: Path, journal_bytes: int) -> tuple[str, ...]:
    """mke2fs's arguments for a journal at the beginning of a device of its own.

    mke2fs writes zeros over all of it. Raises BadParameter (a size that mke2fs does not allow).
    """
    check_journal(journal_bytes, BLOCK_BYTES)
    whole_kib = journal_device_bytes(journal_bytes) // 1024
    return (
        *("mke2fs", "-t", "ext4", "-F", "-q", "-b", str(BLOCK_BYTES), "-O", "journal_dev"),
        *("-U", _JOURNAL_IDENTITY, str(target), f"{whole_kib}k"),
    )


def journal_device_bytes(journal_bytes: int) -> int:
    """What a journal takes of a device of its own: a block more, which says what it is.

    Without that the kernel refuses the shortest, as it counts blocks behind the header.
    """
    return journal_bytes + BLOCK_BYTES


@contextlib.contextmanager
def _mounted(source: Path, options: Sequence[str]) -> Iterator[Path]:
    with leases.open_lease() as lease:
        folder = _mount_point(lease)
        _mount(source, folder, ",".join([_OPTIONS, *options]))
        try:
            yield folder
        finally:
            _unmount(folder)


def _mount(source: Path, folder: Path, options: str) -> None:
    """mount(8) knows the error's number only; why, stands in the kernel's log."""
    with _kernel_log() as lines:
        try:
            _run("mount", "-t", "ext4", "-o", options, str(source), str(folder))
        except TargetError as error:
            said = "; ".join(line for line in lines() if _is_of(source, line))
            if not said:
                raise
            raise NotMounted(f"{source} cannot be mounted, the kernel says: {said}") from error


def _is_of(source: Path, line: str) -> bool:
    """Whether ext4 says it, and not of another device."""
    found = _OF_EXT4.match(line)
    name = found and found[1]
    return found is not None and (not name or not source.is_block_device() or name == source.name)


@contextlib.contextmanager
def _kernel_log() -> Iterator[Callable[[], list[str]]]:
    """What the kernel has said since the block was entered; nothing where it may not be read.

    A record is read at a time: priority and numbers, a semicolon, and the text
    (Documentation/ABI/testing/dev-kmsg).
    """
    try:
        log = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield list
        return
    try:
        os.lseek(log, 0, os.SEEK_END)
        yield lambda: [record.decode(errors="replace") for record in _records(log)]
    finally:
        os.close(log)


def _records(log: int) -> Iterator[bytes]:
    with contextlib.suppress(BlockingIOError):
        while True:
            with contextlib.suppress(BrokenPipeError):  # some were overwritten before we read them
                record = os.read(log, _LONGEST_RECORD)
                yield record.partition(b";")[2].partition(b"\n")[0]


def _mount_point(lease: Lease) -> Path:
    """A folder in one of ours, since what is mounted over a folder hides that it is ours.

    Others may pass: a server's user has to come to its files.
    """
    outer = lease.new_folder(Path(tempfile.gettempdir()), "flashlab-fs-")
    outer.chmod(0o711)
    inner = outer / "mounted"
    lease.note_mount(inner)
    inner.mkdir(mode=0o755)
    return inner


def _unmount(folder: Path) -> None:
    for mount in mounts.table()[::-1]:
        if mount.point == folder:
            mounts.unmount(mount)


def _size_of(target: Path) -> int:
    with target.open("rb") as file:
        return file.seek(0, os.SEEK_END)


def _run(program: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [find_program(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", **(env or {})},
    )
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        kind: type[HarnessError] = DiskFull if "No space left" in said else TargetError
        raise kind(f"{program} {arguments[-1]}: {said or 'failed'}")
    return done.stdout
