"""What the paper's text says of its figures: how many times one time is another."""

from __future__ import annotations

from pathlib import Path

import pandas as pd


def ratios(published: Path) -> pd.DataFrame:
    """One row per ratio that the text prints; its figures' own scales are not in our copy.

    `figure`: the paper's. The time of `over_device` with a buffer of `over_bytes` is `time_ratio`
    times that of `device` with `bytes`, with so many `users`; the buffer is the one that the figure
    varies (1: read, 2: write, 3: each user's read buffer). `says`: about, as, above, or the words.
    `published` is the folder data/published.
    """
    return pd.read_csv(published / "grace_hash_join.csv")
