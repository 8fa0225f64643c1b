"""The jobs of a calibration on a drive, with fio: steps before they are taken, figures after.

A `Drive` is a real one (or a file, to try it); an `EmulatedDrive` a live device, whose clock may be
slower than ours: its figures are in its own time, and a phase in which it answered too late is
refused. Before each phase that changes what lies on the drive, the target is asked (`permit`).
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from harness.calibration.jobs import DriveJob, JobPlan, Phase, join, rates_of
from harness.calibration.simulate import simulated
from harness.devices.live import LiveDevice, stats
from harness.devices.live.stats import MEAN_BOUND
from harness.devices.profiles import DeviceProfile
from harness.drives.scratch import HEADER_BYTES, Scratch
from harness.drives.targets import Step, Target
from harness.errors import DeviceError, InvalidRun, TargetError
from harness.system import leases, mounts
from harness.system.programs import find_program
from harness.workloads import fio
from harness.workloads.fio import FioRun

_UNIT: Final = 4096
_PREPARING_DEPTH: Final = 32
_ATTEMPTS: Final = 10
_FIO_OPS: Final = {
    ("read", "sequential"): "read",
    ("read", "random"): "randread",
    ("read", "ends"): "randread",
    ("write", "sequential"): "write",
    ("write", "random"): "randwrite",
    ("trim", "sequential"): "trim",  # fio 3.33 aborts in random trims
    ("mixed", "random"): "randrw",
}
_ENDS: Final = "zoned:50/1:0/98:50/1"
_PHASE_S: Final = 15.0
_SLOWEST: Final = 1000
_MOST_PROPOSED: Final = 64
_MOST_SLOWER: Final = 2  # so many times twice as slow
_BACKED_UP_SHARE: Final = 4
_HIDING_DEPTH: Final = 32
_NICE: Final = -15
"""Of fio: an answer is seen when fio gets a processor, so it comes before other work."""


class Drive:
    """A drive that may be overwritten from `begin_bytes` on, in its own time."""

    def __init__(self, target: Target, begin_bytes: int = 0) -> None:
        self.target = target
        self.begin_bytes = begin_bytes

    @property
    def size_bytes(self) -> int:
        """Of what the jobs may use."""
        return self.target.size_bytes - self.begin_bytes

    @property
    def discards(self) -> bool:
        """Whether it takes TRIM commands."""
        return _discards(self.target.path)

    def slowdown_for(self, phase: Phase) -> int:
        """How much slower than the clock the drive is in a phase."""
        del phase
        return 1

    def begin(self, phase: Phase, attempt: int) -> int:
        """From here on a phase is measured, for the first or a further time.

        Returns how much slower than the clock the drive runs in it.
        """
        del attempt
        return self.slowdown_for(phase)

    def check(self, phase: Phase, runs: Sequence[FioRun]) -> None:
        """At the end of one. Raises InvalidRun if its figures cannot be trusted."""

    @contextmanager
    def unpaced(self) -> Iterator[None]:
        """For work that only brings the drive to a state, as fast as that may go."""
        yield


class EmulatedDrive(Drive):
    """A live device, whose time runs slower than ours: the more so, the shorter a phase is.

    Its speed is changed, and not put back. `expected_s`: how long each phase takes, in the drive's
    time, as far as that is known before. A phase is stretched to about `_PHASE_S`, so that what the
    way to the device takes is little.
    """

    def __init__(
        self,
        device: LiveDevice,
        *,
        flash: bool,
        expected_s: Mapping[str, float],
        least_slowdown: int = 1,
    ) -> None:
        super().__init__(_EmulatedTarget(device.path, device.size_bytes, device))
        self._device = device
        self._timeless = "virtual" if flash else "none"
        self._expected_s = expected_s
        # What a busy machine proposes is no use: a run that it spoils is refused.
        proposed = min(int(device.stats()["slowdown"]), _MOST_PROPOSED)
        self._least = max(proposed, least_slowdown)
        device.set_speed(self._timeless)

    def begin(self, phase: Phase, attempt: int) -> int:
        """What this machine did not carry runs slower. Between phases the device's time stands.

        For a drive that is left alone works for itself.
        """
        slowdown = self.slowdown_for(phase) << min(attempt, _MOST_SLOWER)
        self._device.set_speed("real", slowdown)
        self._device.reset()
        return slowdown

    def check(self, phase: Phase, runs: Sequence[FioRun]) -> None:
        """Replies left in time, and the host got them when they left."""
        seen = self._device.stats()
        self._device.set_speed(self._timeless)
        if problems := _problems(phase, seen):
            raise InvalidRun(f"{phase.name}: the run is not valid: {'; '.join(problems)}")
        hidden = phase.joined or phase.jobs[0].queue_depth >= _HIDING_DEPTH
        if self._timeless == "virtual" and not hidden:
            _check_host(phase, runs[0], seen)

    def slowdown_for(self, phase: Phase) -> int:
        """Where requests queue for programs each takes milliseconds: less is enough."""
        if all(job.waits_for_flash for job in phase.jobs):
            return -(-self._least // _BACKED_UP_SHARE)
        wanted = round(_PHASE_S / self._expected_s.get(phase.name, _PHASE_S))
        return min(max(wanted, self._least), _SLOWEST)

    @contextmanager
    def unpaced(self) -> Iterator[None]:
        """The model is told, if it is flash, and answers at once."""
        self._device.set_speed(self._timeless)
        yield


def _problems(phase: Phase, seen: Mapping[str, Any]) -> list[str]:
    """What the device has to say against itself, by the statistic that figures are made from.

    A median does not change where one reply in fifty leaves late, as it does on any shared machine;
    and a rate is that of all requests, of whatever kind.
    """
    name = "mean_ns" if any(job.figure == "rate" for job in phase.jobs) else "p50_ns"
    return stats.problems(seen["live"], seen, {name: MEAN_BOUND})


def _check_host(phase: Phase, run: FioRun, seen: Mapping[str, Any]) -> None:
    """Raises InvalidRun where the host saw other latencies than the device had.

    A disk's queue, a deep one and that of a fill hide what the host takes; nothing else does.
    """
    if phase.jobs[0].figure == "rate":
        ios = sum(op.ios for op in run.ops.values())
        host_ns = sum(op.ios * op.latency_mean_ns for op in run.ops.values()) / ios
        device_ns = seen["model_latency"]["mean_ns"]
    else:
        host_ns = run.busiest.latency_p50_ns
        device_ns = seen["model_latency"]["p50_ns"]
    host_ns /= seen["slowdown"]
    if abs(host_ns / device_ns - 1.0) > MEAN_BOUND:
        raise InvalidRun(
            f"{phase.name}: the device took {device_ns / 1e3:.1f} us, the host saw "
            f"{host_ns / 1e3:.1f} us: this machine is too busy"
        )


@dataclass(frozen=True)
class _Place:
    """Where a target is, and how large: of a device or file that stays as it is."""

    path: Path
    size_bytes: int


@dataclass(frozen=True)
class _EmulatedTarget(_Place):
    """A live device may be overwritten as long as it is there and nobody uses it."""

    device: LiveDevice

    def permit(self, step: str, written_bytes: int) -> None:
        del written_bytes
        self.device.check(step)
        if found := mounts.of_device(self.path):
            raise TargetError(f"{step}: {self.path} is mounted at {found[0].point}: unmount it")
        if mounts.is_claimed(self.path):
            raise TargetError(f"{step}: {self.path} or a partition of it is in use: end that first")


def file_drive(target: Scratch) -> Drive:
    """A scratch target as a drive: what lies behind the marker."""
    return Drive(target, HEADER_BYTES)


def emulated_drive(
    device: LiveDevice, plan: JobPlan, generic: DeviceProfile, least_slowdown: int = 1
) -> EmulatedDrive:
    """A live device for a plan; the generic drive says how long its phases might take.

    It runs at least `least_slowdown` times slower than the clock: more on a busy machine.
    """
    expected = expected_s(plan, simulated(generic, plan, plan.jobs))
    return EmulatedDrive(
        device,
        flash=plan.kind != "hdd",
        expected_s=expected,
        least_slowdown=least_slowdown,
    )


def steps(plan: JobPlan, drive: Drive, generic: DeviceProfile) -> list[Step]:
    """What a calibration would do, phase by phase; times are those of the generic drive."""
    expected = simulated(generic, plan, plan.jobs)
    phase_s = expected_s(plan, expected)
    found = []
    for phase in plan.phases:
        for what, command, written in _preparation(phase, drive):
            seconds = written / _overwriting_rate(plan, expected)
            found.append(Step(what, tuple(command), written, seconds))
        if phase.jobs:
            jobs = [join(phase.jobs)] if phase.joined else phase.jobs
            command = fio.command(drive.target.path, [_options(job, drive) for job in jobs])
            written = sum(job.written_bytes for job in phase.jobs)
            seconds = phase_s[phase.name] * drive.slowdown_for(phase)
            found.append(Step(phase.name, tuple(command), written, seconds))
    return found


def expected_s(plan: JobPlan, figures: Mapping[str, float]) -> dict[str, float]:
    """How long each phase takes on a drive with these figures, in its time."""
    return {
        phase.name: sum(_expected_s(job, figures[job.name]) for job in phase.jobs)
        for phase in plan.phases
        if phase.jobs
    }


def _overwriting_rate(plan: JobPlan, expected: Mapping[str, float]) -> float:
    return next(expected[job.name] for job in plan.jobs if job.name.startswith("steady"))


def _expected_s(job: DriveJob, figure: float) -> float:
    """How long a job takes with that figure."""
    if job.figure == "rate":
        return job.requests * job.block_bytes / figure
    return job.requests * figure


def measure(
    plan: JobPlan, drive: Drive, tell: Callable[[str], None] = lambda _: None
) -> dict[str, float]:
    """The figures of all jobs, by name: s or bytes/s, in the drive's own time.

    A phase that leaves the drive as it was is repeated if an emulated one was late in it. Raises
    InvalidRun, TargetError as `Target.permit` does, DeviceError, MissingTool.
    """
    figures: dict[str, float] = {}
    for phase in plan.phases:
        _prepare(phase, drive)
        if phase.jobs:
            figures |= _measured(phase, drive, tell)
    return figures


def _measured(phase: Phase, drive: Drive, tell: Callable[[str], None]) -> dict[str, float]:
    for attempt in range(_ATTEMPTS):
        if any(job.writes for job in phase.jobs):
            drive.target.permit(phase.name, sum(job.written_bytes for job in phase.jobs))
        try:
            return _once(phase, drive, attempt, tell)
        except InvalidRun as error:
            if attempt + 1 == _ATTEMPTS or not phase.repeatable:
                raise
            tell(f"once more: {error}")
    raise AssertionError


def _once(
    phase: Phase, drive: Drive, attempt: int, tell: Callable[[str], None]
) -> dict[str, float]:
    slowdown = drive.begin(phase, attempt)
    if phase.joined:
        figures = _pieces(phase, drive, slowdown)
    else:
        options = [_options(job, drive) for job in phase.jobs]
        runs = fio.run_in_turn(drive.target.path, options)
        drive.check(phase, runs)
        pairs = zip(phase.jobs, runs, strict=True)
        figures = {job.name: _figure(job, run, slowdown) for job, run in pairs}
    for job in phase.jobs:
        tell(f"{job.name}: {_told(figures[job.name], job.unit)}")
    return figures


def _pieces(phase: Phase, drive: Drive, slowdown: int) -> dict[str, float]:
    """From fio's log of when each request was done."""
    options = _options(join(phase.jobs), drive)
    with tempfile.TemporaryDirectory(prefix="flashlab-calibration-") as folder:
        log = {"write_bw_log": f"{folder}/done"}
        run = fio.run(drive.target.path, {**options, **log})
        drive.check(phase, [run])
        times_ms = np.loadtxt(f"{folder}/done_bw.1.log", delimiter=",", usecols=0, ndmin=1)
    return rates_of(phase.jobs, times_ms / 1e3 / slowdown)


def _figure(job: DriveJob, run: FioRun, slowdown: int) -> float:
    if not run.ops or run.elapsed_s <= 0.0:
        raise DeviceError(f"{job.name}: fio did nothing")
    if job.figure == "rate":
        return sum(op.bytes for op in run.ops.values()) / run.elapsed_s * slowdown
    return run.busiest.latency_p50_ns / 1e9 / slowdown


def _told(value: float, unit: str) -> str:
    return f"{value * 1e6:.4g} us" if unit == "s" else f"{value / 1e6:.4g} MB/s"


def _prepare(phase: Phase, drive: Drive) -> None:
    for what, command, written in _preparation(phase, drive):
        drive.target.permit(what, written)
        with drive.unpaced():
            done = leases.call(command, dies_with_us=True)
        if done.returncode != 0:
            said = " ".join(done.stderr.decode(errors="replace").split())
            raise DeviceError(f"{what}: {' '.join(command)} failed: {said}")


def _preparation(phase: Phase, drive: Drive) -> list[tuple[str, list[str], int]]:
    """What it is, its command, and what it writes at most: none or one."""
    path = drive.target.path
    if phase.prepare == "discard":
        # Without --force it refuses what somebody uses: the guard holds the header, not this part.
        place = [f"--offset={drive.begin_bytes}", f"--length={drive.size_bytes // _UNIT * _UNIT}"]
        command = [find_program("blkdiscard"), *place, str(path)]
        return [("discard of the whole drive", command, 0)]
    if phase.prepare == "overwrite":
        options: dict[str, str | int] = {
            "rw": "randwrite",
            "bs": _UNIT,
            "offset": drive.begin_bytes,
            "size": drive.size_bytes // _UNIT * _UNIT,
            "io_size": phase.prepared_bytes,
            **_COMMON,
            "ioengine": "libaio",
            "iodepth": _PREPARING_DEPTH,
        }
        command = fio.command(path, [options])
        return [("random overwrite of the whole drive", command, phase.prepared_bytes)]
    return []


# Two blocks may be the same one, as in the model.
_COMMON: Final[dict[str, str | int]] = {"direct": 1, "norandommap": 1, "thread": 1}


def _options(job: DriveJob, drive: Drive) -> dict[str, str | int]:
    """The job in fio's words."""
    begin, end = job.range_bytes(drive.size_bytes)
    options: dict[str, str | int] = {
        "rw": _FIO_OPS.get((job.op, job.pattern), f"{job.op}:-{2 * job.block_bytes}"),
        "bs": job.block_bytes,
        "offset": drive.begin_bytes + begin,
        "size": end - begin,
        "io_size": job.requests * job.block_bytes,
        **_COMMON,
        **({"nice": _NICE} if os.geteuid() == 0 else {}),
        "randseed": zlib.crc32(job.name.encode()),
        "ioengine": "psync" if job.queue_depth == 1 else "io_uring",
        "iodepth": job.queue_depth,
    }
    if job.op == "mixed":
        options["rwmixread"] = round(job.read_ratio * 100)
    if job.pattern == "ends":
        options["random_distribution"] = _ENDS
    return options


def _discards(path: Path) -> bool:
    """Whether a block device's queue takes TRIM commands; a file takes none."""
    if not path.is_block_device():
        return False
    info = path.stat()
    number = f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"
    sysfs = (Path("/sys/dev/block") / number).resolve()
    if (sysfs / "partition").exists():
        sysfs = sysfs.parent
    limit = sysfs / "queue" / "discard_max_bytes"
    return limit.is_file() and int(limit.read_text()) > 0
