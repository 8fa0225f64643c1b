"""Fits TRIM's times on the board, in units of a slice's, to published ratios.

With a slice's cost p (a prior: no published ratio depends on it), a command of some ranges costs
a + b x ranges + p x slices, and p has a part in the write buffer and one in the map. Three numbers
(a, b, and how p is split) for four cells: table 2's shares, of which two are free, and figure 2's
reduction with the smaller unit. Its larger unit is not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from harness.devices.data_sheet_fit import into_profile
from harness.errors import BadParameter
from harness.experiments.base import Calibrated, Calibration, Point, Results, Runs
from harness.experiments.delayed_trim import grid, model, published
from harness.experiments.delayed_trim.grid import Cell, Parameters
from harness.tiers.simulated import SimulatedBench

DEVICE: Final = grid.BOARD

_PARTS: Final = ("command", "range", "buffer", "map")


@dataclass(frozen=True)
class Fit:
    """`values`: the profile's parameters in ns. `results`: table 2 and figure 2 with them.

    `cells`: what they are compared with; one row per published cell with metric, unit_bytes, value,
    model and fitted.
    """

    values: dict[str, float]
    cells: pd.DataFrame
    results: Results


def calibrate(parameters: Parameters, bench: SimulatedBench, published_folder: Path) -> Fit:
    """Solves the three numbers, and runs the model with them.

    Raises BadParameter if the cells allow none, or the grid lacks table 2.
    """
    if parameters.command is None:
        raise BadParameter("calibration: the grid has no command of many ranges")
    cells = published.cells(published_folder).query("device == @DEVICE")
    profile = bench.new_model(DEVICE, overrides={}).profile.parameters
    slice_bytes = int(profile.trim_slice.value)  # type: ignore[union-attr]
    seen = cells[cells.fitted]
    shape = parameters.command.ranges, parameters.command.blocks_per_range * grid.BLOCK_BYTES
    slice_ns = profile.trim_buffer_time.value + profile.trim_map_time.value  # type: ignore[union-attr]
    values = _solved(seen, shape, slice_bytes, float(slice_ns))
    results = _run(parameters, bench, values)
    return Fit(values, _beside(cells, results.table), results)


def _solved(
    seen: pd.DataFrame, shape: tuple[int, int], slice_bytes: int, slice_ns: float
) -> dict[str, float]:
    """Table 2 gives a + ranges x b, a reduction gives a + b."""
    ranges, range_bytes = shape
    share = {part: published.value(seen, f"{part}_share_ratio") for part in ("buffer", "map")}
    handling = published.value(seen, "command_share_ratio")
    [unit] = seen[seen.metric == "reduction_ratio"].unit_bytes
    reduction = published.value(seen, "reduction_ratio", int(unit))
    many = handling / (1 - handling) * ranges * range_bytes / slice_bytes
    one = (1 - reduction) / reduction * int(unit) / slice_bytes
    each = (many - one) / (ranges - 1)
    if not 0 <= each <= one:
        raise BadParameter("calibration: no time of a command and a range gives these ratios")
    buffer = share["buffer"] / (share["buffer"] + share["map"])
    solved = {"command": one - each, "range": each, "buffer": buffer, "map": 1 - buffer}
    return {f"trim_{part}_time": float(round(solved[part] * slice_ns)) for part in _PARTS}


def _run(parameters: Parameters, bench: SimulatedBench, values: Mapping[str, float]) -> Results:
    overrides = {name: f"{value:.0f} ns" for name, value in values.items()}
    points = [p for p in grid.points(parameters, [DEVICE]) if p.values["kind"] in _KINDS]
    rows = [_row(point, bench, overrides) for point in points]
    return Results(bench.tier, pd.DataFrame(rows), {}, lambda _: None)


_KINDS: Final = ("shares", "units")


def _row(point: Point, bench: SimulatedBench, overrides: Mapping[str, str]) -> dict[str, Any]:
    run = model.run_point(Cell.of(point), bench, overrides)
    return {**point.values, **run.metrics, "point": point.id}


def _beside(cells: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The cells with what the model says of each; NaN where its grid lacks the unit."""
    shares = table[(table.kind == "shares") & (table.policy == "immediate")].iloc[0]
    units = table[table.kind == "units"].pivot_table("trim_us", "unit_bytes", "policy")
    reductions = 1 - units.delayed / units.immediate
    found = [
        reductions.get(cell.unit_bytes) if cell.metric == "reduction_ratio" else shares[cell.metric]
        for cell in cells.itertuples()
    ]
    columns = ["metric", "unit_bytes", "value", "fitted"]
    return cells[columns].assign(model=found).reset_index(drop=True)


def run(runs: Runs) -> Calibrated:
    """The fit on the simulated tier as params.yaml has it, for `harness calibrate`."""
    with runs.open("simulated") as session:
        found = calibrate(session.parameters, session.bench, runs.project.published)
    times = [f"{name}: {value_ns / 1e3:g} us" for name, value_ns in found.values.items()]
    cells = [
        f"{row.metric}, {row.unit_bytes >> 10} KiB: paper {row.value:.4f}, model {row.model:.4f}, "
        f"off by {100 * (row.model - row.value):+.2f} points "
        f"({'seen by the fit' if row.fitted else 'not seen'})"
        for row in found.cells.itertuples()
    ]
    write = into_profile(runs.device_name(DEVICE), found.values)
    return Calibrated([*times, *cells], write)


CALIBRATION: Final = Calibration("Fits a TRIM's parts to the paper's table 2 and figure 2.", run)
