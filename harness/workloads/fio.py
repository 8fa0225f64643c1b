"""fio jobs: run one, or some in turn, read its JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import DeviceError
from harness.system import fio_names, leases
from harness.system.programs import find_program

_OPS: Final = ("read", "write", "trim")
_LAST_WORDS: Final = 300


@dataclass(frozen=True)
class FioOp:
    """What one operation did; latencies from submission to completion."""

    ios: int
    bytes: int
    iops: float
    bytes_per_s: float
    latency_mean_ns: float
    latency_p50_ns: float
    latency_p90_ns: float
    latency_p99_ns: float
    latency_p999_ns: float
    latency_max_ns: float


@dataclass(frozen=True)
class FioRun:
    """What a job did."""

    ops: Mapping[str, FioOp]
    elapsed_s: float
    errors: int

    @property
    def busiest(self) -> FioOp:
        """The operation with most I/Os."""
        return max(self.ops.values(), key=lambda op: op.ios)


def run(filename: Path, options: Mapping[str, str | int], *, allow_errors: bool = False) -> FioRun:
    """Runs one job on a file or device with fio's own options (names without dashes).

    Raises MissingTool without fio, DeviceError with its last words if it fails.
    """
    [done] = run_in_turn(filename, [options], allow_errors=allow_errors)
    return done


def run_in_turn(
    filename: Path, jobs: Sequence[Mapping[str, str | int]], *, allow_errors: bool = False
) -> list[FioRun]:
    """Runs jobs one after the other, in one process: next to no time passes between two.

    It ends with us: after a kill, too, nobody writes on. Raises what `run` does.
    """
    done = leases.call(command(filename, jobs), dies_with_us=True)
    if done.returncode != 0 and not allow_errors:
        said = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
        raise DeviceError(f"fio failed on {filename}: {said[-_LAST_WORDS:]}")
    return _parse(done.stdout.decode(errors="replace"))


def command(filename: Path, jobs: Sequence[Mapping[str, str | int]]) -> list[str]:
    """The arguments with which `run_in_turn` calls fio. Raises MissingTool, TargetError."""
    arguments = [find_program("fio"), "--output-format=json", fio_names.argument(filename)]
    for number, options in enumerate(jobs):
        arguments.append(f"--name=job{number}" if number else "--name=job")
        # As a thread: fio's processes go on without it, and nobody kills these with it.
        threaded = {**options, "thread": 1}
        arguments += [f"--{name}={value}" for name, value in threaded.items()]
        arguments += ["--stonewall"] * bool(number)
    return arguments


def _parse(text: str) -> list[FioRun]:
    begin = text.find("{")  # after warnings
    try:
        jobs = json.loads(text[begin:])["jobs"]
    except (ValueError, KeyError) as error:
        raise DeviceError(f"fio said nothing that can be read: {text[:_LAST_WORDS]}") from error
    return [_run(job) for job in jobs]


def _run(job: Mapping[str, Any]) -> FioRun:
    ops = {name: _op(job[name]) for name in _OPS if job[name]["total_ios"]}
    return FioRun(ops, float(job["job_runtime"]) / 1e3, int(job["error"]))


def _op(raw: Mapping[str, Any]) -> FioOp:
    percentiles = raw["clat_ns"].get("percentile", {})
    return FioOp(
        ios=int(raw["total_ios"]),
        bytes=int(raw["io_bytes"]),
        iops=float(raw["iops"]),
        bytes_per_s=float(raw["bw_bytes"]),
        latency_mean_ns=float(raw["lat_ns"]["mean"]),
        latency_p50_ns=float(percentiles.get("50.000000", 0.0)),
        latency_p90_ns=float(percentiles.get("90.000000", 0.0)),
        latency_p99_ns=float(percentiles.get("99.000000", 0.0)),
        latency_p999_ns=float(percentiles.get("99.900000", 0.0)),
        latency_max_ns=float(raw["lat_ns"]["max"]),
    )
