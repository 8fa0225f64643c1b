"""A study that nobody under harness/ knows: reads of a drive at several depths."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from matplotlib.figure import Figure

from harness.experiments.base import DriveRole, Point, Results, Study
from harness.tiers.base import Bench
from toy_study import figures, grid, model
from toy_study.tools import BENCHMARKS, CALIBRATION


class Toy(Study):
    """The study."""

    name = "toy"
    title = "Reads of a drive"
    notebook = "70_toy.ipynb"
    parameters = grid.Parameters
    runs = MappingProxyType({"simulated": model.run})
    calibration = CALIBRATION
    benchmarks = BENCHMARKS
    roles = (DriveRole("drive", rotational=False, needs_trim=True),)

    def points(self, parameters: grid.Parameters, bench: Bench) -> Sequence[Point]:
        return grid.points(parameters, bench.devices)

    def needed_bytes(self, parameters: grid.Parameters, point: Point) -> int:
        del parameters, point
        return 0

    def figures(self, results: Results) -> dict[str, Figure]:
        return figures.draw(results)


EXPERIMENT: Final = Toy()
