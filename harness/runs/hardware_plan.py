"""What a run on claimed drives would do to them, before it does anything: steps, bytes, times.

The steps are found by the run's own code: each point is begun on a stand-in that notes what would
be overwritten and stops where the measured part begins. What that part writes, and how long it
takes, is what the device models say of the same point: an expectation. The limit is the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel

from harness import _core, experiments
from harness.devices.profiles import load_device
from harness.drives import external_journal, fingerprint, guard
from harness.drives import total as in_all
from harness.drives.discovery import Drive
from harness.drives.targets import Step
from harness.errors import HarnessError, TargetError
from harness.experiments.base import Experiment, Measurement, Point
from harness.paths import Project
from harness.runs import parameters
from harness.runs.session import Options, open_session
from harness.system import ext4_spec, filesystems, writeback
from harness.system.ext4_spec import Ext4Spec
from harness.tiers.base import Cancel, DeviceRequest
from harness.tiers.hardware import RealDevice, is_journal_apart
from harness.tiers.simulated import SimulatedBench
from harness.units import format_bytes
from harness.workloads import ageing as ageing_job
from harness.workloads.ageing import Ageing
from harness.workloads.records import RECORD_BYTES

_DISCARD_BYTES_PER_S: Final = 10 << 30
_MEASURED: Final = "measure, as the model expects it"
_FILL_BYTES_PER_S: Final = {True: 100 << 20, False: 400 << 20}
"""What a disk and a flash drive are expected to take in order, for what is not simulated."""


@dataclass(frozen=True)
class DrivePlan:
    """Of one drive: a line about it, and all steps of a run, in order.

    `name`: whose it is in the study; `size_bytes` of the drive.
    """

    title: str
    points: int
    steps: tuple[Step, ...]
    name: str
    size_bytes: int

    @property
    def written_bytes(self) -> int:
        """Of all steps."""
        return sum(step.written_bytes for step in self.steps)


def plan(project: Project, experiment: str, options: Options) -> list[DrivePlan]:
    """A plan for each claimed drive. Raises whatever the run itself would; writes nothing."""
    drives = {device: guard.check(name, project) for device, name in options.drives.items()}
    journals = {device: guard.check(name, project) for device, name in options.journals.items()}
    if experiments.find(experiment).servers:  # below which write-back is bounded
        writeback.check()
    with open_session(project, experiment, "hardware", options) as session:
        session.reserve()
        plans = [
            _drive_plan(
                project, session.experiment, session.parameters, name, drive, options, journals
            )
            for name, drive in drives.items()
        ]
    return [made for pair in plans for made in pair if made.steps]


def journal_of(device: str) -> str:
    """What the part of a plan is called that is of a drive's journals apart."""
    return f"{device}'s journal"


def total(plans: Iterable[DrivePlan]) -> str:
    """Bytes, time and wear of all of them, one after the other, in a line."""
    return in_all.of_plans((plan.name, plan.size_bytes, plan.steps) for plan in plans)


def expectations(project: Project, drives: Mapping[str, Drive]) -> pd.DataFrame:
    """Every experiment of the hardware tier, as params.yaml has it, on drives that nobody claimed.

    One row per experiment and drive: experiment, device, points, written_bytes, time_s.
    """
    rows = []
    for name in experiments.names():
        experiment = experiments.find(name)
        if "hardware" not in experiment.tiers:
            continue
        values = parameters.default(project, name, "hardware")
        for device, drive in drives.items():
            with suppress(HarnessError):  # no such drive in this experiment
                made, _ = _drive_plan(project, experiment, values, device, drive, Options())
                time_s = sum(step.expected_s for step in made.steps)
                rows.append((name, device, made.points, made.written_bytes, time_s))
    columns = ["experiment", "device", "points", "written_bytes", "time_s"]
    return pd.DataFrame(rows, columns=columns)


def _drive_plan(
    project: Project,
    experiment: Experiment,
    values: BaseModel,
    device: str,
    drive: Drive,
    options: Options,
    journals: Mapping[str, Drive] | None = None,
) -> tuple[DrivePlan, DrivePlan]:
    """Of a drive, and of the namespace for its journals; without one that has no steps."""
    journal = (journals or {}).get(device)
    bench = _PlanBench({device: drive}, {device: journal} if journal else {})
    points = experiment.points(values, bench)
    steps: list[Step] = []
    apart: list[Step] = []
    with _models(project, experiment.name, {device: drive.rotational}) as models:
        for point in points:
            bench.steps, bench.journal_steps = [], []
            with suppress(_Enough):
                experiment.run_point(point, values, bench, project.raw)
            try:
                run = experiment.run_point(experiment.modelled(point), values, models, project.raw)
            except HarnessError as error:
                measured = Step(f"measure (the model cannot say: {error})", (), 0, 0.0)
            else:
                measured = _measured_part(experiment, point, run)
                if bench.journal_steps:
                    measured, beside = _without_journal(measured, run)
                    bench.journal_steps.append(beside)
            steps += [*bench.steps, measured]
            apart += bench.journal_steps
    plan = _titled(device, drive, len(points), steps, options)
    users = sum(step.what == _MEASURED for step in apart)
    return plan, _titled(journal_of(device), journal or drive, users, apart, options)


def _models(project: Project, name: str, devices: Mapping[str, bool]) -> SimulatedBench:
    """Models in the place of real drives: by name, or the first of the experiment's of that kind.

    `devices`: the experiment's name of each -> whether it is a disk. Raises TargetError if the
    experiment models no drive of a kind.
    """
    bench = parameters.of_tier(project, name, "simulated").bench
    chosen = {}
    for device, is_disk in devices.items():
        known = [bench.devices[device]] if device in bench.devices else [*bench.devices.values()]
        alike = [n for n in known if (load_device(project.profiles, n).kind == "hdd") == is_disk]
        if not alike:
            kind = "disk" if is_disk else "flash drive"
            raise TargetError(f"{name} has no model of a {kind}: nothing to expect for {device}")
        chosen[device] = alike[0]
    return SimulatedBench(project.profiles, chosen, bench.host, bench.overrides)


def _titled(
    name: str, drive: Drive, points: int, steps: Sequence[Step], options: Options
) -> DrivePlan:
    budget = guard.allowed_bytes(drive, options.write_budget_bytes)
    written = sum(step.written_bytes for step in steps)
    title = (
        f"{name}: {drive.node} ({drive.model}, {format_bytes(drive.size_bytes)}): "
        f"{points} points, {format_bytes(written)} expected to be written, "
        f"{format_bytes(budget)} allowed"
    )
    if written > budget:
        title += "; it would be stopped on the way: --write-budget lets it write more"
    return DrivePlan(title, points, tuple(steps), name, drive.size_bytes)


def _without_journal(measured: Step, run: Measurement) -> tuple[Step, Step]:
    """What the model writes, where the journal is on another namespace: home, and to that one."""
    journal = int(run.metrics["journal_written_bytes"])
    home = replace(measured, written_bytes=measured.written_bytes - journal)
    return home, replace(measured, written_bytes=journal)


def _measured_part(experiment: Experiment, point: Point, run: Measurement) -> Step:
    command = ("harness", "run", experiment.name, "#", point.label)
    cost = experiment.cost(point, run)
    return Step(_MEASURED, command, cost.written_bytes, cost.time_s)


class _Enough(Exception):
    """The measured part would begin here."""


class _PlanDevice(RealDevice):
    """Notes what would be overwritten, and overwrites nothing."""

    def __init__(
        self, drive: Drive, journal: Drive | None, bench: _PlanBench, part_bytes: int
    ) -> None:
        self._part = guard.part_of(drive)
        super().__init__(self._part)
        self.size_bytes = guard.room_bytes(drive)
        self._drive = drive
        self._journal = journal
        self._bench = bench
        self._part_bytes = part_bytes or self.size_bytes

    @property
    def path(self) -> Path:
        """Whoever asks is about to use it."""
        raise _Enough

    @property
    def storage(self) -> _core.FileStorage:
        """The same."""
        raise _Enough

    def place(self, offset_bytes: int, contents: NDArray[np.void]) -> None:
        """The join's input."""
        written = len(contents) * RECORD_BYTES
        command = ("write", str(self._part), f"offset={offset_bytes}", f"bytes={written}")
        self._note("write the input", command, written)

    @contextmanager
    def _mounted(self, spec: Ext4Spec) -> Iterator[Path]:
        """What mke2fs is told; the rest writes through the file system."""
        sized = spec.sized(self._part_bytes)
        if self._journal is not None:
            data, journal = guard.Part(self._drive), guard.Part(self._journal)
            apart, home = external_journal.steps(data, journal, sized)
            self._bench.journal_steps.append(apart)
            self._bench.steps.append(home)
            raise _Enough
        command = filesystems.make_command(self._part, sized)
        written = spec.inodes * ext4_spec.INODE_BYTES + spec.journal_bytes
        self._note("make a file system", command, written)
        raise _Enough
        yield  # a generator, as `contextmanager` wants one

    def _block_device(self) -> None:
        """Nothing is run, and so nothing recorded."""

    def _begin_counting(self) -> None:
        """Nor counted."""

    def age(self, ageing: Ageing) -> None:
        """The fio job."""
        ageing.check(self.size_bytes)
        options = [f"--{name}={value}" for name, value in ageing_job.job(ageing).items()]
        command = ("fio", "--name=job", f"--filename={self._part}", *options)
        self._note("age the drive", command, ageing.written_bytes)

    def permit(self, step: str, written_bytes: int) -> None:
        """Whoever asks is about to overwrite it."""
        del step, written_bytes
        raise _Enough

    def begin(self) -> None:
        """Time would count from here on."""
        raise _Enough

    def _note(self, what: str, command: tuple[str, ...], written_bytes: int) -> None:
        time_s = written_bytes / _FILL_BYTES_PER_S[self._drive.rotational]
        self._bench.steps.append(Step(what, command, written_bytes, time_s))


class _PlanBench:
    """Drives that are not touched."""

    tier = "hardware"
    parallel = 1
    models = None
    overrides: Mapping[str, str] = {}
    remarks: Mapping[str, str] = {}

    def __init__(self, drives: Mapping[str, Drive], journals: Mapping[str, Drive]) -> None:
        self.cancel = Cancel()
        self.steps: list[Step] = []
        self.journal_steps: list[Step] = []
        self._drives = drives
        self._journals = journals

    @property
    def devices(self) -> list[str]:
        """The experiment's names."""
        return list(self._drives)

    def profile_name(self, device: str) -> str:
        """Raises TargetError, always."""
        raise TargetError(f"{device}: a real device has no profile")

    def check_placement(self, device: str, overrides: Mapping[str, str]) -> None:
        """The session's own bench has been asked."""

    def reserve(self, needed_bytes: Mapping[str, int]) -> None:
        """Nothing is written."""

    def attempt(self, number: int) -> None:
        """Nothing is run."""

    def identity(self, device: str) -> Mapping[str, str]:
        """The drive's."""
        return fingerprint.of_drive(self._drives[device])

    @contextmanager
    def open_device(self, request: DeviceRequest) -> Iterator[RealDevice]:
        """A stand-in; before it, the discard that empties the drive."""
        drive, journal = self._drives[request.device], self._journals.get(request.device)
        if not is_journal_apart(request.overrides):
            journal = None
        for which, steps in ((drive, self.steps), (journal, self.journal_steps)):
            if which is not None and which.trim:
                command = ("blkdiscard", str(guard.part_of(which)))
                time_s = which.size_bytes / _DISCARD_BYTES_PER_S
                steps.append(Step("empty the drive", command, 0, time_s))
        yield _PlanDevice(drive, journal, self, request.size_bytes)
