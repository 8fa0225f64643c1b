"""The device models beside theory: what they do where the answer is known.

No paper stands behind this one. Uniform random writes have a closed form for write amplification, a
disk has a published seek curve, a TRIM has three costs: the models must give these back before what
they say of a database means anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from harness.experiments.base import Measurement, Point, Results
from harness.experiments.device_models import figures, grid, run
from harness.tiers.base import Bench


class DeviceModels:
    """The experiment."""

    name = "device_models"
    title = "The device models, beside theory"
    notebook = "05_device_models.ipynb"
    parameters = grid.Parameters
    tiers = ("simulated",)
    code = ("devices/model.py", "devices/waf_theory.py")

    def points(self, parameters: grid.Parameters, bench: Bench) -> Sequence[Point]:
        """Every setting that a figure or a claim needs, each once."""
        return grid.points(parameters, bench.devices)

    def needed_bytes(self, parameters: grid.Parameters, point: Point) -> int:
        """None: nothing is stored, and drives are built as large as a point wants them."""
        del parameters, point
        return 0

    def input_digest(self, parameters: grid.Parameters, raw: Path) -> str:
        """There are no inputs."""
        del parameters, raw
        return ""

    def run_point(
        self, point: Point, parameters: grid.Parameters, bench: Bench, raw: Path
    ) -> Measurement:
        """A new model through one experiment. Raises BadParameter for a drive of another kind."""
        del parameters, raw
        return run.run_point(grid.Cell.of(point), bench)

    def figures(self, results: Results) -> dict[str, Figure]:
        """One figure for each kind of point that there are results of."""
        return figures.draw(results)


EXPERIMENT: Final = DeviceModels()
