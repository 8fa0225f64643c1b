"""What a worker does: points of plausible machines, one after the other. It writes nothing down.

A worker is a process with this package, at the client's code; it may run on another computer, in a
checkout of its own. What it is given says all that a point needs but the study's inputs, which it
makes as a run would.
"""

from __future__ import annotations

import platform
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy
from distributed import get_worker
from pydantic import BaseModel

from harness import experiments, same_bits, tiers
from harness.drives import fingerprint
from harness.errors import (
    BadParameter,
    BadProfile,
    DiskFull,
    HarnessError,
    Interrupted,
    TargetError,
    UnknownName,
)
from harness.experiments.base import Measurement, Point
from harness.paths import Project, find_project
from harness.runs import code, queries
from harness.runs.sweeps.machines import TIER
from harness.tiers.base import Bench
from harness.tiers.options import Asked, BenchParameters


@dataclass(frozen=True)
class Work:
    """A point on a machine; `key` is the journal's. `software`: what computes beside our own code,
    as `software` has it of the client. `checkout`: the client's, which the worker uses if it sees
    it.
    """

    key: str
    study: str
    point: Point
    parameters: BaseModel
    profiles: Mapping[str, bytes]
    host: bytes
    bench: BenchParameters
    code: str
    input: str
    software: Mapping[str, str]
    checkout: Path


@dataclass(frozen=True)
class Outcome:
    """What became of a point. `refused`: why the model cannot be such a machine; `failed`: what
    went wrong that should not, in a line. Of one of them there are no metrics. `machine`: on which
    computer that was (drives/fingerprint).
    """

    key: str
    metrics: Mapping[str, Any] = field(default_factory=dict)
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    refused: str = ""
    failed: str = ""
    seconds: float = 0.0
    machine: Mapping[str, str] = field(default_factory=dict)


_REFUSALS: Final = (BadParameter, BadProfile, DiskFull, TargetError, UnknownName)
"""What a model says of a machine that it cannot be, its drive being too small for the files among
it. Any other error is of the run, and no machine's: results that do not agree above all.
"""


class WrongWorker(HarnessError):
    """A worker that would give other results: it has other code, inputs or libraries."""


def run_batch(batch: Sequence[Work]) -> list[Outcome]:
    """Each in turn. Raises WrongWorker."""
    outcomes = []
    for work in batch:
        begin = time.perf_counter()
        outcome = _run(work)
        seconds = time.perf_counter() - begin
        outcomes.append(replace(outcome, seconds=seconds, machine=_machine()))
    return outcomes


@cache
def _machine() -> Mapping[str, str]:
    return fingerprint.machine()


@cache
def software() -> Mapping[str, str]:
    """Versions of what computes in this process beside our own code, by name."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return {"Python": python, "NumPy": np.__version__, "SciPy": scipy.__version__}


def _scratch() -> str | None:
    """Dask's folder for this worker: if the worker is killed, the next one here deletes it."""
    try:
        return str(get_worker().local_directory)
    except ValueError:  # not a worker: the system's folder
        return None


def _run(work: Work) -> Outcome:
    project = _project(work.checkout)
    check(work, project)
    experiment = experiments.find(work.study)
    with tempfile.TemporaryDirectory(prefix="point-", dir=_scratch()) as folder:
        try:
            with _bench(work, project, Path(folder)) as bench:
                measured = experiment.run_point(work.point, work.parameters, bench, project.raw)
        except Interrupted:
            raise
        except _REFUSALS as error:
            # The same words wherever it was refused.
            return Outcome(work.key, refused=str(error).replace(f"{folder}/", ""))
        except Exception as error:  # one machine's bug must not end all others' runs
            said = " ".join(str(error).split())
            return Outcome(work.key, failed=f"{type(error).__name__}: {said}")
    return Outcome(work.key, {**measured.metrics, **measured.remarks}, judged_series(measured))


def judged_series(measured: Measurement) -> dict[str, list[int] | list[float]]:
    """The series that a claim can see (runs/claims): per repetition, or with times."""
    clocks = {
        name.removesuffix(queries.TIMES) for name in measured.series if name.endswith(queries.TIMES)
    }
    return {
        name: values
        for name, values in measured.series.items()
        if name.startswith(queries.REPEATED)
        or any(name.startswith(f"{clock}_") for clock in clocks)
    }


def _bench(work: Work, project: Project, folder: Path) -> AbstractContextManager[Bench]:
    """The machine's, from profiles that are written into the folder."""
    devices = {
        name: str(_written(folder / f"{name}.yaml", profile))
        for name, profile in work.profiles.items()
    }
    asked = Asked(devices=devices, host=str(_written(folder / "the host.yaml", work.host)))
    return tiers.find(TIER)(asked, work.bench, project)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def check(work: Work, project: Project) -> None:
    """Whether results of this process count. Raises WrongWorker, with the computer's name."""
    try:
        _check(work, project)
    except WrongWorker as error:
        raise WrongWorker(f"a worker on {socket.gethostname()} {error}") from error


def _check(work: Work, project: Project) -> None:
    if beyond := same_bits.beyond():
        raise WrongWorker(
            f"imported NumPy before harness, and uses {', '.join(beyond)}: start it as "
            "python -m harness.runs.sweeps.worker"
        )
    if other := dict(software().items() - work.software.items()):
        said = ", ".join(f"{name} {version}" for name, version in sorted(other.items()))
        raise WrongWorker(
            f"has {said}, which the client has not: make env at the same commit there"
        )
    # Before the digest is asked for: it would be of files that this process does not run.
    try:
        code.check_unchanged(_reached(work.study))
    except HarnessError as error:
        raise WrongWorker(f"has changed: {error}") from error
    if _code(work.study) != work.code:
        raise WrongWorker("has other code than the client: install the same commit there")
    if _input(work.study, work.parameters, project.raw, work.input) != work.input:
        raise WrongWorker(f"has inputs in {project.raw} that are not the client's")


@cache
def _reached(study: str) -> code.Reached:
    return code.run_of(experiments.find(study), TIER)


@cache
def _code(study: str) -> str:
    return _reached(study).digest()


_inputs: dict[tuple[str, Path, str], str] = {}


def _input(study: str, values: BaseModel, raw: Path, wanted: str) -> str:
    """The digest of this worker's inputs, asked for once for each that a client has."""
    key = (study, raw, wanted)
    if key not in _inputs:
        _inputs[key] = experiments.find(study).input_digest(values, raw)
    return _inputs[key]


@cache
def _project(checkout: Path) -> Project:
    return Project(checkout) if checkout.is_dir() else find_project()
