"""A point: reads of a new drive in virtual time."""

from __future__ import annotations

import os
from pathlib import Path

from harness.devices.model import Job
from harness.experiments.base import Measurement, Point
from harness.tiers.simulated import SimulatedBench
from toy_study.grid import Cell, Parameters


def run(point: Point, parameters: Parameters, bench: SimulatedBench, raw: Path) -> Measurement:
    del parameters, raw
    return run_point(Cell.of(point), bench)


def run_point(cell: Cell, bench: SimulatedBench) -> Measurement:
    _pass_the_gate()
    device = bench.new_model(cell.device, overrides={}, seed=1)
    device.precondition(fill_ratio=0.01)
    job = Job(op="read", end_bytes=1 << 28, queue_depth=cell.queue_depth, requests=2000, seed=1)
    return Measurement({"iops": device.run(job).iops})


def _pass_the_gate() -> None:
    """See toy_world.gated."""
    if gate := os.environ.get("TOY_GATE"):
        with Path(gate).open("rb", buffering=0) as pipe:
            pipe.read(1)
