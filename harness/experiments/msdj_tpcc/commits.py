"""The journal's commits over time, from a record of what ext4's journal did (probe jbd2)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

_INTERVALS: Final = 30
_NS_PER_MS: Final = 1e6


def course(
    trace: Path, begin_ns: int, end_ns: int, slowdown: int
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Means, and a course in equal intervals, of the commits that began between two boot times.

    Metrics: commit_mean_ms, commit_mean_blocks (logged). Series: commit_time_s (an interval's end),
    commits_per_s, commit_ms, commit_blocks; 0 where there was none. Times are the device's. Both
    are empty if there was no commit.
    """
    commits = _commits(pq.read_table(trace).to_pandas())
    mine = commits[(commits.begin_ns >= begin_ns) & (commits.begin_ns < end_ns)]
    if mine.empty:
        return {}, {}
    each_ns = (end_ns - begin_ns) / _INTERVALS
    number = ((mine.begin_ns - begin_ns) // each_ns).astype(int)
    each_s = each_ns / 1e9 / slowdown
    took_ms = (mine.end_ns - mine.begin_ns) / _NS_PER_MS / slowdown
    counts = np.bincount(number, minlength=_INTERVALS)

    def means(values: pd.Series) -> list[float]:
        sums = np.bincount(number, weights=values.astype(float), minlength=_INTERVALS)
        return [float(v) for v in sums / np.maximum(counts, 1)]

    metrics = {
        "commit_mean_ms": float(took_ms.mean()),
        "commit_mean_blocks": float(mine.blocks_logged.mean()),
    }
    return metrics, {
        "commit_time_s": [float(n * each_s) for n in range(1, _INTERVALS + 1)],
        "commits_per_s": [float(n / each_s) for n in counts],
        "commit_ms": means(took_ms),
        "commit_blocks": means(mine.blocks_logged),
    }


def _commits(events: pd.DataFrame) -> pd.DataFrame:
    """One row per commit that was seen whole: begin_ns, end_ns, blocks_logged."""
    of = {name: rows.set_index("transaction") for name, rows in events.groupby("event")}
    wanted = {
        "begin_ns": ("commit_begin", "time_ns"),
        "end_ns": ("commit_end", "time_ns"),
        "blocks_logged": ("commit_stats", "blocks_logged"),
    }
    if not all(event in of for event, _ in wanted.values()):
        return pd.DataFrame({name: pd.Series(dtype=float) for name in wanted})
    columns = {name: of[event][column] for name, (event, column) in wanted.items()}
    return pd.DataFrame(columns).dropna().sort_values("begin_ns")
