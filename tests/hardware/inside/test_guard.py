"""In the guest: what the erase guard refuses, with the drive's content as it was; and its use."""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hardware.guard_drives import GUARD
from hardware.inside.claims import by_id, drive_of
from hardware.inside.claims import claim as claim_drive
from harness.drives import guard, lab_file, preparation
from harness.drives.discovery import Drive, Machine
from harness.drives.lab_file import Claim
from harness.drives.preparation import Way
from harness.drives.targets import Step
from harness.errors import DeviceError, HarnessError, TargetError, UnknownName
from harness.paths import Project
from harness.system import filesystems, kernel_partitions

DRIVES = GUARD

MIB = 1 << 20
BY_ID = Path("/dev/disk/by-id")
SSD, HDD, NVME = "SS2037E4B7C9", "HD7K1CXR9F04", "NV5C1A7D20E1"
ROOT = "RT0B00TD15K7"
SHORT, TWIN, SPACES = "S1", "TW1N00000001", "FD9A77C3E610"


def content(drive: Drive) -> bytes:
    """What the drive itself holds, past the page cache."""
    whole = bytearray()
    fd = os.open(drive.node, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, 4 * MIB) as buffer:
            while got := os.preadv(fd, [buffer], len(whole)):
                whole += buffer[:got]
    finally:
        os.close(fd)
    assert len(whole) == drive.size_bytes
    return bytes(whole)


@contextmanager
def unchanged(*drives: Drive) -> Iterator[None]:
    """Not a byte of them has changed when the block ends, and the kernel has written none."""
    before = [(content(drive), written(drive)) for drive in drives]
    yield
    for drive, (held, moved) in zip(drives, before, strict=True):
        assert written(drive) == moved
        assert content(drive) == held, f"{drive.node} has changed"  # not shown: it is large


def written(drive: Drive) -> list[str]:
    """Completed writes, discards and what they moved (Documentation/block/stat.rst)."""
    fields = (Path("/sys/block") / drive.name / "stat").read_text().split()
    return [*fields[4:7], *fields[11:14]]


def call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "hardware").mkdir()
    return Project(tmp_path)


@pytest.fixture(autouse=True)
def _blank() -> Iterator[None]:
    """Every test finds empty drives, and leaves empty those that it has written to."""
    drives = [drive for drive in Machine().drives if drive.serial != ROOT]
    before = {drive.node: written(drive) for drive in drives}
    yield
    for drive in drives:
        if written(drive) != before[drive.node]:
            wipe(drive)
    call("udevadm", "settle")


def wipe(drive: Drive) -> None:
    """The edges, where all signatures are; and no partitions."""
    kernel_partitions.remove_ours(drive.number)
    fd = os.open(drive.node, os.O_RDWR)
    try:
        for begin in (0, drive.size_bytes - 2 * MIB):
            os.pwrite(fd, bytes(2 * MIB), begin)
        os.fsync(fd)
    finally:
        os.close(fd)
    call("blockdev", "--rereadpt", str(drive.node))


def claim(serial: str, name: str, project: Project) -> Claim:
    return claim_drive(drive_of(serial), name, project)


def assert_refused(project: Project, *drives: Drive, match: str | None = None) -> None:
    """A run on the claimed drive is refused, and nothing is written to these."""
    with (
        unchanged(*drives),
        pytest.raises(TargetError, match=match),
        guard.claimed("mine", project=project),
    ):
        pass


# --- names -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spelling:
    """A path that leads to a free drive, or seems to, and must not be accepted."""

    name: str
    make: Callable[[ExitStack, Drive], Path]


def _link(stack: ExitStack, name: str, target: str | Path) -> Path:
    link = BY_ID / name
    link.symlink_to(target)
    stack.callback(link.unlink)
    return link


def _partitioned(stack: ExitStack, drive: Drive) -> Path:
    """Its first partition's node. No table is left: the test is about names."""
    fd = os.open(drive.node, os.O_RDONLY)
    extent = kernel_partitions.Extent(1, 4 * MIB, 16 * MIB)
    kernel_partitions.add(fd, extent)
    stack.callback(os.close, fd)
    stack.callback(kernel_partitions.remove, fd, extent)
    call("udevadm", "settle")
    suffix = "p1" if drive.name[-1].isdigit() else "1"
    return drive.node.with_name(drive.name + suffix)


def _by_path(_stack: ExitStack, drive: Drive) -> Path:
    folder = Path("/dev/disk/by-path")
    return next(link for link in folder.iterdir() if link.resolve() == drive.node)


def _a_node(stack: ExitStack, drive: Drive) -> Path:
    node = BY_ID / "ata-node"
    os.mknod(node, 0o600 | stat.S_IFBLK, drive.node.stat().st_rdev)
    stack.callback(node.unlink)
    return node


def _a_file(stack: ExitStack, _drive: Drive) -> Path:
    return _link(stack, "ata-file", "/etc/passwd")


def _second_node(stack: ExitStack, drive: Drive) -> Path:
    node = Path("/dev/another")
    os.mknod(node, 0o600 | stat.S_IFBLK, drive.node.stat().st_rdev)
    stack.callback(node.unlink)
    return _link(stack, "ata-another", node)


def _a_loop(stack: ExitStack, _drive: Drive) -> Path:
    image = Path("/run/loop-image")
    with image.open("wb") as file:
        file.truncate(128 * MIB)
    stack.callback(image.unlink)
    done = subprocess.run(
        ["losetup", "--find", "--show", image], capture_output=True, text=True, check=True
    )
    stack.callback(call, "losetup", "--detach", done.stdout.strip())
    return _link(stack, "ata-loop", done.stdout.strip())


PATHS = (
    Spelling("the kernel's name", lambda _, drive: drive.node),
    Spelling("by number", lambda _, drive: Path("/dev/block") / drive.number),
    Spelling("by path", _by_path),
    Spelling("around a corner", lambda _, drive: BY_ID / ".." / ".." / drive.name),
    Spelling("relative", lambda _, drive: Path(os.path.relpath(by_id(drive)))),
    Spelling("none there", lambda _, __: BY_ID / "ata-FLASHLAB_NONE"),
    Spelling("a folder", lambda _, __: BY_ID),
    Spelling(
        "a partition", lambda s, d: Path(f"{by_id(d)}-part1") if _partitioned(s, d) else d.node
    ),
    Spelling("a partition by another name", lambda s, d: _link(s, "ata-x", _partitioned(s, d))),
    Spelling("a node", _a_node),
    Spelling("to a file", _a_file),
    Spelling("to a character device", lambda s, _: _link(s, "ata-null", "/dev/null")),
    Spelling("to a second node", _second_node),
    Spelling("to a loop device", _a_loop),
    Spelling("to nothing", lambda s, _: _link(s, "ata-broken", "/dev/none")),
)


@pytest.mark.parametrize("case", PATHS, ids=lambda case: case.name)
def test_a_drive_is_named_by_its_identity(case: Spelling) -> None:
    drive = drive_of(SSD)
    with ExitStack() as stack:
        path = case.make(stack, drive)
        with unchanged(drive), pytest.raises((TargetError, UnknownName)):
            guard.plan_claim("ssd", path)


def test_a_name_that_two_namespaces_share() -> None:
    """udev lets it lead to one of them, and to the other one tomorrow."""
    drives = [drive for drive in Machine().drives if drive.serial == SPACES]
    assert len(drives) == 2
    link = next(link for link in BY_ID.iterdir() if link.name.endswith(SPACES))
    assert len(Machine().claimants(link)) == 2
    assert all(drive.by_id and link not in drive.by_id for drive in drives)
    with unchanged(*drives), pytest.raises(TargetError, match="several drives"):
        guard.plan_claim("ssd", link)


@pytest.mark.parametrize("name", ["", "SSD", "a b", "../x", "x" * 33, "1st"])
def test_a_claim_has_a_plain_name(name: str) -> None:
    drive = drive_of(SSD)
    with unchanged(drive), pytest.raises(TargetError, match="no name"):
        guard.plan_claim(name, by_id(drive))


# --- what is on it, and who has it -----------------------------------------------------------


def _mounted(stack: ExitStack, drive: Drive) -> None:
    call("mke2fs", "-q", "-t", "ext4", "-F", str(drive.node))
    stack.enter_context(_mount(drive.node))


@contextmanager
def _mount(node: Path) -> Iterator[None]:
    folder = Path("/run/somewhere")
    folder.mkdir(exist_ok=True)
    call("mount", "-o", "ro,noload", str(node), str(folder))
    try:
        yield
    finally:
        call("umount", str(folder))


def _mounted_elsewhere(stack: ExitStack, drive: Drive) -> None:
    """In a mount namespace of its own, as a container does. What is seen of it from outside is
    wiped: neither a signature nor a byte at either end tells of it.
    """
    call("mke2fs", "-q", "-t", "ext4", "-F", str(drive.node))
    folder = Path("/run/elsewhere")
    folder.mkdir(exist_ok=True)
    script = f"mount -o ro,noload {drive.node} {folder} && echo ready && exec sleep 600"
    process = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    stack.callback(process.wait)
    stack.callback(process.stdout.close)
    stack.callback(process.kill)
    assert process.stdout.readline() == b"ready\n"
    for begin in (0, -MIB):
        _bytes(begin, bytes(MIB))(stack, drive)


def _partition_mounted(stack: ExitStack, drive: Drive) -> None:
    part = _partitioned(stack, drive)
    call("mke2fs", "-q", "-t", "ext4", "-F", str(part))
    stack.enter_context(_mount(part))


def _swap(stack: ExitStack, drive: Drive) -> None:
    _swap_on(stack, drive.node)


def _partition_swap(stack: ExitStack, drive: Drive) -> None:
    _swap_on(stack, _partitioned(stack, drive))


def _mapped(stack: ExitStack, drive: Drive) -> None:
    _map_over(stack, drive.node)


def _raid(stack: ExitStack, drive: Drive) -> None:
    """Without metadata: nothing on it tells."""
    other = str(drive_of(HDD).node)
    call("mdadm", "--build", "/dev/md9", "--level=1", "--raid-devices=2", str(drive.node), other)
    stack.callback(call, "mdadm", "--stop", "/dev/md9")


def _raid_member(_stack: ExitStack, drive: Drive) -> None:
    """Metadata at the end (1.0)."""
    create = ["mdadm", "--create", "/dev/md9", "--metadata=1.0", "--level=1", "--raid-devices=2"]
    call(*create, "--run", "--assume-clean", str(drive.node), "missing")
    call("mdadm", "--stop", "/dev/md9")


def _held(stack: ExitStack, drive: Drive) -> None:
    fd = os.open(drive.node, os.O_RDONLY | os.O_EXCL)
    stack.callback(os.close, fd)


def _read_only(stack: ExitStack, drive: Drive) -> None:
    call("blockdev", "--setro", str(drive.node))
    stack.callback(call, "blockdev", "--setrw", str(drive.node))


def _bytes(begin: int, data: bytes) -> Callable[[ExitStack, Drive], None]:
    def put(_stack: ExitStack, drive: Drive) -> None:
        fd = os.open(drive.node, os.O_RDWR)
        try:
            os.pwrite(fd, data, begin if begin >= 0 else drive.size_bytes + begin)
            os.fsync(fd)
        finally:
            os.close(fd)

    return put


def _made(*command: str) -> Callable[[ExitStack, Drive], None]:
    return lambda _, drive: call(*command, str(drive.node))


def _table(kind: str, *, partition: bool) -> Callable[[ExitStack, Drive], None]:
    def put(stack: ExitStack, drive: Drive) -> None:
        text = f"label: {kind}\n" + ("start=4MiB, size=16MiB\n" if partition else "")
        subprocess.run(["sfdisk", "--quiet", drive.node], input=text, text=True, check=True)
        call("udevadm", "settle")

    return put


def _backup_table_only(stack: ExitStack, drive: Drive) -> None:
    """A GPT whose first MiB somebody has overwritten; the second one is at the end."""
    _table("gpt", partition=True)(stack, drive)
    subprocess.run(["partx", "--delete", drive.node], check=False, capture_output=True)
    _bytes(0, bytes(MIB))(stack, drive)


@dataclass(frozen=True)
class Occupied:
    """What somebody has made of a drive, and why it is refused: by nothing else of it."""

    make: Callable[[ExitStack, Drive], None]
    words: str


HELD = "is held by somebody else"
BEGIN, END = "is not blank at its begin", "is not blank at its end"
OCCUPIED = {
    "mounted": Occupied(_mounted, ": mounted at /run/somewhere"),
    "mounted in another namespace": Occupied(_mounted_elsewhere, HELD),
    "a partition mounted": Occupied(_partition_mounted, "1: mounted at /run/somewhere"),
    "swap": Occupied(_swap, r"\w: swap"),
    "a partition is swap": Occupied(_partition_swap, "1: swap"),
    "mapped": Occupied(_mapped, ": held by dm-"),
    "RAID without metadata": Occupied(_raid, ": held by md"),
    "RAID member": Occupied(_raid_member, ": carries linux_raid_member"),
    "held exclusively": Occupied(_held, HELD),
    "read-only": Occupied(_read_only, "is read-only"),
    "ext4": Occupied(_made("mke2fs", "-q", "-t", "ext4", "-F"), ": carries ext4"),
    "swap that is off": Occupied(_made("mkswap"), ": carries swap"),
    "MBR": Occupied(_table("dos", partition=True), ": carries dos"),
    "empty MBR": Occupied(_table("dos", partition=False), ": carries dos"),
    "GPT": Occupied(_table("gpt", partition=True), ": carries gpt"),
    "empty GPT": Occupied(_table("gpt", partition=False), ": carries gpt"),
    "GPT at the end": Occupied(_backup_table_only, ": carries gpt"),
    "LUKS": Occupied(_bytes(0, b"LUKS\xba\xbe\x00\x02"), ": carries crypto_LUKS"),
    "ZFS": Occupied(_bytes(128 << 10, (0x00BAB10C).to_bytes(8, "little")), BEGIN),
    "one byte near the begin": Occupied(_bytes(777_777, b"x"), BEGIN),
    "one byte at the end": Occupied(_bytes(-1, b"x"), END),
    "half a marker": Occupied(_bytes(0, kernel_partitions.MARKER[:-5]), BEGIN),
    "a marker without a token": Occupied(_bytes(0, kernel_partitions.MARKER + b"{}\n"), BEGIN),
    "a marker with a strange token": Occupied(
        _bytes(0, kernel_partitions.MARKER + b'{"format": 1, "token": 7}\n'), BEGIN
    ),
}


@pytest.mark.parametrize("state", OCCUPIED)
@pytest.mark.parametrize("serial", [SSD, NVME], ids=["sata", "nvme"])
def test_a_drive_in_use_is_refused(state: str, serial: str) -> None:
    drive, case = drive_of(serial), OCCUPIED[state]
    with ExitStack() as stack:
        case.make(stack, drive)
        with unchanged(drive), pytest.raises(TargetError, match=case.words):
            guard.plan_claim("ssd", by_id(drive))


def test_the_root_disk_is_never_claimable() -> None:
    root = drive_of(ROOT)
    before = written(root)
    assert root.by_id
    for link in root.by_id:
        with pytest.raises(TargetError, match="runs from"):
            guard.plan_claim("ssd", link)
    assert root.name in Machine().system_drives()
    assert int(written(root)[0]) - int(before[0]) < 64  # its own system goes on meanwhile


def test_a_drive_must_tell_who_it_is() -> None:
    drive = drive_of(SHORT)
    with unchanged(drive), pytest.raises(TargetError, match="serial"):
        guard.plan_claim("ssd", by_id(drive))


def test_two_drives_of_one_identity_are_both_refused() -> None:
    for which in (0, 1):
        drive = drive_of(TWIN, which)
        links = drive.by_id or (BY_ID / f"ata-twin-{which}",)
        with ExitStack() as stack:
            if not drive.by_id:
                _link(stack, links[0].name, drive.node)
            with unchanged(drive), pytest.raises(TargetError, match="same serial"):
                guard.plan_claim("ssd", links[0])


# --- the answer ------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["", "e4b7c9", "E4B7C", SSD, "y", "E4B7C9 ", "000000"])
def test_the_serial_number_must_be_typed(answer: str, project: Project) -> None:
    drive = drive_of(SSD)
    plan = guard.plan_claim("ssd", by_id(drive))
    with unchanged(drive), pytest.raises(TargetError, match="neither"):
        guard.claim(plan, answer, project)
    assert not lab_file.path_of(project).exists()


def test_a_token_is_for_one_drive_and_one_name(project: Project) -> None:
    ssd, nvme = drive_of(SSD), drive_of(NVME)
    plan = guard.plan_claim("ssd", by_id(ssd))
    others = [guard.plan_claim("ssd", by_id(nvme)), guard.plan_claim("other", by_id(ssd))]
    with unchanged(ssd, nvme):
        for other in others:
            with pytest.raises(TargetError, match="neither"):
                guard.claim(plan, other.token, project)
    guard.claim(plan, plan.token, project)


def test_a_drive_that_changed_since_its_plan(project: Project) -> None:
    drive = drive_of(SSD)
    plan = guard.plan_claim("ssd", by_id(drive))
    OCCUPIED["ext4"].make(ExitStack(), drive)
    with unchanged(drive), pytest.raises(TargetError, match=OCCUPIED["ext4"].words):
        guard.claim(plan, plan.token, project)


def test_a_claim_of_another_checkout_is_told_and_what_it_has_written_is_kept(
    project: Project, tmp_path: Path
) -> None:
    other = Project(tmp_path / "other")
    (other.root / "hardware").mkdir(parents=True)
    claim(SSD, "mine", other)
    drive = drive_of(SSD)
    plan = guard.plan_claim("mine", by_id(drive), project=project)
    assert "claim of another checkout" in plan.warning
    _bytes(-1, b"x")(ExitStack(), drive)
    with unchanged(drive), pytest.raises(TargetError, match=END):
        guard.claim(plan, plan.token, project)
    _bytes(-1, b"\0")(ExitStack(), drive)
    guard.claim(plan, plan.token, project)
    with guard.claimed("mine", project=project) as held:
        held.permit("ours", 0)
    assert_refused(other, drive, match="token")


def test_nobody_types_in_a_batch(project: Project) -> None:
    drive = drive_of(SSD)
    program = [sys.executable, "-c", "from harness.commands.main import main; main()"]
    command = [*program, "hardware", "claim", str(by_id(drive)), "--as", "ssd"]
    with unchanged(drive):
        done = subprocess.run(command, input=SSD[-6:], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "--token" in done.stderr


# --- a claimed drive -------------------------------------------------------------------------


@pytest.mark.parametrize("serial", [SSD, HDD, NVME], ids=["ssd", "hdd", "nvme"])
def test_a_claimed_drive_is_used(serial: str, project: Project) -> None:
    claim(serial, "mine", project)
    drive = drive_of(serial)
    others = [d for d in Machine().drives if d.serial not in (serial, ROOT)]
    before = [content(other) for other in others]
    with guard.claimed("mine", project=project) as held:
        assert held.path.is_block_device()
        assert held.size_bytes == (drive.size_bytes - MIB) // MIB * MIB
        held.permit("write", MIB)
        with filesystems.ext4(held.path) as folder:
            (folder / "file").write_bytes(b"x" * MIB)
        with pytest.raises(OSError, match="busy"):
            os.open(drive.node, os.O_RDWR | os.O_EXCL)
        with pytest.raises(TargetError, match="locked"), guard.claimed("mine", project=project):
            pass
        assert held.written_bytes >= MIB
    assert not Machine().partitions(drive.name)
    assert all(content(other) == held for other, held in zip(others, before, strict=True))
    with guard.claimed("mine", project=project):
        pass
    guard.release("mine", project)
    with pytest.raises(UnknownName), guard.claimed("mine", project=project):
        pass
    guard.plan_claim("mine", by_id(drive))  # its first MiB is blank again


def test_a_file_in_the_place_of_a_node(project: Project) -> None:
    """It would take all that a run writes, and all that it reads would be right."""
    claim(SSD, "mine", project)
    drive = drive_of(SSD)
    node = guard.part_of(drive)
    node.write_bytes(b"x")
    try:
        assert_refused(project, drive, match="not the device")
        assert node.read_bytes() == b"x"
    finally:
        node.unlink()


def _swap_link(stack: ExitStack, link: Path, other: Drive) -> None:
    target = link.readlink()
    link.unlink()
    link.symlink_to(other.node)

    def back() -> None:
        link.unlink()
        link.symlink_to(target)

    stack.callback(back)


def test_a_name_that_leads_to_another_drive(project: Project) -> None:
    made = claim(SSD, "mine", project)
    ssd, hdd = drive_of(SSD), drive_of(HDD)
    with ExitStack() as stack:
        _swap_link(stack, Path(made.by_id), hdd)
        assert_refused(project, ssd, hdd)


def test_a_name_that_leads_to_another_drive_during_a_run(project: Project) -> None:
    made = claim(SSD, "mine", project)
    hdd = drive_of(HDD)
    with guard.claimed("mine", project=project) as held, ExitStack() as stack:
        held.permit("before", 0)
        _swap_link(stack, Path(made.by_id), hdd)
        with unchanged(drive_of(SSD), hdd), pytest.raises(TargetError, match="another drive"):
            held.permit("after", 0)


HEADERS = {
    "gone": bytes(4096),
    "of another claim": kernel_partitions.MARKER
    + b'{"format": 1, "token": "'
    + b"0" * 32
    + b'"}\n',
    "damaged": kernel_partitions.MARKER[:40],
}


@pytest.mark.parametrize("header", HEADERS)
def test_a_drive_without_the_token_of_its_claim(header: str, project: Project) -> None:
    claim(SSD, "mine", project)
    drive = drive_of(SSD)
    _bytes(0, HEADERS[header].ljust(4096, b"\0"))(ExitStack(), drive)
    assert_refused(project, drive)


@pytest.mark.parametrize("header", HEADERS)
def test_the_token_is_looked_at_before_every_step(header: str, project: Project) -> None:
    claim(SSD, "mine", project)
    with guard.claimed("mine", project=project) as held:
        _bytes(0, HEADERS[header].ljust(4096, b"\0"))(ExitStack(), held.drive)
        with unchanged(held.drive), pytest.raises(TargetError, match="token"):
            held.permit("after", 0)


AGAIN = ("mounted", "swap", "mapped", "GPT at the end", "held exclusively", "read-only")


@pytest.mark.parametrize("state", AGAIN)
def test_a_claimed_drive_that_somebody_else_has_taken(state: str, project: Project) -> None:
    claim(SSD, "mine", project)
    drive = drive_of(SSD)
    with ExitStack() as stack:
        OCCUPIED[state].make(stack, drive)
        assert_refused(project, drive, match=OCCUPIED[state].words)


def _part_mounted(stack: ExitStack, part: Path) -> None:
    call("mke2fs", "-q", "-t", "ext4", "-F", str(part))
    stack.enter_context(_mount(part))


def _swap_on(stack: ExitStack, part: Path) -> None:
    call("mkswap", str(part))
    call("swapon", str(part))
    stack.callback(call, "swapoff", str(part))


def _map_over(stack: ExitStack, part: Path) -> None:
    call("dmsetup", "create", "mapped", "--table", f"0 65536 linear {part} 2048")
    stack.callback(call, "dmsetup", "remove", "mapped")


TAKEN: dict[str, Callable[[ExitStack, Path], None]] = {
    "mounted": _part_mounted,
    "swap": _swap_on,
    "held by dm-": _map_over,
}


@pytest.mark.parametrize("serial", [SSD, NVME], ids=["sata", "nvme"])
@pytest.mark.parametrize("use", TAKEN)
def test_the_part_of_a_held_drive_that_somebody_else_has_taken(
    use: str, serial: str, project: Project
) -> None:
    """Only the header is held: our file systems have to be mounted on the rest."""
    claim(serial, "mine", project)
    with guard.claimed("mine", project=project) as held:
        held.permit("before", 0)
        with ExitStack() as stack:
            TAKEN[use](stack, held.path)
            with unchanged(held.drive):
                with pytest.raises(TargetError, match=rf"somebody uses {held.path} \({use}"):
                    held.permit("after", 0)
                with pytest.raises(TargetError, match="Device or resource busy"):
                    filesystems.discard(held.path, 0, held.size_bytes)
        held.permit("when it is free again", 0)


def _edited(project: Project, **changes: object) -> None:
    """By somebody who knows how the file is made."""
    path = lab_file.path_of(project)
    claims = lab_file.load(path)
    lab_file.save(path, {name: c.model_copy(update=changes) for name, c in claims.items()})


@pytest.mark.parametrize(
    "changes",
    [{"serial": "XX0000000000"}, {"wwn": "naa.5"}, {"size_bytes": 1 << 30}, {"model": "OTHER"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_lab_file_that_says_something_else(changes: dict[str, object], project: Project) -> None:
    claim(SSD, "mine", project)
    _edited(project, **changes)
    drive = drive_of(SSD)
    assert_refused(project, drive)


def test_a_lab_file_that_points_to_a_drive_that_was_never_claimed(project: Project) -> None:
    claim(SSD, "mine", project)
    hdd = drive_of(HDD)
    model, serial, wwn, size_bytes = hdd.identity
    facts = {"model": model, "serial": serial, "wwn": wwn, "size_bytes": size_bytes}
    _edited(project, by_id=str(by_id(hdd)), **facts)
    assert_refused(project, hdd, match="token")


def test_a_lab_file_that_others_may_write(project: Project) -> None:
    claim(SSD, "mine", project)
    drive, path = drive_of(SSD), lab_file.path_of(project)
    path.chmod(0o666)
    assert_refused(project, drive, match="not only yours")
    os.chown(path, 65534, 65534)
    path.chmod(0o600)
    assert_refused(project, drive, match="not only yours")


def test_a_lab_file_that_is_a_link(project: Project) -> None:
    claim(SSD, "mine", project)
    drive, path = drive_of(SSD), lab_file.path_of(project)
    moved = path.rename(path.with_name("moved.json"))
    path.symlink_to(moved)
    assert_refused(project, drive)


def test_one_name_is_for_one_drive(project: Project) -> None:
    claim(SSD, "mine", project)
    hdd = drive_of(HDD)
    with unchanged(hdd), pytest.raises(TargetError, match="another drive"):
        claim(HDD, "mine", project)


def test_the_budget(project: Project) -> None:
    claim(SSD, "mine", project)
    with guard.claimed("mine", budget_bytes=8 * MIB, project=project) as held:
        held.permit("little", 4 * MIB)
        with unchanged(held.drive), pytest.raises(guard.BudgetSpent):
            held.permit("much", 16 * MIB)
        with held.path.open("wb", buffering=0) as file:
            for _ in range(16):
                file.write(bytes(MIB))
            os.fsync(file.fileno())
        assert held.is_overspent
        with pytest.raises(guard.BudgetSpent):
            held.check_budget()
        with pytest.raises(guard.BudgetSpent):
            held.permit("nothing", 0)


def test_the_whole_drive_is_prepared_and_marked_again(project: Project) -> None:
    claim(SSD, "mine", project)
    with guard.claimed("mine", project=project) as held:
        node = str(held.drive.node)
        discard = Step("discard all", ("blkdiscard", "--force", node), 0, 1.0)
        with held.whole([discard]) as before:
            preparation.carry_out(Way("discard", (discard,)), before)
        held.permit("after", 0)
        failing = Step("fail", ("blkdiscard", "--force", "--offset", "1", node), 0, 1.0)
        with pytest.raises(DeviceError), held.whole([failing]) as before:
            preparation.carry_out(Way("fail", (failing,)), before)
    with guard.claimed("mine", project=project) as held:
        held.permit("again", 0)


def test_a_step_that_reaches_a_neighbour(project: Project) -> None:
    """Two namespaces of one controller, of which one is claimed."""
    first, second = sorted(
        (d for d in Machine().drives if d.serial == SPACES), key=lambda drive: drive.name
    )
    plan = guard.plan_claim("mine", by_id(first))
    guard.claim(plan, plan.token, project)
    step = Step("format", ("nvme", "format", "--force", str(first.node)), 0, 1.0)
    with (
        guard.claimed("mine", project=project) as held,
        unchanged(first, second),
        pytest.raises(TargetError, match="not claimed"),
        held.whole([step]),
    ):
        pass


def test_a_killed_run_leaves_partitions_and_the_next_one_removes_them(project: Project) -> None:
    claim(SSD, "mine", project)
    script = (
        "import os, signal, sys; from pathlib import Path; from harness.drives import guard;"
        "from harness.paths import Project;"
        "held = guard.claimed('mine', project=Project(Path(sys.argv[1])));"
        "held.__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(project.root)], check=False)
    assert done.returncode < 0
    drive = drive_of(SSD)
    assert Machine().partitions(drive.name)
    with guard.claimed("mine", project=project):
        pass
    assert not Machine().partitions(drive.name)


def test_a_thousand_damaged_lab_files(project: Project) -> None:
    """Whatever stands in it: either it is refused, or it is the claim that was made."""
    made = claim(SSD, "mine", project)
    path = lab_file.path_of(project)
    whole = path.read_bytes()
    drives = [drive for drive in Machine().drives if drive.serial != ROOT]
    chance = random.Random(20261122)
    refused = 0
    with unchanged(*drives):
        for _ in range(1000):
            path.write_bytes(mutated(whole, chance))
            path.chmod(0o600)
            try:
                with guard.claimed("mine", project=project) as held:
                    assert held.claim == made
            except HarnessError:
                refused += 1
    assert refused > 900


def mutated(whole: bytes, chance: random.Random) -> bytes:
    """One of: bits, bytes, pieces cut or doubled, values replaced, with a digest that fits, too."""
    data = bytearray(whole)
    kind = chance.randrange(7)
    at = chance.randrange(len(data))
    if kind == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        data[at : at + 1] = bytes([chance.randrange(256)])
    elif kind == 2:
        del data[at : at + chance.randrange(1, 40)]
    elif kind == 3:
        data[at:at] = data[at : at + chance.randrange(1, 40)]
    elif kind == 4:
        return bytes(data[:at])
    else:
        text = json.loads(whole)
        claim_ = text["drives"]["mine"]
        key = chance.choice(sorted(claim_))
        other = drive_of(HDD)
        foreign = [*other.identity, str(by_id(other)), str(other.node), "0" * 32]
        claim_[key] = chance.choice(["", None, -1, [], {}, "../..", claim_["serial"], *foreign])
        if kind == 6:
            plain = json.dumps(text["drives"], sort_keys=True).encode()
            text["digest"] = hashlib.sha256(plain).hexdigest()
        return json.dumps(text).encode()
    return bytes(data)


def test_flock_is_held_against_udev(project: Project) -> None:
    claim(SSD, "mine", project)
    with guard.claimed("mine", project=project) as held:
        fd = os.open(held.drive.node, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.close(fd)
