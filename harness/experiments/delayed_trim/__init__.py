"""Delayed TRIM: what it takes out of a TRIM's way, and what it costs later.

The paper's tables 1 and 2 and its figures 1 and 2, and what it does not show: tail latency of
others' requests, the price of remembering writes, how much idle time is enough, and how the idle
work can be made shorter. The tables, figure 2 and the latencies run on a live device, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from harness.experiments.base import Measurement, Point, Results
from harness.experiments.delayed_trim import figures, grid, model, real
from harness.tiers.base import Bench


class DelayedTrim:
    """The experiment."""

    name = "delayed_trim"
    title = "Delayed TRIM in an OpenSSD FTL"
    notebook = "50_delayed_trim.ipynb"
    parameters = grid.Parameters
    tiers = ("simulated", "emulated", "hardware")
    code = ("devices/model.py", "workloads/fio.py")

    def points(self, parameters: grid.Parameters, bench: Bench) -> Sequence[Point]:
        """Every setting that a figure or a claim needs, each once."""
        return grid.points(parameters, bench.devices)

    def needed_bytes(self, parameters: grid.Parameters, point: Point) -> int:
        """What is written; a model in virtual time stores none of it."""
        del parameters
        return real.needed_bytes(grid.Cell.of(point))

    def input_digest(self, parameters: grid.Parameters, raw: Path) -> str:
        """There are no inputs."""
        del parameters, raw
        return ""

    def run_point(
        self, point: Point, parameters: grid.Parameters, bench: Bench, raw: Path
    ) -> Measurement:
        """One drive through one kind of experiment."""
        del parameters, raw
        if bench.models is not None:
            return model.run_point(grid.Cell.of(point), bench.models)
        return real.run_point(grid.Cell.of(point), bench)

    def figures(self, results: Results) -> dict[str, Figure]:
        """One figure for each kind of point that there are results of."""
        return figures.draw(results)


EXPERIMENT: Final = DelayedTrim()
