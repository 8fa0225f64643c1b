"""The figures: how often a power cut did damage, with how much certainty, and what was seen."""

from __future__ import annotations

from matplotlib.figure import Figure

from harness.experiments.base import Results


def draw(results: Results) -> dict[str, Figure]:
    """All figures that the results at hand can fill."""
    del results
    return {}
