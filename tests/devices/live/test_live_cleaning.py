"""After a kill of anything, `harness clean` removes what was ours, and nothing else."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import leaks
import numpy as np
import pytest
from conftest import REPOSITORY, cleaning_alone, loop_device, mounted, need
from leaks import PREFIX
from live_world import (
    HARNESS,
    KEPT,
    NEEDS_DEVICES,
    PROFILES,
    eventually,
    harness,
    mount_of,
    new_name,
    processes_of,
    remove_all,
    small,
)

from harness.devices import live
from harness.devices.live import registry
from harness.devices.live.front import loops
from harness.devices.live.registry import Place
from harness.errors import TargetError
from harness.system import leases, locks, mounts, processes
from harness.system.ext4_spec import Ext4Spec
from harness.tiers.emulated import EmulatedDevice
from harness.workloads.ageing import Ageing

pytestmark = [cleaning_alone, *NEEDS_DEVICES]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    remove_all()


@contextmanager
def process(*command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as started:
        try:
            yield started
        finally:
            started.kill()


def said(started: subprocess.Popen[str]) -> str:
    """The next line that a process prints; fails if it has ended."""
    assert started.stdout is not None
    line = started.stdout.readline()
    assert line, "it ended"
    return line.strip()


# A run: a device with a file system on it that is written to, a record, a server, a folder.
RUN = """
import os, subprocess, sys
from pathlib import Path
from harness.devices import live
from harness.system import leases
name, point, profiles, folder = sys.argv[1:]
spec = live.LiveSpec(
    profile="crucial_mx500_250gb", profiles=profiles, size_bytes=1 << 30,
    store=folder + "/store", record=folder + "/record",
)
with leases.open_lease() as lease, live.created(spec, name) as device:
    server = lease.start(["sleep", "86400"])
    scratch = lease.new_folder(Path(folder), "flashlab-pg-")
    print(server.pid, scratch, flush=True)
    subprocess.run(["mkfs.ext4", "-q", str(device.path)], check=True)
    subprocess.run(["mount", str(device.path), point], check=True)
    print("mounted", flush=True)
    for number in range(1 << 30):
        with open(f"{point}/{number % 100}", "wb") as file:
            file.write(os.urandom(1 << 16))
            os.fsync(file.fileno())
"""


@contextmanager
def run_of(name: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    point = folder / f"{PREFIX}mounted"
    point.mkdir(parents=True)
    arguments = (name, str(point), str(PROFILES), str(folder))
    with (
        (folder / "errors").open("wb") as errors,
        process(sys.executable, "-c", RUN, *arguments, stderr=errors) as client,
    ):
        try:
            yield client
        finally:  # nobody waits for a device that was stopped
            signal_all(processes_of(name), signal.SIGCONT)


# What is not ours, beside it.
FUSE = """
import os, sys
from pathlib import Path
from harness import _core
from harness.devices.profiles import core_parameters, load_device
profile = load_device(Path(sys.argv[2]), "seagate_250gb")
fd = os.memfd_create("other"); os.ftruncate(fd, 1 << 20)
device = _core.LiveDevice(core_parameters(profile, seed=0), store_fd=fd, visible_bytes=1 << 20)
file = _core.FuseFile(device, sys.argv[1], source="other", threads=1)
print("mounted", flush=True)
sys.stdin.read()
file.close()
"""


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], None]]:
    """Somebody else's loop device, file system, FUSE file, live device, server, folders, process.

    Gives a check that all of them are as they were.
    """
    folder = tmp_path_factory.mktemp(f"{PREFIX}others")
    (folder / "fuse").touch()
    lookalike = folder / "flashlab-pg-0123456789abcdef"
    lookalike.mkdir()
    with ExitStack() as stack:
        loop = stack.enter_context(loop_device(folder, 32 << 20))
        point = stack.enter_context(mounted(loop, folder / "mounted"))
        (point / "file").write_text("others'")
        device = stack.enter_context(live.created(small(), KEPT))
        lease = stack.enter_context(leases.open_lease())
        scratch = lease.new_folder(folder, "flashlab-pg-")
        server = lease.start(["sleep", "86400"])
        stack.callback(server.wait)
        stack.callback(server.kill)
        fuse = stack.enter_context(
            process(
                sys.executable, "-c", FUSE, str(folder / "fuse"), str(PROFILES),
                stdin=subprocess.PIPE,
            )
        )  # fmt: skip
        assert said(fuse) == "mounted"
        assert fuse.stdin is not None
        stack.callback(fuse.wait)
        stack.callback(fuse.stdin.close)
        sleeper = ("import time; time.sleep(86400)", "-m", "harness.devices.live.daemon", "run")
        other = stack.enter_context(process(sys.executable, "-c", *sleeper))

        def check() -> None:
            assert (point / "file").read_text() == "others'"
            assert device.stats()["valid"]
            assert (folder / "fuse").stat().st_size == 1 << 20
            assert all(p.poll() is None for p in (server, fuse, other))
            assert scratch.is_dir()
            assert lookalike.is_dir()

        yield check


# One of each victim; more of them by `make test-slow`.
MOMENTS = [pytest.param(seed, marks=() if seed < 4 else pytest.mark.slow) for seed in range(50)]


@pytest.mark.parametrize("seed", MOMENTS)
def test_a_kill_at_a_random_moment(seed: int, tmp_path: Path, others: Callable[[], None]) -> None:
    need("mkfs.ext4")
    chance = random.Random(seed)
    victim = ("client", "device", "both", "stopped")[seed % 4]
    delay_s = chance.uniform(0.1, 4.0)
    name = new_name()
    before = leaks.look()
    with run_of(name, tmp_path) as client:
        time.sleep(delay_s)  # the moment
        assert client.poll() is None, (tmp_path / "errors").read_text()
        kill(victim, client, name)
        if victim == "device":
            client.send_signal(signal.SIGINT if chance.random() < 0.5 else 0)
            client.wait(60)
        cleaned = harness("clean")
        client.wait(60)
    assert cleaned.returncode == 0, cleaned.stderr
    check_gone(name, tmp_path, before)
    others()


def kill(victim: str, client: subprocess.Popen[str], name: str) -> None:
    """Kills the run, or its device's process, or both; if there is none yet, the run."""
    devices = processes_of(name)
    if victim == "stopped":
        signal_all(devices, signal.SIGSTOP)
    if victim in ("client", "both", "stopped") or not devices:
        client.kill()
    if victim in ("device", "both"):
        signal_all(devices, signal.SIGKILL)


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


def check_gone(name: str, folder: Path, before: leaks.Seen) -> None:
    assert processes_of(name) == []
    # A program that the run had started may keep the loop device open for a moment.
    settle(before)
    allowed = {f"{PREFIX}mounted", "errors", "store", "record", "record.initial"}
    assert {path.name for path in folder.iterdir()} <= allowed
    if not (folder / "record").exists():
        assert not (folder / "record.initial").exists()


def settle(before: leaks.Seen) -> None:
    """Waits until everything is as it was; fails with the difference."""
    assert leaks.changes(before, patient=True) == []


WHILE_IN_USE = {"fuse_loop": "{} is in use, and detaches itself", "ublk": "detached {}"}
"""What is said of a dead device's block device that somebody has open: ublk takes it away at once,
and whoever has it open gets errors.
"""


def made(name: str, **values: Any) -> live.LiveDevice:
    return live.create(small(**values), name)


def kill_device(device: live.LiveDevice) -> None:
    signal_all(processes_of(device.name), signal.SIGKILL)
    eventually(lambda: not device.place.is_alive())


def with_file_system(device: live.LiveDevice, point: Path) -> None:
    point.mkdir(exist_ok=True)
    subprocess.run([need("mkfs.ext4"), "-q", str(device.path)], check=True)
    subprocess.run(["mount", str(device.path), str(point)], check=True)


@pytest.mark.parametrize("delay_s", [0.3, 0.6, 0.9, 1.2])
def test_a_kill_while_the_device_measures_its_own_path(delay_s: float) -> None:
    """It waits for a block device whose requests only it could answer: nothing else ends it."""
    before = leaks.look()
    name = new_name()
    create = (HARNESS, "device", "create", "--profile", "mx500", "--size", "1G", "--name", name)
    with process(*create, cwd=REPOSITORY, stderr=subprocess.PIPE) as client:
        # An emulated processor takes half a minute to import what makes a device.
        eventually(lambda: bool(Place(name).leftovers().block_devices()), limit_s=120)
        time.sleep(delay_s)
        signal_all(processes_of(name), signal.SIGKILL)
        _, errors = client.communicate(timeout=60)
    if client.returncode == 0:  # it was quicker
        assert harness("clean").returncode == 0
    else:
        assert errors.startswith("harness: the device's process ")
    settle(before)


def test_servers_and_folders_of_a_killed_run(tmp_path: Path, others: Callable[[], None]) -> None:
    before = leaks.look()
    with run_of(new_name(), tmp_path) as client:
        pid, scratch = said(client).split()
        assert said(client) == "mounted"
        client.kill()
    assert processes.start_time(int(pid)) is not None
    assert Path(scratch).is_dir()
    assert harness("clean").returncode == 0
    assert processes.start_time(int(pid)) is None
    assert not Path(scratch).exists()
    assert leaks.changes(before) == []
    others()


def test_a_busy_file_system_is_unmounted_lazily_and_says_so(tmp_path: Path) -> None:
    before = leaks.look()
    device = made(new_name())
    point = tmp_path / f"{PREFIX}mounted"
    with_file_system(device, point)
    path = device.path
    with process("sleep", "600", cwd=point) as user:
        kill_device(device)
        cleaned = harness("clean")
        assert cleaned.returncode == 0
        assert f"unmounted {point} lazily: it ends when process {user.pid} leaves it" in (
            cleaned.stdout
        )
        assert WHILE_IN_USE[device.place.front].format(path) in cleaned.stdout
        after = leaks.look()
        assert after.own("mount") == before.own("mount")
        assert after.own("file") == before.own("file")
    assert leaks.changes(before, patient=True) == []


def with_partition(device: live.LiveDevice) -> Path:
    """A partition of it that only the kernel knows."""
    subprocess.run([need("addpart"), str(device.path), "1", "2048", "131072"], check=True)
    return device.path.with_name(f"{device.path.name}p1")


def test_a_partition_that_is_mounted_is_unmounted_before_its_device_ends(tmp_path: Path) -> None:
    before = leaks.look()
    store = tmp_path / "store"
    device = live.create(small(store=str(store), state=tmp_path / "state"), new_name())
    part = with_partition(device)
    subprocess.run(["mkfs.ext4", "-q", str(part)], check=True)
    point = tmp_path / f"{PREFIX}mounted"
    point.mkdir()
    subprocess.run(["mount", str(part), str(point)], check=True)
    (point / "file").write_text("not written back yet")
    with pytest.raises(TargetError, match=f"is mounted at {point}: unmount it first"):
        device.remove()
    removed = harness("device", "remove", device.name, "--force")
    assert removed.returncode == 0, removed.stderr
    assert f"unmounted {point}" in removed.stdout
    assert b"not written back yet" in store.read_bytes()
    for left in (store, tmp_path / "state"):
        left.unlink()
    assert leaks.changes(before, patient=True) == []


@contextmanager
def swapping_to(place: Path) -> Iterator[None]:
    """Swap on a device, or in a file."""
    subprocess.run([need("mkswap"), "-q", str(place)], check=True, capture_output=True)
    if subprocess.run([need("swapon"), str(place)], check=False).returncode:
        pytest.skip("nobody may make swap here")
    try:
        yield
    finally:
        subprocess.run(["swapoff", str(place)], check=True)


def test_a_device_that_the_kernel_swaps_to_is_ended_by_nobody() -> None:
    """What is there is memory of processes, and nowhere else."""
    device = made(new_name())
    part = with_partition(device)
    with swapping_to(part):
        with pytest.raises(TargetError, match="or a partition of it is in use"):
            device.remove()
        for command in (("device", "remove", device.name, "--force"), ("clean", "--all")):
            refused = harness(*command)
            assert refused.returncode != 0
            assert f"swapoff {part} first" in refused.stderr
        assert device.stats()["valid"]
    device.remove()


def test_a_swap_file_is_swap_too(tmp_path: Path) -> None:
    device = made(new_name())
    with mounted(device.path, tmp_path / f"{PREFIX}mounted") as point:
        file = point / "swap"
        file.write_bytes(bytes(8 << 20))
        file.chmod(0o600)
        with swapping_to(file):
            assert mounts.swaps_on(device.path) == [file]
            refused = harness("device", "remove", device.name, "--force")
            assert f"swapoff {file} first" in refused.stderr
            assert file.exists()
    device.remove()


def test_what_the_kernel_has_made_of_a_device_is_not_ended_below_it(tmp_path: Path) -> None:
    """An external journal: no mount of the device says that it is in use, and no process."""
    device = made(new_name())
    other = tmp_path / f"{PREFIX}other"
    with other.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(
        ["mke2fs", "-q", "-b", "4096", "-O", "journal_dev", str(device.path)], check=True
    )
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-b", "4096", "-J", f"device={device.path}", str(other)],
        check=True,
    )
    point = tmp_path / f"{PREFIX}mounted"
    point.mkdir()
    subprocess.run(["mount", "-o", "loop", str(other), str(point)], check=True)
    try:
        for command in (("device", "remove", device.name, "--force"), ("clean", "--all")):
            refused = harness(*command)
            assert refused.returncode != 0
            assert f"the kernel still uses {device.path}" in refused.stderr
        assert device.stats()["valid"]
    finally:
        subprocess.run(["umount", str(point)], check=True)
    device.remove()


def test_a_number_that_somebody_has_taken_over_is_not_the_device_s(tmp_path: Path) -> None:
    """He detaches a live device's loop device, and the next one he makes has its number."""
    device = made(new_name(), front="fuse_loop")
    path = device.path
    device.check("before")
    subprocess.run([need("losetup"), "-d", str(path)], check=True)
    eventually(lambda: not (Path("/sys/block") / path.name / "loop").exists())
    with pytest.raises(TargetError, match=f"after: {path} is not {device.name}'s block device"):
        device.check("after")
    assert harness("device", "remove", "--force", device.name).returncode == 0


def test_nothing_is_written_to_who_has_got_a_run_s_number(tmp_path: Path) -> None:
    theirs = tmp_path / f"{PREFIX}theirs"
    theirs.write_bytes(b"\xaa" * (4 << 20))
    losetup = need("losetup")
    with live.created(small(front="fuse_loop"), new_name()) as device:
        drive = EmulatedDevice(device, None)
        subprocess.run([losetup, "-d", str(device.path)], check=True)
        eventually(lambda: not (Path("/sys/block") / device.path.name / "loop").exists())
        subprocess.run([losetup, str(device.path), str(theirs)], check=True)
        try:
            for step in (
                lambda: drive.permit("discard", 0),
                lambda: drive.place(0, np.zeros(16, dtype="V128")),
                lambda: drive.filesystem(Ext4Spec()).__enter__(),
                lambda: drive.age(Ageing(region_bytes=1 << 20, written_bytes=1 << 20)),
            ):
                with pytest.raises(TargetError, match="somebody has detached it"):
                    step()
        finally:
            subprocess.run([losetup, "-d", str(device.path)], check=True)
    assert theirs.read_bytes() == b"\xaa" * (4 << 20)


def test_a_mount_that_another_covers_is_left_alone(tmp_path: Path) -> None:
    before = leaks.look()
    device = made(new_name())
    point = tmp_path / f"{PREFIX}mounted"
    with_file_system(device, point)
    subprocess.run(["mount", "-t", "tmpfs", "cover", str(point)], check=True)
    try:
        (point / "file").touch()
        kill_device(device)
        cleaned = harness("clean")
        assert cleaned.returncode == 2
        assert f"another mount covers {point}: unmount that" in cleaned.stderr
        assert (point / "file").exists()
    finally:
        subprocess.run(["umount", str(point)], check=True)
    assert harness("clean").returncode == 0
    assert leaks.changes(before) == []


def test_a_stopped_device_of_a_dead_owner_with_a_file_system(tmp_path: Path) -> None:
    before = leaks.look()
    name = new_name()
    with run_of(name, tmp_path) as client:
        assert said(client)
        assert said(client) == "mounted"
        signal_all(processes_of(name), signal.SIGSTOP)
        client.kill()
        cleaned = harness("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    check_gone(name, tmp_path, before)


def test_a_device_that_does_not_answer_says_so_and_can_be_removed() -> None:
    before = leaks.look()
    device = made(new_name())
    signal_all(processes_of(device.name), signal.SIGSTOP)
    with pytest.raises(TargetError, match=f"does not answer within 0 s .*--force {device.name}"):
        device.stats(patience_s=0.1)
    assert "does not answer" in harness("device", "list").stdout
    assert harness("clean").returncode == 0  # it is nobody's to remove
    assert device.place.folder.is_dir()
    forced = harness("device", "remove", "--force", device.name)
    assert forced.returncode == 0, forced.stderr
    assert leaks.changes(before) == []


def test_a_loop_device_whose_fuse_mount_somebody_took_away() -> None:
    before = leaks.look()
    device = made(new_name(), front="fuse_loop")
    path = device.path
    kill_device(device)
    mounts.drop(device.place.file)
    assert (Path("/sys/block") / path.name / "loop/backing_file").read_text() == "/\n"
    assert f"detached {path}" in harness("clean").stdout
    assert leaks.changes(before) == []


def test_a_block_device_that_somebody_keeps_open() -> None:
    before = leaks.look()
    device = made(new_name())
    path = device.path
    with path.open("rb"):
        with pytest.raises(TargetError, match=f"{path} is open in process {os.getpid()}"):
            device.remove()
        kill_device(device)
        assert WHILE_IN_USE[device.place.front].format(path) in harness("clean").stdout
        assert leaks.look().own("file") == before.own("file")
    assert leaks.changes(before, patient=True) == []


def test_ending_a_device_in_use_by_signal_does_not_hang() -> None:
    before = leaks.look()
    device = made(new_name())
    with device.path.open("rb"):
        signal_all(processes_of(device.name), signal.SIGTERM)
        eventually(lambda: not device.place.is_alive(), 40)
    assert leaks.changes(before, patient=True) == []


def test_several_cleans_at_once(others: Callable[[], None]) -> None:
    before = leaks.look()
    for _ in range(3):
        kill_device(made(new_name()))
    cleans = [
        subprocess.Popen(
            [HARNESS, "clean"], cwd=REPOSITORY, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]  # fmt: skip
    for clean in cleans:
        _, errors = clean.communicate(timeout=120)
        assert (clean.returncode, errors) == (0, "")
    assert leaks.changes(before) == []
    others()


def test_a_clean_while_devices_are_made_and_removed(others: Callable[[], None]) -> None:
    """A device that is being made is never taken for a dead one."""
    before = leaks.look()
    with process(sys.executable, "-c", CLEANS) as cleans:
        for _ in range(6):
            with live.created(small(), new_name()) as device:
                assert device.stats()["valid"]
        assert cleans.poll() is None, "none was cleaned beside"
    assert harness("clean").returncode == 0
    assert leaks.changes(before) == []
    others()


CLEANS = """
from harness.runs import cleaning
while True:
    cleaning.clean()
"""


def test_one_name_goes_to_one_device() -> None:
    before = leaks.look()
    name = new_name()
    attempts = [
        process(
            HARNESS, "device", "create", "--profile", "mx500", "--size", "256M",
            "--speed", "none", "--name", name, cwd=REPOSITORY, stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]  # fmt: skip
    with ExitStack() as stack:
        started = [stack.enter_context(attempt) for attempt in attempts]
        ended = [one.communicate(timeout=60)[1] for one in started]
        codes = [one.returncode for one in started]
    assert sorted(codes) == [0, 2, 2]
    assert [f"there is a device called {name}" in errors for errors in ended].count(True) == 2
    device = live.find(name)
    assert device.stats()["valid"]
    device.remove()
    assert leaks.changes(before) == []


def test_a_lock_is_held_by_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not locks.is_held(path)
    assert not locks.is_lost(path)
    held = locks.hold(path)
    assert locks.is_held(path)
    assert locks.holders(path) == []  # ourselves are not meant
    with process("sleep", "600", pass_fds=(held,)) as child, path.open() as reader:
        os.close(held)
        assert locks.is_held(path)
        assert locks.holders(path) == [child.pid]  # and not who has only opened it
        assert reader.readable()
        assert locks.end_holders(path) == [child.pid]
    assert locks.is_lost(path)


def test_a_process_number_that_became_anothers_is_left_alone(tmp_path: Path) -> None:
    need("sleep")
    lease_folder = dead_lease(tmp_path)
    [note] = lease_folder.glob("process-*")
    pid = int(note.name.removeprefix("process-"))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    with ExitStack() as stack:
        for _ in range(200):
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
            other = stack.enter_context(process("sleep", "600"))
            if other.pid == pid:
                break
        else:
            pytest.skip("the kernel did not give the number again")
        assert harness("clean").returncode == 0
        assert other.poll() is None
    assert not lease_folder.exists()


def dead_lease(folder: Path) -> Path:
    """The notes of a run that was killed; its server, a child of init's, lives."""
    program = (
        "import sys, time; from pathlib import Path; from harness.system import leases\n"
        "with leases.open_lease() as lease:\n"
        "    server = lease.start(['sleep', '600'])\n"
        "    lease.new_folder(Path(sys.argv[1]), 'flashlab-pg-')\n"
        "    note = lease.folder / f'process-{server.pid}'\n"
        "    while not note.exists(): time.sleep(0.001)\n"
        "    print(lease.folder, flush=True); time.sleep(600)\n"
    )
    with process(sys.executable, "-c", program, str(folder)) as run:
        return Path(said(run))


def test_a_folder_with_a_noted_path_that_is_anothers_stays(tmp_path: Path) -> None:
    lease_folder = dead_lease(tmp_path)
    [ours] = tmp_path.glob("flashlab-pg-*")
    (ours / leases._TOKEN_FILE).unlink()
    (ours / "file").touch()
    assert harness("clean").returncode == 0
    assert (ours / "file").exists()
    assert not lease_folder.exists()


def test_a_folder_that_something_is_mounted_in_stays(tmp_path: Path) -> None:
    lease_folder = dead_lease(tmp_path)
    [ours] = tmp_path.glob("flashlab-pg-*")
    inside = ours / "inside"
    inside.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "other", str(inside)], check=True)
    try:
        (inside / "file").touch()
        cleaned = harness("clean")
        assert cleaned.returncode == 2
        assert f"something is mounted at {inside}: unmount it first" in cleaned.stderr
        assert (inside / "file").exists()
    finally:
        subprocess.run(["umount", str(inside)], check=True)
    assert harness("clean").returncode == 0
    assert not ours.exists()
    assert not lease_folder.exists()


def test_a_device_that_dies_in_use_is_told_at_the_end() -> None:
    before = leaks.look()
    with (
        pytest.raises(TargetError, match="died"),
        live.created(small(), new_name()) as device,
    ):
        kill_device(device)
    assert leaks.changes(before) == []


def test_the_mark_of_a_loop_device_is_its_own(tmp_path: Path) -> None:
    """A loop device over a file of the same name elsewhere is another's."""
    device = made(new_name(), front="fuse_loop")
    with loop_device(tmp_path, 1 << 20) as other:
        assert loops.over(device.place.file) == [device.path]
        nobodys = device.place.folder / "device-"
        assert loops.over(nobodys) == []
        assert loops.detach(nobodys) == []
        assert other.exists()
        assert mount_of(device.place.file)
    device.remove()


def test_names_that_only_look_like_devices_are_not_touched() -> None:
    with registry._root():
        pass
    odd = registry.ROOT / "Not A Device"
    odd.mkdir()
    try:
        assert harness("clean").returncode == 0
        assert odd.is_dir()
        assert Place("x").name not in registry.list_names()
    finally:
        odd.rmdir()
