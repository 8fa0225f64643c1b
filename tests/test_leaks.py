"""The oracle for what tests leave behind: it sees what is ours, and not what living others have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import leaks
import pytest
from conftest import cleaning_alone, loop_device, mounted, need
from leaks import PREFIX
from live_world import HARNESS, NEEDS_FUSE

from harness.devices import live
from harness.devices.live import registry
from harness.devices.live.registry import Place
from harness.runs import cleaning
from harness.system import leases, processes


def elsewhere() -> dict[str, str]:
    """The environment of what no test of ours has started."""
    return {name: text for name, text in os.environ.items() if name != leaks.MARK}


def test_a_file_that_is_left_is_seen_at_once(tmp_path: Path) -> None:
    before = leaks.look(tmp_path / "kept-*")
    assert leaks.changes(before) == []
    (tmp_path / "other").touch()
    (tmp_path / "kept-1").touch()
    assert leaks.changes(before) == [f"watched {tmp_path / 'kept-1'}"]
    (tmp_path / "kept-1").unlink()
    assert leaks.changes(before) == []


@pytest.mark.root
def test_a_device_and_a_mount_that_are_left_are_seen(tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}left"
    folder.mkdir()
    before = leaks.look()
    with loop_device(folder, 16 << 20) as device, mounted(device, folder / "mounted"):
        loop, mount = leaks.changes(before)
        assert loop.startswith(f"loop {device.name} {folder}")
        assert mount.startswith("mount ")
        while_mounted = leaks.look()
    assert leaks.changes(before) == []
    assert len(leaks.changes(while_mounted)) == 2, "what has gone is seen, too"


@pytest.mark.root
def test_a_device_and_a_mount_at_a_place_of_somebody_else_s_are_his() -> None:
    """Whoever works on this machine may make some at any time, and keep them."""
    with tempfile.TemporaryDirectory(prefix="somebody-", dir="/var/tmp") as folder:
        place = Path(folder)
        with loop_device(place, 16 << 20) as device, mounted(device, place / "mounted"):
            assert not any(folder in row for row in leaks.look().rows)


# Begins where nobody has used a probe yet.
FIRST_PROBE = """
import subprocess
import leaks
from harness.probes import bpftrace
subprocess.run(["umount", "--all-targets", str(bpftrace.TRACEFS)], check=False)
before = leaks.look()
assert bpftrace.mount_tracefs()
assert leaks.changes(before) == [], "a probe of another test may begin at any time"
"""


@pytest.mark.servers
@pytest.mark.root
def test_what_the_first_probe_mounts_for_good_is_nobody_s() -> None:
    private = ["unshare", "--mount", "--propagation", "private"]
    subprocess.run(
        [*private, sys.executable, "-c", FIRST_PROBE], cwd=Path(__file__).parent, check=True
    )


def test_what_a_run_has_while_it_lives_is_seen(tmp_path: Path) -> None:
    before = leaks.look()
    with leases.open_lease() as lease:
        server = lease.start(["sleep", "600"], cwd=tmp_path)
        folder = lease.new_folder(tmp_path, "flashlab-test-lease-")
        come = leaks.look().rows - before.rows
        assert any(str(lease.folder) in row for row in come)
        assert folder.is_dir()
        server.kill()
        server.wait()
    assert leaks.changes(before) == []


# A run that nobody waits for, with a folder among the temporary ones, and a process in it.
ELSEWHERE = """
import os, sys, tempfile, time
from pathlib import Path
from harness.system import leases, processes
if os.fork():
    os._exit(0)
with leases.open_lease() as lease:
    folder = lease.new_folder(Path(tempfile.gettempdir()), "flashlab-pg-")
    server = lease.start(["sleep", "600"], cwd=folder)
    print(os.getpid(), folder, lease.folder, flush=True)
    time.sleep(600)
"""


@cleaning_alone
def test_what_is_of_others_is_not_counted_until_they_are_dead() -> None:
    before = leaks.look()
    with subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE], env=elsewhere(), stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        number, folder, lease = started.stdout.readline().split()
        try:
            rows = leaks.look().rows - before.rows
            assert not any(folder in row or lease in row for row in rows)
        finally:
            os.kill(int(number), signal.SIGKILL)
    while processes.start_time(int(number)) is not None:
        pass  # a killed process that has not ended yet still holds its lease
    assert f"folder {folder}" in leaks.look().rows
    cleaning.clean()
    assert leaks.changes(before) == []


@pytest.fixture
def standing() -> Iterator[tuple[Place, Path]]:
    """Where a device without our PREFIX may be made, that nobody waits for, and be mounted."""
    place = Place(f"standing-{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="standing-", dir="/var/tmp") as point:
        yield place, Path(point)
        if place.folder.is_dir():
            registry.remove_traces(place)


def make_standing(place: Place, point: Path, environment: dict[str, str]) -> None:
    create = ["device", "create", "--name", place.name, "--profile", "mx500", "--size", "256M"]
    subprocess.run([HARNESS, *create, "--speed", "none"], env=environment, check=True)
    device = live.find(place.name).path
    subprocess.run([need("mkfs.ext4"), "-q", str(device)], check=True)
    subprocess.run(["mount", str(device), str(point)], check=True)


@pytest.mark.servers
@pytest.mark.root
@NEEDS_FUSE
def test_a_device_that_somebody_else_has_made_for_good_is_his(standing: tuple[Place, Path]) -> None:
    place, point = standing
    make_standing(place, point, elsewhere())
    while_it_stood = leaks.look()
    assert not any(place.name in row or str(point) in row for row in while_it_stood.rows)
    registry.remove_traces(place)
    assert leaks.changes(while_it_stood) == []


@pytest.mark.servers
@pytest.mark.root
@NEEDS_FUSE
def test_a_device_that_one_of_us_has_made_for_good_is_ours(standing: tuple[Place, Path]) -> None:
    """Its process is a child of init's, and who made it has ended."""
    place, point = standing
    before = leaks.look()
    make_standing(place, point, dict(os.environ))
    come = leaks.look().rows - before.rows
    kinds = {row.split()[0] for row in come if str(place.folder) in row or str(point) in row}
    assert kinds == {"file", "loop", "mount", "process"}
    registry.remove_traces(place)
    # A test beside this one has a folder of ours, too, for a moment.
    assert leaks.changes(before, patient=True) == []
