"""Hard disks: what a read at a distance costs, and what a queue in a good order saves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from harness.devices.model import Device, Job
from harness.devices.profiles import HddProfile
from harness.errors import BadParameter
from harness.experiments.base import Measurement
from harness.experiments.device_models.grid import Cell, QueueCell, SeekCell, effort
from harness.tiers.simulated import SimulatedBench

_BLOCK_BYTES: Final = 4096
_SECTOR_BYTES: Final = 512
_REQUESTS: Final = 2400
# Random reads over the whole disk are seldom near one another: smaller spans fill in.
_SPANS: Final = (1.0, 0.1, 0.01, 0.001)


def seek(v: SeekCell, bench: SimulatedBench) -> Measurement:
    """Latency of reads one after another, by distance from the end of the one before.

    The trace has a row per read: distance_bytes, latency_ns.
    """
    device = _disk(v, bench, {})
    rows = [_distances(device, span, _REQUESTS // effort(v.scale)) for span in _SPANS]
    whole = rows[0].latency_ns.mean() / 1e6
    together = pd.concat(rows)
    metrics = {"read_mean_ms": float(whole), **_seek_theory(device)}
    trace = {name: together[name].to_numpy() for name in ("distance_bytes", "latency_ns")}
    return Measurement(metrics, trace=trace)


def queue(v: QueueCell, bench: SimulatedBench) -> Measurement:
    """Random reads over the whole disk at a queue depth, in an order."""
    device = _disk(v, bench, {"scheduler": v.scheduler})
    job = Job(
        op="read",
        block_bytes=_BLOCK_BYTES,
        queue_depth=v.queue_depth,
        requests=_REQUESTS // effort(v.scale),
        seed=1,
    )
    run = device.run(job)
    metrics = {
        "iops": run.iops,
        "read_mean_ms": run.ops["read"].latency_mean_ns / 1e6,
        "read_p99_ms": run.latency_ns("read", 0.99) / 1e6,
    }
    return Measurement({**metrics, **_seek_theory(device)})


def _disk(v: Cell, bench: SimulatedBench, overrides: Mapping[str, str]) -> Device:
    device = bench.new_model(v.device, overrides=overrides, seed=0)
    if not isinstance(device.profile, HddProfile):
        raise BadParameter(f"device {v.device}: choose a profile of kind hdd")
    return device


def _distances(device: Device, span: float, requests: int) -> pd.DataFrame:
    end = int(device.capacity_bytes * span) // _BLOCK_BYTES * _BLOCK_BYTES
    job = Job(op="read", block_bytes=_BLOCK_BYTES, end_bytes=end, requests=requests, seed=1)
    rows = device.run(job, rows=True).rows
    behind = (rows.lba + rows.sectors).shift(1)
    distance = (rows.lba - behind).abs() * _SECTOR_BYTES
    found = pd.DataFrame({"distance_bytes": distance, "latency_ns": rows.latency_ns})
    return found[found.distance_bytes > 0].astype(np.int64)


def _seek_theory(device: Device) -> dict[str, float]:
    """The profile's figures, and their sum: a read of a random place, one at a time.

    A third of the way is the mean distance of two random places; the seek time there is what data
    sheets call average. Then half a revolution passes until the sector comes round.
    """
    assert isinstance(device.profile, HddProfile)
    p = device.profile.parameters
    revolution_ms = 60_000 / p.rpm.value
    overhead_ms = p.command_overhead.value / 1e6
    mean_rate = (p.outer_rate.value + p.inner_rate.value) / 2
    transfer_ms = _BLOCK_BYTES / mean_rate * 1e3
    seeks = {
        "track_to_track_ms": p.track_to_track_seek.value / 1e6,
        "average_seek_ms": p.average_seek.value / 1e6,
        "full_stroke_ms": p.full_stroke_seek.value / 1e6,
    }
    theory_ms = seeks["average_seek_ms"] + revolution_ms / 2 + overhead_ms + transfer_ms
    return {
        **seeks,
        "capacity_bytes": float(device.capacity_bytes),
        "outer_track_bytes": p.outer_rate.value * revolution_ms / 1e3,
        "revolution_ms": revolution_ms,
        "overhead_ms": overhead_ms,
        "theory_read_ms": theory_ms,
    }
