"""Delayed TRIM: what it takes out of a TRIM's way, and what it costs later.

The paper's tables 1 and 2 and its figures 1 and 2, and what it does not show: tail latency of
others' requests, the price of remembering writes, how much idle time is enough, and how the idle
work can be made shorter. The tables, figure 2 and the latencies run on a live device, too.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from harness.experiments.base import Cost, DriveRole, Measurement, Point, Study
from harness.experiments.delayed_trim import grid, model, real
from harness.experiments.delayed_trim.agreement import AGREEMENT
from harness.experiments.delayed_trim.benchmarks import BENCHMARKS
from harness.experiments.delayed_trim.calibrate import CALIBRATION


class DelayedTrim(Study):
    """The experiment."""

    title = "Delayed TRIM in an OpenSSD FTL"
    runs = MappingProxyType({"simulated": model.run, "emulated": real.run, "hardware": real.run})
    roles = (DriveRole("ssd", rotational=False, needs_trim=True),)
    room = staticmethod(real.needed_bytes)
    """What is written; a model in virtual time stores none of it."""

    def modelled(self, point: Point) -> Point:
        """A model has no TRIM policy of its own: it takes the ordinary one."""
        cell = grid.Cell.of(point)
        if cell.policy != grid.OWN:
            return point
        return replace(point, cell=replace(cell, policy="immediate"))

    def cost(self, point: Point, expected: Measurement) -> Cost:
        """What fio is told to write, and how long it takes."""
        v = point.values
        duration_s = float(v.get("duration_s", 0))
        in_time = float(v.get("writes_per_s", 0)) * duration_s * int(v.get("write_bytes", 0))
        whole = int(v.get("written_bytes", 0)) or int(v.get("file_bytes", 0))
        before = 2 * int(v.get("region_bytes", 0))
        if isinstance(point.cell, grid.AtOnceCell):  # what is trimmed beside the writes
            before += point.cell.trimmed_bytes
        time_s = float(expected.metrics.get("total_ms", 0.0)) / 1e3 + duration_s
        return Cost(whole + before + round(in_time), time_s)


EXPERIMENT: Final = DelayedTrim(
    grid, agreement=AGREEMENT, calibration=CALIBRATION, benchmarks=BENCHMARKS
)
