"""Fits the time of the MX500's TRIM command to one published ratio: figure 2b over 2a.

One number (`trim_command_time`) for one number (the join phase with TRIM over that without, first
query, no fallocate; the figures name no drive, it is taken for the MX500's). What the model then
says of everything else it has not seen; the first query of every cell of the matrix is run to show
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from harness.devices.data_sheet_fit import into_profile
from harness.errors import BadParameter
from harness.experiments import solved
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
    join_s = _join_s(_run(without, bench).series)

    def error(command_ms: float) -> float:
        return _join_s(_run(with_trim, bench, command_ms).series) / join_s - paper_ratio

    found = solved.root(error, _RANGE_MS, _CLOSE_MS)
    if found is None:
        low, high = _RANGE_MS
        raise BadParameter(f"no {FITTED} between {low:g} and {high:g} ms gives {paper_ratio:.2f}")
    command_ms = round(found[0], 2)
    results = solved.run_all(cells, bench, lambda point: _run(point, bench, command_ms))
    ratio = _join_s(results.series[with_trim.id]) / join_s
    return Fit(round(command_ms * 1e6), ratio, paper_ratio, found[1] + 1, results)


def _is_base(point: Point) -> bool:
    return point.values["variant"] == grid.BASE


def _once(point: Point) -> Point:
    return replace(point, cell=replace(Cell.of(point), repetitions=1, queries_per_repetition=1))


def _cell(cells: Sequence[Point], trim: str) -> Point:
    found = solved.cell(cells, {"device": DEVICE, "trim": trim, "preallocation_bytes": 0})
    if found is None:
        raise BadParameter(f"calibration: the grid has no cell of {DEVICE} with TRIM {trim}")
    return found


def _join_s(series: Mapping[str, Sequence[float]]) -> float:
    return float(series["repetition_join_s"][0])


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
