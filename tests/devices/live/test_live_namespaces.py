"""What is another container's, or another user's, is never ours, whatever it is called."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import leaks
import pytest
from conftest import REPOSITORY, cleaning_alone, need
from live_world import (
    HARNESS,
    NEEDS_DEVICES,
    PROFILES,
    eventually,
    harness,
    new_name,
    processes_of,
    remove_all,
    small,
)

from harness.devices import live
from harness.devices.live import registry
from harness.devices.live.registry import Place
from harness.errors import TargetError
from harness.system import locks, processes

pytestmark = [cleaning_alone, *NEEDS_DEVICES]

PYTHON = (sys.executable, "-c")
CONTAINERS = {
    "mounts": ("--mount",),
    "mounts and processes": ("--mount", "--pid", "--fork", "--mount-proc"),
}
"""What a container may have of its own, as unshare's options."""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    remove_all()


@contextmanager
def container(
    options: Sequence[str], *command: str, account: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A program in namespaces of its own, by unshare's options."""
    private = ("--propagation", "private") if "--mount" in options else ()
    with subprocess.Popen(
        [*account, need("unshare"), *options, *private, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    ) as started:
        try:
            yield started
        finally:
            assert started.stdin is not None
            with suppress(OSError):
                started.stdin.close()
            try:
                started.wait(60)
            finally:
                started.kill()


def said(started: subprocess.Popen[str]) -> str:
    """The next line that it prints."""
    assert started.stdout is not None
    return started.stdout.readline().strip()


# A device with a file system, which is written, synced and read back until nobody listens any more.
DEVICE = """
import os, select, subprocess, sys
from pathlib import Path
from harness.devices import live
name, profiles, point = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
spec = live.LiveSpec.checked(
    profiles=profiles, profile="crucial_mx500_250gb", size_bytes=256 << 20, speed="none"
)
with live.created(spec, name) as device:
    subprocess.run(["mkfs.ext4", "-q", str(device.path)], check=True)
    subprocess.run(["mount", str(device.path), str(point)], check=True)
    print("ready", flush=True)
    turns = 0
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        content = os.urandom(1 << 16)
        with open(point / "file", "wb") as file:
            file.write(content)
            os.fsync(file.fileno())
        assert (point / "file").read_bytes() == content
        turns += 1
    assert device.stats()["valid"]
    subprocess.run(["umount", str(point)], check=True)
print("fine", turns, flush=True)
"""

# A file of the lock's name, whose lock is held: what a local user can make and pass to anybody.
LOCK = """
mount -t tmpfs tmpfs /run && mkdir -p "$0" && exec 9>"$0/lock" && flock 9 && echo ready
cat
echo fine
"""


# Gets a descriptor from its socket, and keeps it: whoever may open a lock can pass it to anybody.
KEEPER = """
import socket, sys, time
with socket.socket(fileno=int(sys.argv[1])) as ours:
    socket.recv_fds(ours, 1, 1)
    ours.send(b"x")
    time.sleep(600)
"""


@contextmanager
def keeper(*account: str) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A process that keeps what is sent to it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = [*account, *PYTHON, KEEPER, str(theirs.fileno())]
        with subprocess.Popen(words, pass_fds=(theirs.fileno(),)) as child:
            try:
                yield child, ours
            finally:
                child.kill()


def give(ours: socket.socket, fd: int) -> None:
    """Passes a descriptor, and gives it up."""
    socket.send_fds(ours, [b"x"], [fd])
    assert ours.recv(1) == b"x"
    os.close(fd)


def killed_device(name: str) -> Place:
    """A device of ours that has died."""
    device = live.create(small(), name)
    for pid in processes_of(name):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not device.place.is_alive())
    return device.place


@pytest.mark.parametrize("options", CONTAINERS.values(), ids=CONTAINERS)
def test_a_container_with_a_device_of_the_same_name(options: Sequence[str], tmp_path: Path) -> None:
    before = leaks.look()
    name = new_name()
    with container(options, *PYTHON, DEVICE, name, str(PROFILES), str(tmp_path)) as other:
        assert said(other) == "ready"
        place = killed_device(name)
        cleaned = harness("clean")
        assert cleaned.returncode == 0, cleaned.stderr
        assert not place.folder.exists()
        assert other.poll() is None
        assert other.stdin is not None
        other.stdin.close()
        word, turns = said(other).split()
        assert word == "fine"
        assert int(turns) > 0
    assert leaks.changes(before, patient=True) == []


@pytest.mark.parametrize("options", CONTAINERS.values(), ids=CONTAINERS)
def test_a_lock_of_the_same_name_that_somebody_else_made(options: Sequence[str]) -> None:
    before = leaks.look()
    name = new_name()
    place = killed_device(name)
    with container(options, "sh", "-c", LOCK, str(place.folder)) as other:
        assert said(other).startswith("ready")
        assert harness("clean").returncode == 0
        assert other.poll() is None
        assert other.stdin is not None
        other.stdin.close()
        assert said(other) == "fine"
    assert not place.folder.exists()
    assert leaks.changes(before) == []


def test_who_is_older_than_a_lock_that_it_holds_is_left_and_told(tmp_path: Path) -> None:
    """It may be whoever made the device, or somebody that the descriptor was passed to."""
    path = tmp_path / "lock"
    with keeper() as (child, ours):
        time.sleep(0.05)  # a tick of the clock that start times are told by, and more
        give(ours, locks.hold(path))
        assert locks.holders(path) == [child.pid]
        with pytest.raises(TargetError, match=f"process {child.pid} holds .* left alone"):
            locks.end_holders(path)
        assert child.poll() is None


MAKER_WITH_MEMORY = """
import os, sys
from pathlib import Path
from harness.system import locks
held = locks.hold(Path(sys.argv[1]))
memory = bytearray(b"1") * (2 << 30)
print("ready", flush=True)
sys.stdin.readline()
os._exit(0)
"""


@pytest.mark.parametrize("is_killed", [False, True], ids=["by itself", "killed"])
def test_who_is_on_its_way_out_is_nobody_to_be_told_of(is_killed: bool, tmp_path: Path) -> None:
    """It keeps its locks while its memory is freed, and is of no namespace at the end."""
    # Where this machine is busy, it may be gone before anybody looks.
    looks = (looks_at_its_end(tmp_path / f"lock{n}", is_killed=is_killed) for n in range(20))
    assert any(count > 1 for count in looks)


def looks_at_its_end(path: Path, *, is_killed: bool) -> int:
    """How often somebody on its way out was seen with its lock."""
    looks = 0
    program = [*PYTHON, MAKER_WITH_MEMORY, str(path)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as maker:
        assert said(maker) == "ready"
        with pytest.raises(TargetError, match=f"process {maker.pid} holds .* left alone"):
            locks.check_holders(path)  # older than its lock
        if is_killed:
            maker.kill()
        else:
            assert maker.stdin is not None
            maker.stdin.close()
            eventually(lambda: processes.is_ending(maker.pid))
        while locks.is_held(path):
            locks.check_holders(path)
            looks += 1
    return looks


@pytest.mark.parametrize(
    "account",
    [
        (
            "setpriv",
            "--reuid=65534",
            "--inh-caps=+dac_read_search",
            "--ambient-caps=+dac_read_search",
        ),
        ("unshare", "--pid", "--fork"),
    ],
    ids=["another account", "another namespace of processes"],
)
def test_who_is_not_of_our_world_is_left_and_told(account: Sequence[str], tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = locks.hold(path)
    with keeper(*account) as (_, ours):
        give(ours, held)
        [holder] = locks.holders(path)
        with pytest.raises(TargetError, match=f"process {holder} holds .* left alone"):
            locks.end_holders(path)
        assert processes.start_time(holder) is not None
        os.kill(holder, signal.SIGKILL)


def test_a_lock_that_does_not_say_when_it_was_made_ends_nobody(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = locks.hold(path)
    with subprocess.Popen([need("sleep"), "600"], pass_fds=(held,)) as child:
        os.close(held)
        said = path.read_text()
        for wrong in ("", f"9{said}", said.replace("pid:[", "pid:[9")):
            path.write_text(wrong)
            with pytest.raises(TargetError, match="left alone"):
                locks.check_holders(path)
        path.write_text(said)
        assert locks.end_holders(path) == [child.pid]


def test_a_namespace_that_keeps_the_mount_does_not_keep_the_device(tmp_path: Path) -> None:
    """Every sandbox that is started beside a device has its mounts in a table of its own."""
    before = leaks.look()
    store, state = tmp_path / "store", tmp_path / "state"
    keep = {"store": str(store), "state": state, "front": "fuse_loop"}  # which has a mount
    device = live.create(small(**keep), new_name())
    device.path.write_bytes(b"x" * 4096)
    with ExitStack() as stack:
        command = [need("unshare"), "--mount", "--propagation", "private", "sleep", "600"]
        other = stack.enter_context(subprocess.Popen(command))
        stack.callback(other.kill)
        eventually(lambda: Path(f"/proc/{other.pid}/comm").read_text() == "sleep\n")
        assert str(device.place.file) in Path(f"/proc/{other.pid}/mountinfo").read_text()
        removed = harness("device", "remove", device.name, timeout_s=30)
        assert removed.returncode == 0, removed.stderr
        assert state.is_file()
    again = live.create(small(**keep), new_name())
    assert again.path.read_bytes()[:4096] == b"x" * 4096
    again.remove()
    store.unlink()
    state.unlink()
    assert leaks.changes(before, patient=True) == []


def test_a_device_that_is_mounted_in_another_namespace_is_in_use(tmp_path: Path) -> None:
    before = leaks.look()
    device = live.create(small(), new_name())
    subprocess.run([need("mkfs.ext4"), "-q", str(device.path)], check=True)
    program = (
        "import subprocess, sys\n"
        "subprocess.run(['mount', *sys.argv[1:]], check=True)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    options = CONTAINERS["mounts"]
    with container(options, *PYTHON, program, str(device.path), str(tmp_path)) as other:
        assert said(other) == "ready"
        who = f"{device.path} is mounted in another namespace, by process .*{other.pid}"
        with pytest.raises(TargetError, match=who):
            device.remove()
        assert device.stats()["valid"]
    device.remove()
    assert leaks.changes(before, patient=True) == []


def test_what_only_looks_like_a_folder_without_a_name_goes_too(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    link = registry.ROOT / ".old-tests"
    registry.ROOT.mkdir(mode=0o700, exist_ok=True)
    link.symlink_to(tmp_path)
    cleaned = harness("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert f"removed {link}" in cleaned.stdout
    assert not link.is_symlink()
    assert (tmp_path / "kept").read_text() == "kept"


# What a run has: a device with a file system that is written to, a server, a folder.
RUN = """
import os, subprocess, sys
from pathlib import Path
from harness.devices import live
from harness.system import leases
name, profiles, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
spec = live.LiveSpec.checked(
    profiles=profiles, profile="crucial_mx500_250gb", size_bytes=256 << 20, speed="none"
)
with leases.open_lease() as lease, live.created(spec, name) as device:
    lease.start(["sleep", "600"])
    lease.new_folder(folder, "flashlab-pg-")
    subprocess.run(["mkfs.ext4", "-q", str(device.path)], check=True)
    subprocess.run(["mount", str(device.path), str(folder / "mounted")], check=True)
    for number in range(1 << 30):
        with open(folder / "mounted" / str(number % 10), "wb") as file:
            file.write(os.urandom(1 << 16))
            os.fsync(file.fileno())
"""

# What another user may have: a run of his own, which goes on, with a server and a folder.
USERS_RUN = """
import os, sys
from pathlib import Path
from harness.system import leases
with leases.open_lease() as lease:
    server = lease.start(["sleep", "600"])
    scratch = lease.new_folder(Path(sys.argv[1]), "flashlab-pg-")
    print("ready", flush=True)
    sys.stdin.read()
    assert server.poll() is None
    assert scratch.is_dir()
    server.kill()
    server.wait()
print("fine", flush=True)
"""

NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
MAY_READ = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
"""An interpreter may lie where nobody may go."""

VICTIMS = ("run", "device", "both", "stopped", "clean")


@pytest.mark.slow
def test_a_hundred_kills_beside_a_container_and_another_user(tmp_path: Path) -> None:
    chance = random.Random(19)
    before = leaks.look()
    name = new_name()
    theirs, ours, users = (tmp_path / folder for folder in ("theirs", "ours", "users"))
    for folder in (theirs, ours / "mounted", users):
        folder.mkdir(parents=True)
    os.chown(users, NOBODY, NOBODY)
    for above in users.parents:
        above.chmod(above.stat().st_mode | 0o001)
    words = (name, str(PROFILES), str(theirs))
    with ExitStack() as stack:
        own_run = container(CONTAINERS["mounts and processes"], *PYTHON, DEVICE, *words)
        look_alike = container(
            *(("--user", "--map-root-user", "--mount"), "sh", "-c", LOCK),
            str(registry.ROOT / name),
            account=AS_NOBODY,
        )
        user = ("env", f"TMPDIR={users}", *AS_NOBODY, *MAY_READ)
        lease = container(("--fork",), *PYTHON, USERS_RUN, str(users), account=user)
        others = [stack.enter_context(other) for other in (own_run, look_alike, lease)]
        assert all(said(other).startswith("ready") for other in others)
        for turn in range(100):
            victim = VICTIMS[turn % len(VICTIMS)]
            with begun(name, ours) as run:
                kill_something(victim, chance, name, run)
                cleaned = harness("clean")
            assert cleaned.returncode == 0, cleaned.stderr
            assert all(other.poll() is None for other in others), (turn, victim)
            assert processes_of(name) == []
        for other in others:
            assert other.stdin is not None
            other.stdin.close()
        assert [said(other).split()[0] for other in others] == ["fine"] * 3
    (users / f"flashlab-leases-{NOBODY}").rmdir()
    assert leaks.changes(before, patient=True) == []


def begun(name: str, folder: Path) -> subprocess.Popen[bytes]:
    """A run; whoever waits for its end may wait for its device, which has to be cleaned away."""
    words = [sys.executable, "-c", RUN, name, str(PROFILES), str(folder)]
    return subprocess.Popen(words, cwd=REPOSITORY, stderr=subprocess.DEVNULL)


def kill_something(
    victim: str, chance: random.Random, name: str, run: subprocess.Popen[bytes]
) -> None:
    """At a random moment some of a run is killed, or who cleans up after it."""
    time.sleep(chance.uniform(0.1, 3.0))
    devices = processes_of(name)
    if victim == "stopped":
        for pid in devices:
            os.kill(pid, signal.SIGSTOP)
    if victim != "device" or not devices:
        run.kill()
    if victim in ("device", "both"):
        for pid in devices:
            os.kill(pid, signal.SIGKILL)
    if victim == "device":
        run.send_signal(signal.SIGINT)
        run.wait(60)
    if victim == "clean":
        with subprocess.Popen([HARNESS, "clean"], cwd=REPOSITORY) as cleaning:
            time.sleep(chance.uniform(0.1, 1.5))
            cleaning.kill()
