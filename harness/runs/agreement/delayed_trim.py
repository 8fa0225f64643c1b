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

from harness.errors import BadParameter
from harness.experiments.delayed_trim import grid, model
from harness.paths import Project
from harness.runs.parameters import host_name
from harness.runs.session import Options, open_session
from harness.tiers.simulated import SimulatedBench

_EXPERIMENT: Final = "delayed_trim"
_COMPARED: Final = {
    "table1": ("write_ms",),
    "units": ("handling_us", "rest_us", "trim_us", "later_us"),
    "tails": ("read_p50_us", "read_p99_us", "write_p50_us"),
}


def compare(project: Project, options: Options | None = None) -> pd.DataFrame:
    """One row per emulated point that has been run here, or else that is published.

    What is 0 on either side has no ratio. See `agreement.compare`.
    """
    with open_session(project, _EXPERIMENT, "emulated", options) as session:
        table, bench = session.results.table, session.bench
        devices = {name: bench.profile_name(name) for name in bench.devices}
        overrides = bench.overrides
    file = project.results / f"{_EXPERIMENT}.emulated.csv"
    if table.empty and file.is_file():
        table = pd.read_csv(file, dtype={"point": str})
    if table.empty:
        raise BadParameter(f"{_EXPERIMENT} has not been run here: make emulated")
    host = host_name(project, _EXPERIMENT)
    with SimulatedBench(project.profiles, devices, host, overrides) as simulated:
        rows = [beside(point, simulated) for point in table.to_dict("records")]
    return pd.DataFrame(rows)


def beside(point: Mapping[Any, Any], simulated: SimulatedBench) -> dict[str, Any]:
    """A point's values and emulated metrics beside the model's, as columns of `compare`."""
    values = {str(name): value for name, value in point.items() if not pd.isna(value)}
    found = model.run_point(grid.read(values), simulated).metrics
    names = ("device", "kind", "policy", "unit_bytes")
    row = {name: values[name] for name in names}
    for name in _COMPARED[str(values["kind"])]:
        emulated, modelled = float(values[name]), float(found[name])
        row |= {f"{name}_emulated": emulated, f"{name}_simulated": modelled}
        if emulated and modelled:
            row[f"{name}_ratio"] = emulated / modelled
    return row
