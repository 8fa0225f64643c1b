"""Figures of the probes: nothing lost at the highest rate, what they cost, how fast rows are read.

All of it on a loop device over memory; `measure_on` takes any other block device that may be
written to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pyarrow as pa
from rich.console import Console

from harness.bench.figure import Figure
from harness.errors import HarnessError, MissingTool, TraceIncomplete
from harness.paths import Project
from harness.probes import bpftrace, scripts
from harness.probes.bpftrace import Buffers
from harness.probes.lines import Lines
from harness.probes.recorder import Recorder

_COMMAND: Final = "make bench ONLY=probes"
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 (a file of our own name in it)
_DEVICE_BYTES: Final = 1 << 30
_COST_RUNS: Final = 5
_RUN_S: Final = 3
_PACED_IOPS: Final = 10_000
_ROWS: Final = 1_000_000
_SCRIPTS: Final = ("block_io", "io_histograms")
_WORKLOADS: Final = {
    "random 4 KiB reads, depth 32": ("--rw=randread",),
    "random 4 KiB writes, depth 32": ("--rw=randwrite",),
    "random 4 KiB reads and writes, depth 32, a flush every 64": ("--rw=randrw", "--fsync=64"),
}


def measure(_project: Project, console: Console) -> Iterator[Figure]:
    """All figures of the group."""
    console.print("recording at the highest rate, cost beside runs without: about 2 minutes")
    yield _parser_speed()
    try:
        bpftrace.program()
        with memory_device() as device:
            yield from measure_on(device)
    except (MissingTool, FileNotFoundError) as missing:
        yield Figure("probes on a device", "", "", _COMMAND, missing=str(missing))


def measure_on(device: Path) -> Iterator[Figure]:
    """The figures that need a device. It is written to."""
    _fio(device, "--rw=write", "--bs=1M", "--iodepth=8")
    with TemporaryDirectory(prefix="flashlab-probes-") as folder:
        trace = Path(folder) / "trace.parquet"
        for name, options in _WORKLOADS.items():
            yield _completeness(device, trace, name, options)
        yield _forced_loss(device, trace)
        for script in _SCRIPTS:
            yield _cost(device, trace, script, None)
            yield _cost(device, trace, script, _PACED_IOPS)


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


def _fio(device: Path, *options: str) -> tuple[float, float]:
    """I/Os per second, and their mean latency (us)."""
    command = ["fio", "--name=bench", f"--filename={device}", "--ioengine=io_uring", "--direct=1"]
    fixed = ["--bs=4k", "--iodepth=32", "--norandommap", "--output-format=terse"]
    done = subprocess.run([*command, *fixed, *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"fio: {done.stderr.strip().splitlines()[-1:]}")
    fields = done.stdout.splitlines()[-1].split(";")
    rates = float(fields[7]), float(fields[48])
    means = float(fields[39]), float(fields[80])
    total = sum(rates)
    weighted = sum(rate * mean for rate, mean in zip(rates, means, strict=True))
    return total, weighted / total if total else 0.0


def _timed(*options: str) -> tuple[str, ...]:
    return ("--time_based", f"--runtime={_RUN_S}", *options)


def _completeness(device: Path, trace: Path, name: str, options: tuple[str, ...]) -> Figure:
    """Whether a recording at full speed is complete: the recorder itself is the judge."""
    samples: list[float] = []
    context: list[dict[str, object]] = []
    for _ in range(3):
        rate = 0.0
        recorder = Recorder(device, trace)
        try:
            with recorder:
                rate, _ = _fio(device, *_timed(*options))
            samples.append(1.0)
        except TraceIncomplete as refused:
            samples.append(0.0)
            context.append({"ios_per_s": rate, "refused": refused.problems})
        if recorder.recording is not None:
            recording = recorder.recording
            facts = {"ios_per_s": rate, "rows": recording.rows}
            context.append({**facts, "unknown_latency": recording.unknown_latency})
    share = sum(samples) / len(samples)
    return Figure(
        name=f"share of recordings without a lost event, equal to /sys/block: {name}",
        unit="ratio",
        goal=">= 1",
        command=_COMMAND,
        samples=[share],
        context={"recordings": context},
    )


def _forced_loss(device: Path, trace: Path) -> Figure:
    """A recording whose buffers are too small must be refused."""
    seen, said = 0.0, []
    try:
        with Recorder(device, trace, buffers=Buffers(ring_pages=1)) as recorder:
            os.kill(recorder.process_id, signal.SIGSTOP)
            _fio(device, "--rw=randread", "--number_ios=20000")
            os.kill(recorder.process_id, signal.SIGCONT)
    except TraceIncomplete as refused:
        seen, said = 1.0, refused.problems
    name = "a forced loss is detected and the recording refused"
    return Figure(name, "ratio", ">= 1", _COMMAND, [seen], context={"problems": said})


def _cost(device: Path, trace: Path, script: str, rate_iops: int | None) -> Figure:
    """Throughput lost to a probe, of runs with and without in turn; and the latency that it adds.

    At a given rate nothing is lost that could be seen in it: there the figure is the mean latency.
    """
    paced = (f"--rate_iops={rate_iops}",) if rate_iops else ()
    options = _timed("--rw=randread", *paced)
    costs: list[float] = []
    sides: list[dict[str, object]] = []
    _fio(device, *options)
    for _ in range(_COST_RUNS):
        without = _fio(device, *options)
        try:
            with Recorder(device, trace, script):
                beside = _fio(device, *options)
        except TraceIncomplete as refused:
            sides.append({"refused": refused.problems})
            continue
        costs.append(1 - beside[0] / without[0])
        sides.append({"without": without, "with": beside})
    at = f"paced at {rate_iops:,} I/Os per s" if rate_iops else "as fast as two processors go"
    return Figure(
        name=f"throughput that {script} costs, random 4 KiB reads, depth 32, {at}",
        unit="ratio",
        goal="<= 0.02",
        command=_COMMAND,
        samples=costs,
        missing="" if costs else "every recording was refused",
        context={"ios_per_s, mean latency (us)": sides},
    )


def _parser_speed() -> Figure:
    """From bpftrace's text to columns."""
    generator = np.random.default_rng(1)
    ends = np.cumsum(generator.integers(1_000, 10_000, _ROWS)) + 10**13
    packed = generator.integers(10_000, 10**6, _ROWS) << 24 | 8
    places = generator.integers(0, 2**21, _ROWS) << 27 | generator.choice([18, 631], _ROWS)
    columns = zip(ends.tolist(), packed.tolist(), places.tolist(), strict=True)
    text = "".join(f"{a},{b},{c}\n" for a, b, c in columns).encode()
    script = scripts.find("block_io")
    script.decode([pa.array([0], pa.int64())] * script.fields)
    samples = []
    for _ in range(5):
        lines, rows = Lines(script.fields), 0
        begin = time.perf_counter()
        for first in range(0, len(text), 1 << 20):
            rows += sum(
                len(script.decode(raw)) for raw in lines.feed(text[first : first + (1 << 20)])
            )
        samples.append(rows / (time.perf_counter() - begin))
        assert rows == _ROWS
    return Figure("rows read from the probe's text", "rows/s", ">= 5e5", _COMMAND, samples)
