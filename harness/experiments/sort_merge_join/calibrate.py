"""Fits what the paper does not say of its machine to a declared part of its published cells.

Least squares over the logarithms of sort and join times; parameters are searched on a logarithmic
scale from where the profile stands, and must stay within a factor of it. What is fitted is marked
`fitted` in the host profile; which cells may be seen stands in params.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from harness.errors import BadParameter, BadProfile
from harness.experiments.base import Calibrated, Calibration, Point, Runs, Shown
from harness.experiments.sort_merge_join import grid, model, published
from harness.experiments.sort_merge_join.grid import Cell, Parameters
from harness.system.files import write_atomically
from harness.tiers.base import DeviceRequest
from harness.tiers.simulated import SimulatedBench
from harness.units import parse_bytes

FITTED: Final = {
    "file_system_begin": (0.0, 0.9),
    "scan_cpu": (50e-9, 5e-6),
    "output_cpu": (1e-6, 100e-6),
    "table_rate": (50e6, 2e9),
    "port_rate": (200e6, 285e6),
    "memory": (1.0e9, 3.7e9),
}
"""What is fitted, and between which values: s, bytes, bytes/s, or a ratio."""

QUEUES: Final = (1, 2, 3, 4, 6, 8, 31)
"""The depths of the port's queue that are tried; the best one is kept for the rest."""

_STEP: Final = 0.1
"""Of a ratio, or relative: by how much a parameter is varied to see what it does."""

_ORIGIN: Final = 10.0
"""Where a search begins, in steps: the solver's own steps are relative to that."""

_EVALUATIONS: Final = 4


@dataclass(frozen=True)
class Fit:
    """The fitted values, by parameter, and what came of them.

    `values`: s, bytes/s or a ratio; `cells`: as `published.beside`, of all cells on file;
    `evaluations`: runs of the training cells.
    """

    values: dict[str, float]
    cells: pd.DataFrame
    evaluations: int

    def held_out_errors(self) -> dict[str, float]:
        """Median of the absolute error of each time, over the cells that the fit has not seen."""
        others = self.cells[~self.cells.fitted]
        return {name: float(others[f"{name}_error"].abs().median()) for name in published.TIMES}


def calibrate(parameters: Parameters, bench: SimulatedBench, published_folder: Path) -> Fit:
    """Solves the parameters of the bench's host. Raises BadParameter if there are no cells to see.

    Uses fewer parameters than times: refuses otherwise.
    """
    everything = published.for_fits(published_folder)
    points = grid.points(parameters, bench.devices, what_if=False)
    seen = [point for point in points if _is_seen(point, parameters)]
    known = [point for point in points if _cell(everything, point) is not None]
    training = [point for point in seen if _cell(everything, point) is not None]
    if 2 * len(training) <= len(FITTED) + 1:
        raise BadParameter("calibration: there must be more published times than parameters")
    if 2 * len(training) > len(known):
        raise BadParameter("calibration: at most half of the published cells may be seen")
    stack = bench.stack(DeviceRequest(device=bench.devices[0]))
    low, high = (np.array([_coded(n, limits[i]) for n, limits in FITTED.items()]) for i in (0, 1))
    begin = np.array([_coded(name, value) for name, value in _present(stack.host).items()])

    def errors(values: dict[str, float]) -> NDArray[np.float64]:
        table = _run(training, parameters, bench, values)
        return np.array(
            [
                np.log(row[name] / _published(everything, point)[name])
                for point, row in zip(training, table, strict=True)
                for name in ("sort_s", "join_s")
            ]
        )

    def cost(queue: int) -> float:
        return float(np.abs(errors({**_decoded(begin), "port_queue": queue})).sum())

    queue = min(QUEUES, key=cost)

    def residuals(steps: NDArray[np.float64]) -> NDArray[np.float64]:
        values = _decoded(begin + (steps - _ORIGIN) * _STEP)
        return errors({**values, "port_queue": queue})

    bounds = [_ORIGIN + (limit - begin) / _STEP for limit in (low, high)]
    found = scipy.optimize.least_squares(
        residuals,
        np.clip(np.full(len(begin), _ORIGIN), bounds[0] + 1e-6, bounds[1] - 1e-6),
        bounds=bounds,
        diff_step=1.0 / _ORIGIN,
        max_nfev=_EVALUATIONS,
        loss="soft_l1",
    )
    values = {**_decoded(begin + (found.x - _ORIGIN) * _STEP), "port_queue": float(queue)}
    table = pd.DataFrame(
        [
            {**point.values, **row}
            for point, row in zip(known, _run(known, parameters, bench, values), strict=True)
        ]
    )
    return Fit(
        values, published.beside(table, published_folder, parameters.calibration), found.nfev
    )


def write(folder: Path, host: str, values: dict[str, float]) -> list[str]:
    """Puts fitted values into a host profile's file; returns what changed. Raises BadProfile."""
    path = folder / "hosts" / f"{host}.yaml"
    text = path.read_text(encoding="utf-8")
    changed = []
    for name, value in values.items():
        line = re.compile(rf"^(\s+{name}: \{{value: )([^,]+)(, fitted:)", re.MULTILINE)
        match = line.search(text)
        if match is None:
            raise BadProfile(str(path), f"{name}: write it as {name}: {{value: ..., fitted: ...}}")
        written = format_value(name, value)
        if match[2] != written:
            changed.append(name)
        text = text[: match.start(2)] + written + text[match.end(2) :]
    write_atomically(path, text.encode())
    return changed


def _is_seen(point: Point, parameters: Parameters) -> bool:
    sizes = {parse_bytes(size) for size in parameters.calibration.work_mems}
    v = Cell.of(point)
    return v.clients in parameters.calibration.clients and v.nominal_work_mem_bytes in sizes


def _cell(everything: pd.DataFrame, point: Point) -> dict[str, Any] | None:
    v = Cell.of(point)
    rows = everything[
        (everything.device == v.device)
        & (everything.clients == v.clients)
        & (everything.work_mem_mb == v.nominal_work_mem_bytes >> 20)
    ]
    return None if rows.empty else dict(rows.iloc[0])


def _published(everything: pd.DataFrame, point: Point) -> dict[str, Any]:
    cell = _cell(everything, point)
    assert cell is not None
    return cell


def _run(
    points: Sequence[Point], parameters: Parameters, bench: SimulatedBench, values: dict[str, float]
) -> list[dict[str, int | float]]:
    texts = {name: format_value(name, value) for name, value in values.items()}

    def one(point: Point) -> dict[str, int | float]:
        return model.run_point(Cell.of(point), parameters, bench, texts).metrics

    # The longest first.
    order = sorted(range(len(points)), key=lambda i: -Cell.of(points[i]).clients)
    with ThreadPoolExecutor(bench.parallel) as pool:
        done = dict(zip(order, pool.map(lambda i: one(points[i]), order), strict=True))
    return [done[i] for i in range(len(points))]


def _present(host: Any) -> dict[str, float]:
    sections = host.sections
    found = {}
    for name in FITTED:
        value = next(getattr(s, name) for s in sections.values() if name in type(s).model_fields)
        found[name] = value.value / 1e9 if name.endswith("_cpu") else float(value.value)
    return found


def _is_ratio(name: str) -> bool:
    return FITTED[name][0] == 0.0


def _coded(name: str, value: float) -> float:
    return value if _is_ratio(name) else float(np.log(value))


def _decoded(x: NDArray[np.float64]) -> dict[str, float]:
    plain = {name: float(value) for name, value in zip(FITTED, x, strict=True)}
    return {name: v if _is_ratio(name) else float(np.exp(v)) for name, v in plain.items()}


def format_value(name: str, value: float) -> str:
    """As it stands in a profile, with three digits."""
    if name.endswith("_cpu"):
        return f"{round(float(f'{value * 1e9:.3g}'))} ns"
    if name.endswith("_rate"):
        return f"{float(f'{value / 1e6:.3g}'):g} MB/s"
    if name == "port_queue":
        return str(round(value))
    if name == "memory":
        return f"{float(f'{value / 1e6:.3g}'):g} MB"
    return f"{value:.3g}"


def run(runs: Runs) -> Calibrated:
    """The fit on the simulated tier as params.yaml has it, for `harness calibrate`."""
    with runs.open("simulated") as session:
        found = calibrate(session.parameters, session.bench, runs.project.published)
    values = [(name, format_value(name, value)) for name, value in found.values.items()]
    errors = [
        f"held out, median error of {name}: {error:.1%}"
        for name, error in found.held_out_errors().items()
    ]
    host = runs.host_name()
    return Calibrated(
        [
            Shown(
                f"{found.evaluations} evaluations",
                pd.DataFrame(values, columns=["parameter", "value"]),
            ),
            Shown("", _as_texts(found.cells)),
            *errors,
        ],
        lambda profiles: write(profiles, host, found.values),
    )


def _as_texts(cells: pd.DataFrame) -> pd.DataFrame:
    rows = [
        (
            row["device"],
            str(row["clients"]),
            f"{row['work_mem_mb']} MB",
            *(f"{row[name]:.0f} ({row[f'{name}_error']:+.0%})" for name in published.TIMES),
            "yes" if row["fitted"] else "",
        )
        for row in cells.to_dict("records")
    ]
    return pd.DataFrame(rows, columns=["device", "clients", "work_mem", *published.TIMES, "fitted"])


CALIBRATION: Final = Calibration(
    "Fits the sort-merge join's machine to 8 of the paper's 24 cells.", run
)
