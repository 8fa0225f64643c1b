"""The Grace join's points that share a join: what is repeated is what would be run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import REPOSITORY
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text

from harness import _core
from harness.errors import BadParameter, DataCorrupted
from harness.experiments import grace_hash_join
from harness.experiments.base import Measurement, Point, Results
from harness.experiments.grace_hash_join import EXPERIMENT, grid, run
from harness.tiers.base import Bench
from harness.tiers.simulated import SimulatedBench
from harness.workloads.tpch import JoinInputs

PARAMS = yaml.safe_load((REPOSITORY / "params.yaml").read_text())["grace_hash_join"]["simulated"]


def parameters(**changes: Any) -> grid.Parameters:
    """The study's, at the smallest scale."""
    return grid.Parameters.model_validate({**PARAMS["parameters"], "scale": "smoke", **changes})


@pytest.fixture(scope="module")
def bench() -> SimulatedBench:
    """The study's drives and host."""
    profiles = REPOSITORY / "hardware" / "profiles"
    return SimulatedBench(profiles, PARAMS["bench"]["devices"], PARAMS["bench"]["host"])


def same(one: Measurement, other: Measurement) -> bool:
    """To the last bit, but for how they were obtained."""
    if one.trace.keys() != other.trace.keys():
        return False
    traces = all(np.array_equal(one.trace[name], other.trace[name]) for name in one.trace)
    return traces and replace(one, trace={}, about={}) == replace(other, trace={}, about={})


def each(
    points: Sequence[Point], bench: SimulatedBench, raw: Path, p: grid.Parameters
) -> Iterator[tuple[Point, Measurement]]:
    return zip(points, EXPERIMENT.run_batch(points, p, bench, raw), strict=True)


@given(
    algorithm=st.sampled_from(["grace", "hybrid"]),
    nominal_kib=st.integers(6, 40).map(lambda n: n * n * 16),
    write_kib=st.sampled_from([1, 4, 16, 64]),
    repetition=st.integers(0, 20),
    users=st.integers(1, 4),
    order=st.permutations(
        [(d, v) for d in ("hdd", "ssd") for v in (grid.BASE, *PARAMS["parameters"]["variants"])]
    ),
)
@settings(max_examples=15)
def test_a_repeated_point_is_the_point(
    bench: SimulatedBench,
    smoke: JoinInputs,
    raw: Path,
    algorithm: str,
    nominal_kib: int,
    write_kib: int,
    repetition: int,
    users: int,
    order: list[tuple[str, str]],
) -> None:
    """On any drive and CPU, whichever of them the join was run on."""
    del smoke
    p = parameters()
    [plain] = [
        point
        for point in grid.points(p, ["hdd"], what_if=False)
        if point.label == "hdd grace read 1 MiB write 4 KiB" and point.values["repetition"] == 0
    ]
    write = write_kib << 10
    read = max((nominal_kib << 10) // 100 // write, 1) * write
    cells = [
        replace(
            grid.Cell.of(plain),
            device=device,
            variant=variant,
            algorithm=algorithm,
            read_buffer_bytes=read,
            write_buffer_bytes=write,
            input_io_bytes=min(1 << 20, read),
            repetition=repetition,
            users=users,
        )
        for device, variant in order[:4]
    ]
    points = [Point(cell, "a point") for cell in cells]
    assert EXPERIMENT.batches(points, "simulated") == [points]
    for number, (point, measured) in enumerate(each(points, bench, raw, p)):
        assert measured.about == ({"repeats": points[0].id} if number else {})
        assert same(measured, EXPERIMENT.run_point(point, p, bench, raw))


def test_traces_are_repeated(bench: SimulatedBench, smoke: JoinInputs, raw: Path) -> None:
    """In the study's own grid: by points that repeat one that is not traced, and vice versa."""
    del smoke
    p = parameters(repetitions=1)
    points = grid.points(p, bench.devices, what_if=True)
    [batch] = [
        batch
        for batch in EXPERIMENT.batches(points, "simulated")
        if any(point.label == "hdd grace read 16 MiB write 4 KiB" for point in batch)
    ]
    traced = 0
    for turned in (batch, batch[::-1]):
        for point, measured in each(turned, bench, raw, p):
            assert same(measured, EXPERIMENT.run_point(point, p, bench, raw))
            traced += bool(measured.trace) and bool(measured.about)
    assert traced == 3


def test_all_points_are_in_one_batch(bench: SimulatedBench) -> None:
    points = grid.points(parameters(), bench.devices, what_if=True)
    batches = EXPERIMENT.batches(points, "simulated")
    assert sorted(p.id for batch in batches for p in batch) == sorted(p.id for p in points)
    synchronous = [p for p in points if p.values["queue_depth"] == 1]
    assert sum(len(batch) for batch in batches if len(batch) > 1) == len(synchronous)


@pytest.mark.parametrize("tier", ["emulated", "hardware"])
def test_real_kernels_run_every_point(bench: SimulatedBench, tier: str) -> None:
    points = grid.points(parameters(), bench.devices, what_if=True)
    assert EXPERIMENT.batches(points, tier) == [[point] for point in points]


@pytest.mark.parametrize(
    ("tier", "has_it", "deepest"),
    [("simulated", False, 32), ("hardware", False, 1), ("hardware", True, 32)],
)
def test_what_takes_io_uring_is_left_out_without_it(
    bench: SimulatedBench,
    monkeypatch: pytest.MonkeyPatch,
    tier: str,
    has_it: bool,
    deepest: int,
) -> None:
    """Of a build without liburing, which is what an empty Debian makes."""
    storage = SimpleNamespace(has_io_uring=lambda: has_it)
    monkeypatch.setattr(grace_hash_join, "_core", SimpleNamespace(FileStorage=storage))
    place = cast(Bench, SimpleNamespace(tier=tier, devices=bench.devices))
    points = EXPERIMENT.points(parameters(queue_depths=[1, 32]), place)
    assert max(point.values["queue_depth"] for point in points) == deepest
    assert len(points) > 20


@pytest.mark.parametrize("users", [1, 2])
def test_deeper_queues_are_never_repeated(
    bench: SimulatedBench, smoke: JoinInputs, raw: Path, users: int
) -> None:
    del smoke
    p = parameters()
    plain = grid.Cell.of(grid.points(p, ["hdd"], what_if=False)[4])
    cells = [replace(plain, device=device, users=users, queue_depth=2) for device in ("hdd", "ssd")]
    points = [Point(cell, "a point") for cell in cells]
    batches = EXPERIMENT.batches(points, "simulated")
    assert batches == [[points[0]], [points[1]]]
    for batch in batches:
        [(_, measured)] = each(batch, bench, raw, p)
        assert measured.about == {}


def test_a_transcript_of_a_deep_queue_is_refused(
    bench: SimulatedBench, smoke: JoinInputs, raw: Path
) -> None:
    """Should such points come together all the same."""
    del smoke
    p = parameters()
    plain = grid.Cell.of(grid.points(p, ["hdd"], what_if=False)[4])
    points = [Point(replace(plain, device=d, queue_depth=2), d) for d in ("hdd", "ssd")]
    with pytest.raises(BadParameter, match="synchronous"):
        next(run.run_together(points, p, bench, raw))


def test_points_with_other_joins_are_refused(
    bench: SimulatedBench, smoke: JoinInputs, raw: Path
) -> None:
    del smoke
    p = parameters()
    plain = grid.Cell.of(grid.points(p, ["hdd"], what_if=False)[4])
    for other in (replace(plain, repetition=1), replace(plain, users=2)):
        found = run.run_together([Point(plain, "one"), Point(other, "other")], p, bench, raw)
        next(found)
        with pytest.raises(BadParameter, match="other joins"):
            next(found)


def drawn_of(p: grid.Parameters, tier: str) -> dict[str, Figure]:
    """Of points that nobody has run."""
    points = grid.points(p, ["hdd", "ssd"], what_if=False)
    times = {"elapsed_s": 3.0, "partition_s": 2.0, "join_s": 1.0}
    table = pd.DataFrame([{**x.values, "point": x.id, **times} for x in points])
    series = {x.id: {"join_read_by_seek_log2": [1, 2, 3]} for x in points}
    return EXPERIMENT.figures(Results(tier, table, series, lambda _: None))


@pytest.mark.parametrize(
    ("scale", "buffer", "shared"),
    [("small", "408 KiB (for 4 MiB)", "816 KiB (for 8 MiB)"), ("paper", "4 MiB", "8 MiB")],
)
def test_a_read_buffer_is_named_as_it_was_set(scale: str, buffer: str, shared: str) -> None:
    """At a tenth of the tables it is one, too."""
    drawn = drawn_of(parameters(scale=scale, repetitions=1), "emulated")
    for name in ("read_buffer", "phases", "seek_distance", "hybrid"):
        drawn[name].draw_without_rendering()
        said = {text.get_text().replace("\n", " ") for text in drawn[name].findobj(Text)}
        assert buffer in said, name
    assert drawn["users"].axes[0].get_xlabel() == f"users sharing {shared} of read buffer"


def test_what_is_repeated_was_checked(
    bench: SimulatedBench, smoke: JoinInputs, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join that is not DuckDB's ends its batch before anything repeats it."""
    del smoke
    p = parameters()
    [batch, *_] = EXPERIMENT.batches(grid.points(p, bench.devices, what_if=True), "simulated")
    assert len(batch) > 1
    monkeypatch.setattr(run, "expected_join", lambda *_: (1, 1))
    with pytest.raises(DataCorrupted, match="independent join"):
        list(EXPERIMENT.run_batch(batch, p, bench, raw))


def test_a_repetition_says_what_its_join_found(
    bench: SimulatedBench, smoke: JoinInputs, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the check stands behind it, too."""
    del smoke
    p = parameters()
    [batch, *_] = EXPERIMENT.batches(grid.points(p, bench.devices, what_if=True), "simulated")
    found = EXPERIMENT.run_batch(batch, p, bench, raw)
    first = next(found)
    assert next(found).metrics["matches"] == first.metrics["matches"]
    repeat = _core.repeat_joins
    monkeypatch.setattr(
        _core, "repeat_joins", lambda *a: [{**user, "checksum": 0} for user in repeat(*a)]
    )
    with pytest.raises(DataCorrupted, match="independent join"):
        next(found)
