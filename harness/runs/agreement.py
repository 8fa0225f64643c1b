"""Simulated against emulated: the same points in virtual time and behind a real kernel.

What is comparable, and how near it must be, a study says itself; here is what all have in common.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from harness.paths import Project
from harness.runs import places
from harness.runs.study import StudyRuns, agreement_of
from harness.system.files import write_atomically


def compare(project: Project, experiment: str, **options: Any) -> pd.DataFrame:
    """One row per emulated point that has been run here, with columns NAME_emulated,
    NAME_simulated and NAME_ratio. Raises UnknownName, or BadParameter if nothing has been run.
    """
    return StudyRuns(project, experiment).compare(**options)


def write(project: Project, experiment: str, *, publish: bool) -> tuple[pd.DataFrame, Path]:
    """Compares, and writes the table: beside the published results, or below build/runs/.

    The published one is of the machine whose emulated results are published, and under git.
    """
    table = compare(project, experiment)
    name = f"{experiment}.agreement"
    own = places.own(project, name).table
    path = project.results / f"{name}.csv" if publish else own
    text = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_atomically(path, text.encode(), make_folder=True)
    return table, path


def summary(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Per device and what was compared: points, median ratio, extremes, share within the goal."""
    goal_ratio = agreement_of(experiment).goal_ratio
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
