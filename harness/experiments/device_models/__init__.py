"""The device models beside theory: what they do where the answer is known.

No paper stands behind this one. Uniform random writes have a closed form for write amplification, a
disk has a published seek curve, a TRIM has three costs: the models must give these back before what
they say of a database means anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from matplotlib.figure import Figure

from harness.experiments.base import Point, Results, Study
from harness.experiments.device_models import figures, grid, run
from harness.experiments.device_models.benchmarks import BENCHMARKS
from harness.tiers.base import Bench


class DeviceModels(Study):
    """The experiment."""

    name = "device_models"
    title = "The device models, beside theory"
    notebook = "05_device_models.ipynb"
    parameters = grid.Parameters
    runs = MappingProxyType({"simulated": run.run})
    benchmarks = BENCHMARKS

    def points(self, parameters: grid.Parameters, bench: Bench) -> Sequence[Point]:
        """Every setting that a figure or a claim needs, each once."""
        return grid.points(parameters, bench.devices)

    def needed_bytes(self, parameters: grid.Parameters, point: Point) -> int:
        """None: nothing is stored, and drives are built as large as a point wants them."""
        del parameters, point
        return 0

    def figures(self, results: Results) -> dict[str, Figure]:
        """One figure for each kind of point that there are results of."""
        return figures.draw(results)


EXPERIMENT: Final = DeviceModels()
