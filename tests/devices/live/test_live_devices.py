"""Live devices: what cannot be made leaves nothing, what is stopped comes back, commands work."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import leaks
import numpy as np
import pytest
from conftest import REPOSITORY, cleaning_alone, loop_device, need
from live_world import (
    HARNESS,
    KEPT,
    NEEDS_DEVICES,
    PROFILES,
    eventually,
    harness,
    new_name,
    processes_of,
    queue,
    remove_all,
    small,
)

from harness.devices import live
from harness.devices.live import registry, store
from harness.devices.live.daemon import Daemon
from harness.devices.live.front import loops
from harness.devices.live.front.base import QueueLimits
from harness.devices.live.spec import LiveSpec
from harness.devices.model import Device
from harness.errors import BadParameter, HarnessError, TargetError
from harness.system import file_identity

pytestmark = [*NEEDS_DEVICES]

Command = Callable[..., subprocess.CompletedProcess[str]]
CREATE = ("device", "create")
MX500 = (*CREATE, "--profile", "mx500", "--size", "256M", "--speed", "none")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = leaks.look()
    yield
    remove_all()
    assert leaks.changes(before) == []


@contextmanager
def tmpfs(point: Path, size: str, *options: str) -> Iterator[Path]:
    point.mkdir(exist_ok=True)
    how = ",".join((f"size={size}", *options))
    subprocess.run(["mount", "-t", "tmpfs", "-o", how, "test", str(point)], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True)


# What cannot be made: one line, exit code 2, and nothing half created.


def check_refused(done: subprocess.CompletedProcess[str], *said: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    for text in said:
        assert text in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--profile", "mx50x"), "unknown profile 'mx50x'|did you mean crucial_mx500_250gb?"),
        (("--profile", "seagate_25gb"), "did you mean seagate_250gb?"),
        (("--profile", "/nowhere/x.yaml"), "unknown profile '/nowhere/x.yaml'"),
        (("--profile", "mx500", "--size", "256000001"), "not a multiple of|B would be"),
        (("--profile", "seagate", "--size", "10000"), "not a multiple of|8192 B would be"),
        (("--profile", "mx500", "--size", "900G"), "choose a smaller --size"),
        (("--profile", "mx500", "--size", "big"), "'big' is not a size"),
        (
            ("--profile", "mx500", "--override", "colour=red"),
            "unknown parameter of profile crucial_mx500_250gb 'colour'",
        ),
        (("--profile", "mx500", "--override", "dies"), "write it as NAME=VALUE"),
        (("--profile", "mx500", "--speed", "fast"), "speed 'fast'"),
        (("--profile", "mx500", "--slowdown", "-1"), "slowdown"),
        (("--profile", "mx500", "--condition", "used"), "condition 'used'"),
        (("--profile", "seagate", "--condition", "steady"), "a hard disk has none"),
        ((*MX500[2:], "--name", "A B"), "lower-case letters"),
        ((*MX500[2:], "--name", "kept"), "there is a device called kept|device remove kept"),
        ((*MX500[2:], "--state", "/tmp/x"), "give --store PATH, too"),
        ((*MX500[2:], "--store", "/no/folder/x"), "there is no folder /no/folder"),
        ((*MX500[2:], "--store", "/tmp"), "/tmp is a folder"),
        ((*MX500[2:], "--store", "/proc/x"), "/proc"),
        ((*MX500[2:], "--record", "/no/folder/x"), "there is no folder /no/folder"),
        ((*MX500[2:], "--record", "/tmp"), "/tmp is a folder"),
    ],
)
def test_what_was_asked_for_cannot_be(
    harness_here: Command, kept: live.LiveDevice, arguments: tuple[str, ...], said: str
) -> None:
    before = leaks.look()
    given = [KEPT if word == "kept" else word for word in arguments]  # a name of this run alone
    texts = [text.replace(" kept", f" {KEPT}") for text in said.split("|")]
    check_refused(harness_here(*CREATE, *given), *texts)
    assert leaks.changes(before) == []


@pytest.fixture(scope="module")
def kept() -> Iterator[live.LiveDevice]:
    """A device that is there all the time."""
    with live.created(small(), KEPT) as device:
        yield device


def test_a_name_that_is_not_known(harness_here: Command, kept: live.LiveDevice) -> None:
    for command in ("stats", "remove", "power-cut", "streams"):
        refused = harness_here("device", command, "nonesuch")
        check_refused(refused, "unknown live device 'nonesuch'; known: ", KEPT)


def test_too_little_memory(harness_here: Command) -> None:
    lines = Path("/proc/meminfo").read_text().splitlines()
    available_kib = next(int(ln.split()[1]) for ln in lines if ln.startswith("MemAvailable"))
    size = f"{(available_kib >> 20) + 10}G"
    refused = harness_here(*CREATE, "--profile", "hitachi", "--size", size)
    check_refused(refused, "memory has room for", "--store PATH, or --thin")


def test_stores_that_cannot_be(harness_here: Command, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"somebody's" * 10_000)
    (tmp_path / "link").symlink_to(foreign)
    path = str(foreign)
    check_refused(harness_here(*MX500, "--store", path), "exists")
    state = ("--state", str(tmp_path / "state"))
    check_refused(harness_here(*MX500, "--store", path, *state), "not made by this program")
    check_refused(harness_here(*MX500, "--store", str(tmp_path / "link"), *state), "plain file")
    both = str(tmp_path / "both")
    check_refused(harness_here(*MX500, "--store", both, "--state", both), "two files")
    check_refused(harness_here(*MX500, "--record", path), "exists")
    with tmpfs(tmp_path / "small", "32M") as folder:
        check_refused(
            harness_here(*MX500, "--store", str(folder / "store")), "has room for 32 MiB", "--thin"
        )
        assert list(folder.iterdir()) == []
    with tmpfs(tmp_path / "fixed", "1G", "ro") as folder:
        check_refused(harness_here(*MX500, "--store", str(folder / "store")), "is not writable")
    assert foreign.read_bytes() == b"somebody's" * 10_000
    assert {p.name for p in tmp_path.iterdir()} >= {"foreign", "link"}
    assert not (tmp_path / "both").exists()


def test_a_record_that_fails_late_leaves_nothing(tmp_path: Path) -> None:
    """The device's own process finds out, when all else is made."""
    (tmp_path / "record.part").touch()
    spec = small(store=str(tmp_path / "store"), record=tmp_path / "record")
    with pytest.raises(TargetError, match=r"record\.part exists"):
        live.create(spec, new_name())
    assert [path.name for path in tmp_path.iterdir()] == ["record.part"]


def test_without_root(tmp_path: Path) -> None:
    """As nobody, with everything imported before root is given up."""
    program = (
        "import os, sys; from harness import paths\n"
        "from harness.commands import main\n"
        "from harness.devices import live, profiles\n"
        "from harness.runs import cleaning\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sys.argv[0] = 'harness'; main.main()\n"
    )
    refused = subprocess.run(
        [sys.executable, "-c", program, *MX500],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    check_refused(refused, "live devices need root")


# A system that lacks something: a private /dev or /run, seen by this command and its device only.
ELSEWHERE = """
import subprocess, sys
from pathlib import Path
place, lacking = Path(sys.argv[1]), sys.argv[2]
def call(*command): subprocess.run(command, check=True)
if lacking == "/run":
    call("mount", "-t", "tmpfs", "-o", "ro", "test", "/run")
else:
    call("mount", "-t", "tmpfs", "test", str(place))
    nodes = {"null": (1, 3), "urandom": (1, 9), "fuse": (10, 229), "loop-control": (10, 237)}
    for name, (major, minor) in nodes.items():
        if name != lacking:
            call("mknod", "-m", "666", str(place / name), "c", str(major), str(minor))
    call("mount", "--move", str(place), "/dev")
from harness.commands import main
from harness.commands import main as cli
sys.argv[:] = ["harness", *sys.argv[3:]]
main.main()
"""


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ("fuse", "there is no /dev/fuse"),
        ("loop-control", "there is no /dev/loop-control"),
        ("loop", "no loop device is left (/dev/loop"),
        ("/run", "/run/flashlab: Read-only file system: live devices need a writable /run"),
    ],
)
def test_a_system_that_lacks_something(lacking: str, said: str, tmp_path: Path) -> None:
    before = leaks.look()
    place = tmp_path / "dev"
    place.mkdir()
    store_path = tmp_path / "store"
    refused = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", ELSEWHERE,
         str(place), lacking, *MX500, "--front", "fuse_loop", "--name", new_name(),
         "--store", str(store_path)],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    check_refused(refused, said)
    assert leaks.changes(before) == []
    assert not store_path.exists()


# State.


def write_randomly(device: live.LiveDevice, count: int, seed: int) -> None:
    """4 KiB writes at random places, each of them to the drive itself."""
    chance = random.Random(seed)
    block = mmap.mmap(-1, 4096)
    fd = os.open(device.path, os.O_RDWR | os.O_DIRECT)
    try:
        for _ in range(count):
            block[:] = chance.randbytes(16) * 256
            os.pwrite(fd, block, chance.randrange(device.size_bytes // 4096) * 4096)
    finally:
        os.close(fd)


def checksum(device: live.LiveDevice) -> str:
    with device.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_in(state: Path, spec: LiveSpec) -> Device:
    """The model that a state holds."""
    device = Device(spec.device_profile(), seed=spec.seed)
    device.restore(state.read_bytes().partition(b"\n")[2])
    return device


@pytest.fixture
def stateful(tmp_path: Path) -> Callable[..., LiveSpec]:
    def spec(**values: Any) -> LiveSpec:
        chosen = {"size_bytes": 1 << 30, "speed": "real"} | values
        return small(store=str(tmp_path / "store"), state=tmp_path / "state", **chosen)

    return spec


DRIVES: dict[str, dict[str, Any]] = {
    # What a drive does when idle depends on how long this machine takes: flash collects only when
    # it must, and the disk writes one or two of its 300 blocks in a second.
    "flash that collects": {
        "condition": "steady",
        "overrides": {"background_gc": "false", "slc_cache": "0 B"},
    },
    "disk with a dirty cache": {"profile": "seagate_250gb", "size_bytes": 64 << 20, "slowdown": 64},
}


def test_who_wanted_the_state_hears_that_it_was_not_saved(
    stateful: Callable[..., LiveSpec], tmp_path: Path
) -> None:
    """Somebody has the device open to the end: its data may still change.

    Unless the front end takes the device from him: then a state may be there that fits the data.
    """

    def opened(device: live.LiveDevice) -> tuple[str, str, int]:
        write_randomly(device, 30, seed=1)
        return checksum(device), device.place.front, os.open(device.path, os.O_RDWR)

    with leaks.nothing_left():
        with (
            pytest.raises(TargetError, match=r"its state was not saved: .* is open in process"),
            live.created(stateful(speed="none"), new_name()) as device,
        ):
            content, front, user = opened(device)
        with suppress(OSError):
            os.pwrite(user, b"too late" * 512, 0)
            os.fsync(user)
        os.close(user)
    if (tmp_path / "state").exists():
        assert front == "ublk"
        with live.created(stateful(speed="none"), new_name()) as device:
            assert checksum(device) == content


@pytest.mark.parametrize("drive", list(DRIVES))
def test_data_and_model_survive_a_stop(
    drive: str, stateful: Callable[..., LiveSpec], tmp_path: Path
) -> None:
    spec = stateful(**DRIVES[drive])
    with live.created(spec, new_name()) as device:
        write_randomly(device, 3000 if "flash" in drive else 300, seed=1)
        counted = device.stats()["device"]
        device.set_speed("none")  # reading it all shall not take a disk's time
        content = checksum(device)
    saved = (tmp_path / "state").read_bytes()
    model = model_in(tmp_path / "state", spec)
    if "flash" in drive:
        assert counted["nand_copied_bytes"] > 0
        assert model.waf > 1.0
    else:
        assert len(model.in_doubt()) > 0

    # At speed none the model is not asked: what comes back is what was saved, to the last bit.
    with live.created(stateful(**{**DRIVES[drive], "speed": "none"}), new_name()) as device:
        assert checksum(device) == content
    assert (tmp_path / "state").read_bytes().partition(b"\n")[2] == saved.partition(b"\n")[2]

    with live.created(spec, new_name()):
        pass
    later = model_in(tmp_path / "state", spec)
    assert later.counters["write_bytes"] == model.counters["write_bytes"]
    if "flash" in drive:
        assert later.waf == model.waf
        assert np.array_equal(later.mapping(), model.mapping())
        assert np.array_equal(later.block_erases(), model.block_erases())


def killed(spec: LiveSpec) -> None:
    """A device of this kind that wrote something and was killed."""
    device = live.create(spec, new_name())
    write_randomly(device, 10, seed=2)
    for pid in processes_of(device.name):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not device.place.is_alive())
    remove_all()


@cleaning_alone  # leaves killed devices for a moment, which mkfs.btrfs of other tests trips over
def test_a_state_that_does_not_fit_is_refused(
    stateful: Callable[..., LiveSpec], tmp_path: Path
) -> None:
    spec = stateful(speed="none", size_bytes=768 << 20)
    path = tmp_path / "state"
    with live.created(spec, new_name()):
        pass
    whole = path.read_bytes()

    def refused(spec: LiveSpec, said: str) -> None:
        with pytest.raises(TargetError, match=said):
            live.create(spec, new_name())
        assert Path(spec.store).exists()

    refused(stateful(speed="none", size_bytes=1 << 30), "store of a device of 768 MiB")
    other = stateful(speed="none", size_bytes=768 << 20, profile="samsung_840pro_256gb")
    refused(other, "another profile")
    refused(stateful(speed="none", size_bytes=768 << 20, seed=1), "another seed")
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused(spec, "is damaged")
    path.write_bytes(b"something else")
    refused(spec, "is not a saved state")
    path.write_bytes(whole)
    with live.created(spec, new_name()):  # none of these attempts has cost the state
        pass
    killed(spec)
    refused(spec, "was not stopped cleanly. The data is whole")
    path.unlink()
    with live.created(spec, new_name()):
        pass
    Path(spec.store).unlink()
    with pytest.raises(TargetError, match="but not its data"):
        live.create(spec, new_name())


@cleaning_alone
def test_a_store_that_was_named_stays(tmp_path: Path) -> None:
    """Without a state as well, and after a kill: it is the user's data."""
    path = tmp_path / "store"
    spec = small(store=str(path))
    with live.created(spec, new_name()) as device:
        write_randomly(device, 100, seed=3)
        content = checksum(device)
    assert path.exists()
    with pytest.raises(TargetError, match="continue it by giving --state"):
        live.create(spec, new_name())
    with live.created(small(store=str(path), state=tmp_path / "state"), new_name()) as device:
        assert checksum(device) == content
        with pytest.raises(TargetError, match="store of another live device"):
            live.create(small(store=str(path), state=tmp_path / "state2"), new_name())
    path.unlink()
    (tmp_path / "state").unlink()
    killed(spec)
    assert path.exists()


def test_a_state_that_cannot_be_saved_is_told(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "64k") as folder:
        spec = small(store=str(tmp_path / "store"), state=folder / "state")
        device = live.create(spec, new_name())
        with pytest.raises(TargetError, match=r"did not end well \(the state was not saved"):
            device.remove()
        assert list(folder.iterdir()) == []


# The command line.


def test_the_commands(tmp_path: Path) -> None:
    name, path = new_name(), tmp_path / "store"
    placed = ("--override", "placement=id", "--override", "streams=4")
    made = ("--profile", "mx500", "--size", "1G", "--name", name, "--store", str(path), *placed)

    def run(*arguments: str) -> str:
        done = harness("device", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    device, said = run(*CREATE[1:], *made).split("  ", 1)
    assert said.startswith(f"{name}, 1 GiB\n")
    assert Path(device).is_block_device()
    table = run("list")
    names = [line.split()[0] for line in table.splitlines()[1:]]
    others_are_longer = max(map(len, names)) - len(name)  # those of tests beside this one
    assert max(map(len, table.splitlines())) <= 80 + others_are_longer
    [row] = [line for line in table.splitlines() if name in line]
    assert row.split() == [name, device, "crucial_mx500_250gb", "1", "GiB", "real", "yes"]
    subprocess.run(["dd", "if=/dev/urandom", f"of={device}", "bs=64k", "count=16", "oflag=direct"],
                   check=True, capture_output=True)  # fmt: skip
    assert "write_bytes" in run("stats", name)
    counted = json.loads(run("stats", name, "--json"))
    assert counted["device"]["write_bytes"] == 16 << 16
    run("stats", name, "--reset")
    assert json.loads(run("stats", name, "--json"))["device"]["write_bytes"] == 0
    assert run("trim-policy", name) == "immediate\n"
    assert run("trim-policy", name, "none") == "none\n"
    run("streams", name, "1:0-64M", "2:64M-128M")
    assert "requests failed" in run("power-cut", name, "--seed", "7")
    run("fault", name, "read", "--where", "0-64K", "--times", "1")
    read = ["dd", f"if={device}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"]
    assert subprocess.run(read, capture_output=True, check=False).returncode != 0
    assert subprocess.run(read, capture_output=True, check=False).returncode == 0
    run("fault", name, "read")
    run("fault", name, "clear")
    assert subprocess.run(read, capture_output=True, check=False).returncode == 0
    run("slow-die", name, "0", "5")
    run("speed", name, "none")
    assert "none" in run("list")
    assert run("remove", name) == f"its data stays in {path}\n"
    assert not any(name in line for line in run("list").splitlines())


def test_watching_ends_with_ctrl_c() -> None:
    device = live.create(small(), new_name())
    with subprocess.Popen(
        [HARNESS, "device", "stats", device.name, "--watch"],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as watch:  # fmt: skip
        try:
            assert watch.stdout is not None
            assert device.name in watch.stdout.readline()
            watch.send_signal(signal.SIGINT)
            _, errors = watch.communicate(timeout=30)
        finally:
            watch.kill()
    assert (watch.returncode, errors) == (0, "")
    assert device.stats()["valid"]


def test_commands_that_make_no_sense(harness_here: Command, kept: live.LiveDevice) -> None:
    for arguments, said in (
        (("streams", KEPT, "1:0-64M"), "does not place writes by stream"),
        (("streams", KEPT, "0-64M"), "write it as STREAM:BEGIN-END"),
        (("fault", KEPT, "flush"), "flush"),
        (("fault", KEPT, "melt"), "unknown operation 'melt'"),
        (("fault", KEPT, "read", "--where", "64M"), "write it as BEGIN-END"),
        (("trim-policy", KEPT, "lazy"), "unknown"),
        (("slow-die", KEPT, "100000", "2"), "die"),
        (("speed", KEPT, "fast"), "real, virtual or none"),
        (("ranges", KEPT, "1:0-64M"), "write it as NAME="),
        (("ranges", KEPT, "a=1:0-64M"), "the drive has streams 0 to 0"),
    ):
        check_refused(harness_here("device", *arguments), said)


def test_ctrl_c_while_a_device_is_made_leaves_nothing() -> None:
    before = leaks.look()
    name = new_name()
    create = [HARNESS, *CREATE, "--profile", "mx500", "--size", "1G", "--name", name]
    with subprocess.Popen(create, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as client:
        eventually(lambda: bool(processes_of(name)))
        time.sleep(0.3)  # somewhere in the middle
        client.send_signal(signal.SIGINT)
        _, errors = client.communicate(timeout=60)
    assert client.returncode != 0
    assert "Traceback" not in errors
    assert leaks.changes(before) == []


def test_a_label_says_what_a_store_is(tmp_path: Path) -> None:
    fd = store.open_file(tmp_path / "store", 1 << 20, keep=False)
    try:
        store.save_state(tmp_path / "state", b"model", {"seed": 1}, fd)
        assert store.load_state(tmp_path / "state", {"seed": 1}, fd) == b"model"
        store.write_label(fd, "")
        with pytest.raises(TargetError, match="not stopped cleanly"):
            store.load_state(tmp_path / "state", {"seed": 1}, fd)
    finally:
        os.close(fd)


def test_a_device_that_fails_to_start_leaves_the_file_that_somebody_else_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not there when the device was asked for, and is when its process opens it."""
    path = tmp_path / "store"
    opened = store.open_file

    def open_too_late(*arguments: Any, **options: Any) -> int:
        path.write_bytes(b"another's")
        return opened(*arguments, **options)

    creation = registry.begin(new_name(), "mx500", "fuse_loop")
    try:
        daemon = Daemon(creation.place, small(store=str(path)), None)
        monkeypatch.setattr(store, "open_file", open_too_late)
        with pytest.raises(TargetError, match="exists"):
            daemon.open()
        assert path.read_bytes() == b"another's"
    finally:
        creation.undo()
    assert path.read_bytes() == b"another's"


@pytest.mark.parametrize(
    "whose",
    [
        "its own",
        "of another inode",
        "a later one of that inode",
        "nothing says which",
        "of a device that uses it",
    ],
)
def test_what_was_not_finished_is_deleted_if_it_is_that_file_and_nobody_uses_it(
    tmp_path: Path, whose: str
) -> None:
    path = tmp_path / "store"
    creation = registry.begin(new_name(), "mx500", "fuse_loop")
    with os.fdopen(store.open_file(path, 1 << 20, keep=False), "rb") as used:
        creation.place.note_made(path, used.fileno())
        if whose == "of another inode":
            path.rename(tmp_path / "first")  # which keeps its number
            path.touch()
        if whose == "a later one of that inode":
            first = file_identity.of(path)
            earlier = first._replace(born_ns=first.born_ns - 1)
            notes = creation.place.folder / "unfinished"
            notes.write_text(registry.Unfinished(path, earlier).as_line())
        if whose == "nothing says which":
            notes = creation.place.folder / "unfinished"
            notes.write_text(notes.read_text().replace(str(file_identity.of(path).born_ns), "-1"))
        if whose != "of a device that uses it":
            used.close()
        creation.undo()
        assert path.exists() == (whose != "its own")


def test_two_do_not_recover_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    creation = registry.begin(new_name(), "mx500", "fuse_loop")
    try:
        monkeypatch.setattr(registry.Place, "is_alive", lambda _: False)  # as both have seen
        with pytest.raises(TargetError, match="recovered by somebody else"):
            registry.reopen(creation.place)
    finally:
        monkeypatch.undo()
        creation.undo()


def test_what_was_counted_stays_when_the_model_hears_of_old_data() -> None:
    with live.created(small(speed="none")) as device, device.path.open("r+b", buffering=0) as file:
        device.set_speed("real")
        device.reset()
        os.pwrite(file.fileno(), b"x" * 65536, 0)
        os.fsync(file.fileno())
        before = device.stats()["device"]
        assert before["write_bytes"] == 65536
        device.set_speed("none")
        os.pwrite(file.fileno(), b"y" * 65536, 1 << 20)
        os.fsync(file.fileno())
        device.set_speed("real")
        after = device.stats()["device"]
        assert after["write_bytes"] == before["write_bytes"]
        assert min(after.values()) >= 0


def test_a_run_that_was_late_is_not_valid_at_another_pace() -> None:
    size = 512 << 10  # for about a second
    with (
        live.created(small(speed="real", slowdown=1000)) as device,
        os.fdopen(os.open(device.path, os.O_RDONLY | os.O_DIRECT), "rb", buffering=0) as file,
        ThreadPoolExecutor(1) as pool,
    ):
        process = int(device.place.about()["pid"])
        device.reset()
        reading = pool.submit(os.preadv, file.fileno(), [mmap.mmap(-1, size)], 0)
        eventually(lambda: device.stats()["device"]["read_bytes"] >= size)
        takes_s = device.stats()["model_latency"]["max_ns"] * 1000 / 1e9
        os.kill(process, signal.SIGSTOP)
        is_in_flight = not reading.done()
        time.sleep(2 * takes_s)
        os.kill(process, signal.SIGCONT)
        reading.result()
        assert is_in_flight
        assert not device.stats()["valid"]
        device.set_speed("real", 1_000_000)
        assert not device.stats()["valid"]
        device.reset()
        assert device.stats()["valid"]


# Each holds the device's lock and wants Python's, or the other way round.
_BOTH_LOCKS = """
import os, threading, time
from harness import _core
from harness.devices.profiles import load_device
from pathlib import Path
fd = os.memfd_create("store")
os.truncate(fd, 64 << 20)
profile = load_device(Path("hardware/profiles"), "crucial_mx500_250gb").to_core()
device = _core.LiveDevice(profile, store_fd=fd, visible_bytes=64 << 20)
end = time.monotonic() + 2
def look():
    while time.monotonic() < end:
        device.snapshot()
threads = [threading.Thread(target=look, daemon=True) for _ in range(3)]
for each in threads:
    each.start()
while time.monotonic() < end:
    device.set_watch(0)
for each in threads:
    each.join(5)
assert not any(each.is_alive() for each in threads)
print("done", flush=True)
os._exit(0)
"""


def test_who_changes_the_watch_does_not_wait_for_who_looks() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _BOTH_LOCKS],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout.splitlines() == ["done"], ended.stderr


_NO_IO = 0x00080000
"""PF_MEMALLOC_NOIO, of the kernel's include/linux/sched.h."""

_FLUSHES = "import sys; from harness.system import processes; sys.exit(not processes.flush_io())"


def flags_of(pid: int, thread: int) -> int:
    words = Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()
    return int(words[6])


def test_no_thread_that_may_hold_a_lock_waits_for_writes_to_the_device() -> None:
    """Those that libraries have started before hold none."""
    allowed = subprocess.run([sys.executable, "-c", _FLUSHES], cwd=REPOSITORY, check=False)
    if allowed.returncode != 0:
        pytest.skip("the kernel lets nobody be an I/O flusher here (CAP_SYS_RESOURCE)")
    with live.created(small(speed="real", slowdown=1000)) as device:
        process = int(device.place.about()["pid"])
        threads = sorted(int(task.name) for task in Path(f"/proc/{process}/task").iterdir())
        flushers = [bool(flags_of(process, thread) & _NO_IO) for thread in threads]
    assert threads[0] == process
    assert flushers[0], "who measures, and starts the others"
    of_ours = flushers[1:]
    assert of_ours[of_ours.index(True) :] == [True] * of_ours.count(True)
    assert of_ours.count(True) >= 3, "the pacer, one or two that serve, the control socket"


def test_a_device_says_of_each_kind_of_request_how_late_it_was(tmp_path: Path) -> None:
    spec = small(speed="real", slowdown=64, store=str(tmp_path / "store"))
    with live.created(spec) as device, device.path.open("r+b", buffering=0) as file:
        device.reset()
        for number in range(3):
            os.pwrite(file.fileno(), b"x" * 4096, number << 20)
            os.fsync(file.fileno())
        said = device.stats()
    counted = {kind: times["lateness"]["count"] for kind, times in said["kinds"].items()}
    assert counted == {kind: said["live"][f"{kind}_replies"] for kind in counted}
    assert counted["write"] >= 3
    assert counted["flush"] >= 3
    assert said["lateness"]["count"] == sum(counted.values())
    assert all(said["kinds"]["flush"]["model_latency"].values())


def test_specs_say_what_is_wrong() -> None:
    with pytest.raises(BadParameter, match="slowdown"):
        small(slowdown=-1)
    with pytest.raises(HarnessError, match="did you mean"):
        LiveSpec.checked(profile="crucial_mx500_250g", profiles=PROFILES).check()


# What the kernel lets through.


def most_in_queue(device: live.LiveDevice, work: subprocess.Popen[str]) -> int:
    """The most requests that the device had at a time while fio worked."""
    inside = Path("/sys/block") / device.path.name / "inflight"
    most = 0
    while work.poll() is None:
        most = max(most, sum(map(int, inside.read_text().split())))
        time.sleep(0.002)
    assert work.returncode == 0, work.communicate()
    return most


def test_a_queue_lets_in_what_the_drive_takes_whatever_the_one_before_took(tmp_path: Path) -> None:
    """Another drive's loop device was detached by somebody who has not removed it."""
    fio = need("fio")
    specs = [
        small(profile=profile, size_bytes=2304 << 20, thin=True, speed="real", slowdown=64)
        for profile in ("crucial_mx500_250gb", "samsung_pm953_480gb")
    ]
    limits = [QueueLimits.of(spec.device_profile()) for spec in specs]
    for spec, own, before in zip(specs, limits, limits[::-1], strict=True):
        with loop_device(tmp_path, 1 << 20) as left:
            loops.limit_queue(left, before)
        with live.created(spec, new_name()) as device:
            job = [fio, "--name=full", f"--filename={device.path}", "--rw=randread", "--bs=4k"]
            how = [
                "--ioengine=libaio",
                "--direct=1",
                "--iodepth=200",
                "--time_based",
                "--runtime=2",
            ]
            with subprocess.Popen(
                [*job, *how], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as work:
                assert most_in_queue(device, work) == own.at_a_time
            assert queue(device, "nr_requests") == own.at_a_time
        loops._renew(left)  # if it was not the one that is free first


def test_write_back_is_not_throttled() -> None:
    with live.created(small(), new_name()) as device:
        setting = Path("/sys/block") / device.path.name / "queue/wbt_lat_usec"
        if not setting.is_file():
            pytest.skip("this kernel does not throttle write-back")
        assert setting.read_text().strip() == "0"
