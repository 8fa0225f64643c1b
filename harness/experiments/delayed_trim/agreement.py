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

from harness.experiments.base import Agreement, Runs
from harness.experiments.beside import here_or_published
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
    with runs.open("emulated", **options) as session:
        results, bench = session.results, session.bench
        devices = {name: bench.profile_name(name) for name in bench.devices}
        overrides = bench.overrides
    table = here_or_published(runs, results).table
    profiles, host = runs.project.profiles, runs.host_name()
    with SimulatedBench(profiles, devices, host, overrides) as simulated:
        rows = [beside(point, simulated) for point in table.to_dict("records")]
    return pd.DataFrame(rows)


def beside(point: Mapping[Any, Any], simulated: SimulatedBench) -> dict[str, Any]:
    """A point's values and emulated metrics beside the model's, as columns of `compare`."""
    values = {str(name): value for name, value in point.items() if not pd.isna(value)}
    found = model.run_point(grid.read(values), simulated).metrics
    names = ("device", "kind", "policy", "unit_bytes")
    row = {name: values[name] for name in names}
    for name in COMPARED[str(values["kind"])]:
        emulated, modelled = float(values[name]), float(found[name])
        row |= {f"{name}_emulated": emulated, f"{name}_simulated": modelled}
        if emulated and modelled:
            row[f"{name}_ratio"] = emulated / modelled
    return row


AGREEMENT: Final = Agreement(compare, goal_ratio=0.2)
