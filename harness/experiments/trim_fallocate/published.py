"""The times of the paper's figures 2a and 2b, and what of them a fit may see."""

from __future__ import annotations

from pathlib import Path

import pandas as pd


def times(published: Path) -> pd.DataFrame:
    """figure, device, trim, preallocated, metric (its name carries the unit), value, fitted.

    Of the first repetition. `fitted`: `harness calibrate trim_fallocate` sees the ratio of these.
    `published` is the folder data/published.
    """
    return pd.read_csv(published / "trim_fallocate.csv")


def fitted_ratio(published: Path) -> float:
    """Of the join phase with TRIM to that without, in the only pair that the fit sees."""
    seen = times(published).query("fitted and metric == 'join_s'").set_index("trim").value
    return float(seen["discard"] / seen["none"])
