"""Simulated against emulated: the same points in virtual time and behind a real kernel.

What is comparable, and how near it must be, a study says itself; here is what all have in common.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness import experiments
from harness.errors import UnknownName
from harness.experiments.base import Agreement
from harness.paths import Project
from harness.runs.study import StudyRuns
from harness.system.files import write_atomically


def of(experiment: str) -> Agreement:
    """The study's. Raises UnknownName if it has none."""
    having = [name for name in experiments.names() if experiments.find(name).agreement]
    found = experiments.find(experiment).agreement if experiment in having else None
    if found is None:
        raise UnknownName("experiment with an agreement", experiment, having)
    return found


def compare(project: Project, experiment: str, **options: Any) -> pd.DataFrame:
    """One row per emulated point that has been run here, with columns NAME_emulated,
    NAME_simulated and NAME_ratio. Raises UnknownName, or BadParameter if nothing has been run.
    """
    return of(experiment).compare(StudyRuns(project, experiment), **options)


def publish(project: Project, experiment: str) -> pd.DataFrame:
    """Compares, and writes the table beside the results."""
    table = compare(project, experiment)
    path = project.results / f"{experiment}.agreement.csv"
    text = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_atomically(path, text.encode())
    return table


def summary(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Per device and what was compared: points, median ratio, extremes, share within the goal."""
    goal_ratio = of(experiment).goal_ratio
    rows = []
    for device, group in table.groupby("device"):
        for column in (c for c in table if c.endswith("_ratio")):
            ratio = group[column].dropna()
            within = float((ratio - 1.0).abs().le(goal_ratio).mean())
            ends = float(ratio.min()), float(ratio.max())
            what = column.removesuffix("_ratio")
            rows.append((device, what, len(ratio), ratio.median(), *ends, within))
    names = ["device", "what", "points", "median", "lowest", "highest", "within_goal_ratio"]
    return pd.DataFrame(rows, columns=names)
