"""Fits the time of the MX500's TRIM command to one published ratio: figure 2b over 2a.

One number (`trim_command_time`) for one number (the join phase with TRIM over that without, first
repetition, no fallocate). What the model then says of everything else it has not seen; the first
repetition of every cell of the matrix is run to show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pandas as pd
from scipy.optimize import brentq

from harness.devices.data_sheet_fit import into_profile
from harness.errors import BadParameter
from harness.experiments.base import Calibrated, Calibration, Measurement, Point, Results, Runs
from harness.experiments.trim_fallocate import grid, model, published
from harness.experiments.trim_fallocate.grid import Cell, Parameters
from harness.tiers.simulated import SimulatedBench

FITTED: Final = "trim_command_time"
DEVICE: Final = "mx500"

_RANGE_MS: Final = (0.0, 20.0)
_CLOSE_MS: Final = 0.01


@dataclass(frozen=True)
class Fit:
    """`command_time_ns` gives `ratio`, where the paper has `paper_ratio`, after `evaluations` runs.

    `results`: one repetition of every cell of the paper's matrix with it.
    """

    command_time_ns: int
    ratio: float
    paper_ratio: float
    evaluations: int
    results: Results


def calibrate(parameters: Parameters, bench: SimulatedBench, published_folder: Path) -> Fit:
    """Solves the parameter within its range.

    Raises BadParameter if the ratio cannot be had in it, or the grid lacks the two cells.
    """
    paper_ratio = published.fitted_ratio(published_folder)
    cells = [_once(p) for p in grid.points(parameters, bench.devices) if _is_base(p)]
    without, with_trim = (_cell(cells, trim) for trim in ("none", "discard"))
    join_s = _join_s(_run(without, bench))
    evaluations = 1

    def error(command_ms: float) -> float:
        nonlocal evaluations
        evaluations += 1
        return _join_s(_run(with_trim, bench, command_ms)) / join_s - paper_ratio

    if not error(_RANGE_MS[0]) < 0.0 < error(_RANGE_MS[1]):
        low, high = _RANGE_MS
        raise BadParameter(f"no {FITTED} between {low:g} and {high:g} ms gives {paper_ratio:.2f}")
    command_ms = round(brentq(error, *_RANGE_MS, xtol=_CLOSE_MS), 2)
    with ThreadPoolExecutor(bench.parallel) as pool:
        runs = list(pool.map(lambda point: _run(point, bench, command_ms), cells))
    table = pd.DataFrame(
        [{**p.values, **run.metrics, "point": p.id} for p, run in zip(cells, runs, strict=True)]
    )
    ratio = _join_s(runs[cells.index(with_trim)]) / join_s
    series = {point.id: run.series for point, run in zip(cells, runs, strict=True)}
    results = Results(bench.tier, table, series, lambda _: None)
    return Fit(round(command_ms * 1e6), ratio, paper_ratio, evaluations, results)


def _is_base(point: Point) -> bool:
    return point.values["variant"] == grid.BASE


def _once(point: Point) -> Point:
    return replace(point, cell=replace(Cell.of(point), repetitions=1))


def _cell(cells: Sequence[Point], trim: str) -> Point:
    wanted = {"device": DEVICE, "trim": trim, "preallocation_bytes": 0}
    for point in cells:
        if all(point.values[name] == value for name, value in wanted.items()):
            return point
    raise BadParameter(f"calibration: the grid has no cell of {DEVICE} with TRIM {trim}")


def _join_s(run: Measurement) -> float:
    return float(run.series["repetition_join_s"][0])


def _run(point: Point, bench: SimulatedBench, command_ms: float | None = None) -> Measurement:
    overrides = {}
    if command_ms is not None and point.cell.device == DEVICE:
        overrides[FITTED] = f"{round(command_ms * 1e6)} ns"
    return model.run_point(Cell.of(point), overrides, bench)


def run(runs: Runs) -> Calibrated:
    """The fit on the simulated tier as params.yaml has it, for `harness calibrate`."""
    with runs.open("simulated") as session:
        found = calibrate(session.parameters, session.bench, runs.project.published)
    said = (
        f"{FITTED} of {DEVICE}: {found.command_time_ns / 1e6:g} ms gives {found.ratio:.3f}, "
        f"the paper has {found.paper_ratio:.3f} ({found.evaluations} runs)"
    )
    title = "after one repetition per cell; the first ratio was seen by the fit"
    return Calibrated(
        [said],
        into_profile(runs.device_name(DEVICE), {FITTED: float(found.command_time_ns)}),
        (found.results, title),
    )


CALIBRATION: Final = Calibration(
    "Fits what a TRIM command costs the MX500 to one ratio of the paper.", run
)
