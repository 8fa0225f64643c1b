"""A study that nobody under harness/ knows: reads of a drive at several depths."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from harness.experiments.base import DriveRole, Point, Study
from toy_study import grid, model
from toy_study.tools import BENCHMARKS, CALIBRATION


class Toy(Study):
    """The study."""

    name = "toy"
    title = "Reads of a drive"
    runs = MappingProxyType({"simulated": model.run})
    roles = (DriveRole("drive", rotational=False, needs_trim=True),)

    def needed_bytes(self, parameters: grid.Parameters, point: Point) -> int:
        del parameters, point
        return 0


EXPERIMENT: Final = Toy(grid, calibration=CALIBRATION, benchmarks=BENCHMARKS)
