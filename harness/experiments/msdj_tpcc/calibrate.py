"""Fits the PM953's spare area to one cell of table 1: the data journal of 128 MB without streams.

One number (`overprovision`) for one number. All other cells are predictions of the model with it,
and are run to show how far off they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd
from scipy.optimize import brentq

from harness.devices.data_sheet_fit import into_profile
from harness.errors import BadParameter
from harness.experiments.base import Calibrated, Calibration, Measurement, Point, Results, Runs
from harness.experiments.msdj_tpcc import grid, model, published
from harness.experiments.msdj_tpcc.grid import Parameters
from harness.tiers.simulated import SimulatedBench

FITTED: Final = "overprovision"
DEVICE: Final = "pm953"
MODE: Final = "dj"

_RANGE: Final = (0.07, 0.2)
_CLOSE: Final = 0.001


@dataclass(frozen=True)
class Fit:
    """`overprovision_ratio` gives `waf_ratio`, where the paper has `paper_waf_ratio`.

    `results`: every cell of the paper's grid with it, after `evaluations` runs of the fitted one.
    """

    overprovision_ratio: float
    waf_ratio: float
    paper_waf_ratio: float
    evaluations: int
    results: Results


def calibrate(parameters: Parameters, bench: SimulatedBench, published_folder: Path) -> Fit:
    """Solves the parameter within its range.

    Raises BadParameter if the cell cannot be had in it, or the grid lacks it.
    """
    wanted = published.fitted_waf(published_folder)
    cells = [p for p in grid.points(parameters, bench.devices) if p.values["variant"] == grid.BASE]
    cell = _cell(cells, parameters)
    evaluations = 0

    def error(ratio: float) -> float:
        nonlocal evaluations
        evaluations += 1
        return float(_run(cell, bench, ratio).metrics["waf_ratio"]) - wanted

    low, high = _RANGE
    if not error(high) < 0.0 < error(low):
        raise BadParameter(f"no {FITTED} between {low:g} and {high:g} gives a WAF of {wanted:.3f}")
    ratio = round(brentq(error, *_RANGE, xtol=_CLOSE), 3)
    with ThreadPoolExecutor(bench.parallel) as pool:
        runs = list(pool.map(lambda point: _run(point, bench, ratio), cells))
    table = pd.DataFrame(
        [{**p.values, **run.metrics, "point": p.id} for p, run in zip(cells, runs, strict=True)]
    )
    found = float(runs[cells.index(cell)].metrics["waf_ratio"])
    series = {point.id: run.series for point, run in zip(cells, runs, strict=True)}
    results = Results(bench.tier, table, series, lambda _: None)
    return Fit(ratio, found, wanted, evaluations, results)


def _cell(cells: Sequence[Point], parameters: Parameters) -> Point:
    """The grid's first journal, without streams."""
    least = min((grid.Cell.of(p).journal_bytes for p in cells), default=0)
    wanted = {"device": DEVICE, "mode": MODE, "journal_bytes": least}
    for point in cells:
        if all(point.values[name] == value for name, value in wanted.items()):
            return point
    raise BadParameter(
        f"calibration: the grid has no cell of {DEVICE} with mode {MODE}, only "
        f"{', '.join(parameters.modes)}"
    )


def _run(point: Point, bench: SimulatedBench, overprovision_ratio: float) -> Measurement:
    return model.run_point(grid.Cell.of(point), {FITTED: str(overprovision_ratio)}, bench)


def run(runs: Runs) -> Calibrated:
    """The fit on the simulated tier as params.yaml has it, for `harness calibrate`."""
    with runs.open("simulated") as session:
        found = calibrate(session.parameters, session.bench, runs.project.published)
    said = (
        f"{FITTED} of {DEVICE}: {found.overprovision_ratio:g} gives a WAF of "
        f"{found.waf_ratio:.3f}, the paper has {found.paper_waf_ratio:.3f} "
        f"({found.evaluations} runs)"
    )
    title = "table 1's cell of DJ was seen by the fit, all others are predictions"
    return Calibrated(
        [said],
        into_profile(runs.device_name(DEVICE), {FITTED: found.overprovision_ratio}),
        (found.results, title),
    )


CALIBRATION: Final = Calibration("Fits the drive's spare area to one cell of the paper.", run)
