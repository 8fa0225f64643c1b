"""Figures of the live device: what the path carries, and how well it keeps every drive's times.

Each timed run is recorded, and the same requests go to the same model in virtual time, one after
another at the same depth: what the drive would have done under a host that takes no time.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from harness.devices import live
from harness.devices.live import LiveDevice, LiveSpec, placement, recording
from harness.devices.model import Device, Job
from harness.devices.profiles import HddProfile, list_profiles, load_device
from harness.errors import HarnessError
from harness.goals import Goal
from harness.paths import Project
from harness.system import idle_states
from harness.workloads import fio

_COMMAND: Final = "make bench ONLY=live_device"
_RUNS: Final = 5
_GIB: Final = 1 << 30
_DEPTHS: Final = (1, 4, 16, 32)
_TIMED_S: Final = 3.0
_FEWEST: Final = 300
_SPAN_BYTES: Final = 4 * _GIB
_BLOCK_BYTES: Final = 4096
_LASTING: Final[dict[str, str | int]] = {"size": "2g", "runtime": 3, "time_based": 1}
_FULL_SPEED: Final[dict[str, tuple[dict[str, str | int], str]]] = {
    "random 4 KiB reads": ({"rw": "randread", "bs": "4k", "iodepth": 32}, ">= 100e3"),
    "random 4 KiB writes": ({"rw": "randwrite", "bs": "4k", "iodepth": 32}, ">= 50e3"),
    "sequential 1 MiB reads": ({"rw": "read", "bs": "1m", "iodepth": 8}, ">= 1e9"),
    "sequential 1 MiB writes": ({"rw": "write", "bs": "1m", "iodepth": 8}, ">= 1e9"),
}
_ALONE: Final[dict[str, str | int]] = {"rw": "randread", "bs": "4k", "ioengine": "psync"}
_LOOKS: Final = 20_000_000
_STALL_NS: Final = 20_000
_MOST_SLOWDOWN: Final = {"disk": 1, "SATA": 2, "NVMe": 8}


def measure(project: Project, console: Console) -> Iterator[Goal]:
    """All figures of the group."""
    try:
        yield from _full_speed(project)
        yield from _all_profiles(project, console)
    except HarnessError as error:
        yield Goal("live devices", "", "", _COMMAND, missing=str(error))


def _full_speed(project: Project) -> Iterator[Goal]:
    """What FUSE and loop device carry where the model takes no time, all of it on one processor."""
    spec = LiveSpec(
        profile="samsung_980_1tb",
        profiles=project.profiles,
        size_bytes=4 * _GIB,
        speed="none",
        placement="one-core",
    )
    samples: dict[str, list[float]] = {name: [] for name in _FULL_SPEED}
    alone_s = []
    with _on(placement.processor()):
        stalls = [_stalls() for _ in range(_RUNS)]
    with idle_states.awake(), _on(placement.processor()), live.created(spec) as device:
        for _ in range(_RUNS):
            for name, (job, _goal) in _FULL_SPEED.items():
                found = fio.run(device.path, {**_DIRECT, **job, **_LASTING})
                rate = found.busiest.iops if "random" in name else found.busiest.bytes_per_s
                samples[name].append(rate)
            alone = fio.run(device.path, {**_DIRECT, **_ALONE, **_LASTING})
            alone_s.append(alone.busiest.latency_p50_ns / 1e9)
    for name, (_job, goal) in _FULL_SPEED.items():
        unit = "I/Os/s" if "random" in name else "bytes/s"
        yield Goal(f"no delay, one processor: {name}", unit, goal, _COMMAND, samples[name])
    yield Goal(
        "no delay, one processor: a 4 KiB read alone, p50", "s", "<= 10e-6", _COMMAND, alone_s
    )
    per_s = [count for count, _ratio in stalls]
    yield Goal("this machine: stalls of more than 20 us", "per s", "", _COMMAND, per_s)
    yield Goal(
        "this machine: time in these", "ratio", "", _COMMAND, [ratio for _count, ratio in stalls]
    )


@contextlib.contextmanager
def _on(processor: int) -> Iterator[None]:
    """Our process, and what it starts, on that processor while the block runs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _stalls() -> tuple[float, float]:
    """How often per second a loop that reads the clock stands still, and for what part of time.

    Whatever does that (timer, hypervisor, interrupts) makes replies late on any way to a device.
    """
    times = np.fromiter((time.perf_counter_ns() for _ in range(_LOOKS)), np.int64, _LOOKS)
    gaps = np.diff(times)
    whole_ns = int(times[-1] - times[0])
    long = gaps[gaps > _STALL_NS]
    return len(long) * 1e9 / whole_ns, float(long.sum()) / whole_ns


_DIRECT: Final[dict[str, str | int]] = {"direct": 1, "ioengine": "io_uring", "randrepeat": 0}


@dataclass(frozen=True)
class _Point:
    """A timed run on the live device and the same requests in virtual time."""

    op: str
    depth: int
    latency_ratio: float
    p99_ratio: float
    throughput_ratio: float
    stats: dict[str, Any]


def _all_profiles(project: Project, console: Console) -> Iterator[Goal]:
    table = Table(
        "profile", "slowdown", "op", "depth", "latency", "p99", "throughput", "valid", box=None
    )
    for name in list_profiles(project.profiles):
        kind = _kind(project, name)
        points = _profile_points(project, name, disk=kind == "disk")
        for p in points:
            table.add_row(
                name,
                str(p.stats["slowdown"]),
                p.op,
                str(p.depth),
                f"{p.latency_ratio - 1:+.1%}",
                f"{p.p99_ratio - 1:+.1%}",
                f"{p.throughput_ratio - 1:+.1%}",
                "yes" if p.stats["valid"] else "; ".join(p.stats["problems"]),
            )
        yield from _profile_figures(name, points, _MOST_SLOWDOWN[kind])
    console.print(table)


def _kind(project: Project, name: str) -> str:
    profile = load_device(project.profiles, name)
    if isinstance(profile, HddProfile):
        return "disk"
    # A command for free blocks waits for all others where it is ATA's.
    return "NVMe" if profile.parameters.trim_queued.value else "SATA"


def _profile_figures(name: str, points: list[_Point], most_slowdown: int) -> Iterator[Goal]:
    context = {"slowdown": points[0].stats["slowdown"]}
    alone = [p for p in points if p.depth == 1]

    def worst(kind: str, ratios: list[float], goal: str) -> Goal:
        return Goal(
            f"{name}: {kind}, largest deviation from the model",
            "ratio",
            goal,
            _COMMAND,
            [max(abs(ratio - 1.0) for ratio in ratios)],
            context=context,
        )

    yield worst("mean latency at depth 1", [p.latency_ratio for p in alone], "<= 0.05")
    yield worst("p99 latency at depth 1", [p.p99_ratio for p in alone], "<= 0.15")
    yield worst("throughput at all depths", [p.throughput_ratio for p in points], "<= 0.05")
    slowdown = float(points[0].stats["slowdown"])
    yield Goal(f"{name}: slowdown", "", f"<= {most_slowdown}", _COMMAND, [slowdown])
    invalid = [p for p in points if not p.stats["valid"]]
    yield Goal(f"{name}: invalid runs", "runs", "== 0", _COMMAND, [float(len(invalid))])


def _profile_points(project: Project, name: str, *, disk: bool) -> list[_Point]:
    spec = LiveSpec(
        profile=name,
        profiles=project.profiles,
        size_bytes=0 if disk else 8 * _GIB,
        thin=True,
        slowdown=0,
        condition="new" if disk else "full",
    )
    with (
        live.created(spec) as device,
        tempfile.TemporaryDirectory(prefix="flashlab-bench-", dir="/var/tmp") as folder,
    ):
        slowdown = int(device.stats()["slowdown"])
        return [
            _point(device, op, depth, Path(folder), _requests(spec, op, depth, slowdown))
            for op in ("read", "write")
            for depth in _DEPTHS
        ]


def _requests(spec: LiveSpec, op: Literal["read", "write"], depth: int, slowdown: int) -> int:
    """As many as the drive serves in the time of a run."""
    device = Device(spec.device_profile(), seed=spec.seed)
    if spec.condition == "full":
        device.precondition()
    job = Job(op=op, end_bytes=_SPAN_BYTES, queue_depth=depth, duration_s=_TIMED_S / slowdown)
    return max(_FEWEST, device.run(job).ios)


def _point(
    device: LiveDevice, op: Literal["read", "write"], depth: int, folder: Path, requests: int
) -> _Point:
    record = folder / f"{op}-{depth}.parquet"
    job: dict[str, str | int] = {
        **_DIRECT,
        "rw": f"rand{op}",
        "bs": _BLOCK_BYTES,
        "size": _SPAN_BYTES,
        "io_size": requests * _BLOCK_BYTES,
        "iodepth": depth,
        "ioengine": "psync" if depth == 1 else "io_uring",
    }
    device.record(record)
    device.reset()
    found = fio.run(device.path, job)
    stats = device.stats()
    device.stop_record()
    expected = recording.replay(record, queue_depth=depth, rows=True).run
    latency = expected.ops[op]
    # Without the flush that closing the device causes.
    rows = expected.rows[expected.rows.op == op]
    expected_s = float((rows.submitted_ns + rows.latency_ns).max() - rows.submitted_ns.min()) / 1e9
    slowdown = int(stats["slowdown"])
    return _Point(
        op,
        depth,
        found.busiest.latency_mean_ns / slowdown / latency.latency_mean_ns,
        found.busiest.latency_p99_ns / slowdown / latency.latency_ns(0.99),
        expected_s * slowdown / found.elapsed_s,
        stats,
    )
