"""fio jobs: run one, or some in turn, read its JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import BadParameter, DeviceError
from harness.system import fio_names, leases
from harness.system.programs import find_program

_OPS: Final = ("read", "write", "trim")
_LAST_WORDS: Final = 300
_UNITS_S: Final = {"": 1.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_TIME: Final = re.compile(rf"(\d+)({'|'.join(_UNITS_S)})")
_PATIENCE: Final = 2
_PATIENCE_S: Final = 600.0
"""What fio does before and after its runtime, such as laying out a file, and what a device that is
slow takes for what is under way then. Priors: only one that hangs is meant."""


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

    Raises MissingTool without fio, DeviceError with its last words if it fails, or does not end.
    """
    [done] = run_in_turn(filename, [options], allow_errors=allow_errors)
    return done


def run_in_turn(
    filename: Path, jobs: Sequence[Mapping[str, str | int]], *, allow_errors: bool = False
) -> list[FioRun]:
    """Runs jobs one after the other, in one process: next to no time passes between two.

    It ends with us: after a kill, too, nobody writes on. What takes far longer than its `runtime`
    is ended. Raises what `run` does.
    """
    done = leases.call(command(filename, jobs), dies_with_us=True, limit_s=limit_s(jobs))
    if done.returncode != 0 and not allow_errors:
        said = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
        raise DeviceError(f"fio failed on {filename}: {said[-_LAST_WORDS:]}")
    return _parse(done.stdout.decode(errors="replace"))


def limit_s(jobs: Sequence[Mapping[str, str | int]]) -> float | None:
    """When jobs that end by the clock should have ended, all in turn; None where one does not."""
    if not all("runtime" in job for job in jobs):
        return None
    times = [_seconds(job.get(name, 0)) for job in jobs for name in ("runtime", "ramp_time")]
    return _PATIENCE_S + _PATIENCE * sum(times)


def _seconds(told: str | int) -> float:
    """A time in fio's words (fio(1), PARAMETER TYPES): seconds, or with a unit."""
    found = _TIME.fullmatch(str(told))
    if found is None:
        raise BadParameter(f"fio: {told!r} is no time: write it as 10, 10s or 1500ms")
    return float(found[1]) * _UNITS_S[found[2]]


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
