"""Delayed TRIM behind a real block device: data is what was written, and what is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import REPOSITORY, loop_device, need, on_time
from scipy import stats

from harness.benchmarks import live_data
from harness.benchmarks.live_safety import Drive, cuts_of, mixed_load, recorded
from harness.devices.live import LiveDevice, created
from harness.devices.live.recording import replay
from harness.drives.guard import ClaimedDrive
from harness.drives.trim_log import TrimLog
from harness.drives.wear import counters as wear
from harness.drives.wear import reading
from harness.drives.wear.counters import COUNTS, Wear
from harness.errors import BadParameter, TargetError
from harness.experiments.base import Measurement
from harness.experiments.delayed_trim import grid, real
from harness.paths import Project
from harness.runs.parameters import default as default_parameters
from harness.tiers.base import Bench, DeviceUnderTest
from harness.tiers.emulated import EmulatedBench
from harness.tiers.hardware import DriveDevice
from harness.workloads import fio

pytestmark = [pytest.mark.servers, pytest.mark.root]

BOARD = Drive(
    "DaisyPlus with delayed TRIM",
    "daisyplus_openssd",
    # A slice as dear as a disk's, so that there is always something pending; and small tables.
    (
        ("trim", "delayed"),
        ("trim_map_time", "200 us"),
        ("trim_pending_ranges", "2"),
        ("trim_list_entries", "1"),
    ),
    1 << 30,
)


@pytest.fixture(autouse=True)
def programs() -> None:
    if not Path("/dev/fuse").exists() or not Path("/dev/loop-control").exists():
        pytest.skip("needs FUSE and loop devices")
    for program in ("fio", "losetup", "setsid"):
        need(program)


@contextmanager
def board(project: Project) -> Iterator[LiveDevice]:
    with created(BOARD.spec(project, speed="none")) as device:
        device.set_speed("real", 1)
        yield device


def test_fio_finds_no_difference_while_trims_are_pending(project: Project) -> None:
    with board(project) as device:
        found = live_data.verify_with_fio(device.path, 64 << 20, seed=3)
        counters = device.stats()["device"]
    assert found.errors == 0, found.said
    assert found.trims > 0
    assert counters["trim_idle_slices"] > 0
    assert counters["trim_writes_while_pending"] > 0
    assert counters["trim_full_tables"] > 0


def test_a_power_cut_with_trims_pending_loses_nothing_that_was_flushed(project: Project) -> None:
    found = cuts_of(project, BOARD, 3, honest=True)
    assert (found.lost, found.garbage, found.fio_lost) == (0, 0, 0)
    assert found.durable > 100


def test_a_record_of_delayed_trims_replays_to_the_same_counters(
    project: Project, tmp_path: Path
) -> None:
    record = tmp_path / "record.parquet"
    with recorded(project, BOARD, record) as device:
        mixed_load(device, seconds=2, trims=True)
    replayed = replay(record)
    assert replayed.differences() == {}
    assert replayed.recorded["trim_idle_slices"] > 0
    assert replayed.recorded["firmware_trim_list_ns"] > 0
    assert (np.asarray(replayed.device.mapping()) < 0).any()


UNITS = grid.UnitsCell(device="board", policy="delayed", file_bytes=8 << 20, unit_bytes=1 << 20)
TABLE1 = grid.Table1Cell(
    device="board",
    policy="delayed",
    written_bytes=16 << 20,
    trimmed_bytes=8 << 20,
    unit_bytes=4 << 20,
)
AT_ONCE = grid.AtOnceCell.read({**TABLE1.values, "kind": "at_once"})
TAILS = grid.TailsCell(
    device="board",
    policy="delayed",
    unit_bytes=4 << 20,
    device_bytes=512 << 20,
    region_bytes=32 << 20,
    trim_rate_bytes_per_s=1 << 30,
    duration_s=0.1,
    reads_per_s=5000.0,
    read_bytes=4096,
    writes_per_s=1000.0,
    write_bytes=16384,
)


def measured(cell: grid.Cell) -> Measurement:
    def measure(slowdown: int) -> Measurement:
        profiles = REPOSITORY / "hardware" / "profiles"
        names = {"board": "daisyplus_openssd"}
        with EmulatedBench(profiles, names, slowdown=slowdown) as bench:
            return real.run_point(cell, bench)

    return on_time(measure, 16, 32, 64)[1]


@pytest.mark.clock
@pytest.mark.parametrize("policy", ["immediate", "delayed"])
def test_the_drive_s_clock_says_what_a_trim_took(policy: str) -> None:
    found = measured(replace(UNITS, policy=policy)).metrics
    slices = (8 << 20) // (16 << 10)
    assert found["buffer_us"] == pytest.approx(slices * 0.503)
    assert found["map_us"] == pytest.approx(slices * 0.497)
    assert found["handling_us"] == pytest.approx(8 * 1.401)
    assert found["rest_us"] == pytest.approx(0 if policy == "delayed" else slices)
    assert found["device_trim_ios"] == 8


@pytest.mark.clock
def test_writing_and_trimming_are_timed_apart() -> None:
    found = measured(replace(TABLE1, policy="immediate")).metrics
    assert found["total_ms"] == pytest.approx(found["write_ms"] + found["trim_ms"])
    assert found["trim_ms"] > 0.5
    assert measured(replace(TABLE1, trimmed_bytes=0)).metrics["trim_ms"] == 0


@pytest.mark.clock
def test_two_users_write_and_trim_at_the_same_time() -> None:
    found = measured(replace(AT_ONCE, policy="immediate")).metrics
    assert found["device_write_bytes"] == AT_ONCE.written_bytes  # requests: as memory splits them
    assert found["device_trim_ios"] == 2
    assert found["total_ms"] == max(found["write_ms"], found["trim_ms"])


@pytest.mark.clock
def test_reads_writes_and_trims_run_side_by_side() -> None:
    found = measured(TAILS).metrics
    for op in ("read", "write", "trim"):
        assert found[f"{op}s"] > 5
        assert 0 < found[f"{op}_p50_us"] <= found[f"{op}_p999_us"]
    assert found["idle_us"] > 0


@pytest.mark.clock
def test_requests_arrive_at_random_though_others_are_under_way(
    project: Project, tmp_path: Path
) -> None:
    """The gaps between reads are exponential, though a read takes as long as two of them."""
    record, slowdown = tmp_path / "record.parquet", 64
    reads_per_s, duration_s = 20_000.0, 0.06
    with recorded(project, BOARD, record, slowdown=slowdown) as device:
        on_device = cast(DeviceUnderTest, SimpleNamespace(path=device.path, slowdown=slowdown))
        cell = replace(TAILS, duration_s=duration_s)
        job = real._arriving(cell, on_device, "randread", 4096, reads_per_s)
        found = real._run(on_device, {**job, **real._within(0, 64 << 20)}, 0)
    read_s = found.latency_mean_ns / 1e9 / slowdown
    assert read_s > 1.5 / reads_per_s
    assert found.ios == pytest.approx(reads_per_s * duration_s, rel=0.15)
    rows = pq.read_table(record).to_pandas()
    gaps = np.diff(rows[rows.op == 0].time_ns.tail(found.ios))
    assert stats.kstest(gaps / gaps.mean(), "expon").statistic < 0.08


def test_the_guard_is_asked_before_fio_writes_or_trims(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def refuse(step: str, written_bytes: int) -> None:
        asked.append((step, written_bytes))
        raise TargetError("not ours any more")

    device = cast(DeviceUnderTest, SimpleNamespace(path=Path("/nonexistent"), permit=refuse))
    monkeypatch.setattr(fio, "run", lambda *_: pytest.fail("fio was run"))
    for op in ("write", "trim"):
        with pytest.raises(TargetError, match="not ours"):
            real._in_order(device, op, 4096, 10_000)
    assert asked == [("have fio write", 8192), ("have fio trim", 0)]


def test_what_needs_a_model_is_refused(project: Project) -> None:
    profiles = project.profiles
    grid_of_models = default_parameters(project, "delayed_trim", "simulated")
    assert isinstance(grid_of_models, grid.Parameters)
    cells = [point.cell for point in grid.points(grid_of_models, ["board"])]
    with EmulatedBench(profiles, {"board": "daisyplus_openssd"}) as bench:
        for kind in ("shares", "scenario", "idle"):
            [cell, *_] = [cell for cell in cells if cell.values["kind"] == kind]
            assert isinstance(cell, grid.Cell)
            with pytest.raises(BadParameter, match="simulated"):
                real.run_point(cell, bench)


SIZE_BYTES = 16 << 20


class Board:
    """A claimed drive, as far as a point asks it; its statistics are of `readings`, in turn."""

    def __init__(self, path: Path, readings: list[TrimLog]) -> None:
        self.path = path
        self.size_bytes = SIZE_BYTES
        self.drive = SimpleNamespace(node=path, transport="nvme", trim=True)
        self.written_bytes = 0
        self._readings = iter(readings)

    def check_budget(self) -> None:
        """Has none."""

    def permit(self, step: str, written_bytes: int) -> None:
        """It is ours."""

    def wear(self, *_: Any) -> Wear:
        unsaid = dict.fromkeys(COUNTS, "a file")
        about = wear.Drive("board", "1", "1")
        return Wear(drive=about, unsaid=unsaid, trim=next(self._readings))


def test_a_real_board_says_when_it_did_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the TRIMs the run waits until the board has nothing pending, and keeps its counts."""
    values = dict.fromkeys(TrimLog.layout(), 0)
    begun = TrimLog(**{**values, "slices_applied": 7, "slices_applied_idle": 7})
    busy = replace(begun, pending_ranges=2, slices_applied=100, slices_applied_idle=90)
    done = replace(busy, pending_ranges=0, slices_applied=519, slices_applied_idle=509)
    with loop_device(tmp_path, SIZE_BYTES) as path:
        board = Board(path, [begun, busy, busy, done, done])
        monkeypatch.setattr(reading, "read", board.wear)
        with closing(DriveDevice(cast(ClaimedDrive, board))) as device:
            opened = nullcontext(device)
            bench = SimpleNamespace(tier="hardware", open_device=lambda *_, **__: opened)
            measurement = real.run_point(replace(UNITS, policy="own"), cast(Bench, bench))
    found = measurement.metrics
    assert found["trim_us"] == pytest.approx(8 * found["trim_mean_us"])
    assert (found["trim_slices"], found["trim_idle_slices"]) == (512, 502)
    assert found["trim_pending_ranges"] == 0
    assert not any(name.startswith("firmware_") or name == "map_us" for name in found)
