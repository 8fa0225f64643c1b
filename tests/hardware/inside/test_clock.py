"""The machine's clock is set back and forth by years while things run: nothing notices.

Here and not on the host: the clock is everybody's.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import toy_world

from hardware.drives import STANDARD, Nvme
from hardware.inside.claims import drive_of
from harness.devices import live
from harness.devices.live import recording, registry
from harness.paths import Project
from harness.probes.recorder import Recorder
from harness.system import leases, processes

REPOSITORY = Path(__file__).resolve().parents[3]
PROFILES = REPOSITORY / "hardware" / "profiles"
HARNESS = str(Path(sys.executable).with_name("harness"))
[NVME] = [drive for drive in STANDARD if isinstance(drive, Nvme)]

YEAR_NS = 365 * 86_400 * 10**9
HOUR_NS = 3600 * 10**9
JUMPS_NS = (20 * YEAR_NS, -20 * YEAR_NS, HOUR_NS, -HOUR_NS, 0)
BETWEEN_S = 0.05
LONGEST_NS = HOUR_NS // 4
"""Longer than anything here takes, and shorter than any jump."""


@contextmanager
def restless() -> Iterator[None]:
    """The clock jumps, again and again, for as long as the block runs; then it is right again."""
    right_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    ended = threading.Event()
    jumped: list[int] = []

    def jump() -> None:
        for far_ns in itertools.cycle(JUMPS_NS):
            since_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            time.clock_settime_ns(time.CLOCK_REALTIME, right_ns + since_ns + far_ns)
            jumped.append(far_ns)
            if ended.wait(BETWEEN_S):
                return

    jumping = threading.Thread(target=jump)
    jumping.start()
    try:
        yield
    finally:
        ended.set()
        jumping.join()
        since_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        time.clock_settime_ns(time.CLOCK_REALTIME, right_ns + since_ns)
    assert set(jumped) == set(JUMPS_NS)


def test_a_live_device_keeps_its_times_and_its_data(tmp_path: Path) -> None:
    """Slow enough for a processor that is emulated: whoever looked at the clock would be late."""
    spec = live.LiveSpec.checked(
        profiles=PROFILES,
        profile="crucial_mx500_250gb",
        size_bytes=256 << 20,
        slowdown=2000,
        record=tmp_path / "record.parquet",
    )
    blocks = [os.urandom(4096) for _ in range(10)]
    with restless(), live.created(spec) as device:
        with device.path.open("r+b", buffering=0) as file:
            for number, block in enumerate(blocks):
                file.seek(number << 16)
                file.write(block)
                os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            for number, block in enumerate(blocks):
                file.seek(number << 16)
                assert file.read(4096) == block
        stats = device.stats()
        device.stop_record()
    assert stats["problems"] == []
    assert stats["live"]["errors"] == 0
    assert recording.replay(tmp_path / "record.parquet").differences() == {}


def test_a_recording_has_no_jump_in_it(tmp_path: Path) -> None:
    device = Path("/dev") / drive_of(NVME.serial).name
    job = ("--name=x", "--direct=1", "--rw=randrw", "--bs=4k", "--size=64m", "--number_ios=2000")
    begin_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    with restless(), Recorder(device, tmp_path / "t.parquet") as probe:
        subprocess.run(["fio", *job, f"--filename={device}"], check=True)
    took_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - begin_ns
    assert probe.recording is not None
    table = pq.read_table(tmp_path / "t.parquet").to_pandas()
    assert len(table) >= 2000
    assert table.latency_ns.dropna().between(1, LONGEST_NS).all()
    assert table.completed_ns.max() - table.issued_ns.min() <= took_ns <= LONGEST_NS


# A run that is killed: a device, a process, a folder.
RUN = """
import sys
from pathlib import Path
from harness.devices import live
from harness.system import leases
spec = live.LiveSpec.checked(
    profiles=Path(sys.argv[1]), profile="crucial_mx500_250gb", size_bytes=256 << 20, speed="none"
)
with leases.open_lease() as lease, live.created(spec, "restless") as device:
    server = lease.start(["sleep", "600"])
    folder = lease.new_folder(Path("/var/tmp"), "flashlab-pg-")
    print(server.pid, folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("killed", ["run", "run and device"])
def test_clean_knows_the_dead_from_the_living(killed: str) -> None:
    command = [sys.executable, "-c", RUN, str(PROFILES)]
    with restless(), leases.open_lease() as lease:
        living = lease.start(["sleep", "600"])
        kept = lease.new_folder(Path("/var/tmp"), "flashlab-pg-")
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as run:
            assert run.stdout is not None
            server, folder = run.stdout.readline().split()
            place = registry.existing("restless")
            run.kill()
            if killed == "run and device":
                os.kill(place.about()["pid"], signal.SIGKILL)
        cleaned = subprocess.run([HARNESS, "clean"], capture_output=True, text=True, check=False)
        assert cleaned.returncode == 0, cleaned.stderr
        assert not place.folder.exists()
        assert not Path(folder).exists()
        assert processes.start_time(int(server)) is None
        assert living.poll() is None
        assert kept.is_dir()
        living.kill()
        living.wait()


def run_toy(folder: Path) -> None:
    """The toy study in a new checkout, or in one that is continued."""
    checkout = Project(folder)
    if not folder.exists():
        for name in ("hardware/profiles", "data/published"):
            shutil.copytree(REPOSITORY / name, folder / name)
        for name in ("params.yaml", "dvc.yaml", "pyproject.toml"):
            shutil.copy(REPOSITORY / name, folder)
        toy_world.furnish(checkout)
    subprocess.run([HARNESS, "run", "toy"], cwd=folder, env=toy_world.environment(), check=True)


def results_of(folder: Path) -> dict[str, bytes]:
    """Table, metrics and figures, as bytes."""
    data = folder / "data"
    kinds = ("results/*.csv", "metrics/*.json", "figures/*/*/*")
    found = (path for kind in kinds for path in data.glob(kind))
    return {str(path.relative_to(data)): path.read_bytes() for path in found}


def test_a_run_is_the_same_and_what_is_done_stays_done(tmp_path: Path) -> None:
    run_toy(tmp_path / "quiet")
    with restless():
        run_toy(tmp_path / "restless")
        [journal] = (tmp_path / "restless").rglob("journal.jsonl")
        lines = journal.read_text()
        run_toy(tmp_path / "restless")
    assert journal.read_text() == lines != ""
    assert results_of(tmp_path / "restless") == results_of(tmp_path / "quiet") != {}
