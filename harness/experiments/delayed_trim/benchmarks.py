"""Figures of delayed TRIM: the published numbers from one cost model, and what lies beyond them.

Every point is run from nothing; what the journal has is not used.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pandas as pd
from rich.console import Console

from harness.experiments.base import Measurement, Point, Results, Runs, Session
from harness.experiments.delayed_trim import calibrate, grid, model, proofs
from harness.experiments.delayed_trim.grid import Parameters
from harness.experiments.judged import judged
from harness.goals import Goal

_COMMAND: Final = "make bench ONLY=delayed_trim"


def measure(runs: Runs, console: Console) -> Iterator[Goal]:
    """All figures of the group."""
    with runs.open("simulated") as session:
        console.print("the whole grid in virtual time, from nothing")
        results, elapsed_s = _run(session)
        parameters, bench = session.parameters, session.bench.models
        assert isinstance(parameters, Parameters)
        assert bench is not None
        cells = calibrate.calibrate(parameters, bench, runs.project.published).cells
    yield _figure(f"the whole grid, {len(results.table)} points", elapsed_s, "", "s")
    yield from judged(runs, results, _COMMAND)
    yield from _held_out(cells)
    yield from _tails(results.table)
    yield from _delays(results.table)


def _figure(what: str, value: float, goal: str, unit: str = "ratio") -> Goal:
    return Goal(f"delayed_trim: {what}", unit, goal, _COMMAND, [value])


def _run(session: Session) -> tuple[Results, float]:
    bench = session.bench

    def one(point: Point) -> Measurement:
        return model.run_point(grid.Cell.of(point), bench)

    begin = time.monotonic()
    with ThreadPoolExecutor(bench.parallel) as pool:
        runs = list(pool.map(one, session.points))
    elapsed_s = time.monotonic() - begin
    pairs = list(zip(session.points, runs, strict=True))
    table = pd.DataFrame([{**p.values, **run.metrics, "point": p.id} for p, run in pairs])
    series = {p.id: run.series for p, run in pairs}
    return Results("simulated", table, series, lambda _: None), elapsed_s


def _held_out(cells: pd.DataFrame) -> Iterator[Goal]:
    """The published cells that the fit of the board's costs has not seen."""
    for row in cells[~cells.fitted].itertuples():
        what = f"{row.metric}, {row.unit_bytes >> 10} KiB, not seen by the fit: off by"
        yield _figure(what, 100 * abs(row.model - row.value), "<= 0.2", "points")


def _tails(table: pd.DataFrame) -> Iterator[Goal]:
    """How much less the slowest requests wait."""
    rows = table[table.kind == "tails"]
    for (unit, op), column in {
        (unit, op): f"{op}_p999_us" for unit in rows.unit_bytes.unique() for op in ("read", "write")
    }.items():
        by: Any = rows[rows.unit_bytes == unit].set_index("policy")[column]
        what = f"99.9 % of the {op}s beside TRIMs of {int(unit) >> 10} KiB, immediate over delayed"
        yield _figure(what, by["immediate"] / by["delayed"], ">= 1")


def _delays(table: pd.DataFrame) -> Iterator[Goal]:
    """What only the delay costs, and how much idle time it needs."""
    noted = table[(table.kind == "write_list") & (table.policy == "delayed")].iloc[0]
    yield _figure("a write that has to be noted", noted.per_write_us, "", "us")
    idle = table[(table.kind == "idle") & (table.policy == "delayed")].iloc[0]
    per_gib_ms = idle.needed_ms / (idle.file_bytes / 2**30)
    yield _figure("idle time so that no collection waits, per GiB trimmed", per_gib_ms, "", "ms")
    phase = table[(table.kind == "idle_phase") & (table.policy == "delayed")]
    steps = phase[(phase.pattern == "units") & phase.merged.astype(bool)].sort_values("step")
    shorter = steps.later_us.iloc[-1] / steps.later_us.iloc[0]
    what = f"idle time with steps of {steps.step.iloc[-1]:.0f} slices over steps of one"
    yield _figure(what, shorter, "<= 1")
    longer = steps.read_p999_us.iloc[-1] - steps.read_p999_us.iloc[0]
    yield _figure("and 99.9 % of the reads meanwhile take longer by up to", longer, "", "us")


BENCHMARKS: Final = {"delayed_trim": (measure, proofs.measure)}
