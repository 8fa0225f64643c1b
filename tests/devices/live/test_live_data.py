"""Live devices keep what they acknowledge: fio, file systems, power cuts, records, faults."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import cleaning_alone, need
from live_world import fsync_files_until_the_cut

from harness.benchmarks import live_data, live_safety
from harness.benchmarks.live_safety import DISK, DRIVES, MX500, Drive, cuts_of, mixed_load, recorded
from harness.benchmarks.power_cuts import Writer, direct, discard, read
from harness.devices.live import LiveDevice, create, created
from harness.devices.live.recording import initial_path, replay
from harness.devices.model import Device
from harness.devices.profiles import NamedRange
from harness.errors import TargetError, TraceError
from harness.paths import Project
from harness.runs.cleaning import clean
from harness.system import block_queue, loop_devices

pytestmark = [pytest.mark.servers, pytest.mark.root]

BOARD = Drive("Cosmos+, whose map knows 16 KiB and nothing smaller", "cosmos_plus_openssd")
by_name = pytest.mark.parametrize(
    "drive", [*DRIVES, BOARD], ids=lambda drive: drive.name.split()[0].strip(",")
)
BLOCK = 4096
LOOP_CTL_ADD = 0x4C80  # linux/loop.h
LOOP_CTL_REMOVE = 0x4C81


@pytest.fixture(autouse=True)
def programs() -> None:
    """What all of this needs."""
    if not Path("/dev/fuse").exists() or not Path("/dev/loop-control").exists():
        pytest.skip("needs FUSE and loop devices")
    for program in ("fio", "losetup", "setsid"):
        need(program)


@contextmanager
def unmeasured(project: Project, drive: Drive, **more: object) -> Iterator[LiveDevice]:
    """A device at its own speed that has not measured the way to it, which takes a second."""
    with created(drive.spec(project, speed="none", **more)) as device:
        device.set_speed("real", 1)
        yield device


def pattern(number: int) -> bytes:
    return number.to_bytes(8, "little") * (BLOCK // 8)


def write(device: LiveDevice, block: int, number: int) -> None:
    with direct(device.path) as fd, _aligned(pattern(number)) as data:
        os.pwritev(fd, [data], block * BLOCK)


def _aligned(content: bytes) -> memoryview:
    buffer = mmap.mmap(-1, len(content))
    buffer[:] = content
    return memoryview(buffer)


def blocks(device: LiveDevice, first: int, count: int) -> list[int]:
    """The numbers that blocks hold; -1 for one that is not whole."""
    data = read(device.path, first * BLOCK, count * BLOCK)
    found = [data[i * BLOCK : (i + 1) * BLOCK] for i in range(count)]
    numbers = [int.from_bytes(block[:8], "little") for block in found]
    return [n if pattern(n) == b else -1 for n, b in zip(numbers, found, strict=True)]


# Data is what was written.


@pytest.mark.parametrize(
    ("drive", "speed", "span"),
    [(MX500, "real", 256 << 20), (MX500, "none", 512 << 20), (DISK, "none", 256 << 20)],
    ids=["ssd", "ssd-none", "disk-none"],
)
def test_fio_finds_what_it_wrote(project: Project, drive: Drive, speed: str, span: int) -> None:
    with created(drive.spec(project, speed=speed)) as device:
        found = live_data.verify_with_fio(device.path, span, trims=drive is not DISK)
        live = device.stats()["live"]
    assert found.errors == 0, found.said
    assert found.written_bytes > 0.9 * span
    assert found.read_bytes >= found.written_bytes
    assert live["trim_replies"] >= found.trims
    assert live["flush_replies"] > 0
    assert (found.trims > 0) == (drive is not DISK)


@pytest.mark.slow
def test_fio_finds_20_gib_that_it_wrote(project: Project) -> None:
    for figure in live_safety.fio(project):
        assert figure.holds, figure.record()


@by_name
def test_random_writes_trims_and_flushes_are_what_a_ledger_says(
    project: Project, drive: Drive
) -> None:
    with unmeasured(project, drive) as device:
        writer = Writer(device.path, 100, 300, seed=4)
        writer.run(requests=300 if drive is not DISK else 100)
        found = writer.check()
    assert found.durable > 100
    assert (found.lost, found.garbage, found.undone) == (0, 0, 0)


def test_several_devices_at_once_keep_their_data_apart(project: Project) -> None:
    chosen = [MX500, DRIVES[0], MX500, DISK]
    with ExitStack() as stack:
        devices = [stack.enter_context(unmeasured(project, drive)) for drive in chosen]
        assert len({device.path for device in devices}) == len(devices)
        writers = [Writer(d.path, 0, 256, seed=i) for i, d in enumerate(devices)]
        for number, device in enumerate(devices):
            write(device, 1000, number + 1)
        with ThreadPoolExecutor(len(writers)) as pool:
            list(pool.map(lambda writer: writer.run(requests=150), writers))
        for number, (device, writer) in enumerate(zip(devices, writers, strict=True)):
            found = writer.check()
            assert (found.lost, found.garbage, found.undone) == (0, 0, 0)
            assert blocks(device, 1000, 1) == [number + 1]
            assert device.stats()["live"]["errors"] == 0


# File systems.

CHECKERS = {"ext4": "e2fsck", "xfs": "xfs_repair", "btrfs": "btrfs"}
# mkfs.btrfs looks at everybody's loop devices, and fails where one's daemon has just been killed.
each_kind = pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=cleaning_alone if kind == "btrfs" else ()) for kind in CHECKERS],
)


@each_kind
def test_files_survive_a_remount(project: Project, tmp_path: Path, kind: str) -> None:
    need(f"mkfs.{kind}")
    need(CHECKERS[kind])
    with unmeasured(project, MX500) as device:
        assert live_safety.files_survive(device, tmp_path, kind, 4000) == []


@pytest.mark.slow
@each_kind
def test_100_000_files_survive_a_remount(project: Project, tmp_path: Path, kind: str) -> None:
    need(f"mkfs.{kind}")
    with created(MX500.spec(project, size_bytes=8 << 30)) as device:
        assert live_safety.files_survive(device, tmp_path, kind, 100_000) == []


@each_kind
def test_discards_are_counted_as_the_kernel_counts_them(
    project: Project, tmp_path: Path, kind: str
) -> None:
    need(f"mkfs.{kind}")
    with unmeasured(project, MX500) as device:
        before = live_data.discarded_bytes(device.path)
        device.reset()
        mount = tmp_path / "mount"
        with live_data.file_system(device.path, mount, kind, "-o", "discard"):
            live_data.write_files(mount, 300, seed=2)
            os.sync()
            for file in mount.glob("0*/*"):
                file.unlink()
            os.sync()
            live_data.run("fstrim", str(mount))
        trimmed = device.stats()["device"]["trim_bytes"]
        assert trimmed == live_data.discarded_bytes(device.path) - before
        assert trimmed > 2 << 30  # mkfs alone discards the whole device


def test_a_disk_has_no_trim_and_leaves_no_loop_device_without_it(project: Project) -> None:
    with created(DISK.spec(project, speed="none")) as disk:
        with direct(disk.path) as fd, pytest.raises(OSError, match="not supported"):
            discard(fd, 0, BLOCK)
        loop = disk.path
        assert not block_queue.discards(loop)
    assert not loop.exists() or block_queue.discards(loop)
    with created(MX500.spec(project, speed="none")) as device, direct(device.path) as fd:
        discard(fd, 0, BLOCK)


def test_a_loop_device_keeps_nothing_of_the_queue_of_a_flash_drive(
    project: Project, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    os.truncate(file, 64 << 20)
    _, was = queue_over(file)
    with created(MX500.spec(project, speed="none", front="fuse_loop")) as device:
        number = int(device.path.name.removeprefix("loop"))
        assert block_queue.noted(device.path.name) != was
    assert queue_over(file, number) == (number, was)


def queue_over(file: Path, number: int = -1) -> tuple[int, dict[str, str]]:
    """The number of a loop device, by default a new one, and its queue with a file below it."""
    with loop_devices.CONTROL.open("rb") as control:
        with suppress(FileExistsError):
            number = fcntl.ioctl(control, LOOP_CTL_ADD, number)
        device = f"/dev/loop{number}"
        if subprocess.run(["losetup", device, str(file)], check=False).returncode:
            pytest.skip(f"somebody else has taken {device}")
        try:
            return number, block_queue.noted(f"loop{number}")
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)
            with suppress(OSError):  # somebody has taken it
                fcntl.ioctl(control, LOOP_CTL_REMOVE, number)


def test_the_file_systems_stressors_of_stress_ng_find_nothing(
    project: Project, tmp_path: Path
) -> None:
    stress = need("stress-ng")
    mount = tmp_path / "mount"
    stressors = ["--hdd", "1", "--hdd-bytes", "64m", "--hdd-opts", "direct,fsync,rd-rnd,wr-rnd"]
    stressors += ["--iomix", "1", "--iomix-bytes", "64m", "--fallocate", "1"]
    stressors += ["--fallocate-bytes", "64m", "--seek", "1", "--seek-size", "32m"]
    stressors += ["--aio", "1", "--rename", "1", "--readahead", "1", "--readahead-bytes", "64m"]
    with unmeasured(project, MX500) as device:
        with live_data.file_system(device.path, mount, "ext4", "-o", "discard"):
            done = subprocess.run(
                [stress, *stressors, "--verify", "--timeout", "5", "--temp-path", str(mount)],
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, done.stdout + done.stderr
        assert live_data.check_file_system(device.path, "ext4") == ""
        assert device.stats()["live"]["errors"] == 0


@pytest.mark.slow
@each_kind
def test_fsx_finds_nothing(project: Project, tmp_path: Path, kind: str) -> None:
    """The file system exerciser, as a crate: cargo install fsx --version 0.2.0."""
    fsx = need("fsx")
    need(f"mkfs.{kind}")
    mount = tmp_path / "mount"
    with unmeasured(project, MX500) as device:
        with live_data.file_system(device.path, mount, kind, "-o", "discard"):
            done = subprocess.run(
                [fsx, "-N", "20000", "-S", "7", str(mount / "file")],
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert live_data.check_file_system(device.path, kind) == ""


# Power cuts.


@by_name
def test_a_power_cut_loses_nothing_that_was_flushed(project: Project, drive: Drive) -> None:
    found = cuts_of(project, drive, 2 + (drive is MX500), honest=True)
    assert (found.lost, found.garbage, found.fio_lost) == (0, 0, 0)
    assert found.durable > 100
    assert found.fio_durable > 0
    if drive.protected:
        assert found.undone == 0


@pytest.mark.parametrize("drive", [MX500, DISK], ids=["ssd", "disk"])
def test_flushes_that_lie_are_found(project: Project, drive: Drive) -> None:
    found = cuts_of(project, drive, 2, honest=False)
    assert found.lost + found.fio_lost > 0
    assert found.garbage == 0


@pytest.mark.slow
@by_name
def test_40_power_cuts_lose_nothing_that_was_flushed(project: Project, drive: Drive) -> None:
    found = cuts_of(project, drive, 40, honest=True, seed=2)
    assert found.cuts == 40
    assert (found.lost, found.garbage, found.fio_lost) == (0, 0, 0)
    assert (found.undone > 0) != drive.protected


def test_ext4_recovers_from_a_power_cut(project: Project, tmp_path: Path) -> None:
    need("e2fsck")
    mount = tmp_path / "mount"
    with unmeasured(project, MX500) as device:
        live_data.run("mkfs.ext4", "-q", "-F", str(device.path))
        for cut in range(3):
            with live_data.mounted(device.path, mount):
                synced = fsync_files_until_the_cut(device, mount / f"cut{cut}", 100 + cut)
            device.power_on()
            assert len(synced) > 0
            with live_data.mounted(device.path, mount):  # recovers the journal
                for name, content in synced.items():
                    assert (mount / f"cut{cut}" / name).read_bytes() == content
            assert live_data.check_file_system(device.path, "ext4") == ""


# Records.


@pytest.mark.parametrize("drive", [MX500, DISK], ids=["mx500", "disk"])
def test_a_record_replays_to_the_last_counter(
    project: Project, tmp_path: Path, drive: Drive
) -> None:
    record = tmp_path / "record.parquet"
    with recorded(project, drive, record) as device:
        mixed_load(device, seconds=2, trims=drive is not DISK)
        while drive is not DISK and not device.stats()["device"]["nand_copied_bytes"]:
            mixed_load(device, seconds=2, trims=True)  # on a loaded machine, until it collects
        device.stop_record()
        ended = device.stats()
        write(device, 0, 1)  # no longer recorded
        assert device.stats()["live"]["lost_records"] == 0
    replayed = replay(record)
    assert replayed.differences() == {}
    host = ("read_ios", "write_ios", "trim_ios", "flush_ios", "read_bytes", "write_bytes")
    for name in host:
        assert (
            replayed.device.counters[name]
            == ended["device"][name]
            > (-1 if drive is DISK and name == "trim_ios" else 0)
        )
    if drive is not DISK:
        assert replayed.device.counters["nand_copied_bytes"] > 0


def test_a_replay_ends_with_the_live_drives_map(project: Project, tmp_path: Path) -> None:
    record, state, data = (tmp_path / name for name in ("record", "state", "data"))
    with recorded(project, MX500, record, state=state, store=str(data)) as device:
        mixed_load(device, seconds=1, trims=True)
    live = Device(MX500.spec(project).device_profile())
    live.restore(_saved_model(state))
    replayed = replay(record).device
    assert np.array_equal(live.mapping(), replayed.mapping())
    assert (live.mapping() >= 0).any()


def _saved_model(state: Path) -> bytes:
    return state.read_bytes().partition(b"\n")[2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda device: device.power_cut(1), "the power was cut"),
        (lambda device: device.slow_die(0, 2.0), "die 0"),
        (lambda device: device.set_speed("none"), "speed"),
        (lambda device: device.set_ranges([NamedRange("a", 0, BLOCK)]), "ranges"),
    ],
    ids=["cut", "slow-die", "speed", "ranges"],
)
def test_a_record_that_more_than_requests_have_influenced_is_not_replayed(
    project: Project, tmp_path: Path, change: Callable[[LiveDevice], Any], said: str
) -> None:
    record = tmp_path / "record.parquet"
    with unmeasured(project, MX500) as device:
        device.record(record)
        write(device, 0, 1)
        change(device)
        device.stop_record()
    with pytest.raises(TraceError, match=said):
        replay(record)


def test_records_are_not_written_over_or_nowhere(project: Project, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with created(MX500.spec(project, speed="none")) as device:
        for path in (taken, tmp_path / "no" / "folder"):
            with pytest.raises(TargetError, match="choose another"):
                device.record(path)
        device.record(tmp_path / "good")
        with pytest.raises(TargetError, match="recorded already"):
            device.record(tmp_path / "other")
    assert taken.read_text() == "mine"
    assert (tmp_path / "good").exists()


@cleaning_alone
def test_a_killed_device_leaves_no_record_that_looks_whole(
    project: Project, tmp_path: Path
) -> None:
    record = tmp_path / "record.parquet"
    device = create(MX500.spec(project, speed="none", record=record), owned=True)
    try:
        pid = device.place.about()["pid"]
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while device.place.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not record.exists()
        part = record.with_name(record.name + ".part")
        assert part.exists()
        with pytest.raises(TraceError, match="no record"):
            replay(part)
    finally:
        clean()
    assert not part.exists()
    assert not initial_path(record).exists()


# Faults.


def test_faults_reach_the_application_and_nothing_else(project: Project) -> None:
    with unmeasured(project, MX500) as device:
        for block in range(4):
            write(device, block, block + 1)
        device.add_fault("write", begin_bytes=BLOCK, end_bytes=2 * BLOCK, times=1)
        device.add_fault("read", begin_bytes=2 * BLOCK, end_bytes=3 * BLOCK, times=1)
        with pytest.raises(OSError, match="Input/output"):
            write(device, 1, 99)
        with pytest.raises(OSError, match="Input/output"):
            blocks(device, 2, 1)
        assert blocks(device, 0, 4) == [1, 2, 3, 4]
        assert device.stats()["live"]["errors"] == 2
        write(device, 1, 99)
        assert blocks(device, 0, 4) == [1, 99, 3, 4]
        device.add_fault("write", times=1000)
        device.clear_faults()
        write(device, 0, 100)
        assert device.stats()["live"]["errors"] == 2


def test_a_slow_die_slows_its_own_reads(project: Project) -> None:
    """The model's latencies: what the clock makes of them is another matter."""
    with unmeasured(project, MX500, condition="full", size_bytes=1 << 30) as device:
        before = _read_latencies(device, 200)
        slowest = max(before)
        device.slow_die(0, 20.0)
        after = _read_latencies(device, 200)
        slow = [latency for latency in after if latency > 2 * slowest]
        dies = round(len(after) / len(slow))
        assert 0 < len(slow) < len(after) / 2, "one die of many"
        assert dies > 2
        assert np.median(slow) > 5 * np.median(before)
        assert np.median(after) == pytest.approx(np.median(before), rel=0.1)
        device.slow_die(0, 1.0)
        assert max(_read_latencies(device, 200)) < 2 * slowest


def _read_latencies(device: LiveDevice, count: int) -> list[float]:
    """Model latencies of reads of different places, one by one."""
    found = []
    for i in range(count):
        device.reset()
        read(device.path, i * 37 * 16384 % device.size_bytes, BLOCK)
        found.append(device.stats()["model_latency"]["max_ns"])
    return found
