"""Live devices do not depend on how they get into the kernel: another front end, and none.

The other one is file_front.py: every Python that these tests start finds it in the table.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import file_front
import pytest
import told_world
from conftest import cleaning_alone, need
from leaks import PREFIX, changes, look
from live_world import (
    NEEDS_DEVICES,
    eventually,
    harness,
    new_name,
    processes_of,
    queue,
    remove_all,
    small,
)

from harness.devices import live
from harness.devices.live import registry
from harness.devices.live.front import FRONTS, named
from harness.devices.live.front.base import QueueLimits
from harness.errors import BadParameter, MissingTool, TargetError, UnknownName

pytestmark = [cleaning_alone, *NEEDS_DEVICES]

Command = Callable[..., subprocess.CompletedProcess[str]]
OURS = ("fuse_loop", "file")
START = """
from pathlib import Path
from file_front import fronts
from harness.devices.live.front import FRONTS
FRONTS.update(fronts(Path({folder!r})))
"""


@pytest.fixture(autouse=True)
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the other front end's links. It is in the table, here and in all children."""
    for program in ("losetup", "setsid"):
        need(program)
    folder = tmp_path / "links"
    folder.mkdir()
    (tmp_path / "sitecustomize.py").write_text(START.format(folder=str(folder)))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parent}")
    for name, front in file_front.fronts(folder).items():
        monkeypatch.setitem(FRONTS, name, front)
    before = look()
    yield folder
    remove_all()
    assert changes(before, patient=True) == []  # a folder that is being removed has our name
    assert list(folder.iterdir()) == []


def aligned(size_bytes: int) -> mmap.mmap:
    """Zeros in memory, as direct I/O wants them."""
    return mmap.mmap(-1, size_bytes)


def mount(device: live.LiveDevice, point: Path) -> None:
    point.mkdir()
    subprocess.run([need("mkfs.ext4"), "-q", str(device.path)], check=True)
    subprocess.run(["mount", str(device.path), str(point)], check=True)


def kill(device: live.LiveDevice) -> None:
    for pid in processes_of(device.name):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not device.place.is_alive())


# What cannot be.


def test_an_unknown_front_end_is_refused_with_the_known_ones(harness_here: Command) -> None:
    with pytest.raises(UnknownName, match=r"unknown front end 'nonesuch'; known: .*fuse_loop"):
        live.create(small(front="nonesuch"), new_name())
    refused = harness_here("device", "create", "--profile", "mx500", "--front", "fuse_lop")
    assert refused.returncode == 2
    assert refused.stderr.startswith("harness: unknown front end 'fuse_lop'; known: ")
    assert refused.stderr.endswith("did you mean fuse_loop?\n")


def test_a_front_end_that_cannot_work_here_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lacks() -> None:
        raise MissingTool("there is no module: apt-get install it")

    name = new_name()
    monkeypatch.setattr(FRONTS["file"], "check", lacks)
    with pytest.raises(MissingTool, match="apt-get install it"):
        live.create(small(front="file"), name)
    assert name not in live.list_names()


def test_a_front_end_that_fails_late_leaves_nothing(tmp_path: Path) -> None:
    """The device's own process finds out, and who asked for the device hears it."""
    store = tmp_path / "store"
    with pytest.raises(TargetError, match="the test's front end fails: use another one"):
        live.create(small(front="failing", store=str(store)), new_name())
    assert not store.exists()


# What is.


def test_a_device_with_another_front_end(tmp_path: Path, links: Path) -> None:
    with live.created(small(front="file"), new_name()) as device:
        assert device.place.front == "file"
        assert [link.readlink() for link in links.iterdir()] == [device.path]
        limits = QueueLimits.of(small().device_profile())
        assert queue(device, "rotational") == 0
        assert 0 < queue(device, "discard_max_bytes") <= limits.discard_bytes
        with device.path.open("r+b") as file:
            file.write(b"kept")
        assert device.path.read_bytes()[:4] == b"kept"
        assert device.stats()["live"]["write_replies"] == 0  # the model was not asked
        point = tmp_path / f"{PREFIX}mounted"
        mount(device, point)
        with pytest.raises(TargetError, match=f"{device.path} is mounted at {point}: unmount it"):
            device.remove()
        (point / "file").write_text("in use to the end")
    assert not os.path.ismount(point)


def test_a_device_in_use_outlives_its_process_and_no_state_is_saved(tmp_path: Path) -> None:
    before = look()
    spec = small(front="file", store=str(tmp_path / "store"), state=tmp_path / "state")
    device = live.create(spec, new_name())
    with device.path.open("rb"):
        for pid in processes_of(device.name):
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: not device.place.is_alive(), 40)
    assert not (tmp_path / "state").exists()
    eventually(lambda: not changes(before))


@pytest.mark.parametrize("front", OURS)
def test_what_a_killed_device_leaves_is_removed_by_its_front_end(
    front: str, tmp_path: Path
) -> None:
    with live.created(small(), new_name()) as other:
        device = live.create(small(front=front), new_name())
        path, mark, point = device.path, device.place.file, tmp_path / f"{PREFIX}mounted"
        mount(device, point)
        kill(device)
        cleaned = harness("clean")
        assert (cleaned.returncode, cleaned.stderr) == (0, "")
        last = {"fuse_loop": f"unmounted {mark}", "file": f"deleted the link {mark.name}"}[front]
        lines = [f"unmounted {point}", f"detached {path}", last, f"removed {mark.parent}"]
        assert cleaned.stdout.splitlines() == [f"{device.name}: {line}" for line in lines]
        assert other.stats()["valid"]


@pytest.mark.parametrize("front", OURS)
def test_a_living_device_is_removed_by_force(front: str, tmp_path: Path) -> None:
    device = live.create(small(front=front), new_name())
    point = tmp_path / f"{PREFIX}mounted"
    mount(device, point)
    [pid] = processes_of(device.name)
    forced = harness("device", "remove", "--force", device.name)
    assert (forced.returncode, forced.stderr) == (0, "")
    assert f"ended process {pid}" in forced.stdout
    assert not os.path.ismount(point)


def test_what_another_versions_front_end_has_left_is_not_touched() -> None:
    device = live.create(small(front="file"), new_name())
    path = device.path
    kill(device)
    note = device.place.folder / "front"
    note.write_text("nonesuch")
    cleaned = harness("clean")
    assert cleaned.returncode == 2
    assert f"{device.name}: unknown front end 'nonesuch'; known: " in cleaned.stderr
    assert path.read_bytes()[:1] == b"\0"  # the kernel serves it still
    note.write_text("file")
    assert f"detached {path}" in harness("clean").stdout


def test_a_device_without_a_note_is_of_the_front_end_that_was_the_only_one() -> None:
    device = live.create(small(front="fuse_loop"), new_name())
    path = device.path
    (device.place.folder / "front").unlink()
    kill(device)
    assert f"detached {path}" in harness("clean").stdout


# What a front end says that it makes of requests is what the device sees.


def test_requests_become_what_the_front_end_says() -> None:
    with live.created(small(front="fuse_loop"), new_name()) as device:
        told_world.check(device, named("fuse_loop").told)


def test_recovery_is_of_front_ends_that_have_it_and_of_data_that_survives(tmp_path: Path) -> None:
    store = {"store": str(tmp_path / "store")}
    with pytest.raises(BadParameter, match="--front ublk"):
        small(recoverable=True, front="fuse_loop", **store).check()
    with pytest.raises(BadParameter, match="--store"):
        small(recoverable=True, front="ublk").check()
    small(recoverable=True, front="ublk", **store).check()


def test_a_device_that_is_not_recoverable_stays_dead_until_it_is_cleaned(tmp_path: Path) -> None:
    device = live.create(small(), new_name())
    os.kill(device.place.about()["pid"], signal.SIGKILL)
    eventually(device.place.is_dead)
    with pytest.raises(TargetError, match="harness clean"):
        live.recover(device.name)
    assert device.place.is_dead()
    registry.remove_traces(device.place)
    with pytest.raises(UnknownName):
        live.recover(device.name)


def test_no_device_is_recovered_without_its_data(tmp_path: Path) -> None:
    store = tmp_path / "store"
    device = live.create(small(store=str(store)), new_name())
    os.kill(device.place.about()["pid"], signal.SIGKILL)
    eventually(device.place.is_dead)
    store.unlink()
    done = harness("device", "recover", device.name)
    assert done.returncode != 0
    assert f"{store}, is gone" in " ".join(done.stderr.split())
    assert not store.exists()
