"""The jobs of a calibration on a drive, with fio: steps before they are taken, figures after.

A `Drive` is a real one (or a file, to try it); an `EmulatedDrive` a live device, whose clock may be
slower than ours: its figures are in its own time, and a phase in which it answered too late is
refused. Before each phase that changes what lies on the drive, the target is asked (`permit`).
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness import mounts
from harness.calibration.jobs import DriveJob, Phase, Plan
from harness.calibration.simulate import simulated
from harness.devices.live import LiveDevice
from harness.devices.live.stats import MEAN_BOUND
from harness.devices.profiles import DeviceProfile
from harness.devices.scratch import HEADER_BYTES, MARKER, Scratch
from harness.devices.targets import Step, Target
from harness.errors import DeviceError, InvalidRun, TargetError
from harness.programs import find_program
from harness.workloads import fio
from harness.workloads.fio import FioRun

_UNIT: Final = 4096
_PREPARING_DEPTH: Final = 32
_ATTEMPTS: Final = 12
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
_FINE_SLOWDOWN: Final = 64
_ELECTRONIC_SLOWDOWN: Final = 16
_BACKED_UP_SHARE: Final = 4
_WAY_NS: Final = 40_000
_NICE: Final = -15
"""Of fio: an answer is seen when fio gets a processor, so it comes before other work."""


class Drive:
    """A drive that may be overwritten from `begin_bytes` on, in its own time."""

    slowdown = 1

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

    def begin(self, phase: Phase) -> int:
        """From here on a phase is measured; returns how much slower than the clock it runs."""
        del phase
        return 1

    def check(self, phase: Phase, runs: Sequence[FioRun]) -> None:
        """At the end of one. Raises InvalidRun if its figures cannot be trusted."""

    @contextmanager
    def unpaced(self) -> Iterator[None]:
        """For work that only brings the drive to a state, as fast as that may go."""
        yield


class EmulatedDrive(Drive):
    """A live device. `slowest`: it runs at least so much slower than the clock."""

    def __init__(self, device: LiveDevice, *, flash: bool, slowest: int = 1) -> None:
        super().__init__(_EmulatedTarget(device))
        self._device = device
        self._flash = flash
        self._timeless = "virtual" if flash else "none"
        # What a busy machine proposes is no use: a run that it spoils is refused.
        proposed = min(int(device.stats()["slowdown"]), _FINE_SLOWDOWN)
        self.slowdown = max(proposed, slowest)
        device.set_speed(self._timeless)

    def begin(self, phase: Phase) -> int:
        """The device may run slower yet than it proposes, so that the way to it is nothing.

        Its time runs in phases only: a drive that is left alone works for itself.
        """
        slowdown = self._slowdown_for(phase)
        self._device.set_speed("real", slowdown)
        self._device.reset()
        return slowdown

    def check(self, phase: Phase, runs: Sequence[FioRun]) -> None:
        """Replies left in time, and the host got them when they left."""
        seen = self._device.stats()
        self._device.set_speed(self._timeless)
        if not seen["valid"]:
            raise InvalidRun(f"{phase.name}: the run is not valid: {'; '.join(seen['problems'])}")
        if phase.jobs[0].figure != "latency":  # a rate's queue hides it, a median has none of it
            return
        host_ns = runs[0].busiest.latency_mean_ns / seen["slowdown"]
        device_ns = seen["model_latency"]["mean_ns"]
        if abs(host_ns - device_ns) > _bound_ns(device_ns, seen["slowdown"]):
            raise InvalidRun(
                f"{phase.name}: the device took {device_ns / 1e3:.1f} us, the host saw "
                f"{host_ns / 1e3:.1f} us: this machine is too busy"
            )

    def _slowdown_for(self, phase: Phase) -> int:
        """Latencies of some us need more than the drive's own, deep queues of writes less."""
        if not self._flash:
            electronic = any(job.electronic for job in phase.jobs)
            return max(self.slowdown, _ELECTRONIC_SLOWDOWN if electronic else 1)
        if all(job.queue_depth == 1 for job in phase.jobs):
            return max(self.slowdown, _FINE_SLOWDOWN)
        backed_up = all(job.waits_for_flash for job in phase.jobs)
        return -(-self.slowdown // _BACKED_UP_SHARE) if backed_up else self.slowdown

    @contextmanager
    def unpaced(self) -> Iterator[None]:
        """The model is told, if it is flash, and answers at once."""
        self._device.set_speed(self._timeless)
        yield


def _bound_ns(device_ns: float, slowdown: int) -> float:
    """By how much the host may see another mean latency than the device has, in its time.

    A hundredth; or what the way is known to, if that is not more than a run may be late.
    """
    return max(0.01 * device_ns, min(_WAY_NS / slowdown, MEAN_BOUND * device_ns))


@dataclass(frozen=True)
class _EmulatedTarget:
    """A live device may be overwritten as long as nobody has mounted it."""

    device: LiveDevice

    @property
    def path(self) -> Path:
        return self.device.path

    @property
    def size_bytes(self) -> int:
        return self.device.size_bytes

    def permit(self, step: str, written_bytes: int) -> None:
        del written_bytes
        if found := mounts.of_device(self.path):
            raise TargetError(f"{step}: {self.path} is mounted at {found[0].point}: unmount it")


@dataclass(frozen=True)
class FileTarget:
    """A scratch file or loop device, which must go on carrying our marker."""

    scratch: Scratch

    @property
    def path(self) -> Path:
        return self.scratch.path

    @property
    def size_bytes(self) -> int:
        return self.scratch.size_bytes

    def permit(self, step: str, written_bytes: int) -> None:
        del written_bytes
        with self.path.open("rb") as file:
            if file.read(len(MARKER)) != MARKER:
                raise TargetError(f"{step}: {self.path} does not carry our marker any more")


def file_drive(target: Scratch) -> Drive:
    """A scratch target as a drive: what lies behind the marker."""
    return Drive(FileTarget(target), HEADER_BYTES)


def steps(plan: Plan, drive: Drive, generic: DeviceProfile) -> list[Step]:
    """What a calibration would do, phase by phase; times are those of the generic drive."""
    expected = simulated(generic, plan, plan.jobs)
    found = []
    for phase in plan.phases:
        for what, command, written in _preparation(phase, drive):
            seconds = written / _overwriting_rate(plan, expected)
            found.append(Step(what, tuple(command), written, seconds))
        if phase.jobs:
            options = [_options(job, drive) for job in phase.jobs]
            seconds = sum(_expected_s(job, expected[job.name]) for job in phase.jobs)
            written = sum(job.written_bytes for job in phase.jobs)
            command = fio.command(drive.target.path, options)
            found.append(Step(phase.name, tuple(command), written, seconds * drive.slowdown))
    return found


def _overwriting_rate(plan: Plan, expected: Mapping[str, float]) -> float:
    return next(expected[job.name] for job in plan.jobs if job.name.startswith("steady"))


def _expected_s(job: DriveJob, figure: float) -> float:
    """How long a job takes with that figure."""
    if job.figure == "rate":
        return job.requests * job.block_bytes / figure
    return job.requests * figure


def measure(
    plan: Plan, drive: Drive, tell: Callable[[str], None] = lambda _: None
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
    for attempt in range(_ATTEMPTS, 0, -1):
        if any(job.writes for job in phase.jobs):
            drive.target.permit(phase.name, sum(job.written_bytes for job in phase.jobs))
        try:
            return _once(phase, drive, tell)
        except InvalidRun as error:
            if attempt == 1 or not phase.repeatable:
                raise
            tell(f"once more: {error}")
    raise AssertionError


def _once(phase: Phase, drive: Drive, tell: Callable[[str], None]) -> dict[str, float]:
    options = [_options(job, drive) for job in phase.jobs]
    slowdown = drive.begin(phase)
    runs = fio.run_in_turn(drive.target.path, options)
    drive.check(phase, runs)
    figures = {}
    for job, run in zip(phase.jobs, runs, strict=True):
        figures[job.name] = _figure(job, run, slowdown)
        tell(f"{job.name}: {_told(figures[job.name], job.unit)}")
    return figures


def _figure(job: DriveJob, run: FioRun, slowdown: int) -> float:
    if not run.ops or run.elapsed_s <= 0.0:
        raise DeviceError(f"{job.name}: fio did nothing")
    if job.figure == "rate":
        return sum(op.bytes for op in run.ops.values()) / run.elapsed_s * slowdown
    op = run.busiest
    latency_ns = op.latency_mean_ns if job.figure == "latency" else op.latency_p50_ns
    return latency_ns / 1e9 / slowdown


def _told(value: float, unit: str) -> str:
    return f"{value * 1e6:.4g} us" if unit == "s" else f"{value / 1e6:.4g} MB/s"


def _prepare(phase: Phase, drive: Drive) -> None:
    for what, command, written in _preparation(phase, drive):
        drive.target.permit(what, written)
        with drive.unpaced():
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = " ".join(done.stderr.split())
            raise DeviceError(f"{what}: {' '.join(command)} failed: {said}")


def _preparation(phase: Phase, drive: Drive) -> list[tuple[str, list[str], int]]:
    """What it is, its command, and what it writes at most: none or one."""
    path = drive.target.path
    if phase.prepare == "discard":
        # Without --force it would want the drive for itself, which whoever claimed it has.
        place = [f"--offset={drive.begin_bytes}", f"--length={drive.size_bytes // _UNIT * _UNIT}"]
        command = [find_program("blkdiscard"), "--force", *place, str(path)]
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
