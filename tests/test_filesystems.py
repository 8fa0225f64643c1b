"""File systems on a device under test: always the same, quiet, bounded, and gone afterwards."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from conftest import loop_device
from live_world import eventually

from harness import mounts
from harness.devices import filesystems, scratch
from harness.errors import TargetError
from harness.probes import counters
from harness.tiers.hardware import HardwareBench
from harness.tiers.simulated import SimulatedBench

PROFILES = Path(__file__).resolve().parent.parent / "hardware" / "profiles"
SIZE = 64 << 20


def bdi(folder: Path, name: str) -> str:
    number = folder.stat().st_dev
    place = Path("/sys/class/bdi") / f"{os.major(number)}:{os.minor(number)}"
    return (place / name).read_text().strip()


def test_the_same_options_make_the_same_file_system(tmp_path: Path) -> None:
    digests = set()
    for name in ("one", "two"):
        file = tmp_path / name
        file.touch()
        os.truncate(file, SIZE)
        filesystems._make(file, 0, offset_bytes=0)
        digests.add(hashlib.sha256(file.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_a_file_system_has_a_least_size(tmp_path: Path) -> None:
    file = tmp_path / "small"
    file.write_bytes(bytes(1 << 20))
    with pytest.raises(TargetError, match="too few for a file system"):
        filesystems._make(file, 0, offset_bytes=0)


@pytest.mark.real
@pytest.mark.root
def test_it_is_mounted_bounded_and_gone(tmp_path: Path) -> None:
    with loop_device(tmp_path, SIZE) as device:
        with filesystems.ext4(device, dirty_bytes=8 << 20) as folder:
            assert mounts.is_point(folder)
            assert bdi(folder, "strict_limit") == "1"
            # the kernel keeps a share of its own limit, with six digits
            assert int(bdi(folder, "max_bytes")) == pytest.approx(8 << 20, rel=0.01)
            (folder / "file").write_bytes(bytes(1 << 20))
            mounts.sync(folder)
            before = counters.read(device)
            assert counters.read(device).write_ios == before.write_ios
            number = device.stat().st_rdev
        place = Path("/sys/class/bdi") / f"{os.major(number)}:{os.minor(number)}"
        assert (place / "strict_limit").read_text().strip() == "0"
        assert (place / "max_ratio").read_text().strip() == "100"
        assert not mounts.is_point(folder)
        assert not folder.parent.exists()
        assert mounts.of_device(device) == []


@pytest.mark.real
@pytest.mark.root
def test_a_failure_inside_leaves_nothing(tmp_path: Path) -> None:
    with loop_device(tmp_path, SIZE) as device:
        with pytest.raises(ZeroDivisionError), filesystems.ext4(device):
            1 / 0  # noqa: B018
        assert mounts.of_device(device) == []


@pytest.mark.real
@pytest.mark.root
def test_a_file_of_the_hardware_tier_keeps_its_header(tmp_path: Path) -> None:
    target = tmp_path / "scratch"
    with HardwareBench(target) as bench:
        bench.reserve({"file": SIZE})
        with bench.open_device("file", SIZE, overrides={}, seed=0) as device:
            with device.filesystem(dirty_bytes=8 << 20) as folder:
                loop = Path(f"/sys/dev/block/{mounts.number_of(folder)}").resolve()
                assert bdi(folder, "strict_limit") == "1"
                (folder / "file").write_bytes(b"x" * (8 << 20))
                with pytest.raises(OSError, match="No space"):
                    (folder / "large").write_bytes(b"x" * SIZE)
            assert target.read_bytes()[: len(scratch.MARKER)] == scratch.MARKER
            backing = Path("/sys/block") / loop.name / "loop" / "backing_file"
            assert not backing.exists() or backing.read_text().strip() != str(target)
    assert not target.exists()


def test_virtual_time_has_no_file_system() -> None:
    with (
        SimulatedBench(PROFILES, {"hdd": "seagate_250gb"}, "athlon_2010") as bench,
        bench.open_device("hdd", 0, overrides={}, seed=0) as device,
        pytest.raises(TargetError, match="tier emulated or hardware"),
        device.filesystem(),
    ):
        pass


@pytest.mark.real
@pytest.mark.root
@pytest.mark.parametrize("discard", [True, False])
def test_deleted_files_are_discarded_if_asked_for(tmp_path: Path, *, discard: bool) -> None:
    with (
        loop_device(tmp_path, SIZE) as device,
        filesystems.ext4(device, discard=discard) as folder,
    ):
        assert filesystems.device_of(folder) == device
        (folder / "file").write_bytes(b"x" * (8 << 20))
        mounts.sync(folder)
        before = counters.read(device)
        (folder / "file").unlink()
        mounts.sync(folder)

        def discarded() -> int:
            return (counters.read(device) - before).discard_sectors * counters.SECTOR_BYTES

        if discard:
            eventually(lambda: discarded() >= 8 << 20)
        else:
            assert discarded() == 0
            filesystems.trim(folder)
            assert discarded() >= SIZE // 2


@pytest.mark.real
@pytest.mark.root
def test_a_device_that_knows_no_discard_is_refused_before_it_is_mounted(tmp_path: Path) -> None:
    with loop_device(tmp_path, SIZE) as device:
        limit = Path("/sys/block") / device.name / "queue" / "discard_max_bytes"
        limit.write_text("0")
        with (
            pytest.raises(TargetError, match=r"knows no discard.*discard_max_bytes is 0"),
            filesystems.ext4(device, discard=True),
        ):
            pass
        assert mounts.of_device(device) == []
        with (
            filesystems.ext4(device) as folder,
            pytest.raises(TargetError, match="knows no discard"),
        ):
            filesystems.trim(folder)


@pytest.mark.real
@pytest.mark.root
def test_there_can_be_more_files_than_usual(tmp_path: Path) -> None:
    with (
        loop_device(tmp_path, SIZE) as device,
        filesystems.ext4(device, inodes=2 * filesystems.INODES) as folder,
    ):
        assert os.statvfs(folder).f_files >= 2 * filesystems.INODES
