"""The figures (to come)."""

from matplotlib.figure import Figure

from harness.experiments.base import Results


def draw(results: Results) -> dict[str, Figure]:
    """All figures that the results at hand can fill."""
    del results
    return {}
