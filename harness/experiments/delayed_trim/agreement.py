"""Delayed TRIM, simulated against emulated: the same requests in virtual time and from a kernel.

TRIM's parts must be equal: they are the drive's own. Writing is compared as a time, reads and
writes beside TRIMs by their latencies. Not compared: how long a host waits for a TRIM, and the
slowest writes beside one. A discard takes the loop device and the store behind it time of their
own, more than a drive takes that only notes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from harness.experiments.base import Measurement, Runs
from harness.experiments.beside import Beside, JudgedAgreement, here_or_published, modelled
from harness.experiments.delayed_trim import grid, model
from harness.tiers.simulated import SimulatedBench

COMPARED: Final = {
    "table1": ("write_ms",),
    "at_once": ("write_ms",),
    "units": ("handling_us", "rest_us", "trim_us", "later_us"),
    "tails": ("read_p50_us", "read_p99_us", "write_p50_us"),
}


def compare(runs: Runs, **options: Any) -> pd.DataFrame:
    """One row per emulated point that has been run here, or else that is published.

    What is 0 on either side has no ratio. See `agreement.compare`.
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
    rows, model_of = [], {}
    with SimulatedBench(profiles, devices, host, overrides) as simulated:
        for point in emulated.table.to_dict("records"):
            cell, found = _simulated(point, simulated)
            model_of[str(point["point"])] = cell, found
            rows.append(row_of(point, found))
    return Beside(pd.DataFrame(rows), emulated, modelled(emulated, model_of))


def _simulated(
    point: Mapping[Any, Any], simulated: SimulatedBench
) -> tuple[grid.Cell, Measurement]:
    cell = grid.read({str(name): value for name, value in point.items() if not pd.isna(value)})
    return cell, model.run_point(cell, simulated)


def row_of(point: Mapping[Any, Any], found: Measurement) -> dict[str, Any]:
    """A point's values and emulated metrics beside the model's, as columns of `compare`."""
    row = {name: point[name] for name in ("device", "kind", "policy", "unit_bytes")}
    for name in COMPARED[str(point["kind"])]:
        emulated, simulated = float(point[name]), float(found.metrics[name])
        row |= {f"{name}_emulated": emulated, f"{name}_simulated": simulated}
        if emulated and simulated:
            row[f"{name}_ratio"] = emulated / simulated
    return row


AGREEMENT: Final = JudgedAgreement(compare, 0.2, beside)
