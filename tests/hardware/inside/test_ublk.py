"""The front end ublk, which Debian's kernel has: limits, data, what is left after a kill."""

from __future__ import annotations

import itertools
import mmap
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import told_world
from leaks import PREFIX, changes, look

from harness.devices import live
from harness.devices.live import registry
from harness.devices.live.front import named
from harness.devices.live.front.base import QueueLimits
from harness.devices.live.spec import LiveSpec
from harness.errors import TargetError
from harness.system import mounts

PROFILES = Path(__file__).resolve().parents[3] / "hardware" / "profiles"
BLOCK = 4096
KILLS = 50
RECOVERIES = 10
SATA, DISK = "crucial_mx500_250gb", "seagate_250gb"


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = look()
    yield
    for name in registry.list_names():
        if name.startswith(PREFIX):
            registry.remove_traces(registry.Place(name))
    assert changes(before, patient=True) == []
    assert list(Path("/sys/class/ublk-char").glob("ublkc*")) == []


def spec(profile: str = SATA, **values: object) -> LiveSpec:
    chosen = {"profile": profile, "size_bytes": 256 << 20, "speed": "none", "front": "ublk"}
    return LiveSpec.checked(profiles=PROFILES, **(chosen | values))


_numbers = itertools.count()


def new_name() -> str:
    return f"{PREFIX}{next(_numbers)}"


def queue(device: live.LiveDevice, name: str) -> str:
    return (Path("/sys/block") / device.path.name / "queue" / name).read_text().strip()


def test_the_block_layer_sees_the_drive() -> None:
    with live.created(spec(), new_name()) as device:
        assert queue(device, "rotational") == "0"
        assert queue(device, "fua") == "1"
        assert queue(device, "write_cache") == "write back"
        assert queue(device, "max_sectors_kb") == "1280"
        assert queue(device, "scheduler").startswith("[none]")
        limits = QueueLimits.of(spec().device_profile())
        assert int(queue(device, "discard_max_bytes")) == limits.discard_bytes > 0
        assert int(queue(device, "write_zeroes_max_bytes")) == 1280 << 10
    with live.created(spec(DISK, size_bytes=0, thin=True), new_name()) as device:
        assert queue(device, "rotational") == "1"
        assert queue(device, "discard_max_bytes") == "0"


def test_requests_become_what_the_front_end_says() -> None:
    with live.created(spec(), new_name()) as device:
        told_world.check(device, named("ublk").told)


def test_fio_reads_what_it_wrote() -> None:
    job = ("--direct=1", "--rw=randrw", "--bsrange=4k-256k", "--blockalign=4k", "--iodepth=16")
    sure = ("--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--size=64m")
    with live.created(spec(speed="real", slowdown=1), new_name()) as device:
        done = subprocess.run(
            ["fio", "--name=x", "--ioengine=io_uring", *job, *sure, f"--filename={device.path}"],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert device.stats()["live"]["errors"] == 0


def test_a_file_system_is_there_again(tmp_path: Path) -> None:
    point = tmp_path / "mnt"
    point.mkdir()
    content = random.Random(1).randbytes(5_000_000)
    with live.created(spec(), new_name()) as device:
        subprocess.run(["mke2fs", "-q", "-t", "ext4", str(device.path)], check=True)
        for step in ("write", "read"):
            subprocess.run(["mount", "-o", "discard", str(device.path), str(point)], check=True)
            if step == "write":
                (point / "a").write_bytes(content)
                (point / "b").write_bytes(content)
                os.sync()
                (point / "b").unlink()
            else:
                assert (point / "a").read_bytes() == content
            subprocess.run(["umount", str(point)], check=True)
        subprocess.run(["e2fsck", "-f", "-n", str(device.path)], check=True, capture_output=True)
        assert device.stats()["live"]["trim_replies"] > 0


def pid_of(device: live.LiveDevice) -> int:
    return int(device.place.about()["pid"])


def kill(device: live.LiveDevice) -> None:
    os.kill(pid_of(device), signal.SIGKILL)
    while device.place.is_alive():
        time.sleep(0.01)


@pytest.mark.parametrize("recoverable", [False, True])
def test_a_killed_device_is_removed_with_its_mount(tmp_path: Path, recoverable: bool) -> None:
    point = tmp_path / "mnt"
    point.mkdir()
    device = live.create(spec(store=str(tmp_path / "store"), recoverable=recoverable), new_name())
    subprocess.run(["mke2fs", "-q", "-t", "ext4", str(device.path)], check=True)
    subprocess.run(["mount", str(device.path), str(point)], check=True)
    (point / "file").write_bytes(b"not written yet")
    kill(device)
    registry.remove_traces(device.place)
    assert not [mount for mount in mounts.table() if mount.point == point]


def test_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """The data is in a file: what had been answered before the kill is there after it."""
    chance = random.Random(7)
    store = tmp_path / "store"
    for kill in range(KILLS):
        store.unlink(missing_ok=True)
        device = live.create(spec(store=str(store)), new_name())
        acknowledged: dict[int, bytes] = {}
        fd = os.open(device.path, os.O_RDWR | os.O_SYNC)
        killed = False
        until = time.monotonic() + chance.uniform(0.0, 0.4)
        try:
            while True:
                block, content = chance.randrange(4096), chance.randbytes(BLOCK)
                if not killed and time.monotonic() > until:
                    os.kill(pid_of(device), signal.SIGKILL)
                    killed = True
                acknowledged.pop(block, None)  # may be there or not
                os.pwrite(fd, content, block * BLOCK)
                acknowledged[block] = content
        except OSError:
            pass
        finally:
            os.close(fd)
        assert killed, kill
        with store.open("rb") as file:
            for block, content in acknowledged.items():
                file.seek(block * BLOCK)
                assert file.read(BLOCK) == content, (kill, block)
        registry.remove_traces(device.place)


def recoverable(tmp_path: Path) -> live.LiveDevice:
    return live.create(spec(store=str(tmp_path / "store"), recoverable=True), new_name())


def test_who_writes_goes_on_after_a_recovery(tmp_path: Path) -> None:
    """Killed at moments that chance chooses, the process is replaced; no request ever fails."""
    device, chance = recoverable(tmp_path), random.Random(11)
    acknowledged: dict[int, bytes] = {}
    done, errors = threading.Event(), []

    def write() -> None:
        own = random.Random(12)
        fd = os.open(device.path, os.O_RDWR | os.O_SYNC)
        try:
            while not done.is_set():
                block, content = own.randrange(4096), own.randbytes(BLOCK)
                os.pwrite(fd, content, block * BLOCK)
                acknowledged[block] = content
        except OSError as error:
            errors.append(error)
        finally:
            os.close(fd)

    writer = threading.Thread(target=write)
    writer.start()
    counts = [0]
    for _ in range(RECOVERIES):
        time.sleep(chance.uniform(0.0, 0.5))
        kill(device)
        with pytest.raises(TargetError, match="dead"):
            live.find(device.name)
        number = device.path
        device = live.recover(device.name)
        assert device.path == number
        while not errors and len(acknowledged) <= counts[-1]:
            time.sleep(0.01)
        counts.append(len(acknowledged))
    done.set()
    writer.join()
    assert errors == []
    assert counts == sorted(set(counts)), "somebody wrote between any two kills"
    fd = os.open(device.path, os.O_RDONLY | os.O_DIRECT)
    into = mmap.mmap(-1, BLOCK)
    for block, content in acknowledged.items():
        os.preadv(fd, [into], block * BLOCK)
        assert into[:] == content, block
    os.close(fd)
    said = device.stats()
    assert not said["valid"]
    assert "another one took over" in said["problems"][0]
    device.reset()
    assert not device.stats()["valid"], "what the model knew does not come back"
    with pytest.raises(TargetError, match="need not be recovered"):
        live.recover(device.name)
    device.remove()


def test_a_file_system_outlives_the_process_below_it(tmp_path: Path) -> None:
    point, chance = tmp_path / "mnt", random.Random(13)
    point.mkdir()
    files = {name: chance.randbytes(1_000_000) for name in ("before", "meanwhile", "after")}
    device = recoverable(tmp_path)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", str(device.path)], check=True)
    subprocess.run(["mount", "-o", "discard", str(device.path), str(point)], check=True)
    (point / "before").write_bytes(files["before"])
    os.sync()
    kill(device)
    (point / "meanwhile").write_bytes(files["meanwhile"])  # into the page cache
    syncing = subprocess.Popen(["sync", "-f", str(point)])
    time.sleep(1.0)
    assert syncing.poll() is None, "whoever asks a dead device waits"
    device = live.recover(device.name)
    assert syncing.wait() == 0
    (point / "after").write_bytes(files["after"])
    for _ in range(2):
        assert {name: (point / name).read_bytes() for name in files} == files
        subprocess.run(["umount", str(point)], check=True)
        subprocess.run(["e2fsck", "-f", "-n", str(device.path)], check=True, capture_output=True)
        subprocess.run(["mount", str(device.path), str(point)], check=True)
    subprocess.run(["umount", str(point)], check=True)
    device.remove()


def test_what_could_be_recovered_is_removed_as_asked(tmp_path: Path) -> None:
    device = recoverable(tmp_path)
    fd = os.open(device.path, os.O_RDWR | os.O_DIRECT)
    kill(device)
    said = []

    def read() -> None:
        try:
            os.preadv(fd, [mmap.mmap(-1, BLOCK)], 0)
        except OSError as error:
            said.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.5)
    assert reader.is_alive()
    registry.remove_traces(device.place)
    reader.join()
    os.close(fd)
    assert len(said) == 1, "who waited gets an error"
    assert (tmp_path / "store").exists(), "the data is its owner's"


def test_what_is_mounted_goes_with_its_last_user(tmp_path: Path) -> None:
    point = tmp_path / "mnt"
    point.mkdir()
    with live.created(spec(), new_name()) as device:
        subprocess.run(["mke2fs", "-q", "-t", "ext4", str(device.path)], check=True)
        subprocess.run(["mount", str(device.path), str(point)], check=True)
        path = device.path
    assert not path.exists()
    assert not [mount for mount in mounts.table() if mount.point == point]
