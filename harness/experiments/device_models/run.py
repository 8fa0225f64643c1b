"""The run of one point: a new model through one experiment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from harness.errors import BadParameter
from harness.experiments.base import Measurement, Point
from harness.experiments.device_models import amplification, disk, latency
from harness.experiments.device_models.grid import Cell, Parameters
from harness.tiers.base import Bench
from harness.tiers.simulated import SimulatedBench

_KINDS: Final[dict[str, Callable[[Any, SimulatedBench], Measurement]]] = {
    "waf": amplification.waf,
    "hot_cold": amplification.hot_cold,
    "warm_up": amplification.warm_up,
    "load": latency.load,
    "trim": latency.trim,
    "disk_seek": disk.seek,
    "disk_queue": disk.queue,
}


def run(point: Point, parameters: Parameters, bench: Bench, raw: Path) -> Measurement:
    """A new model through one experiment. Raises BadParameter for a drive of another kind."""
    del parameters, raw
    cell = Cell.of(point)
    if bench.models is None:
        raise BadParameter("device_models: only tier simulated has models")
    return _KINDS[cell.kind](cell, bench.models)
