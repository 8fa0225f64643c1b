"""The experiment with the device models: its grid, a smoke run, theory beside simulation."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from conftest import REPOSITORY

from harness.errors import BadParameter
from harness.experiments.base import Point, Results
from harness.experiments.device_models import grid
from harness.paths import Project
from harness.runs import claims, code
from harness.runs.session import Options, Session, open_session

KINDS = {"waf", "hot_cold", "warm_up", "load", "trim", "disk_seek", "disk_queue"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A checkout without inputs: the models need none."""
    root = tmp_path_factory.mktemp("models")
    for name in ("params.yaml", "dvc.yaml", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, root / name)
    for name in ("hardware", "data/published"):
        shutil.copytree(REPOSITORY / name, root / name)
    return Project(root)


@pytest.fixture(scope="module")
def session(place: Project) -> Iterator[Session]:
    with open_session(place, "device_models", "simulated", Options(scale="smoke")) as opened:
        yield opened


@pytest.fixture(scope="module")
def results(session: Session) -> Results:
    return session.run()


def rows(results: Results, kind: str) -> pd.DataFrame:
    return results.table[results.table.kind == kind]


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_points_are_listed_once_and_in_order(place: Project, scale: str) -> None:
    with open_session(place, "device_models", "simulated", Options(scale=scale)) as session:
        names = [point.id for point in session.points]
        assert len(names) == len(set(names))
        assert {point.values["kind"] for point in session.points} == KINDS
        again = session.experiment.points(session.parameters, session.bench)
        assert [point.id for point in again] == names


def test_smaller_scales_ask_for_fewer_points(place: Project) -> None:
    sizes = []
    for scale in ("smoke", "small", "paper"):
        with open_session(place, "device_models", "simulated", Options(scale=scale)) as session:
            sizes.append(len(session.points))
    assert sizes == sorted(set(sizes))


def test_without_a_flash_drive_only_disks_are_asked(session: Session) -> None:
    parameters = grid.Parameters.model_validate(session.parameters)
    found = grid.points(parameters, ["hdd_1tb"])
    assert {point.values["kind"] for point in found} == {"disk_seek", "disk_queue"}


def test_a_smoke_run_fills_every_figure(session: Session, results: Results) -> None:
    assert len(results.table) == len(session.points)
    assert set(session.figures()) == {
        "write_amplification",
        "hot_and_cold",
        "warm_up",
        "load",
        "trim",
        "seek_distance",
        "queue_order",
    }


@pytest.mark.parametrize("policy", ["greedy", "fifo", "d_choices"])
def test_write_amplification_is_that_of_theory(results: Results, policy: str) -> None:
    mine = rows(results, "waf").query("policy == @policy")
    assert len(mine) == 2
    assert (mine.waf / mine.theory_waf).tolist() == pytest.approx([1, 1], rel=0.02)
    assert (mine.effective_spare_factor < mine.spare_factor).all()


def test_streams_keep_hot_and_cold_data_apart(results: Results) -> None:
    waf = rows(results, "hot_cold").pivot_table(
        index="spare_factor", columns="layout", values="waf"
    )
    assert (waf["two streams, cost_benefit"] < waf["two streams, greedy"]).all()
    assert (waf["two streams, greedy"] < waf["one stream, greedy"]).all()
    mixed = rows(results, "hot_cold").query("layout == 'one stream, fifo'")
    assert (mixed.waf / mixed.theory_mixed_waf).tolist() == pytest.approx([1, 1], rel=0.03)


def test_a_fresh_drive_does_not_show_its_steady_state(results: Results) -> None:
    for row in rows(results, "warm_up").itertuples():
        series = results.series[row.point]
        assert series["waf"][0] == pytest.approx(1.0, abs=0.01)
        assert max(series["waf"]) > 1.05 * series["waf"][-1]
        assert len(series["written_ratio"]) == len(series["waf"])


def test_reads_wait_as_queueing_theory_says(results: Results) -> None:
    light = rows(results, "load").query("mix == 'reads' and load_ratio < 0.5")
    assert light.read_mean_us.tolist() == pytest.approx(light.theory_read_mean_us, rel=0.02)


def test_latency_grows_with_the_load(results: Results) -> None:
    for _, mine in rows(results, "load").groupby("mix"):
        ordered = mine.sort_values("offered_iops")
        operation = "write" if mine.read_mean_us.isna().all() else "read"
        assert ordered[f"{operation}_p99_us"].is_monotonic_increasing


def test_trims_cost_their_neighbours(results: Results) -> None:
    trims = rows(results, "trim")
    assert (trims.read_mean_us >= trims.alone_read_mean_us).all()
    parts = trims.trim_command_us + trims.trim_buffer_us + trims.trim_map_us
    assert (parts <= trims.trim_mean_us).all()
    per_byte = (trims.trim_buffer_us + trims.trim_map_us) / trims.trim_bytes
    assert per_byte.max() == pytest.approx(per_byte.min())
    busiest = trims[trims.trims_per_s == trims.trims_per_s.max()]
    mean = busiest.groupby("trim_command").read_mean_us.mean()
    assert mean["non-queued"] > 1.05 * mean["queued"]


def test_disks_read_at_the_published_speed(results: Results) -> None:
    seeks = rows(results, "disk_seek")
    assert seeks.read_mean_ms.tolist() == pytest.approx(seeks.theory_read_ms, rel=0.05)
    for row in seeks.itertuples():
        trace = results.trace_of(row.point)
        assert trace is not None
        far = trace[trace.distance_bytes > row.capacity_bytes / 3]
        # The arm's way over a third of the bytes is at least nearly a third of its stroke.
        assert far.latency_ns.min() / 1e6 > 0.8 * row.average_seek_ms


def test_the_order_of_the_queue_decides(results: Results) -> None:
    deep = rows(results, "disk_queue").query("queue_depth > 1")
    iops = deep.pivot_table(index="device", columns="scheduler", values="iops")
    assert (iops.sptf > 1.1 * iops.elevator).all()
    assert (iops.elevator > 1.4 * iops.fcfs).all()


def test_claims_hold_and_lack_of_points_is_no_error(
    session: Session, results: Results, project: Project
) -> None:
    assert set(session.verdicts().verdict) == {claims.REPRODUCED}
    for kind in KINDS:
        some = Results(
            "simulated", rows(results, kind).dropna(axis=1, how="all"), {}, lambda _: None
        )
        judged = claims.judge(project, "device_models", some)
        assert set(judged.verdict) <= {claims.REPRODUCED, claims.NOT_JUDGED}


def test_results_from_a_table_in_a_file_are_judged_alike(
    session: Session, results: Results, tmp_path: Path, project: Project
) -> None:
    results.table.to_csv(tmp_path / "table.csv", index=False)
    read = Results("simulated", pd.read_csv(tmp_path / "table.csv"), {}, lambda _: None)
    judged = claims.judge(project, "device_models", read)
    assert judged.verdict.tolist() == session.verdicts().verdict.tolist()


def test_a_drive_of_the_wrong_kind_is_refused(place: Project) -> None:
    options = Options(scale="smoke", devices={"hdd_1tb": "samsung_980_1tb"})
    with open_session(place, "device_models", "simulated", options) as session:
        point = next(p for p in session.points if p.values["device"] == "hdd_1tb")
        with pytest.raises(BadParameter, match="kind hdd"):
            run(session, point)


def run(session: Session, point: Point) -> None:
    session.experiment.run_point(point, session.parameters, session.bench, session.project.raw)


def test_a_change_of_the_theory_runs_again(session: Session) -> None:
    """What a result passes through is part of its key."""
    reached = code.run_of(session.experiment, "simulated").files
    assert {"harness.devices.model", "harness.devices.waf_theory"} <= set(reached)
