"""Figures of the probes: nothing lost at the highest rate, what they cost, how fast rows are read.

At the highest rate on a loop device over memory, which is several times as fast as anything that
the probes are for, and on a live device without delay; and on live devices that keep their drive's
times, as in every experiment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pyarrow as pa
from rich.console import Console

from harness.devices import live
from harness.devices.live import LiveDevice, LiveSpec
from harness.errors import MissingTool, TargetError, TraceIncomplete
from harness.goals import Goal
from harness.paths import Project
from harness.probes import bpftrace, scripts
from harness.probes.bpftrace import Buffers
from harness.probes.lines import Lines
from harness.probes.recorder import DeviceCounters, Recorder
from harness.workloads import fio

Options = Mapping[str, str | int]
_COMMAND: Final = "make bench ONLY=probes"
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 (a file of our own name in it)
_DEVICE_BYTES: Final = 1 << 30
_COST_RUNS: Final = 5
_RUN_S: Final = 3
_PROFILES: Final = ("intel_x25e_32gb", "samsung_980_1tb", "seagate_250gb")
_FILL: Final[Options] = {"rw": "write", "bs": "1m", "iodepth": 8, "size": "1g"}
_ROWS: Final = 1_000_000
_SCRIPTS: Final = ("block_io", "io_histograms")
_ALWAYS: Final[Options] = {
    "ioengine": "io_uring",
    "direct": 1,
    "bs": "4k",
    "iodepth": 32,
    "norandommap": 1,
}
_WORKLOADS: Final[dict[str, Options]] = {
    "random 4 KiB reads, depth 32": {"rw": "randread"},
    "random 4 KiB writes, depth 32": {"rw": "randwrite"},
    "random 4 KiB reads and writes, depth 32, a flush every 64": {"rw": "randrw", "fsync": 64},
}


def measure(project: Project, console: Console) -> Iterator[Goal]:
    """All figures of the group."""
    console.print("recording at the highest rate, cost beside runs without: about 4 minutes")
    yield _parser_speed()
    try:
        bpftrace.program()
        with TemporaryDirectory(prefix="flashlab-probes-") as folder:
            trace = Path(folder) / "trace.parquet"
            yield from _on_memory(trace)
            yield from _on_live_devices(project, trace)
    except (MissingTool, TargetError) as missing:
        yield Goal("probes on a device", "", "", _COMMAND, missing=str(missing))


def _on_memory(trace: Path) -> Iterator[Goal]:
    where = "loop device over memory"
    with memory_device() as device:
        _fio(device, _FILL)
        for name, options in _WORKLOADS.items():
            yield _completeness(device, trace, f"{where}, {name}", options, None)
        yield _forced_loss(device, trace)
        for script in _SCRIPTS:
            yield _cost(device, trace, script, f"{where}, as fast as two processors go")


def _on_live_devices(project: Project, trace: Path) -> Iterator[Goal]:
    for profile in _PROFILES:
        spec = LiveSpec(profile=profile, profiles=project.profiles, size_bytes=4 << 30, slowdown=0)
        with live.created(spec) as device:
            device.set_speed("none")
            _fio(device.path, _FILL)
            if profile == _PROFILES[0]:
                yield from _at_full_speed(device, trace)
            device.set_speed("real")
            for script in _SCRIPTS:
                yield _cost(device.path, trace, script, f"live {profile}, its drive's times")


def _at_full_speed(device: LiveDevice, trace: Path) -> Iterator[Goal]:
    """The model is not asked, so the device's counters are those of its replies."""

    def counted() -> dict[str, int]:
        replies = device.stats()["live"]
        return {f"{op}_ios": replies[f"{op}_replies"] for op in ("read", "write", "trim", "flush")}

    for name, options in _WORKLOADS.items():
        yield _completeness(device.path, trace, f"live device, {name}", options, counted)


@contextmanager
def memory_device() -> Iterator[Path]:
    """A loop device with direct I/O over a file in memory, detached afterwards."""
    backing = _MEMORY / f"flashlab-bench-{os.getpid()}.img"
    with backing.open("wb") as file:
        file.truncate(_DEVICE_BYTES)
    try:
        command = ["losetup", "--find", "--show", "--direct-io=on", str(backing)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise MissingTool(f"no loop device to be had: {made.stderr.strip()}")
        device = Path(made.stdout.strip())
        try:
            yield device
        finally:
            subprocess.run(["losetup", "--detach", str(device)], check=True)  # noqa: S607
    finally:
        backing.unlink()


def _fio(device: Path, options: Options) -> tuple[float, float]:
    """I/Os per second, and their mean latency (us)."""
    found = fio.run(device, {**_ALWAYS, **options}).ops.values()
    ios = sum(op.ios for op in found)
    mean_ns = sum(op.latency_mean_ns * op.ios for op in found) / ios
    return sum(op.iops for op in found), mean_ns / 1e3


def _timed(options: Options) -> dict[str, str | int]:
    return {"time_based": 1, "runtime": _RUN_S, **options}


def _completeness(
    device: Path, trace: Path, name: str, options: Options, counted: DeviceCounters | None
) -> Goal:
    """Whether a recording at full speed is complete: the recorder itself is the judge."""
    samples: list[float] = []
    context: list[dict[str, object]] = []
    for _ in range(3):
        rate = 0.0
        recorder = Recorder(device, trace, device_counters=counted)
        try:
            with recorder:
                rate, _ = _fio(device, _timed(options))
            samples.append(1.0)
        except TraceIncomplete as refused:
            samples.append(0.0)
            context.append({"ios_per_s": rate, "refused": refused.problems})
        if recorder.recording is not None:
            recording = recorder.recording
            facts = {"ios_per_s": rate, "rows": recording.rows}
            context.append({**facts, "unknown_latency": recording.unknown_latency})
    share = sum(samples) / len(samples)
    return Goal(
        name=f"share of recordings without a lost event that equal all counters: {name}",
        unit="ratio",
        goal=">= 1",
        command=_COMMAND,
        samples=[share],
        context={"recordings": context},
    )


def _forced_loss(device: Path, trace: Path) -> Goal:
    """A recording whose buffers are too small must be refused."""
    seen, said = 0.0, []
    try:
        with Recorder(device, trace, buffers=Buffers(ring_pages=1)) as recorder:
            os.kill(recorder.process_id, signal.SIGSTOP)
            _fio(device, {"rw": "randread", "size": "1g", "io_size": "80m"})
            os.kill(recorder.process_id, signal.SIGCONT)
    except TraceIncomplete as refused:
        seen, said = 1.0, refused.problems
    name = "a forced loss is detected and the recording refused"
    return Goal(name, "ratio", ">= 1", _COMMAND, [seen], context={"problems": said})


def _cost(device: Path, trace: Path, script: str, where: str) -> Goal:
    """Throughput lost to a probe, of runs with and without in turn; latencies are context."""
    options = _timed({"rw": "randread"})
    costs: list[float] = []
    sides: list[dict[str, object]] = []
    _fio(device, options)
    for _ in range(_COST_RUNS):
        without = _fio(device, options)
        try:
            with Recorder(device, trace, script):
                beside = _fio(device, options)
        except TraceIncomplete as refused:
            sides.append({"refused": refused.problems})
            continue
        costs.append(1 - beside[0] / without[0])
        sides.append({"without": without, "with": beside})
    return Goal(
        name=f"throughput that {script} costs, random 4 KiB reads, depth 32, {where}",
        unit="ratio",
        goal="<= 0.02",
        command=_COMMAND,
        samples=costs,
        missing="" if costs else "every recording was refused",
        context={"ios_per_s, mean latency (us)": sides},
    )


def _parser_speed() -> Goal:
    """From bpftrace's text to columns."""
    generator = np.random.default_rng(1)
    ends = np.cumsum(generator.integers(1_000, 10_000, _ROWS)) + 10**13
    packed = generator.integers(10_000, 10**6, _ROWS) << 24 | 8
    places = generator.integers(0, 2**21, _ROWS) << 27 | generator.choice([18, 631], _ROWS)
    columns = zip(ends.tolist(), packed.tolist(), places.tolist(), strict=True)
    text = "".join(f"{a},{b},{c}\n" for a, b, c in columns).encode()
    probe = scripts.find("block_io")
    probe.decode([pa.array([0], pa.int64())] * probe.fields)
    samples = []
    for _ in range(5):
        lines, rows = Lines(probe.fields), 0
        begin = time.perf_counter()
        for first in range(0, len(text), 1 << 20):
            rows += sum(
                len(probe.decode(raw)) for raw in lines.feed(text[first : first + (1 << 20)])
            )
        samples.append(rows / (time.perf_counter() - begin))
        assert rows == _ROWS
    return Goal("rows read from the probe's text", "rows/s", ">= 5e5", _COMMAND, samples)
