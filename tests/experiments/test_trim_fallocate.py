"""The TRIM x fallocate matrix in virtual time: PostgreSQL's batches, conservation, figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from conftest import REPOSITORY, open_folder

from harness.dbms import postgres
from harness.devices.data_sheet_fit import write_values
from harness.errors import BadParameter, BadProfile, MissingTool
from harness.experiments.base import Measurement, Point, Results
from harness.experiments.trim_fallocate import (
    EXPERIMENT,
    calibrate,
    figures,
    grid,
    hash_batches,
    hash_buckets,
    model,
    published,
)
from harness.paths import Project
from harness.runs import claims
from harness.runs import published as recorded
from harness.tiers.base import DeviceRequest
from harness.tiers.simulated import SimulatedBench
from harness.workloads import tpch_tables

PROFILES = REPOSITORY / "hardware" / "profiles"
PARAMS = yaml.safe_load((REPOSITORY / "params.yaml").read_text())["trim_fallocate"]["simulated"]
BLOCK = 4096


def parameters(**changes: Any) -> grid.Parameters:
    """The study's, at the smallest scale and with two queries a repetition."""
    values = {**PARAMS["parameters"], "scale": "smoke", **changes}
    drives = {
        name: {**drive, "queries_per_repetition": 2, "least_scale": "smoke"}
        for name, drive in values["drives"].items()
    }
    return grid.Parameters.model_validate({**values, "drives": drives})


def bench(overrides: dict[str, str] | None = None) -> SimulatedBench:
    devices, host = PARAMS["bench"]["devices"], PARAMS["bench"]["host"]
    return SimulatedBench(PROFILES, devices, host, overrides)


def cell(p: grid.Parameters, device: str, trim: str, *, fallocate: bool, reps: int = 2) -> Point:
    [point] = [
        point
        for point in grid.points(p, [device])
        if point.values["variant"] == grid.BASE
        and point.values["trim"] == trim
        and (int(point.values["preallocation_bytes"]) > 0) == fallocate
    ]
    return replace(point, cell=replace(grid.Cell.of(point), repetitions=reps))


def run(point: Point, p: grid.Parameters, b: SimulatedBench | None = None) -> Measurement:
    return EXPERIMENT.run_point(point, p, b or bench(), Path())


def test_the_matrix_is_complete_and_has_no_cell_twice() -> None:
    p = parameters(scale="paper")
    points = grid.points(p, list(PARAMS["bench"]["devices"]))
    base = [x.values for x in points if x.values["variant"] == grid.BASE]
    cells = {(v["device"], v["trim"], int(v["preallocation_bytes"]) > 0) for v in base}
    assert len(base) == len(cells) == 12
    assert len({x.id for x in points}) == len(points)
    assert {v["repetitions"] for v in base if v["device"] == "mx500"} == {30}


def test_a_join_that_fits_into_memory_has_no_cell() -> None:
    sizes = {"smoke": set(), "paper": set()}  # type: dict[str, set[int]]
    for scale, found in sizes.items():
        for x in grid.points(parameters(scale=scale), ["mx500"]):
            if x.values["variant"] == "work_mem":
                found.add(int(x.values["work_mem_bytes"]) >> 20)
    assert sizes["paper"] == {0, 1, 4, 16, 64, 256}
    assert sizes["smoke"] < sizes["paper"]
    assert 256 not in sizes["smoke"]


def test_no_batches_for_a_table_in_memory() -> None:
    assert hash_batches.batches(1000, 100, 4 << 20) == 1
    with pytest.raises(BadParameter, match="work_mem"):
        hash_batches.batches(1000, 100, 4 << 10)


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    try:
        postgres.find_binaries()
    except MissingTool as error:
        pytest.skip(str(error))
    settings = {"max_parallel_workers_per_gather": "0", "enable_mergejoin": "off"}
    settings |= {"enable_nestloop": "off", "hash_mem_multiplier": "1", "autovacuum": "off"}
    with open_folder() as folder, postgres.run(folder, settings) as server:
        yield server


@pytest.mark.servers
@pytest.mark.parametrize(
    ("rows", "width", "work_mem_kib"),
    [(20_000, 100, 64), (20_000, 100, 256), (50_000, 31, 128), (5_000, 400, 1024)],
)
def test_batches_and_buckets_are_postgresql_s_own(
    server: postgres.Server, rows: int, width: int, work_mem_kib: int
) -> None:
    with server.connect() as db:
        db.execute(
            "CREATE TEMP TABLE t AS SELECT n AS key, repeat('x', %s) AS pad "
            "FROM generate_series(1, %s) n",
            (width, rows),
        )
        db.execute("CREATE TEMP TABLE u AS SELECT key FROM t, generate_series(1, 3)")
        db.execute("ANALYZE t")
        db.execute("ANALYZE u")
        db.execute(f"SET work_mem = '{work_mem_kib}kB'".encode())
        explained = db.execute(
            "EXPLAIN (ANALYZE, FORMAT JSON) SELECT u.*, t.* FROM u LEFT JOIN t USING (key)"
        ).fetchone()
    assert explained is not None
    plan = explained[0] if isinstance(explained[0], list) else json.loads(explained[0])
    [hashed] = [x for x in nodes(plan[0]["Plan"]) if x["Node Type"] == "Hash"]
    ours = hash_batches.batches(hashed["Plan Rows"], hashed["Plan Width"], work_mem_kib << 10)
    assert ours == hashed["Original Hash Batches"]
    if ours > 1:
        buckets = hash_buckets.buckets(hashed["Plan Width"], work_mem_kib << 10)
        assert buckets == hashed["Original Hash Buckets"]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


@pytest.mark.parametrize("fallocate", [False, True])
@pytest.mark.parametrize("device", ["mx500", "cosmos"])
def test_what_is_freed_is_trimmed_once(device: str, fallocate: bool) -> None:
    """Of files that are all deleted, every extent, and no byte more than the drive is told of."""
    p = parameters()
    point = cell(p, device, "discard", fallocate=fallocate)
    result = model.simulate(
        bench().stack(DeviceRequest(device=device)),
        grid.Cell.of(point),
        bench().cancel,
        settle=True,
    )
    runs = model.queries(result)
    for each in runs:
        blocks = each.files["discarded_blocks"]
        lengths = each.files["extent_lengths"]
        assert each.files["extents"] == sum(lengths)
        assert each.files["discards"] == sum(each.files["discard_lengths"])
        assert sum(n << i for i, n in enumerate(lengths)) <= blocks
        assert blocks < sum(n << (i + 1) for i, n in enumerate(lengths))
        assert each.device["trim_bytes"] == blocks * BLOCK
    files = sum(each.files["files"] for each in runs)
    assert files == len(runs) * 2 * (model.batches_of(grid.Cell.of(point)) - 1)


def test_tables_lie_in_the_order_of_the_keys_that_the_model_counts(tmp_path: Path) -> None:
    """1 to 7, 32 to 39, 64 to 71: `tests/core/test_batch_order.cpp` has the first ones, too."""
    tables = tpch_tables.whole_tables(tmp_path, 0.001)
    rows = tables.files["orders"].read_text().splitlines()
    keys = [int(row.partition(",")[0]) for row in rows]
    assert keys == [i // 8 * 32 + i % 8 for i in range(1, 1501)]


def test_what_is_written_is_what_the_tables_spill() -> None:
    p = parameters()
    point = cell(p, "mx500", "none", fallocate=False)
    found = run(point, p).metrics
    scale, batches = float(point.values["scale_factor"]), found["batches"]
    # A real server wrote so much of scale factor 1 to 63 of 64 batches.
    spilled = 1_020_093_058 * 64 / 63 * scale * (batches - 1) / batches
    assert found["temp_written_bytes"] == pytest.approx(spilled, rel=0.01)
    assert found["temp_read_bytes"] == pytest.approx(found["temp_written_bytes"], rel=0.01)
    # Metadata is journalled besides; what is deleted before it is written back is not written.
    v = grid.Cell.of(point)
    written = found["device_write_bytes"] / (v.repetitions * v.queries_per_repetition)
    assert 0.7 * spilled < written < 1.2 * spilled


def test_a_repetition_is_its_queries_together() -> None:
    """Cut in another way, the same queries on the same drive: nothing but the sums differs."""
    p = parameters()
    point = cell(p, "mx500", "discard", fallocate=False, reps=2)
    cut = replace(point, cell=replace(grid.Cell.of(point), repetitions=4, queries_per_repetition=1))
    whole, each = run(point, p), run(cut, p)
    for name in ("elapsed_s", "join_s", "trim_commands", "written_bytes", "extents"):
        parts = each.series[f"repetition_{name}"]
        sums = [parts[0] + parts[1], parts[2] + parts[3]]
        assert whole.series[f"repetition_{name}"] == pytest.approx(sums, rel=1e-9)
    assert whole.series["repetition_first_query_s"] == each.series["repetition_elapsed_s"][::2]
    assert whole.metrics["temp_files"] == each.metrics["temp_files"]
    writes = whole.metrics["drive_writes_per_repetition"]
    assert writes == pytest.approx(2 * each.metrics["drive_writes_per_repetition"], rel=1e-9)
    assert 0.1 < writes < 10


def test_what_is_given_back_early_is_trimmed_by_itself() -> None:
    p = parameters()
    point = cell(p, "cosmos", "discard", fallocate=True, reps=1)
    early = replace(point, cell=replace(grid.Cell.of(point), give_back=True))
    late_run, early_run = run(point, p).metrics, run(early, p).metrics
    assert late_run["given_back_bytes"] == 0
    assert early_run["given_back_bytes"] > 0
    assert early_run["trim_commands"] > 1.2 * late_run["trim_commands"]


def test_fallocate_makes_fewer_extents_and_fewer_trims() -> None:
    p = parameters()
    without, with_it = (
        run(cell(p, "mx500", "discard", fallocate=f), p).metrics for f in (False, True)
    )
    assert with_it["extents_per_file"] < 2
    assert without["extents_per_file"] > 10 * with_it["extents_per_file"]
    assert without["trim_commands"] > 5 * with_it["trim_commands"] > 0
    assert without["trim_wait_s"] > with_it["trim_wait_s"]


def test_a_server_with_all_files_open_makes_longer_extents() -> None:
    p = parameters()
    point = cell(p, "mx500", "discard", fallocate=False)
    all_open = replace(point, cell=replace(grid.Cell.of(point), max_files=100_000))
    few, many = run(point, p).metrics, run(all_open, p).metrics
    assert many["extents_per_file"] < few["extents_per_file"] / 3


def test_a_dearer_command_makes_the_join_longer_and_not_the_partition() -> None:
    p = parameters()
    point = cell(p, "mx500", "discard", fallocate=False, reps=1)
    cheap, dear = (
        run(point, p, bench({"trim_command_time": t})).metrics for t in ("0.1 ms", "3 ms")
    )
    assert dear["first_query_join_s"] > 1.3 * cheap["first_query_join_s"]
    same = pytest.approx(cheap["first_query_partition_s"], rel=0.05)
    assert dear["first_query_partition_s"] == same


def test_without_trim_there_is_none() -> None:
    p = parameters()
    found = run(cell(p, "mx500", "none", fallocate=False), p)
    assert found.metrics["trim_commands"] == found.metrics["trim_wait_s"] == 0
    assert 2 not in set(found.trace["op"])


def test_a_run_is_the_same_again() -> None:
    p = parameters()
    point = cell(p, "840pro", "discard", fallocate=False)
    one, other = run(point, p), run(point, p)
    assert one.metrics == other.metrics
    assert one.series == other.series
    assert all((one.trace[name] == other.trace[name]).all() for name in one.trace)


def test_the_simulation_s_unit_changes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    p = parameters(scale="small")
    point = cell(p, "mx500", "discard", fallocate=False, reps=1)
    coarse = run(point, p).metrics
    monkeypatch.setattr(model, "_STEP_BYTES", hash_batches.BLOCK_BYTES)
    fine = run(point, p).metrics
    assert coarse["elapsed_s"] == pytest.approx(fine["elapsed_s"], rel=0.06)
    assert coarse["extents_per_file"] == pytest.approx(fine["extents_per_file"], rel=0.12)


def test_other_workloads_are_refused() -> None:
    p = parameters(variants={"sort": {"why": "", "workload": "sort", "drives": ["mx500"]}})
    [point, *_] = [x for x in grid.points(p, ["mx500"]) if x.values["variant"] == "sort"]
    with pytest.raises(BadParameter, match="hash join only"):
        run(point, p)


@pytest.fixture(scope="module")
def results() -> Results:
    """Everything at the smallest scale."""
    p, b = parameters(), bench()
    rows, series, traces = [], {}, {}
    for point in grid.points(p, b.devices):
        found = run(point, p, b)
        rows.append({**point.values, **found.metrics, "point": point.id})
        series[point.id] = found.series
        traces[point.id] = pd.DataFrame(found.trace)
    return Results("simulated", pd.DataFrame(rows), series, traces.get)


def test_all_figures_are_drawn(results: Results) -> None:
    drawn = figures.draw(results)
    assert set(drawn) == {
        *("lba_over_time", "phases", "trim_commands", "work_mem", "lengths", "time_lost"),
        *("matrix_mx500", "matrix_840pro", "matrix_cosmos", "what_if"),
    }


def test_figures_without_their_points_are_left_out(results: Results) -> None:
    table = results.table
    some = table[(table.variant == grid.BASE) & (table.trim == "none")]
    drawn = figures.draw(Results("emulated", some, results.series, lambda _: None))
    assert set(drawn) == {
        *("phases", "time_lost", "matrix_mx500", "matrix_840pro", "matrix_cosmos")
    }


def test_other_workloads_stand_beside_the_hash_join() -> None:
    """Of what is recorded: only a real server runs them."""
    table = recorded.results(Project(REPOSITORY), "trim_fallocate", "emulated").table
    drawn = figures.draw(Results("emulated", table, {}, lambda _: None))["workloads"]
    axes = {ax.get_title(): ax for ax in drawn.axes}
    labels = [label.get_text() for label in axes["extents of a file"].get_xticklabels()]
    assert [label.replace("\n", " ") for label in labels] == [
        *("hash join", "sort", "hash aggregation", "CREATE INDEX")
    ]
    trims = axes["TRIM commands of a query"].containers
    heights = {bars.get_label(): [bar.get_height() for bar in bars] for bars in trims}
    joins, *others = heights["TRIM only"]
    rows = table[(table.device == "mx500") & (table.variant == grid.BASE)]
    measured = rows[(rows.trim == "discard") & (rows.preallocation_bytes == 0)].trim_commands
    assert [joins] == list(measured)
    assert len(others) == 3
    assert not any(heights["neither"])


def test_every_claim_is_judged_and_lack_of_points_is_no_error(
    results: Results, project: Project
) -> None:
    judged = claims.judge(project, "trim_fallocate", results)
    # Two queries do not age a drive: that WAF stays at 1 with TRIM says nothing then.
    assert set(judged.id[judged.verdict == claims.NOT_JUDGED]) == {"tf-fig10-trim-waf"}
    assert {row.figure for row in judged.itertuples()} <= set(figures.draw(results))
    for _, some in results.table.groupby(["device", "variant", "trim"]):
        part = Results("simulated", some, results.series, lambda _: None)
        assert len(claims.judge(project, "trim_fallocate", part)) == len(judged)


def test_claims_about_ageing_need_repetitions(results: Results, project: Project) -> None:
    table = results.table[results.table.variant == grid.BASE].assign(repetitions=1)
    series = {
        point: {name: values[:1] for name, values in own.items() if name.startswith("repetition")}
        for point, own in results.series.items()
    }
    judged = claims.judge(
        project, "trim_fallocate", Results("simulated", table, series, lambda _: None)
    ).set_index("id")
    assert judged.verdict["tf-fig6-both-flat"] == claims.NOT_JUDGED
    assert judged.verdict["tf-fig2-join"] != claims.NOT_JUDGED


def test_calibration_meets_the_ratio_that_it_sees() -> None:
    folder = REPOSITORY / "data" / "published"
    found = calibrate.calibrate(parameters(), bench(), folder)
    assert found.paper_ratio == published.fitted_ratio(folder)
    assert found.ratio == pytest.approx(found.paper_ratio, rel=0.05)
    assert len(found.results.table) == 12
    assert set(found.results.table.repetitions) == {1}


def test_calibration_without_its_cells_is_refused() -> None:
    devices = {"840pro": PARAMS["bench"]["devices"]["840pro"]}
    other = SimulatedBench(PROFILES, devices, PARAMS["bench"]["host"])
    with pytest.raises(BadParameter, match="no cell of mx500"):
        calibrate.calibrate(parameters(), other, REPOSITORY / "data" / "published")


def test_the_fitted_value_is_written_where_the_profile_says_fitted(tmp_path: Path) -> None:
    name = "crucial_mx500_250gb"
    path = tmp_path / f"{name}.yaml"
    path.write_text((PROFILES / path.name).read_text())
    assert write_values(tmp_path, name, {calibrate.FITTED: 3_210_000}) == ["trim_command_time"]
    assert "trim_command_time: {value: 3.21 ms, fitted:" in path.read_text()
    assert write_values(tmp_path, name, {calibrate.FITTED: 3_210_000}) == []
    path.write_text(path.read_text().replace("3.21 ms, fitted:", "3.21 ms, prior:"))
    with pytest.raises(BadProfile, match="fitted"):
        write_values(tmp_path, name, {calibrate.FITTED: 1_000_000})
