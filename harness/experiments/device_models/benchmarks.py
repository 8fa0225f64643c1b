"""Figures of the device models: theory, data sheets, speed, memory, preconditioning."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from harness.devices import waf_theory
from harness.devices.model import Device, Job
from harness.devices.profiles import NamedRange
from harness.errors import BadProfile, HarnessError
from harness.experiments.base import Runs
from harness.experiments.device_models import mqsim
from harness.experiments.device_models.data_sheets import measure_data_sheets
from harness.goals import Goal
from harness.paths import Project
from harness.workloads import traces

_COMMAND: Final = "make bench ONLY=device_models"
_PLANTED_COMMAND: Final = "make bench ONLY=planted_bugs"
_BESIDE_COMMAND: Final = f"{_COMMAND} BESIDE=mqsim=FOLDER"
_RUNS: Final = 5
_BASE: Final = "samsung_980_1tb"
_UNIT: Final = 4096
_SPARE_FACTORS: Final = (0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4)
_BLOCK_PAGES: Final = 256
_CHOICES: Final = 10
_MQSIM_REQUESTS: Final = 200_000
_MODEL_REQUESTS: Final = 4_000_000
_T = TypeVar("_T")

PLAIN: Final = {
    "page": "4 KiB",
    "map_unit": "4 KiB",
    "planes": "1",
    "pages_per_block": str(_BLOCK_PAGES),
    "gc_policy": "greedy",
    "gc_pace": "whole",
    "reserve_blocks": "1",
    "slc_cache": "0 B",
    "background_gc": "false",
}
"""A drive without anything that theory does not know: overrides of a profile."""

_FAST: Final = {
    **PLAIN,
    "capacity": "64 GiB",
    "overprovision": "0.0753",
    "channels": "8",
    "dies_per_channel": "8",
}


def measure(runs: Runs, console: Console) -> Iterator[Goal]:
    """All figures of the group."""
    console.print("theory, data sheets, speed, preconditioning: minutes")
    project = runs.project
    folder = project.profiles
    yield from _theory(folder)
    yield _streams(folder)
    yield from measure_data_sheets(project)
    yield from _speed(folder)
    yield from beside_mqsim(folder, runs.beside.get("mqsim"))
    yield from _preconditioning(folder)
    yield _grid(folder)
    yield _trace_memory(folder, project)


def one_group(
    folder: Path, spare_factor: float, overrides: dict[str, str], *, blocks: int = 4096
) -> tuple[Device, float]:
    """A drive of a single die, and the spare factor that its collection has to work with.

    The reserved block is no spare, and of the open block on average half.
    """
    physical = blocks * _BLOCK_PAGES * _UNIT
    logical = int(physical * (1 - spare_factor)) // _UNIT * _UNIT
    ratio = (physical - 0.5 * _BLOCK_PAGES * _UNIT) / logical - 1
    size = {"capacity": f"{logical} B", "overprovision": str(ratio)}
    single = {"channels": "1", "dies_per_channel": "1", "gc_placement": "mixed"}
    device = Device.from_profile(folder, _BASE, {**PLAIN, **size, **single, **overrides})
    usable = physical - 1.5 * _BLOCK_PAGES * _UNIT
    return device, 1 - logical / usable


def _theory(folder: Path) -> Iterator[Goal]:
    known: dict[str, Callable[[float], float]] = {
        "fifo": waf_theory.fifo,
        "greedy": lambda spare: waf_theory.greedy(spare, _BLOCK_PAGES),
        "d_choices": lambda spare: waf_theory.d_choices(spare, _BLOCK_PAGES, _CHOICES),
    }
    for policy, theory in known.items():
        pairs = []
        for spare_factor in _SPARE_FACTORS:
            device, effective = one_group(folder, spare_factor, {"gc_policy": policy})
            device.precondition(overwrites=4)
            units = device.capacity_bytes // _UNIT
            run = device.run(Job(requests=2 * units, queue_depth=32, seed=1))
            pairs.append((spare_factor, run.waf, theory(effective)))
        yield Goal(
            name=f"largest deviation of WAF from theory, {policy}, spare factors 0.05 to 0.4",
            unit="ratio",
            goal="<= 0.02",
            command=_COMMAND,
            samples=[max(abs(waf / expected - 1) for _, waf, expected in pairs)],
            context={"spare_factor, simulated, theory": pairs},
        )


def _streams(folder: Path) -> Goal:
    """A tenth of the data gets nine tenths of the writes: together, and in streams of their own."""
    wafs = {}
    for placement, gc_placement in (("none", "mixed"), ("range", "by_stream")):
        overrides = {"placement": placement, "gc_placement": gc_placement, "streams": "2"}
        device, _ = one_group(folder, 0.15, overrides)
        hot_bytes = int(device.capacity_bytes * 0.1) // _UNIT * _UNIT
        device = Device(device.profile, ranges=[NamedRange("hot", 0, hot_bytes, 1)])
        units = device.capacity_bytes // _UNIT
        device.run(Job(pattern="sequential", block_bytes=_UNIT, requests=units, queue_depth=32))
        job = Job(pattern="hot_cold", requests=6 * units, queue_depth=32)
        device.run(job)
        wafs[placement] = device.run(job).waf
    ideal = waf_theory.hot_cold_separated(0.15, 0.1, 0.9)
    mixed = waf_theory.hot_cold_mixed(0.15, 0.1, 0.9)
    return Goal(
        name="WAF of hot and cold data together over in streams, spare factor 0.15",
        unit="ratio",
        goal="> 1",
        command=_COMMAND,
        samples=[wafs["none"] / wafs["range"]],
        context={**wafs, "theory_separated_best_split": ideal.waf, "theory_mixed_fifo": mixed},
    )


def _apart(function: Callable[..., _T], *arguments: Any) -> _T:
    """The result of a function in a process of its own: its memory is what it alone needs."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _peak_bytes() -> int:
    """The most memory that this process had. Not ru_maxrss: that survives exec."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _random_speed(folder: Path) -> dict[str, float]:
    """Overwrites of a full 64 GiB drive in steady state, with timing, and the same without."""
    before = _peak_bytes()
    device = Device.from_profile(folder, _BASE, _FAST)
    device.to_steady_state()
    blocks = device.capacity_bytes // _UNIT
    requests = 6_000_000
    begin = time.perf_counter()
    run = device.run(Job(requests=requests, queue_depth=32))
    elapsed = time.perf_counter() - begin
    memory = (_peak_bytes() - before) / blocks
    bare = Device.from_profile(folder, _BASE, _FAST)
    begin = time.perf_counter()
    bare.precondition(overwrites=0)
    filled = time.perf_counter()
    bare.precondition(fill_ratio=1.0, overwrites=2)
    bare_s = (time.perf_counter() - filled) - (filled - begin)
    return {
        "writes_per_s": requests / elapsed,
        "programs_per_s": run.counters["page_programs"] / elapsed,
        "waf": run.waf,
        "bytes_per_block": memory,
        "bare_writes_per_s": 2 * blocks / bare_s,
    }


def _sequential_speed(folder: Path) -> float:
    device = Device.from_profile(folder, _BASE, {**_FAST, "page": "16 KiB"})
    block_bytes = 32 * _UNIT
    requests = device.capacity_bytes // block_bytes
    job = Job(pattern="sequential", block_bytes=block_bytes, requests=requests, queue_depth=32)
    device.run(job)
    begin = time.perf_counter()
    device.run(job)
    return device.capacity_bytes / _UNIT / (time.perf_counter() - begin)


def _speed(folder: Path) -> Iterator[Goal]:
    runs = [_apart(_random_speed, folder) for _ in range(_RUNS)]
    sequential = [_apart(_sequential_speed, folder) for _ in range(_RUNS)]
    context = {
        "device": "64 GiB, 8 x 8 dies, 4 KiB pages, greedy, steady state, depth 32, one core",
        "waf": [run["waf"] for run in runs],
    }

    def figure(name: str, unit: str, goal: str, key: str, **more: Any) -> Goal:
        samples = [run[key] for run in runs]
        return Goal(name, unit, goal, _COMMAND, samples, context={**context, **more})

    yield figure("random overwrites with timing", "host writes/s", ">= 5e6", "writes_per_s")
    yield figure("page programs with timing", "programs/s", ">= 30e6", "programs_per_s")
    yield figure(
        "the same overwrites on the bare map and collection",
        "host writes/s",
        "",
        "bare_writes_per_s",
    )
    yield Goal(
        "random overwrites with timing over the bare map and collection",
        "ratio",
        "",
        _COMMAND,
        [run["writes_per_s"] / run["bare_writes_per_s"] for run in runs],
    )
    yield figure("memory per logical block", "B", "<= 12", "bytes_per_block")
    yield Goal("sequential writes", "blocks/s", ">= 50e6", _COMMAND, sequential)


def _on_mqsims_drive(
    folder: Path, drive: mqsim.SimulatedDrive, requests: int, seed: int
) -> tuple[mqsim.Speed, int]:
    """MQSim's job on our model, and the memory of its process before there was a drive."""
    before = _peak_bytes()
    overrides = {
        **PLAIN,
        "capacity": f"{drive.logical_bytes} B",
        "overprovision": str(drive.physical_bytes / drive.logical_bytes - 1),
        "page": f"{drive.page_bytes} B",
        "map_unit": f"{drive.page_bytes} B",
        "pages_per_block": str(drive.pages_per_block),
        "channels": str(drive.channels),
        "dies_per_channel": str(drive.dies_per_channel),
        "reserve_blocks": str(drive.free_blocks),
        "write_buffer": f"{drive.buffer_bytes} B",
        "read_page": f"{drive.read_us} us",
        "program_page": f"{drive.program_us} us",
        "erase_block": f"{drive.erase_us} us",
        "channel_rate": f"{drive.channel_mb_per_s} MB/s",
        "link_rate": f"{drive.link_gb_per_s} GB/s",
    }
    device = Device.from_profile(folder, _BASE, overrides)
    device.precondition(fill_ratio=drive.written_bytes / drive.logical_bytes, overwrites=4)
    # As much as the buffer holds, so that it is full when the measured part begins.
    for part in (drive.buffer_bytes // drive.page_bytes, requests):
        begin_s = time.process_time()
        job = Job(
            block_bytes=drive.page_bytes,
            end_bytes=drive.written_bytes,
            requests=part,
            queue_depth=drive.depth,
            seed=seed,
        )
        run = device.run(job)
        used_s = time.process_time() - begin_s
    return mqsim.Speed(requests / used_s, _peak_bytes(), run.waf), before


def beside_mqsim(folder: Path, checkout: Path | None) -> Iterator[Goal]:
    """MQSim and our model in turn; of memory, ours without the interpreter and its libraries."""
    drive = mqsim.SimulatedDrive()
    name = "over MQSim's, 16 GiB, random 8 KiB writes, depth 16, collection, 256 MiB buffer"
    speed, memory = f"requests per second {name}", f"peak memory that the drive takes {name}"
    try:
        if checkout is None:
            raise HarnessError("needs a checkout of MQSim: harness bench --beside mqsim=FOLDER")
        with tempfile.TemporaryDirectory(prefix="flashlab-mqsim-") as scratch:
            (build := Path(scratch) / "build").mkdir()
            program = mqsim.built(checkout, build)
            theirs, ours = [], []
            for seed in range(1, _RUNS + 1):
                theirs.append(mqsim.run(program, drive, Path(scratch), _MQSIM_REQUESTS, seed))
                ours.append(_apart(_on_mqsims_drive, folder, drive, _MODEL_REQUESTS, seed))
    except HarnessError as error:
        yield Goal(speed, "ratio", ">= 100", _BESIDE_COMMAND, missing=str(error))
        yield Goal(memory, "ratio", "<= 0.2", _BESIDE_COMMAND, missing=str(error))
        return
    context = {
        "requests_per_s_of_mqsim": [run.requests_per_s for run in theirs],
        "requests_per_s_of_the_model": [run.requests_per_s for run, _ in ours],
        "waf_of_mqsim": [run.waf for run in theirs],
        "waf_of_the_model": [run.waf for run, _ in ours],
        "peak_MB_of_mqsim": [run.peak_bytes / 1e6 for run in theirs],
        "peak_MB_of_the_model": [run.peak_bytes / 1e6 for run, _ in ours],
        "of_these_MB_before_there_was_a_drive": [before / 1e6 for _, before in ours],
    }
    pairs = list(zip(theirs, ours, strict=True))
    ratios = [our.requests_per_s / their.requests_per_s for their, (our, _) in pairs]
    yield Goal(speed, "ratio", ">= 100", _BESIDE_COMMAND, ratios, context=context)
    ratios = [(our.peak_bytes - before) / their.peak_bytes for their, (our, before) in pairs]
    yield Goal(memory, "ratio", "<= 0.2", _BESIDE_COMMAND, ratios, context=context)


def _steady_512(folder: Path) -> tuple[float, float]:
    device = Device.from_profile(folder, _BASE, {**_FAST, "capacity": "512 GiB"})
    begin = time.perf_counter()
    device.to_steady_state()
    return time.perf_counter() - begin, _peak_bytes() / 1e9


def _steady_error(folder: Path) -> float:
    """The quick way to steady state beside the long one, on a smaller drive."""
    small = {**_FAST, "capacity": "8 GiB"}
    wafs = []
    for quick in (True, False):
        device = Device.from_profile(folder, _BASE, small)
        if quick:
            device.to_steady_state()
        else:
            device.precondition(overwrites=8)
        units = device.capacity_bytes // _UNIT
        wafs.append(device.run(Job(requests=2 * units, queue_depth=32)).waf)
    return abs(wafs[0] / wafs[1] - 1)


def _preconditioning(folder: Path) -> Iterator[Goal]:
    runs = [_apart(_steady_512, folder) for _ in range(3)]
    name = "512 GiB to steady state"
    yield Goal(name, "s", "<= 10", _COMMAND, [seconds for seconds, _ in runs])
    yield Goal(f"{name}: peak memory", "GB", "<= 1", _COMMAND, [memory for _, memory in runs])
    yield Goal(
        "WAF after it against WAF after eight overwrites, 8 GiB",
        "ratio",
        "<= 0.01",
        _COMMAND,
        [_steady_error(folder)],
    )


def _grid(folder: Path) -> Goal:
    """Every geometry is either refused when it is built, or can be filled and overwritten."""
    failed, refused, ran = 0, 0, 0
    axes = product(
        ("8 GiB", "9999998976 B", "32 GiB"),
        ("0.02", "0.07", "0.28"),
        ("1", "8"),
        ("1", "4"),
        ("per_die", "global"),
        ("4 KiB", "16 KiB"),
        (0.1, 1.0),
    )
    for capacity, spare, channels, dies, allocation, page, fill in axes:
        shape = {
            "capacity": capacity,
            "overprovision": spare,
            "channels": channels,
            "dies_per_channel": dies,
            "allocation": allocation,
            "page": page,
        }
        try:
            device = Device.from_profile(folder, _BASE, {**PLAIN, **shape})
        except BadProfile:
            refused += 1
            continue
        try:
            device.precondition(fill_ratio=fill, overwrites=0.25)
            device.run(
                Job(requests=20_000, queue_depth=32, end_bytes=int(fill * 8e9) // 4096 * 4096)
            )
            ran += 1
        except Exception:  # whatever it is, it counts
            failed += 1
    return Goal(
        "drives of a grid of geometry, fill and spare that cannot be conditioned",
        "drives",
        "== 0",
        _COMMAND,
        [failed],
        context={"ran": ran, "refused": refused},
    )


def _replay(folder: Path, path: Path) -> float:
    device = Device.from_profile(folder, _BASE, _FAST)
    device.to_steady_state()  # or a longer trace would touch more of the map
    device.replay(traces.read(path), queue_depth=32)
    return _peak_bytes() / 1e6


def _trace_memory(folder: Path, project: Project) -> Goal:
    """Peak memory of replaying 10 million requests from a file, over that of 1 million."""
    peaks = []
    for requests in (1_000_000, 10_000_000):
        path = project.build / f"trace-{requests}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        traces.write_parquet(_made_up(requests), path)
        peaks.append(_apart(_replay, folder, path))
        path.unlink()
    return Goal(
        "peak memory of replaying 10 M requests over that of 1 M",
        "ratio",
        "<= 1.2",
        _COMMAND,
        [peaks[1] / peaks[0]],
        context={"peak_MB": peaks},
    )


def _made_up(requests: int) -> Iterator[traces.Chunk]:
    """A seeded trace, writes of 4 KiB anywhere in the first 16 GiB, 10 us apart."""
    random = np.random.default_rng(1)
    step = 1 << 18
    for first in range(0, requests, step):
        n = min(step, requests - first)
        columns: dict[str, NDArray[Any]] = {
            "time_ns": (first + np.arange(n, dtype=np.int64)) * 10_000,
            "op": np.ones(n, dtype=np.uint8),
            "lba": random.integers(0, (16 << 30) // _UNIT, n) * 8,
            "sectors": np.full(n, 8, dtype=np.int64),
        }
        yield from traces.from_arrays(columns)


def measure_planted(runs: Runs, console: Console) -> Iterator[Goal]:
    """Deliberate bugs in the models, and whether the tests see them."""
    console.print("every planted bug is built and tested: about an hour")
    project = runs.project
    tool = project.root / "tools" / "planted-bugs"
    done = subprocess.run(
        [sys.executable, str(tool)], cwd=project.root, capture_output=True, text=True, check=False
    )
    summary = re.search(r"(\d+) of (\d+) planted bugs caught", done.stdout)
    if summary is None:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        yield Goal("planted bugs", "bugs", ">= 20", _PLANTED_COMMAND, missing=reason)
        return
    caught, planted = (int(number) for number in summary.groups())
    yield Goal("planted bugs", "bugs", ">= 20", _PLANTED_COMMAND, [planted])
    yield Goal(
        "planted bugs that no test sees", "bugs", "== 0", _PLANTED_COMMAND, [planted - caught]
    )


BENCHMARKS: Final = {"device_models": (measure,), "planted_bugs": (measure_planted,)}
