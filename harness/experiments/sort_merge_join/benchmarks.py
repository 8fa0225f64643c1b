"""Figures of the sort-merge join: merge plans, published cells, speed, the real server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pandas as pd
from rich.console import Console

from harness.errors import BadParameter
from harness.experiments.base import Runs, Session
from harness.experiments.sort_merge_join import model, published
from harness.experiments.sort_merge_join.grid import BASE, Cell, Parameters
from harness.goals import Goal
from harness.paths import Project

_COMMAND: Final = "make bench ONLY=sort_merge_join"
_PLANS: Final = "pytest -q tests/core/test_merge_plans.py"
_GOALS: Final = {"elapsed_s": 0.15, "sort_s": 0.20, "join_s": 0.20}
_WITHHELD_GOALS: Final = {"elapsed_s": 0.06, "sort_s": 0.10, "join_s": None}
"""Of cells that no one who built the model had seen."""

_AGREEMENT: Final = {
    "elapsed_s": 0.2,
    "temp_written_bytes": 0.02,
    "temp_read_bytes": 0.02,
    "temp_file_bytes": 0.02,
}
_EMULATED: Final = "make emulated"
_CLIENTS: Final = 16
_WORK_MEM_MB: Final = 4
_RATIO_GOAL: Final = 0.15
_GRID_GOAL_S: Final = 60.0


def measure(runs: Runs, console: Console) -> Iterator[Goal]:
    """All figures of the group, one after the other."""
    project = runs.project
    yield _plans(project)
    with runs.open("simulated") as session:
        console.print("the whole grid, from nothing")
        table, elapsed_s = _grid(session)
    yield _figure(
        "the whole grid, as many points at a time as there are cores",
        [elapsed_s],
        f"<= {_GRID_GOAL_S:g}",
        "s",
    )
    yield from _cells(
        published.beside(table, project.published, published.calibration(project.params))
    )
    yield from _emulated(runs)


def _figure(
    what: str, samples: Sequence[float], goal: str, unit: str = "ratio", command: str = _COMMAND
) -> Goal:
    return Goal(f"sort_merge_join: {what}", unit, goal, command, list(samples))


def _plans(project: Project) -> Goal:
    """Every tape count and run count, against an independent implementation."""
    done = subprocess.run(
        [sys.executable, "-m", *_PLANS.split()],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=False,
    )
    what = "merge plans unlike an independent implementation's, all tape and run counts"
    return _figure(what, [float(done.returncode != 0)], "== 0", "failed test runs", _PLANS)


def _grid(session: Session) -> tuple[pd.DataFrame, float]:
    """The paper's grid on both drives, run now, and how long that took in s."""
    parameters, bench = session.parameters, session.bench.models
    assert isinstance(parameters, Parameters)
    assert bench is not None
    points = [point for point in session.points if point.values["variant"] == BASE]
    begin = time.monotonic()
    with ThreadPoolExecutor(bench.parallel) as pool:
        runs = pool.map(
            lambda point: model.run_point(Cell.of(point), parameters, bench).metrics, points
        )
        rows = [{**point.values, **run} for point, run in zip(points, runs, strict=True)]
    return pd.DataFrame(rows), time.monotonic() - begin


def _cells(cells: pd.DataFrame) -> Iterator[Goal]:
    known = cells[cells.elapsed_s_paper.notna()]
    share = float(known[known.use != "withheld"].fitted.mean())
    yield _figure("share of the published cells that the fit has seen", [share], "<= 0.5")
    bars: dict[str, Mapping[str, float | None]] = {"held out": _GOALS, "withheld": _WITHHELD_GOALS}
    for use, goals in bars.items():
        mine = known[known.use == use]
        for name, goal in goals.items():
            error = float(mine[f"{name}_error"].abs().median())
            what = f"{name}, median error of {len(mine)} cells {use}"
            yield _figure(what, [error], f"<= {goal:g}" if goal else "")
    by_device = known[(known.clients == _CLIENTS) & (known.work_mem_mb == _WORK_MEM_MB)]
    times = by_device.set_index("device")
    ours = times.elapsed_s["hdd"] / times.elapsed_s["ssd"]
    paper = times.elapsed_s_paper["hdd"] / times.elapsed_s_paper["ssd"]
    what = f"HDD over SSD, 16 clients, 4 MB: {ours:.2f} here, {paper:.2f} there; error"
    yield _figure(what, [float(abs(ours / paper - 1.0))], f"<= {_RATIO_GOAL:g}")
    for row in known.to_dict("records"):
        where = f"{row['device']}, {row['clients']} clients, {row['work_mem_mb']} MB"
        for name in _GOALS:
            ratio = float(row[name] / row[f"{name}_paper"])
            yield _figure(f"{name} over the paper's, {where} ({row['use']})", [ratio], "")


def _emulated(runs: Runs) -> Iterator[Goal]:
    try:
        table = runs.compare()
    except BadParameter as error:
        name = "sort_merge_join: emulated beside simulated"
        yield Goal(name, "ratio", "<= 0.2", _EMULATED, missing=str(error))
        return
    for name, goal in _AGREEMENT.items():
        for device, ratio in table.groupby("device")[f"{name}_ratio"]:
            what = (
                f"{name}, emulated against simulated, {device}: largest deviation of {len(ratio)}"
            )
            deviation = float((ratio - 1.0).abs().max())
            yield _figure(what, [deviation], f"<= {goal:g}", command=_EMULATED)
    yield from _trends(table)


def _trends(table: pd.DataFrame) -> Iterator[Goal]:
    """On the real server: HDD over SSD grows with the clients and shrinks with work_mem."""
    means = table.groupby(["clients", "work_mem_bytes", "device"]).elapsed_s_emulated.mean()
    ratio = (means.xs("hdd", level="device") / means.xs("ssd", level="device")).unstack()
    growth = float((ratio.iloc[-1] / ratio.iloc[0]).min())
    fall = float((ratio.iloc[:, 0] / ratio.iloc[:, -1])[ratio.index > 1].min())
    for what, value in (("most over fewest clients", growth), ("least over most work_mem", fall)):
        name = f"emulated, HDD over SSD, {what}, smallest"
        yield _figure(name, [value], "> 1", command=_EMULATED)


BENCHMARKS: Final = {"sort_merge_join": (measure,)}
