"""Delayed TRIM, simulated against emulated: the same requests in virtual time and from a kernel.

TRIM's parts must be equal: they are the drive's own. Writing is compared as a time, reads and
writes beside TRIMs by their latencies. Not compared: how long a host waits for a TRIM, and the
slowest writes beside one. A discard takes the loop device and the store behind it time of their
own, more than a drive takes that only notes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Final

import pandas as pd

from harness.experiments.base import Measurement, Runs
from harness.experiments.beside import (
    Beside,
    JudgedAgreement,
    here_or_published,
    modelled,
    ratio_of,
)
from harness.experiments.delayed_trim import grid, model
from harness.tiers.simulated import SimulatedBench

_Point = Mapping[Any, Any]
"""A row of the results' table, by column."""

COMPARED: Final = {
    "table1": ("write_ms",),
    "at_once": ("write_ms",),
    "units": ("handling_us", "rest_us", "trim_us", "later_us"),
    "tails": ("read_p50_us", "read_p99_us", "write_p50_us"),
}


def compare(runs: Runs, **options: Any) -> pd.DataFrame:
    """One row per setting that has been run here on tier emulated, or else that is published.

    Of several repetitions the median, which is what the model is laid beside, with the least and
    the most as NAME_emulated_low and NAME_emulated_high. What is 0 on both sides has no ratio. See
    `agreement.compare`.
    """
    return beside(runs, **options).table


def beside(runs: Runs, **options: Any) -> Beside:
    """That, and the model's results. Raises BadParameter if there is nothing."""
    with runs.open("emulated", **options) as session:
        results, bench = session.results, session.bench
        devices = {name: bench.profile_name(name) for name in bench.devices}
        overrides = bench.overrides
    emulated = here_or_published(runs, results)
    profiles, host = runs.project.profiles, runs.host_name()
    rows: list[dict[str, Any]] = []
    model_of: dict[str, tuple[grid.Cell, Measurement]] = {}
    with SimulatedBench(profiles, devices, host, overrides) as simulated:
        for setting, points in _by_setting(emulated.table.to_dict("records")).items():
            found = model.run_point(setting, simulated)
            model_of |= {str(p["point"]): (_cell(p), found) for p in points}
            rows.append(row_of(points, found))
    return Beside(pd.DataFrame(rows), emulated, modelled(emulated, model_of))


def _by_setting(points: Sequence[_Point]) -> dict[grid.Cell, list[_Point]]:
    found: dict[grid.Cell, list[_Point]] = {}
    for point in points:
        found.setdefault(replace(_cell(point), repetition=0), []).append(point)
    return found


def _cell(point: _Point) -> grid.Cell:
    return grid.read({str(name): value for name, value in point.items() if not pd.isna(value)})


def row_of(points: Sequence[_Point], found: Measurement) -> dict[str, Any]:
    """A setting and its points' emulated metrics beside the model's, as columns of `compare`."""
    row = {name: points[0][name] for name in ("device", "kind", "policy", "unit_bytes")}
    for name in COMPARED[str(row["kind"])]:
        each = [float(point[name]) for point in points]
        emulated, simulated = median(each), float(found.metrics[name])
        row |= {f"{name}_emulated": emulated, f"{name}_simulated": simulated}
        if len(each) > 1:
            row |= {f"{name}_emulated_low": min(each), f"{name}_emulated_high": max(each)}
        if (ratio := ratio_of(emulated, simulated)) is not None:
            row[f"{name}_ratio"] = ratio
    return row


AGREEMENT: Final = JudgedAgreement(compare, 0.2, beside, frozenset(COMPARED["units"]))
