"""One number of a profile, solved for one number of a paper; then every cell is run with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import scipy

from harness.experiments.base import Measurement, Point, Results, Scalar
from harness.tiers.simulated import SimulatedBench


def root(
    error: Callable[[float], float], limits: tuple[float, float], tolerance: float
) -> tuple[float, int] | None:
    """Where the error vanishes between the limits, and how often it was evaluated.

    None if it has the same sign at both.
    """
    evaluations = 0

    def counted(value: float) -> float:
        nonlocal evaluations
        evaluations += 1
        return error(value)

    low, high = limits
    if counted(low) * counted(high) >= 0.0:
        return None
    return float(scipy.optimize.brentq(counted, low, high, xtol=tolerance)), evaluations


def cell(cells: Sequence[Point], wanted: dict[str, Scalar]) -> Point | None:
    """The first with these values; None if there is none."""
    matching = (p for p in cells if all(p.values[name] == value for name, value in wanted.items()))
    return next(matching, None)


def run_all(
    cells: Sequence[Point], bench: SimulatedBench, run: Callable[[Point], Measurement]
) -> Results:
    """All cells, as many at a time as the bench runs."""
    with ThreadPoolExecutor(bench.parallel) as pool:
        found = list(pool.map(run, cells))
    rows = [{**p.values, **m.metrics, "point": p.id} for p, m in zip(cells, found, strict=True)]
    series = {point.id: m.series for point, m in zip(cells, found, strict=True)}
    return Results(bench.tier, pd.DataFrame(rows), series, lambda _: None)
