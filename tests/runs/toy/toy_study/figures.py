"""One figure."""

from __future__ import annotations

from typing import Final

from matplotlib.figure import Figure

from harness import plots
from harness.experiments.base import Results
from harness.experiments.drawing import drawn

NEEDS: Final = {"reads": "two depths"}


def draw(results: Results) -> dict[str, Figure]:
    def reads() -> Figure:
        figure, axes = plots.new()
        axes.plot(results.table.queue_depth, results.table.iops)
        return figure

    return drawn(results, {"reads": reads})
