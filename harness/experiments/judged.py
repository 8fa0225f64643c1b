"""Claims as figures with goals: each one's value against its expected range."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from harness.experiments.base import Results, Runs
from harness.goals import Goal, within


def judged(
    runs: Runs,
    results: Results,
    command: str,
    missing: str = "the points that it needs are not in params.yaml",
) -> Iterator[Goal]:
    """One figure per claim of the study's; `missing` is why some have no value."""
    for row in runs.judge(results).itertuples():
        goal = within(*row.expected)
        name = f"{runs.name}: {row.place}: {row.statement} (paper: {row.published})"
        if pd.isna(row.value):
            yield Goal(name, row.unit, goal, command, missing=missing, is_claim=True)
        else:
            yield Goal(name, row.unit, goal, command, [float(row.value)], is_claim=True)
