"""What the way from an application to a live device costs, and how slow it must therefore run.

System call, block layer, front end and threads of ours lie between an application and the model.
Their time is measured when the device starts, and taken off the time for which replies are held
back. Where a drive is faster than the way to it, its time has to be slowed down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from harness import _core
from harness.devices.profiles import DeviceProfile, HddProfile, SsdProfile
from harness.devices.scaling import scaled_to

_CONSTANT_NS: Final = 300_000
_SMALL: Final = 4096
_LARGE: Final = 256 << 10
_HUGE: Final = 1 << 20
_OPS: Final = ("read", "write")
_BATCH: Final = 300
_BATCHES: Final = 4
_GLANCE: Final = 200
_USABLE: Final = 0.35
"""Share of the path's highest rate up to which its delay is about that at rest: a queue of one
server waits a quarter of a service then. At half of it, runs were 10 % too slow."""

_JITTER_RATIO: Final = 0.15
_MEAN_RATIO: Final = 0.05


@dataclass(frozen=True)
class OpCost:
    """Time of one operation on the way: median of a 4 KiB one, and per further byte."""

    base_ns: int
    ns_per_byte: float


@dataclass(frozen=True)
class PathCosts:
    """What was measured.

    `jitter_ns`: by how much the 99th percentile of a 4 KiB I/O exceeds the median, in the quietest
    of some batches: what other work on the machine adds now is not the path's, and makes a run
    invalid when it happens. `drift_ns`: by how much the median of a batch differs from that of all;
    what is taken off a reply's time is wrong by as much. `iops` and `bytes_per_s`: what the path
    carries at most, without any device (depth 32 of 4 KiB, depth 8 of 1 MiB; the slower of reads
    and writes).
    """

    read: OpCost
    write: OpCost
    jitter_ns: int
    drift_ns: int
    iops: float
    bytes_per_s: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Those that `as_dict` has given."""
        ops = {op: OpCost(**values[op]) for op in _OPS}
        return cls(**(dict(values) | ops))


def measure(device: _core.LiveDevice, block_device: Path, span_bytes: int) -> PathCosts:
    """Measures the way to a device that nobody uses yet; leaves its pace at none."""
    span = min(span_bytes, 32 << 20)
    device.set_pace("constant", constant_ns=_CONSTANT_NS)
    costs = {}
    jitter = drift = 0
    for op in _OPS:
        batches = [_latencies(block_device, op, _SMALL, span, _BATCH) for _ in range(_BATCHES)]
        small = np.concatenate(batches)
        large = _latencies(block_device, op, _LARGE, span, 150)
        base = float(np.median(small)) - _CONSTANT_NS
        slope = (float(np.median(large)) - _CONSTANT_NS - base) / (_LARGE - _SMALL)
        costs[op] = OpCost(max(round(base), 0), max(slope, 0.0))
        jitter = max(jitter, round(min(_spread(batch) for batch in batches)))
        moved = [abs(float(np.median(batch) - np.median(small))) for batch in batches]
        drift = max(drift, round(max(moved)))
    iops = min(_rate(block_device, op, _SMALL, span, 4000, 32) for op in _OPS)
    large_iops = min(_rate(block_device, op, _HUGE, span, 150, 8) for op in _OPS)
    device.set_pace("none")
    return PathCosts(
        **costs, jitter_ns=jitter, drift_ns=drift, iops=iops, bytes_per_s=large_iops * _HUGE
    )


def glance_ns(device: _core.LiveDevice, block_device: Path, span_bytes: int) -> float:
    """The 90th percentile of what the way adds to a small read, seen in a moment: to compare."""
    span = min(span_bytes, 32 << 20)
    device.set_pace("constant", constant_ns=_CONSTANT_NS)
    found = _latencies(block_device, "read", _SMALL, span, _GLANCE)
    device.set_pace("none")
    return float(np.percentile(found, 90)) - _CONSTANT_NS


def apply(device: _core.LiveDevice, costs: PathCosts) -> None:
    """Takes the path's cost off every reply's time."""
    for op, cost in (("read", costs.read), ("write", costs.write)):
        device.set_path_cost(op, base_ns=cost.base_ns, ns_per_byte=cost.ns_per_byte)
    for op in ("trim", "flush"):  # the way of a read without data
        device.set_path_cost(op, base_ns=costs.read.base_ns, ns_per_byte=0.0)


def slowdown_for(profile: DeviceProfile, costs: PathCosts) -> int:
    """How many times slower than the clock this drive must run for the path to carry it.

    Its shortest latency must leave room for the path's cost and hide its jitter and its drift; its
    highest rates must stay below what the path
    carries. 1 for a hard disk.
    """
    if isinstance(profile, HddProfile):
        return 1
    demand = _demand(profile)
    cost_ns = max(costs.read.base_ns, costs.write.base_ns) + costs.jitter_ns
    return max(
        1,
        math.ceil(cost_ns / demand.latency_ns),
        math.ceil(costs.jitter_ns / (_JITTER_RATIO * demand.latency_ns)),
        math.ceil(costs.drift_ns / (_MEAN_RATIO * demand.latency_ns)),
        math.ceil(demand.iops / (_USABLE * costs.iops)),
        math.ceil(demand.bytes_per_s / (_USABLE * costs.bytes_per_s)),
    )


@dataclass(frozen=True)
class _Demand:
    latency_ns: float
    iops: float
    bytes_per_s: float


def _demand(profile: SsdProfile) -> _Demand:
    """The drive's own extremes, from its model: a small one, which is as fast."""
    small = scaled_to(profile, min(profile.parameters.capacity.value, 16 << 30))
    device = _core.Device(small.to_core())
    span = min(1 << 30, device.capacity_bytes // 2 // _HUGE * _HUGE)
    _run(device, "sequential", 0.0, _HUGE, 8, span, span // _HUGE)
    device.idle(1_000_000_000)
    read = _run(device, "random", 1.0, _SMALL, 1, span, 2000)["read"]
    write = _run(device, "random", 0.0, _SMALL, 1, span, 2000)["write"]
    latency = min(op["latency_sum_ns"] / op["ios"] for op in (read, write))
    many = [_run(device, "random", share, _SMALL, 32, span, 20_000) for share in (1.0, 0.0)]
    stream = _run(device, "sequential", 1.0, _HUGE, 8, span, 512)
    return _Demand(latency, max(_per_s(run, 20_000) for run in many), _per_s(stream, 512) * _HUGE)


def _run(
    device: _core.Device,
    pattern: str,
    read_ratio: float,
    block_bytes: int,
    depth: int,
    span_bytes: int,
    requests: int,
) -> dict[str, Any]:
    job = _core.JobParameters(
        pattern=pattern,
        read_ratio=read_ratio,
        trim_ratio=0.0,
        block_bytes=block_bytes,
        begin_bytes=0,
        end_bytes=span_bytes,
        queue_depth=depth,
        requests=requests,
        duration_ns=0,
        interval_ns=0,
        poisson=False,
        hot_data_ratio=0.1,
        hot_access_ratio=0.9,
        zipf_theta=0.99,
        stream=0,
        fua=False,
        flush_every=0,
        seed=1,
    )
    [result] = device.run([job], rows=False, interval_ns=0, cancel=_core.Cancel())
    return dict(result)


def _per_s(run: dict[str, Any], requests: int) -> float:
    return requests / float(run["end_ns"] - run["begin_ns"]) * 1e9


def _spread(latencies: Any) -> float:
    return float(np.percentile(latencies, 99) - np.median(latencies))


def _latencies(block_device: Path, op: str, size: int, span: int, count: int) -> Any:
    found, _ = _core.probe_path(
        str(block_device), op, size_bytes=size, span_bytes=span, count=count
    )
    return found[len(found) // 10 :]  # the first ones warm up caches and threads


def _rate(block_device: Path, op: str, size: int, span: int, count: int, depth: int) -> float:
    _, elapsed_ns = _core.probe_path(
        str(block_device), op, size_bytes=size, span_bytes=span, count=count, depth=depth
    )
    return count / float(elapsed_ns) * 1e9
