"""What a live device says of itself, and whether a result on it can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

MEAN_BOUND: Final = 0.05
"""Mean lateness, as a share of the model's mean latency, up to which a run is valid."""

P99_BOUND: Final = 0.15
"""99th percentile of lateness, as a share of that of the model's latency."""

RECOVERED: Final = (
    "the device's process died and another one took over, whose model knows nothing of what was "
    "before: make a new device to measure"
)
"""Why nothing that a recovered device says of its drive is valid, until it is made anew."""


def summary(histogram: Mapping[str, Any], *, scale: float = 1.0) -> dict[str, float]:
    """count, mean_ns, p50_ns, p99_ns, max_ns of a histogram of the core, times `scale`."""
    counts = np.asarray(histogram["count"], dtype=np.int64)
    total = int(counts.sum())
    if total == 0:
        return {"count": 0, "mean_ns": 0.0, "p50_ns": 0.0, "p99_ns": 0.0, "max_ns": 0.0}
    lower = np.asarray(histogram["lower_ns"], dtype=np.float64)
    below = np.cumsum(counts)
    quantiles = {
        f"p{percent}_ns": float(lower[np.searchsorted(below, np.ceil(percent / 100 * total))])
        for percent in (50, 99)
    }
    return {
        "count": total,
        "mean_ns": float(histogram["sum_ns"]) / total * scale,
        **{name: value * scale for name, value in quantiles.items()},
        "max_ns": float(histogram["max_ns"]) * scale,
    }


def problems(
    live: Mapping[str, int], lateness: Mapping[str, float], latency: Mapping[str, float]
) -> list[str]:
    """Why what was measured since the last reset is not valid; empty if it is.

    `lateness` and `latency` are summaries in the same time.
    """
    found = []
    if live["store_errors"]:
        found.append(f"the store failed {live['store_errors']} times (is its disk full?)")
    if live["lost_records"]:
        found.append(f"{live['lost_records']} requests were not recorded")
    for name, bound in (("mean_ns", MEAN_BOUND), ("p99_ns", P99_BOUND)):
        if lateness[name] > bound * latency[name]:
            found.append(
                f"replies left late: {name.removesuffix('_ns')} {lateness[name] / 1e3:.0f} us of "
                f"{latency[name] / 1e3:.0f} us ({bound:.0%} is the bound): use a larger --slowdown"
            )
    return found
