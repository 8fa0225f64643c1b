"""Figures of the TRIM x fallocate matrix: claims at the paper's size, and how long that takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pandas as pd
from rich.console import Console

from harness.experiments.base import Measurement, Point, Results, Runs, Session
from harness.experiments.judged import judged
from harness.experiments.trim_fallocate import model
from harness.experiments.trim_fallocate.grid import BASE
from harness.goals import Goal

_COMMAND: Final = "make bench ONLY=trim_fallocate"
_GOAL_S: Final = 120.0
_CELLS: Final = 12


def measure(runs: Runs, console: Console) -> Iterator[Goal]:
    """All figures of the group: all of it is run from nothing, then its claims are judged."""
    with runs.open("simulated") as session:
        console.print("the whole matrix and its variants, from nothing")
        found, elapsed_s = _run(session)
    table = found.table
    cells = int((table.variant == BASE).sum())
    what = f"the whole matrix, variants included, {len(table)} points"
    yield _figure(what, elapsed_s, f"<= {_GOAL_S:g}", "s") if cells == _CELLS else _short(what)
    yield from judged(runs, found, _COMMAND)


def _figure(what: str, value: float, goal: str, unit: str = "ratio") -> Goal:
    return Goal(f"trim_fallocate: {what}", unit, goal, _COMMAND, [value])


def _short(what: str) -> Goal:
    goal, missing = f"<= {_GOAL_S:g}", f"params.yaml does not have the matrix's {_CELLS} cells"
    return Goal(f"trim_fallocate: {what}", "s", goal, _COMMAND, missing=missing)


def _run(session: Session) -> tuple[Results, float]:
    """All points, as many at a time as there are cores, and how long that took in s.

    What the journal has of them is not used: these are measured now.
    """
    bench = session.bench.models
    assert bench is not None
    points, parameters = session.points, session.parameters

    def one(point: Point) -> Measurement:
        return model.run(point, parameters, bench, Path())

    begin = time.monotonic()
    with ThreadPoolExecutor(bench.parallel) as pool:
        runs = list(pool.map(one, points))
    elapsed_s = time.monotonic() - begin
    pairs = list(zip(points, runs, strict=True))
    table = pd.DataFrame([{**p.values, **run.metrics, "point": p.id} for p, run in pairs])
    series = {p.id: run.series for p, run in pairs}
    return Results("simulated", table, series, lambda _: None), elapsed_s


BENCHMARKS: Final = {"trim_fallocate": (measure,)}
