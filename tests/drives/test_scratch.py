"""Targets: what is not ours is never written to."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import loop_device, mounted, need
from leaks import PREFIX

from harness.drives import device_locks, discovery, fingerprint, scratch
from harness.errors import DiskFull, HarnessError, TargetError
from harness.system import filesystems, loop_devices
from harness.system.ext4_spec import Ext4Spec

SIZE = 8 << 20


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_a_new_file_is_made_marked_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with scratch.use(path, SIZE) as target:
        assert target.size_bytes == path.stat().st_size == SIZE
        assert path.stat().st_blocks * 512 >= SIZE
        assert path.read_bytes().startswith(scratch.MARKER)
        assert path.stat().st_mode & 0o077 == 0
    assert not path.exists()


def test_it_is_deleted_after_an_error_too(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with pytest.raises(ZeroDivisionError), scratch.use(path, SIZE):
        raise ZeroDivisionError
    assert not path.exists()


def test_ours_that_was_left_behind_is_used(tmp_path: Path) -> None:
    path = tmp_path / "left"
    path.write_bytes(scratch.MARKER + bytes(100))
    with scratch.use(path, SIZE):
        pass
    assert not path.exists()


def test_a_file_that_a_run_uses_is_no_other_run_s(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with scratch.use(path, SIZE) as target:
        before = path.stat()
        with pytest.raises(TargetError, match="another run"), scratch.use(path, 2 * SIZE):
            pass
        after = path.stat()
        assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
        target.permit("write", SIZE)
    with scratch.use(path, 2 * SIZE):
        pass
    assert not path.exists()


def test_a_file_that_another_run_has_just_made_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no marker yet, and whoever made it has still to lock it."""
    path = tmp_path / "new"
    check = scratch.check

    def made_meanwhile(*asked: Any, **how: Any) -> None:
        check(*asked, **how)
        path.touch()

    monkeypatch.setattr(scratch, "check", made_meanwhile)
    with pytest.raises(TargetError, match="not made by this program"), scratch.use(path, SIZE):
        pass
    assert path.stat().st_size == 0


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"somebody's")


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.rename(path)


@pytest.mark.parametrize("change", [overwrite, replace, Path.unlink])
def test_a_file_that_is_not_ours_any_more_is_not_overwritten(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """And not deleted, if it is another's."""
    path = tmp_path / "new"
    with scratch.use(path, SIZE) as target:
        target.permit("write", SIZE)
        change(path)
        with pytest.raises(TargetError, match=r"write: .*: refused"):
            target.permit("write", SIZE)
    assert path.exists() == (change is replace)


@pytest.mark.root
def test_a_block_device_is_made_of_what_is_held(tmp_path: Path) -> None:
    """Behind the header, and whatever its path leads to by now."""
    if not loop_devices.CONTROL.exists():
        pytest.skip("needs loop devices")
    path = tmp_path / "new"
    with scratch.use(path, SIZE) as target:
        replace(path)
        with scratch.block_device(target) as device, device.open("r+b", buffering=0) as file:
            file.write(b"\xff" * (SIZE - scratch.HEADER_BYTES))
            os.fsync(file.fileno())
        held = os.pread(target.held, SIZE, 0)
    assert held.startswith(scratch.MARKER)
    assert held[scratch.HEADER_BYTES :] == b"\xff" * (SIZE - scratch.HEADER_BYTES)
    assert b"\xff" not in path.read_bytes()


def test_what_is_not_held_is_not_overwritten(tmp_path: Path) -> None:
    """A plan has the same target, and nobody checked it for more than that."""
    with pytest.raises(TargetError, match="not held"):
        scratch.Scratch(tmp_path / "new", SIZE).permit("write", SIZE)


@pytest.mark.parametrize("content", [b"", b"precious", bytes(5000), scratch.MARKER[:-1]])
def test_a_file_of_somebody_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "theirs"
    path.write_bytes(content)
    with pytest.raises(TargetError, match="was not made by this program"), scratch.use(path, SIZE):
        pass
    assert path.read_bytes() == content


def test_a_link_is_judged_by_what_it_points_to(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"precious")
    link = tmp_path / "link"
    link.symlink_to(theirs)
    with pytest.raises(TargetError), scratch.use(link, SIZE):
        pass
    assert theirs.read_bytes() == b"precious"


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "gone" / "file")
    with pytest.raises(TargetError), scratch.use(link, SIZE):
        pass


def test_folders_and_missing_folders(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "file", Path("/dev/null")):
        with pytest.raises(TargetError), scratch.use(path, SIZE):
            pass


@pytest.mark.parametrize("name", ["nvme9n9", "disk/by-id/nonesuch", "loop99999"])
def test_no_file_is_made_below_dev(name: str) -> None:
    """A typo of a device's name would make a file in memory there."""
    path = Path("/dev") / name
    if not path.parent.is_dir():
        path = Path("/dev") / path.name
    with pytest.raises(TargetError, match="no file is made below /dev"), scratch.use(path, SIZE):
        pass
    assert not path.exists()


def test_a_file_system_without_direct_io_is_used_if_asked_for() -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or fingerprint.storage_of(memory)["file_system"] != "tmpfs":
        pytest.skip("no file system in memory")
    with tempfile.TemporaryDirectory(dir=memory, prefix=PREFIX) as folder:
        path = Path(folder) / "file"
        with pytest.raises(TargetError, match="without O_DIRECT"), scratch.use(path, SIZE):
            pass
        assert not path.exists()
        with scratch.use(path, SIZE, cached=True) as target:
            assert target.size_bytes == SIZE


def test_more_than_is_free(tmp_path: Path) -> None:
    with pytest.raises(DiskFull), scratch.use(tmp_path / "x", 1 << 60):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(TargetError, match="not writable"), scratch.use(tmp_path / "x", SIZE):
        pass
    tmp_path.chmod(0o755)


@pytest.mark.root
def test_a_blank_loop_device_is_used_and_stays_ours(tmp_path: Path) -> None:
    with loop_device(tmp_path, SIZE) as device:
        for _ in range(2):
            with scratch.use(device, SIZE) as target:
                assert target.size_bytes == SIZE
                with device.open("r+b") as file:  # as an experiment would
                    file.seek(SIZE - 4096)
                    file.write(b"\xff" * 4096)
        assert device.exists()


@pytest.mark.root
def test_a_loop_device_with_a_page_cache_below_is_used_if_asked_for(tmp_path: Path) -> None:
    with loop_device(tmp_path, SIZE) as device:
        losetup("--direct-io=off", str(device))
        with (
            pytest.raises(TargetError, match=rf"losetup --direct-io=on {device}, or .* --cached"),
            scratch.use(device, SIZE),
        ):
            pass
        with scratch.use(device, SIZE, cached=True):
            pass


@pytest.mark.root
def test_a_loop_device_over_another_image_is_another_storage(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two", "one"):
        (tmp_path / name).mkdir(exist_ok=True)
        if not (tmp_path / name / "loop.img").exists():
            (tmp_path / name / "loop.img").touch()
        with loop_device(tmp_path / name, SIZE) as device:
            found.append({"name": device.name, **fingerprint.storage_of(device)})
    one, two, again = found
    assert one["below_file_system"] == fingerprint.storage_of(tmp_path)["file_system"]
    assert one["below_digest"] != two["below_digest"]
    assert one["below_digest"] == again["below_digest"]


@pytest.mark.root
def test_a_loop_device_that_a_run_uses_is_no_other_run_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_locks, "UDEV_PATIENCE_S", 0.0)
    with loop_device(tmp_path, SIZE) as device, scratch.use(device, SIZE) as target:
        with pytest.raises(TargetError, match="another run"), scratch.use(device, SIZE):
            pass
        target.permit("write", SIZE)


@pytest.mark.root
def test_a_loop_device_that_is_used_does_not_become_another_image_s(tmp_path: Path) -> None:
    """Not between points either, when nothing is mounted on it."""
    with ExitStack() as stack:
        device = attach(tmp_path / "ours.img", stack)
        with scratch.use(device, SIZE) as target:
            losetup("--detach", str(device))
            other = attach(tmp_path / "theirs.img", stack)
            assert other != device
            with pytest.raises(subprocess.CalledProcessError):
                losetup(str(device), str(tmp_path / "theirs.img"))
            target.permit("write", SIZE)
        assert scratch.MARKER in (tmp_path / "ours.img").read_bytes()
        assert scratch.MARKER not in (tmp_path / "theirs.img").read_bytes()


def losetup(*arguments: str) -> str:
    command = [need("losetup"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def attach(image: Path, stack: ExitStack) -> Path:
    """A loop device; it is detached in the end, unless it is another image's by then."""
    image.write_bytes(bytes(SIZE))
    try:
        device = Path(losetup("--find", "--show", "--direct-io=on", str(image)))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device to be had: {error.stderr.strip()}")

    def detach() -> None:
        backing = Path("/sys/block") / device.name / "loop/backing_file"
        if backing.exists() and backing.read_text().strip() == str(image):
            losetup("--detach", str(device))

    stack.callback(detach)
    return device


@pytest.mark.root
@pytest.mark.parametrize("below", [False, True], ids=["by it", "below it"])
def test_a_loop_device_that_is_not_ours_any_more_is_not_overwritten(
    tmp_path: Path, *, below: bool
) -> None:
    """Also if somebody writes to its image, of which the loop device's cache knows nothing."""
    with loop_device(tmp_path, SIZE) as device, scratch.use(device, SIZE) as target:
        target.permit("write", SIZE)
        overwrite(tmp_path / "loop.img" if below else device)
        with pytest.raises(TargetError, match="does not carry our marker"):
            target.permit("write", SIZE)


@pytest.mark.root
@pytest.mark.parametrize(
    "offset", [0, 1024, 4096, 65536, SIZE - 65536, SIZE - 512], ids=lambda n: f"at-{n}"
)
def test_a_loop_device_with_a_signature_is_refused(tmp_path: Path, offset: int) -> None:
    """Where ext4, LVM, swap, btrfs, ZFS, MD and GPT keep theirs."""
    with loop_device(tmp_path, SIZE) as device:
        with device.open("r+b") as file:
            file.seek(offset)
            file.write(b"signature")
        before = digest(device)
        with pytest.raises(TargetError, match="not blank"), scratch.use(device, SIZE):
            pass
        assert digest(device) == before


def raid_superblock() -> bytes:
    """Of md, version 1.2, as far as libblkid looks: include/uapi/linux/raid/md_p.h, sb_csum."""
    block = bytearray(256)
    struct.pack_into("<2I", block, 0, 0xA92B4EFC, 1)
    struct.pack_into("<Q", block, 144, 4096 // 512)
    total = sum(struct.unpack("<64I", block))
    struct.pack_into("<I", block, 216, (total + (total >> 32)) & 0xFFFFFFFF)
    return bytes(block)


def left_by_a_run(path: Path, size: int) -> None:
    """A marker, and behind it a file system of ours, as scratch targets of all kinds have them."""
    with path.open("r+b") as file:
        file.write(scratch._header())
    spec = Ext4Spec(journal_mode="journal").sized(size - scratch.HEADER_BYTES)
    filesystems.make(path, spec, offset_bytes=scratch.HEADER_BYTES)


def write_raid(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(raid_superblock())


def test_what_a_run_has_left_is_no_signature_and_what_came_since_is_one(tmp_path: Path) -> None:
    """In a file, at which the program looks as at a loop device."""
    need("mke2fs")
    path, size = tmp_path / "image", 64 << 20
    path.touch()
    os.truncate(path, size)
    left_by_a_run(path, size)
    with path.open("rb") as file:
        scratch._check_content(path, file.fileno(), size)
        assert discovery.signatures(path) == []
        write_raid(path)
        assert path.read_bytes().startswith(scratch.MARKER)
        with pytest.raises(TargetError, match=r"not .*alone \(carries linux_raid_member\)"):
            scratch._check_content(path, file.fileno(), size)


@pytest.mark.root
def test_a_loop_device_that_became_somebody_s_beside_the_marker_is_refused(tmp_path: Path) -> None:
    """What md, btrfs and ZFS keep lies behind the block that the marker is in."""
    size = 64 << 20
    with loop_device(tmp_path, size) as device:
        left_by_a_run(device, size)
        with scratch.use(device, size):
            pass
        write_raid(device)
        before = digest(device)
        with pytest.raises(TargetError, match="linux_raid_member"), scratch.use(device, size):
            pass
        with pytest.raises(TargetError, match="linux_raid_member"):
            scratch.check(device, size)
        assert digest(device) == before


@pytest.mark.root
def test_a_loop_device_in_use_is_refused(tmp_path: Path) -> None:
    with loop_device(tmp_path, 64 << 20) as device:
        with mounted(device, tmp_path / "m"):
            with pytest.raises(TargetError, match="mounted"), scratch.use(device, SIZE):
                pass
            assert scratch.MARKER not in device.read_bytes()
        backing = tmp_path / "loop.img"
        with pytest.raises(TargetError, match="backing file"), scratch.use(backing, SIZE):
            pass


@pytest.mark.root
def test_swap_is_refused(tmp_path: Path) -> None:
    need("mkswap")
    with loop_device(tmp_path, 64 << 20) as device:
        subprocess.run(["mkswap", str(device)], check=True, capture_output=True)
        if subprocess.run(["swapon", str(device)], capture_output=True, check=False).returncode:
            pytest.skip("this machine does not let us swap")
        try:
            with pytest.raises(TargetError, match="swap"), scratch.use(device, SIZE):
                pass
        finally:
            subprocess.run(["swapoff", str(device)], check=True)


@pytest.mark.root
def test_a_read_only_loop_device_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "ro.img"
    with image.open("wb") as file:
        file.truncate(SIZE)
    losetup = need("losetup")
    made = subprocess.run(
        [losetup, "--find", "--show", "--read-only", str(image)],
        capture_output=True,
        text=True,
        check=True,
    )
    device = Path(made.stdout.strip())
    try:
        with pytest.raises(TargetError, match="not writable"), scratch.use(device, SIZE):
            pass
    finally:
        subprocess.run([losetup, "--detach", str(device)], check=True)


@pytest.mark.root
def test_drives_are_never_accepted() -> None:
    """Whatever block devices this machine has, besides loop devices."""
    for entry in Path("/sys/class/block").iterdir():
        device = Path("/dev") / entry.name
        if device.is_block_device() and not entry.name.startswith("loop"):
            with pytest.raises(HarnessError, match="is a drive"):
                scratch.check(device, SIZE)


@pytest.mark.parametrize("name", ["of somebody:1", "of somebody\\"])
def test_a_name_that_fio_takes_for_several_is_refused(tmp_path: Path, name: str) -> None:
    """It would write to the file before the colon, which is not ours."""
    there = tmp_path / "of somebody"
    there.write_text("precious")
    with (
        pytest.raises(TargetError, match="choose another path"),
        scratch.use(tmp_path / name, SIZE),
    ):
        pass
    (tmp_path / "link").symlink_to(name)
    with pytest.raises(TargetError, match="choose another path"):
        scratch.check(tmp_path / "link", SIZE)
    assert [path.name for path in tmp_path.iterdir() if not path.is_symlink()] == [there.name]
    assert there.read_text() == "precious"


@pytest.mark.root
def test_a_loop_device_over_a_device_is_refused(tmp_path: Path) -> None:
    """What is below may be a drive that nobody has claimed, and may be in use."""
    with loop_device(tmp_path, SIZE) as below:
        made = subprocess.run(
            [need("losetup"), "--find", "--show", "--direct-io=on", str(below)],
            capture_output=True,
            text=True,
            check=True,
        )
        above = Path(made.stdout.strip())
        try:
            assert loop_devices.is_over_device(above)
            assert not loop_devices.is_over_device(below)
            with pytest.raises(TargetError, match="loop device over a drive"):
                scratch.check(above, SIZE // 2)
            assert not any(below.read_bytes())
        finally:
            subprocess.run(["losetup", "--detach", str(above)], check=True)
