"""The engine on live block devices: results and I/Os as in virtual time; late runs refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import REPOSITORY

from harness.devices.live import stats
from harness.devices.model import Device, Job
from harness.devices.profiles import SsdProfile, load_device
from harness.devices.scaling import scaled_to
from harness.errors import BadParameter, InvalidRun
from harness.experiments.base import Cell, Measurement, Point
from harness.experiments.grace_hash_join.agreement import measured_host
from harness.paths import Project
from harness.probes import bpftrace, trace_file
from harness.runs import agreement
from harness.runs.journal import Journal
from harness.runs.session import Options, open_session
from harness.tiers.base import DeviceRequest
from harness.tiers.emulated import EmulatedBench, EmulatedDevice

PROFILES = REPOSITORY / "hardware" / "profiles"
FEW = Options(
    scale="smoke",
    settings={
        "repetitions": "1",
        "read_buffers": "[16 MiB]",
        "write_buffer": "16 KiB",
        "write_buffers": "[4 KiB]",  # its point is one whose requests are recorded
        "users": "[1]",
        "algorithms": "[grace]",
        "queue_depths": "[1]",
    },
)


@pytest.mark.clock
@pytest.mark.root
def test_the_same_points_agree_with_their_simulation(checkout: Project) -> None:
    with open_session(checkout, "grace_hash_join", "emulated", FEW) as session:
        try:
            table = session.run().table
        except InvalidRun as error:
            pytest.skip(f"this machine was too busy: {error}")
        session.publish()
        published = session.place.traces
    assert set(table.device) == {"hdd", "ssd"}
    assert (table.slowdown >= 1).all()
    assert (table.lateness_max_ns >= table.lateness_p50_ns).all()
    assert (table.replies_read > 0).all()
    assert (table.lateness_mean_ns <= 0.05 * table.model_latency_mean_ns).all()
    compared = agreement.compare(checkout, "grace_hash_join", **FEW.model_dump(exclude_unset=True))
    assert len(compared) == len(table)
    assert (compared.ios_compared == 16).all()
    assert (compared.ios_differ == 0).all()
    # Times depend on what else this machine does: only what no noise explains is a failure.
    assert (compared.elapsed_s_ratio.between(0.5, 3.0)).all()
    journal = Journal(checkout.journal / "grace_hash_join" / "emulated")
    traced = {
        e.point: journal.block_trace_path(e.key)
        for e in journal.entries().values()
        if e.block_trace
    }
    if shutil.which("bpftrace", path=bpftrace._PATH):
        shown = table[table.point.isin(list(traced))]
        assert set(shown.device) == {"hdd", "ssd"}, "nothing below would be asked"
        assert (shown.write_buffer_bytes == 4096).all()
    for point, path in traced.items():
        assert trace_file.check_file(path)
        row = table[table.point == point].iloc[0]
        trace = pd.read_parquet(path)
        assert (trace.op == "read").sum() == row.device_read_ios
        assert (trace.op == "write").sum() == row.device_write_ios
        assert (published / f"{point}.block.parquet").is_file()


def test_the_summary_counts_what_lies_within_the_goal() -> None:
    table = pd.DataFrame({"device": ["hdd"] * 4, "join_s_ratio": [0.95, 1.05, 1.2, float("nan")]})
    row = agreement.summary(table, "grace_hash_join").iloc[0]
    assert (row.points, row.lowest, row.highest) == (3, 0.95, 1.2)
    assert row.within_goal_ratio == pytest.approx(2 / 3)


class Flaky:
    """An experiment whose first runs are not valid."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    def run_batch(self, points: Sequence[Point], *_: Any) -> Iterator[Measurement]:
        for _each in points:
            if self.left:
                self.left -= 1
                raise InvalidRun("replies left late")
            yield Measurement({"elapsed_s": 1.0})


@pytest.mark.parametrize(("failures", "ends_well"), [(0, True), (3, True), (4, False)])
def test_an_invalid_run_is_repeated_but_not_for_ever(
    checkout: Project, failures: int, ends_well: bool
) -> None:
    with open_session(checkout, "grace_hash_join", "simulated") as session:
        flaky = Flaky(failures)
        session.experiment = flaky  # type: ignore[assignment]
        points = [Point(Cell(device=name), f"on {name}") for name in ("hdd", "ssd")]
        if ends_well:
            assert [point for point, _ in session._measured(points)] == points
        else:
            with pytest.raises(InvalidRun, match="on hdd: replies left late"):
                next(session._measured(points))


@pytest.mark.clock
@pytest.mark.root
@pytest.mark.parametrize("given", [0, 3, {"ssd": 3}, {"hdd": 3}])
def test_what_came_late_runs_slower_next_time(given: int | dict[str, int]) -> None:
    slowdown = given if isinstance(given, int) else given.get("ssd", 0)
    with EmulatedBench(PROFILES, {"ssd": "crucial_mx500_250gb"}, slowdown=given) as bench:
        bench.attempt(3)
        with bench.open_device(DeviceRequest(device="ssd", needed_bytes=1 << 20)) as device:
            assert isinstance(device, EmulatedDevice)
            proposed = device._device.stats()["proposed_slowdown"]
            expected = max(min(4 * proposed, 64), proposed)
            assert device.slowdown == (slowdown or expected)


def histogram(values: dict[int, int]) -> dict[str, Any]:
    return {
        "lower_ns": list(values),
        "count": list(values.values()),
        "sum_ns": sum(v * n for v, n in values.items()),
        "max_ns": max(values, default=0),
    }


def times(**kinds: tuple[dict[int, int], dict[int, int]]) -> dict[str, Any]:
    """Lateness and latencies by kind, as a device says them at a slowdown of 1."""
    none = {"lateness": histogram({}), "model_latency": histogram({})}
    told = {
        kind: {"lateness": histogram(late), "model_latency": histogram(took)}
        for kind, (late, took) in kinds.items()
    }
    return stats.times(dict.fromkeys(stats.KINDS, none) | told, 1)


def test_lateness_makes_a_run_invalid_past_the_stated_bounds() -> None:
    live = {"store_errors": 0, "lost_records": 0}
    latency = {100_000: 100}
    on_time = times(write=({4_000: 100}, latency))
    late_on_average = times(write=({6_000: 100}, latency))
    late_at_times = times(write=({1: 98, 20_000: 2}, latency))
    assert stats.problems(live, on_time) == []
    assert "mean 6.0 us of 100.0 us" in stats.problems(live, late_on_average)[0]
    assert "p99 20.0 us of 100.0 us" in stats.problems(live, late_at_times)[0]
    assert stats.problems({**live, "store_errors": 1}, on_time)
    assert stats.problems({**live, "lost_records": 1}, on_time)


def test_slow_trims_do_not_make_up_for_what_is_late() -> None:
    """As in a row of TRIM x fallocate: its mean was 7.3 ms for the TRIMs, its median 0.4."""
    live = {"store_errors": 0, "lost_records": 0}
    reads = ({10_000: 10_000}, {100_000: 10_000})
    trims = ({10_000: 1_000}, {10_000_000: 1_000})
    assert stats.problems(live, times(trim=trims)) == []
    [problem] = stats.problems(live, times(read=reads, trim=trims))
    assert problem.startswith("replies but to TRIMs left late: mean 10.0 us of 100.0 us")
    late_at_times = ({1: 9_800, 20_000: 200}, {100_000: 10_000})
    [problem] = stats.problems(live, times(read=late_at_times, trim=trims))
    assert "but to TRIMs left late: p99 20.0 us of 100.0 us" in problem
    assert stats.problems(live, times(read=reads, trim=trims), {"p99_ns": 0.15}) == []


def test_what_takes_most_of_the_time_makes_up_for_a_late_kind_unless_that_is_what_is_told() -> None:
    """A disk takes 4 KiB into its cache in 115 us, and reads in 5 ms."""
    live = {"store_errors": 0, "lost_records": 0}
    seen = times(
        read=({15_000: 8_000}, {5_000_000: 8_000}), write=({15_000: 24_000}, {115_000: 24_000})
    )
    assert stats.problems(live, seen) == []
    [problem] = stats.problems_of_kinds(seen)
    assert problem.startswith("replies to write requests left late: mean 15.0 us of 115.0 us")
    assert stats.problems_of_kinds(seen, {"p99_ns": 0.15}) == []


def test_requests_of_which_there_are_few_are_judged_with_the_rest() -> None:
    live = {"store_errors": 0, "lost_records": 0}
    reads = ({1_000: 10_000}, {100_000: 10_000})
    fewer = ({90_000: 99}, {100_000: 99})
    assert stats.problems_of_kinds(times(read=reads, flush=fewer)) == []
    enough = ({90_000: 100}, {100_000: 100})
    found = stats.problems_of_kinds(times(read=reads, flush=enough))
    assert [each.split(" left")[0] for each in found] == ["replies to flush requests"] * 2
    assert len(stats.problems(live, times(flush=fewer))) == 2, "with nothing beside them"


def test_times_of_all_requests_are_those_of_the_kinds_together() -> None:
    seen = {
        kind: {"lateness": histogram({}), "model_latency": histogram({})} for kind in stats.KINDS
    }
    seen["read"] = {"lateness": histogram({8: 3}), "model_latency": histogram({100: 3})}
    seen["trim"] = {
        "lateness": histogram({4: 1, 8: 1}),
        "model_latency": histogram({50: 1, 700: 1}),
    }
    found = stats.times(seen, slowdown=4)
    assert found["lateness"] == stats.summary(histogram({4: 1, 8: 4}), scale=0.25)
    assert found["model_latency"] == stats.summary(histogram({50: 1, 100: 3, 700: 1}))
    assert found["kinds"]["read"]["lateness"] == stats.summary(histogram({8: 3}), scale=0.25)
    assert found["kinds"]["read"]["model_latency"]["mean_ns"] == 100.0
    assert found["kinds"]["flush"]["lateness"]["count"] == 0


def test_a_summary_is_that_of_the_values() -> None:
    found = stats.summary(histogram({10: 50, 20: 49, 1000: 1}), scale=2.0)
    assert found == {
        "count": 100,
        "mean_ns": (500 + 980 + 1000) / 100 * 2,
        "p50_ns": 20.0,
        "p99_ns": 40.0,
        "max_ns": 2000.0,
    }
    assert stats.summary(histogram({}))["count"] == 0


@pytest.mark.parametrize("name", ["crucial_mx500_250gb", "samsung_980_1tb", "intel_x25e_32gb"])
def test_a_smaller_drive_is_as_fast_and_as_full(name: str) -> None:
    profile = load_device(PROFILES, name)
    assert isinstance(profile, SsdProfile)
    small = scaled_to(profile, 6 << 30)
    large = scaled_to(profile, 16 << 30)
    job = Job(op="write", pattern="random", queue_depth=32, requests=150_000)
    runs = []
    for scaled in (small, large):
        device = Device(scaled)
        device.to_steady_state()
        runs.append(device.run(job))
    assert runs[0].waf == pytest.approx(runs[1].waf, rel=0.06)
    assert runs[0].iops == pytest.approx(runs[1].iops, rel=0.10)


def test_a_scaled_drive_says_what_it_cannot_be() -> None:
    profile = load_device(PROFILES, "crucial_mx500_250gb")
    assert isinstance(profile, SsdProfile)
    with pytest.raises(BadParameter, match=r"holds 232\.9 GiB"):
        scaled_to(profile, 1 << 40)
    with pytest.raises(BadParameter, match="not a multiple of the drive's block"):
        scaled_to(profile, (8 << 30) + 512)
    with pytest.raises(BadParameter, match="too few for 8 dies"):
        scaled_to(profile, 64 << 20)
    assert scaled_to(profile, profile.parameters.capacity.value) == profile


def test_the_measured_host_is_a_host(checkout: Project) -> None:
    slow = measured_host(checkout, "smoke", 1.0)
    with open_session(
        checkout, "grace_hash_join", "simulated", FEW.model_copy(update={"host": str(slow)})
    ) as session:
        cpu = session.bench._load("hdd", {})[1].join_cpu  # type: ignore[attr-defined]
    assert 1 <= cpu.partition_cpu.value < 10_000
    assert 1 <= cpu.build_cpu.value < 10_000


def test_traces_of_the_kernel_are_kept_with_the_results(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.check_writable()
    recorded = tmp_path / "block.parquet"
    recorded.write_bytes(b"rows")
    journal.keep_block_trace("p", recorded)
    assert journal.block_trace_path("p").read_bytes() == b"rows"
    assert not recorded.exists()
