"""The experiment on delayed TRIM: grid, runs, fit, claims and figures, on the simulated tier."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import REPOSITORY
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from harness.errors import BadParameter
from harness.experiments.base import Measurement, Point, Results
from harness.experiments.delayed_trim import (
    EXPERIMENT,
    agreement,
    calibrate,
    figures,
    grid,
    published,
    real,
)
from harness.paths import Project
from harness.runs import claims
from harness.tiers.simulated import TRACE_ROWS, SimulatedBench

PROFILES = REPOSITORY / "hardware" / "profiles"
PUBLISHED = REPOSITORY / "data" / "published"
PARAMS = yaml.safe_load((REPOSITORY / "params.yaml").read_text())["delayed_trim"]["simulated"]
DEVICES = PARAMS["bench"]["devices"]


def parameters(**changes: Any) -> grid.Parameters:
    return grid.Parameters.model_validate({**PARAMS["parameters"], "scale": "smoke", **changes})


@pytest.fixture(scope="module")
def bench() -> SimulatedBench:
    return SimulatedBench(PROFILES, DEVICES, PARAMS["bench"]["host"])


@pytest.fixture(scope="module")
def results(bench: SimulatedBench) -> Results:
    """The whole grid at the smallest scale."""
    points = grid.points(parameters(), list(DEVICES))
    runs = [EXPERIMENT.run_point(p, parameters(), bench, Path()) for p in points]
    rows = [{**p.values, **run.metrics, "point": p.id} for p, run in zip(points, runs, strict=True)]
    # As the journal keeps them: keys are sorted.
    series = {
        p.id: json.loads(json.dumps(run.series, sort_keys=True))
        for p, run in zip(points, runs, strict=True)
    }
    return Results("simulated", pd.DataFrame(rows), series, lambda _: None)


def of_kind(results: Results, kind: str, **values: object) -> pd.DataFrame:
    rows = results.table[results.table.kind == kind]
    for name, value in values.items():
        rows = rows[rows[name] == value]
    return rows


def test_every_point_is_there_once_and_has_its_device() -> None:
    points = grid.points(parameters(scale="paper"), list(DEVICES))
    assert len({p.id for p in points}) == len(points)
    kinds = {str(p.values["kind"]) for p in points}
    assert kinds == {
        *("table1", "at_once", "shares", "units", "scenario"),
        *("tails", "write_list", "idle", "idle_phase"),
    }
    assert {p.values["device"] for p in points if p.values["kind"] == "table1"} == {grid.NVME}
    assert not grid.points(parameters(), [])


@pytest.mark.parametrize("kind", ["table1", "at_once", "units", "tails", "write_list"])
def test_the_trace_has_a_bounded_share_of_what_was_measured(
    kind: str, bench: SimulatedBench
) -> None:
    point = next(p for p in grid.points(parameters(), list(DEVICES)) if p.values["kind"] == kind)
    trace = EXPERIMENT.run_point(point, parameters(), bench, Path()).trace
    assert 0 < len(trace["op"]) <= TRACE_ROWS
    assert (np.diff(trace["submitted_ns"]) >= 0).all()
    assert int(np.min(trace["latency_ns"])) > 0
    expected = {"table1": {1, 2}, "at_once": {1, 2}, "units": {2}, "write_list": {1}}
    assert set(trace["op"]) <= expected.get(kind, {0, 1, 2})


def test_a_smaller_scale_is_shorter_and_has_the_same_points() -> None:
    small, whole = (grid.points(parameters(scale=s), list(DEVICES)) for s in ("smoke", "paper"))
    assert [p.label for p in small] == [p.label for p in whole]
    seconds = [sum(float(p.values.get("duration_s", 0)) for p in ps) for ps in (small, whole)]
    assert seconds[0] == pytest.approx(seconds[1] / 10)


def test_writing_and_trimming_at_once_take_longer_each_and_less_together(results: Results) -> None:
    apart = of_kind(results, "table1", policy="immediate").set_index("trimmed_bytes")
    apart = apart.loc[apart.index.max()]
    [at_once] = of_kind(results, "at_once", policy="immediate").itertuples()
    assert apart.write_ms < at_once.write_ms
    assert apart.trim_ms < at_once.trim_ms
    assert at_once.write_ms <= at_once.total_ms < apart.total_ms


def test_the_parts_of_a_cost_do_not_depend_on_when_they_are_paid(results: Results) -> None:
    for unit, rows in of_kind(results, "units").groupby("unit_bytes"):
        now, later = (rows[rows.policy == p].iloc[0] for p in ("immediate", "delayed"))
        for part in ("command_us", "buffer_us", "map_us"):
            assert now[part] == pytest.approx(later[part]), unit
        assert now.later_us == 0
        assert later.rest_us + later.later_us == pytest.approx(now.rest_us)
        assert later.handling_us == now.handling_us


def test_delaying_saves_the_more_the_longer_a_trim_is(results: Results) -> None:
    times = of_kind(results, "units").pivot_table("trim_us", "unit_bytes", "policy")
    assert (1 - times.delayed / times.immediate).is_monotonic_increasing


def test_more_trims_than_the_table_holds_are_answered_late_but_applied(results: Results) -> None:
    rows = of_kind(results, "units", policy="delayed").set_index("unit_bytes")
    files = rows.file_bytes.iloc[0]
    over = files / rows.index > 1024
    assert (rows.rest_us[over] > 0).all()
    assert (rows.rest_us[~over] == 0).all()


def test_without_the_list_what_was_written_is_lost(results: Results) -> None:
    rows = of_kind(results, "scenario").set_index(["scenario", "policy"])
    assert set(rows.index.get_level_values("scenario")) == {"after", "during", "between"}
    for (_, policy), row in rows.iterrows():
        assert (row.lost_blocks > 0) == (policy == grid.UNCHECKED)
        assert row.left_blocks == 0


def test_the_example_of_the_paper_block_by_block(results: Results) -> None:
    """TRIM of 200 blocks at 100, write of 50 at 150, idle: 150 to 199 survive."""
    [point] = of_kind(results, "scenario", scenario="after", policy="delayed").point
    series = results.series[point]
    last = series["3 idle"]
    assert [b for b in range(100, 300) if last[b]] == list(range(150, 200))
    assert all(last[:100])
    assert all(last[300:])
    assert all(series["1 TRIM 100-299"])  # nothing is applied yet
    assert not all(series["2 write 150-199"])


def test_nobody_waits_for_a_delayed_trim(results: Results) -> None:
    for _, rows in of_kind(results, "tails").groupby("unit_bytes"):
        by = rows.set_index("policy")
        for op in ("read", "write"):
            column = f"{op}_p999_us"
            assert by.loc["delayed", column] <= 1.06 * by.loc["none", column]
        assert by.loc["immediate", "write_p999_us"] > 1.3 * by.loc["none", "write_p999_us"]
        assert (by.reads == by.reads.iloc[0]).all()


def test_full_tables_cost_time_and_lose_nothing(results: Results) -> None:
    rows = of_kind(results, "write_list", policy="delayed")
    assert (rows.forgotten_blocks == 0).all()
    enough, small = rows.iloc[0], rows.iloc[-1]
    assert enough.full_tables == 0
    assert enough.per_write_us < 1
    assert small.full_tables > 0
    assert small.per_write_us > 10 * enough.per_write_us
    assert small.list_high == small.list_entries


def test_collections_wait_for_what_no_pause_was_left_for(results: Results) -> None:
    rows = of_kind(results, "idle", policy="delayed").sort_values("pause_ratio")
    assert rows.drain_ms.is_monotonic_decreasing
    assert rows.drain_ms.iloc[0] > 0.5 * rows.needed_ms.iloc[0]
    assert (rows.drain_ms[rows.pause_ratio >= 1] == 0).all()
    none, immediate = (of_kind(results, "idle", policy=p).waf_ratio.iloc[0] for p in _OTHERS)
    assert rows.waf_ratio.max() <= 1.01 * immediate < none


_OTHERS = ("none", "immediate")


def test_ranges_that_repeat_others_are_applied_once(results: Results) -> None:
    rows = of_kind(results, "idle_phase", pattern="again", step=1)
    slices = rows.set_index(["policy", "merged"]).slices
    file_slices = rows.file_bytes.iloc[0] / (16 << 10)
    assert slices["delayed", False] == slices["delayed", True] == file_slices
    assert slices["immediate", False] > 100 * file_slices


def test_merging_saves_entries_and_longer_steps_save_idle_time(results: Results) -> None:
    rows = of_kind(results, "idle_phase", pattern="units", policy="delayed")
    plain, merged = (rows[(rows.step == 1) & (rows.merged == m)].iloc[0] for m in (False, True))
    assert plain.forced_us > merged.forced_us  # the table was full
    assert merged.merged_ranges > 0
    steps = rows[rows.merged.astype(bool)].sort_values("step").drop_duplicates("step")
    assert steps.later_us.is_monotonic_decreasing
    assert steps.read_p999_us.iloc[-1] > steps.read_p999_us.iloc[0]


def test_the_fit_sees_what_is_declared_and_gives_the_profile(bench: SimulatedBench) -> None:
    found = calibrate.calibrate(parameters(), bench, PUBLISHED)
    profile = bench.new_model(grid.BOARD, overrides={}).profile.parameters
    for name, value_ns in found.values.items():
        assert getattr(profile, name).value == value_ns
        assert getattr(profile, name).origin == "fitted"
    cells = published.cells(PUBLISHED).query("device == 'board'")
    assert len(found.values) - 1 < cells.fitted.sum() < len(cells)  # p itself is a prior
    errors = (found.cells.model - found.cells.value).abs()
    assert errors.max() < 0.001


def test_the_fit_needs_the_command_of_many_ranges(bench: SimulatedBench) -> None:
    with pytest.raises(BadParameter, match="calibration"):
        calibrate.calibrate(parameters(command=None), bench, PUBLISHED)


def test_claims_are_judged_and_every_figure_is_drawn(results: Results, tmp_path: Path) -> None:
    project = Project(REPOSITORY)
    judged = claims.judge(project, "delayed_trim", results).set_index("id")
    verdicts = judged.verdict
    assert set(verdicts) == {claims.REPRODUCED, claims.FITTED}, verdicts
    drawn = figures.draw(results)
    assert set(drawn) == {
        *("table1", "at_once", "shares", "units", "scenarios"),
        *("tails", "write_list", "idle", "idle_phase"),
    }
    named = set(judged.figure)
    assert named <= set(drawn)
    for name, figure in drawn.items():
        figure.savefig(tmp_path / f"{name}.png", dpi=40)


def test_a_part_of_the_results_is_drawn_too(results: Results) -> None:
    some = results.table[results.table.kind.isin(("units", "tails"))]
    part = Results("simulated", some, results.series, lambda _: None)
    assert set(figures.draw(part)) == {"units", "tails"}


def test_a_point_is_the_same_twice(bench: SimulatedBench) -> None:
    [point] = [
        p
        for p in grid.points(parameters(), list(DEVICES))
        if p.values["kind"] == "tails" and p.values["policy"] == "delayed"
    ][:1]
    first, again = run(point, bench), run(point, bench)
    assert (first.metrics, first.series) == (again.metrics, again.series)
    np.testing.assert_equal(first.trace, again.trace)


def test_a_point_agrees_with_itself_and_nothing_has_no_ratio(bench: SimulatedBench) -> None:
    [point, *_] = [
        p
        for p in grid.points(parameters(), list(DEVICES))
        if p.values["kind"] == "units" and p.values["policy"] == "delayed"
    ][2:]
    emulated = {**point.values, **run(point, bench).metrics}
    assert agreement._by_setting([emulated]) == {point.cell: [emulated]}
    row = agreement.row_of([emulated], run(point, bench))
    ratios = {name: value for name, value in row.items() if name.endswith("_ratio")}
    assert set(ratios) == {"handling_us_ratio", "trim_us_ratio", "later_us_ratio"}
    assert set(ratios.values()) == {1.0}
    assert row["rest_us_emulated"] == 0


def test_of_repetitions_the_median_is_laid_beside_the_model(bench: SimulatedBench) -> None:
    points = [
        point
        for point in grid.points(parameters(repetitions=3), [grid.NVME])
        if point.values["kind"] == "table1" and point.values["trimmed_bytes"] == 0
    ]
    found = run(points[0], bench)
    measured = [
        {**point.values, "write_ms": found.metrics["write_ms"] * ratio}
        for point, ratio in zip(points, (1.1, 0.5, 1.2), strict=True)
    ]
    [(setting, those)] = agreement._by_setting(measured).items()
    assert (setting, those) == (points[0].cell, measured)
    row = agreement.row_of(those, found)
    assert row["write_ms_ratio"] == pytest.approx(1.1)
    ends = row["write_ms_emulated_low"], row["write_ms_emulated_high"]
    assert ends == pytest.approx((0.5 * row["write_ms_simulated"], 1.2 * row["write_ms_simulated"]))


def test_repetitions_come_one_after_all_the_others() -> None:
    once = grid.points(parameters(), list(DEVICES))
    twice = grid.points(parameters(repetitions=2), list(DEVICES))
    assert [point.id for point in twice[: len(once)]] == [point.id for point in once]
    again = [replace(grid.Cell.of(point), repetition=1) for point in once]
    assert [point.cell for point in twice[len(once) :]] == again
    assert len({point.id for point in twice}) == len({point.label for point in twice}) == len(twice)


def repeated(results: Results, ratios: tuple[float, ...]) -> Results:
    """As if it had been measured several times, with times that differ by these ratios."""
    times = [name for name in results.table if str(name).endswith(("_ms", "_us"))]
    tables = []
    for repetition, ratio in enumerate(ratios):
        table = results.table.assign(repetition=repetition)
        table[times] *= ratio
        tables.append(table)
    return replace(results, table=pd.concat(tables, ignore_index=True))


def test_medians_over_repetitions_have_a_row_for_each_setting(results: Results) -> None:
    found = figures.over_repetitions(repeated(results, (1.0, 4.0, 1.5)).table)
    expected = results.table.assign(repetition=0)
    times = [name for name in expected if str(name).endswith(("_ms", "_us"))]
    expected[times] *= 1.5
    pd.testing.assert_frame_equal(found[list(expected)], expected, check_dtype=False)
    for end, ratio in (("low", 1.0), ("high", 4.0)):
        ends = found[[f"{name}_{end}" for name in times]].to_numpy()
        np.testing.assert_allclose(ends, ratio * results.table[times].to_numpy())
    assert figures.over_repetitions(results.table) is results.table


def test_what_another_kind_is_told_is_measured_of_this_one(results: Results) -> None:
    """How many writes arrive beside TRIMs differs from run to run; a list's test is told it."""
    table = repeated(results, (1.0, 2.0, 3.0)).table
    tails = table.kind == "tails"
    table.loc[tails, "writes"] += table.repetition[tails]
    found = figures.over_repetitions(table)
    assert len(found) == len(results.table)
    of_both = [each.set_index("point").writes for each in (found, results.table)]
    medians = of_both[0][table.point[tails].unique()]
    pd.testing.assert_series_equal(medians, of_both[1][medians.index] + 1)


def test_how_far_repetitions_lie_apart_is_shown(results: Results) -> None:
    once, often = (
        figures.draw(each)["tails"].axes[0] for each in (results, repeated(results, (1.0, 2.0)))
    )
    assert not once.collections
    assert len(often.collections) == len(often.lines) == len(once.lines)


@pytest.mark.parametrize(
    ("ratios", "verdict"), [((1.0, 1.01, 0.99), "reproduced"), ((0.9, 1.0, 1.1), "undecided")]
)
def test_what_differs_between_repetitions_more_than_is_claimed_is_undecided(
    results: Results, ratios: tuple[float, ...], verdict: str
) -> None:
    judged = claims.judge(Project(REPOSITORY), "delayed_trim", repeated(results, ratios))
    found = judged.set_index("id").loc["dt-table1-alone"]
    assert found.verdict == verdict
    assert found.lowest < found.value < found.highest


def run(point: Point, bench: SimulatedBench) -> Measurement:
    return EXPERIMENT.run_point(point, parameters(), bench, Path())


def test_a_real_drive_s_results_are_drawn(results: Results) -> None:
    """It has one policy, and tells times only."""
    table = results.table
    kinds = table.kind.isin(["table1", "units", "tails"])
    own = table[kinds & (table.policy == "immediate")].assign(policy="own")
    parts = [
        name for name in own if name.removesuffix("_us") in ("handling", "rest", "map", "list")
    ]
    real = replace(results, tier="hardware", table=own.drop(columns=parts))
    drawn = figures.draw(real)
    assert set(drawn) == {"table1", "units", "tails"}
    assert all(figure.axes[0].has_data() for figure in drawn.values())


def test_whatever_a_real_device_runs_is_laid_beside_the_model() -> None:
    kinds = {name for name, kind in grid.KINDS.items() if kind in real._KINDS}
    assert kinds == set(agreement.COMPARED)


def spreads(figure: Figure) -> list[tuple[float, float]]:
    """Begin and end (ms) of the lines over bars' ends."""
    found = [c for ax in figure.axes for c in ax.containers if isinstance(c, ErrorbarContainer)]
    segments = [segment for c in found for lines in c.lines[2] for segment in lines.get_segments()]
    return sorted((float(begin[0]), float(end[0])) for begin, end in segments)


def test_bars_of_several_runs_show_the_least_and_the_most() -> None:
    """Of a sum those of its sums: the longest writing was not with the longest trimming."""
    points = [
        point
        for point in grid.points(parameters(repetitions=3), [grid.NVME])
        if point.values["kind"] in ("table1", "at_once") and point.values["policy"] != "delayed"
    ]
    times = [(300.0, 40.0), (310.0, 50.0), (330.0, 30.0)]
    rows = []
    for point in points:
        write_ms, trim_ms = times[int(point.values["repetition"])]
        size = {"written_bytes": 1 << 30, **point.values}
        is_trimmed = bool(size["trimmed_bytes"])
        rows.append({**size, "write_ms": write_ms, "trim_ms": is_trimmed * trim_ms})
    several = Results("emulated", pd.DataFrame(rows), {}, lambda _: None)
    drawn = figures.draw(several)
    written, trimmed, added = (300.0, 330.0), (30.0, 50.0), (340.0, 360.0)
    after_writing = (310.0 + 30.0, 310.0 + 50.0)
    assert spreads(drawn["table1"]) == [written, written, after_writing]
    assert spreads(drawn["at_once"]) == [trimmed, written, added]
    once = several.table[several.table.repetition == 0]
    drawn = figures.draw(replace(several, table=once))
    assert not spreads(drawn["table1"]) + spreads(drawn["at_once"])
