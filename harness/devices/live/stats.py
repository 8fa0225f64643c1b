"""What a live device says of itself, and whether a result on it can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

MEAN_BOUND: Final = 0.05
"""Mean lateness, as a share of the model's mean latency, up to which a run is valid."""

P99_BOUND: Final = 0.15
"""99th percentile of lateness, as a share of that of the model's latency."""

FEWEST: Final = 100
"""Requests of one kind from which on that kind is judged by itself: of fewer the 99th percentile is
the largest value, so that one reply, which the machine held up, would spoil a run in which hardly
any were of its kind. A prior. What fewer are late by is judged with all the rest."""

KINDS: Final = ("read", "write", "trim", "flush")

BOUNDS: Final = {"mean_ns": MEAN_BOUND, "p99_ns": P99_BOUND}

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


def merged(histograms: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One histogram of the core, of all that several have counted."""
    parts = list(histograms)
    counts: dict[int, int] = {}
    for part in parts:
        for lower, count in zip(part["lower_ns"], part["count"], strict=True):
            counts[int(lower)] = counts.get(int(lower), 0) + int(count)
    bounds = sorted(counts)
    return {
        "lower_ns": bounds,
        "count": [counts[lower] for lower in bounds],
        "sum_ns": sum(part["sum_ns"] for part in parts),
        "max_ns": max((part["max_ns"] for part in parts), default=0),
    }


def times(seen: Mapping[str, Mapping[str, Any]], slowdown: int) -> dict[str, dict[str, Any]]:
    """Summaries of `lateness` and `model_latency`, in the model's time, of all requests together,
    under `but_trims` of all but TRIMs, and under `kinds` those of each kind. `seen`: histograms by
    kind, as the core has them.
    """
    scale = {"lateness": 1.0 / slowdown, "model_latency": 1.0}

    def together(*of: str) -> dict[str, Any]:
        return {
            name: summary(merged(seen[kind][name] for kind in of), scale=scale[name])
            for name in scale
        }

    but_trims = together(*(kind for kind in KINDS if kind != "trim"))
    kinds = {kind: together(kind) for kind in KINDS}
    return {**together(*KINDS), "but_trims": but_trims, "kinds": kinds}


def problems(
    live: Mapping[str, int], seen: Mapping[str, Any], bounds: Mapping[str, float] = BOUNDS
) -> list[str]:
    """Why what was measured since the last reset is not valid; empty if it is.

    `seen` has what `times` gives. All requests together are judged, and all but TRIMs: these run
    beside what a query waits for, and slow ones do not make up for reads that are late. So what
    takes as long as its requests do together is not longer by more than the bound; what the
    latencies of one kind are is judged by `problems_of_kinds`. `bounds`: by names of a summary's
    values.
    """
    found = []
    if live["store_errors"]:
        found.append(f"the store failed {live['store_errors']} times (is its disk full?)")
    if live["lost_records"]:
        found.append(f"{live['lost_records']} requests were not recorded")
    judged = {"replies": seen}
    if seen["kinds"]["trim"]["lateness"]["count"]:
        judged["replies but to TRIMs"] = seen["but_trims"]
    return found + _late(judged, bounds)


def problems_of_kinds(seen: Mapping[str, Any], bounds: Mapping[str, float] = BOUNDS) -> list[str]:
    """Why the latencies of one kind of request are not what the drive would have; of those kinds of
    which there are `FEWEST`.

    A disk takes 4 KiB into its cache in 115 us, of which the way to the device is a tenth; that a
    hash join is longer by what its reads take, 45 times as much, is not wrong for it.
    """
    enough = {
        f"replies to {kind} requests": of_kind
        for kind, of_kind in seen["kinds"].items()
        if of_kind["lateness"]["count"] >= FEWEST
    }
    return _late(enough, bounds)


def _late(judged: Mapping[str, Any], bounds: Mapping[str, float]) -> list[str]:
    found: list[str] = []
    for what, of_these in judged.items():
        lateness, latency = of_these["lateness"], of_these["model_latency"]
        found += [
            f"{what} left late: {name.removesuffix('_ns')} {lateness[name] / 1e3:.1f} us of "
            f"{latency[name] / 1e3:.1f} us ({bound:.0%} is the bound): use a larger --slowdown"
            for name, bound in bounds.items()
            if lateness[name] > bound * latency[name]
        ]
    return found
