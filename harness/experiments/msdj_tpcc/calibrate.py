"""Fits the PM953's spare area to one cell of table 1: the data journal of 128 MB without streams.

One number (`overprovision`) for one number. All other cells are predictions of the model with it,
and are run to show how far off they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.devices.data_sheet_fit import into_profile
from harness.errors import BadParameter
from harness.experiments import solved
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

    def error(ratio: float) -> float:
        return float(_run(cell, bench, ratio).metrics["waf_ratio"]) - wanted

    found = solved.root(error, _RANGE, _CLOSE)
    if found is None:
        low, high = _RANGE
        raise BadParameter(f"no {FITTED} between {low:g} and {high:g} gives a WAF of {wanted:.3f}")
    ratio = round(found[0], 3)
    results = solved.run_all(cells, bench, lambda point: _run(point, bench, ratio))
    waf_ratio = float(results.table["waf_ratio"].iloc[cells.index(cell)])
    return Fit(ratio, waf_ratio, wanted, found[1], results)


def _cell(cells: Sequence[Point], parameters: Parameters) -> Point:
    """The grid's first journal, without streams."""
    least = min((grid.Cell.of(p).journal_bytes for p in cells), default=0)
    found = solved.cell(cells, {"device": DEVICE, "mode": MODE, "journal_bytes": least})
    if found is None:
        raise BadParameter(
            f"calibration: the grid has no cell of {DEVICE} with mode {MODE}, only "
            f"{', '.join(parameters.modes)}"
        )
    return found


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
