"""Simulated against emulated: the same points in virtual time and behind a real kernel.

One module per experiment says what is comparable; here is what they have in common.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pandas as pd

from harness.errors import UnknownName
from harness.paths import Project
from harness.runs.agreement import (
    delayed_trim,
    grace_hash_join,
    msdj_tpcc,
    sort_merge_join,
    trim_fallocate,
)
from harness.runs.session import Options
from harness.system.files import write_atomically

_COMPARE: Final[dict[str, Callable[[Project, Options | None], pd.DataFrame]]] = {
    "delayed_trim": delayed_trim.compare,
    "grace_hash_join": grace_hash_join.compare,
    "msdj_tpcc": msdj_tpcc.compare,
    "sort_merge_join": sort_merge_join.compare,
    "trim_fallocate": trim_fallocate.compare,
}
_GOALS: Final = {
    "delayed_trim": 0.2,
    "grace_hash_join": 0.1,
    "msdj_tpcc": 0.15,
    "sort_merge_join": 0.2,
    "trim_fallocate": 0.2,
}


def compare(project: Project, experiment: str, options: Options | None = None) -> pd.DataFrame:
    """One row per emulated point that has been run here, with columns NAME_emulated,
    NAME_simulated and NAME_ratio. Raises UnknownName, or BadParameter if nothing has been run.
    """
    if experiment not in _COMPARE:
        raise UnknownName("experiment with an agreement", experiment, _COMPARE)
    return _COMPARE[experiment](project, options)


def goal(experiment: str) -> float:
    """How near the tiers must be, as a ratio: 0.1 is ten percent."""
    return _GOALS[experiment]


def publish(project: Project, experiment: str) -> pd.DataFrame:
    """Compares, and writes the table beside the results."""
    table = compare(project, experiment)
    path = project.results / f"{experiment}.agreement.csv"
    text = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_atomically(path, text.encode())
    return table


def summary(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Per device and what was compared: points, median ratio, extremes, share within the goal."""
    rows = []
    for device, group in table.groupby("device"):
        for column in (c for c in table if c.endswith("_ratio")):
            ratio = group[column].dropna()
            within = float((ratio - 1.0).abs().le(goal(experiment)).mean())
            ends = float(ratio.min()), float(ratio.max())
            what = column.removesuffix("_ratio")
            rows.append((device, what, len(ratio), ratio.median(), *ends, within))
    names = ["device", "what", "points", "median", "lowest", "highest", "within_goal_ratio"]
    return pd.DataFrame(rows, columns=names)
