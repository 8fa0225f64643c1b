"""The numbers of the paper's tables 1 and 2 and of figure 2, and what of them a fit may see."""

from __future__ import annotations

from pathlib import Path

import pandas as pd


def cells(published: Path) -> pd.DataFrame:
    """place, device, metric (its name carries the unit), unit_bytes, value, fitted.

    `unit_bytes`: of one TRIM, or of one range where a command has several. `fitted`: a fit of the
    device's profile has seen it. `published` is the folder data/published.
    """
    return pd.read_csv(published / "delayed_trim.csv")


def value(table: pd.DataFrame, metric: str, unit_bytes: int | None = None) -> float:
    """The one cell of a metric, and of a unit where there are several."""
    rows = table[table.metric == metric]
    if unit_bytes is not None:
        rows = rows[rows.unit_bytes == unit_bytes]
    [found] = rows.value
    return float(found)
