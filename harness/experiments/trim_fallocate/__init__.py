"""TRIM and fallocate under PostgreSQL's hash join: the paper's figures 2 and 4 to 10.

On the tiers with a kernel a private PostgreSQL server joins TPC-H tables on an ext4 that ages, its
temporary files preallocated or not; the simulated tier runs a model of server, ext4 and drive at
the paper's full size.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from harness.experiments.base import Cost, DriveRole, Measurement, Point, Study
from harness.experiments.trim_fallocate import grid, model, real
from harness.experiments.trim_fallocate.agreement import AGREEMENT
from harness.experiments.trim_fallocate.benchmarks import BENCHMARKS
from harness.experiments.trim_fallocate.calibrate import CALIBRATION


class TrimFallocate(Study):
    """The experiment."""

    title = "TRIM x fallocate under PostgreSQL's hash join"
    runs = MappingProxyType({"simulated": model.run, "emulated": real.run, "hardware": real.run})
    servers = ("postgres",)
    roles = (DriveRole("ssd", rotational=False, min_bytes=5 << 30, needs_trim=True),)
    room = staticmethod(real.needed_bytes)
    """For all temporary files of one repetition."""

    def role(self, device: str, *, rotational: bool | None) -> str:
        """The paper's first drive, on which it argues; none for a disk, which knows no TRIM, or for
        what does not say that it is flash.
        """
        return grid.FIRST if rotational is False else device

    def cost(self, point: Point, expected: Measurement) -> Cost:
        """All repetitions, and the pauses between them."""
        once = super().cost(point, expected)
        each_s = once.time_s + float(expected.metrics.get("settle_s", 0.0))
        return Cost(once.written_bytes, each_s * int(point.values["repetitions"]))


EXPERIMENT: Final = TrimFallocate(
    grid, agreement=AGREEMENT, calibration=CALIBRATION, benchmarks=BENCHMARKS
)
