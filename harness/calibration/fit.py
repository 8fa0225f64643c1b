"""A drive's parameters from the figures of a calibration, by least squares on its model.

Parameters are solved in groups that follow one another: reads, writes into RAM, sequential writes,
steady random writes, TRIM; or, of a disk, rates, electronics, rotation, seeks. A group has fewer
parameters than figures, or as many; which figures decide what stands in `_FLASH` and `_DISK`. The
number of dies is tried out: it is what reads at a middle depth depend on.

What outside jobs cannot tell apart is one parameter here: program time stands for dies, planes and
page size, too, and a slice's TRIM time is split evenly between its two parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from harness.calibration.jobs import DriveJob, JobPlan
from harness.calibration.simulate import simulated
from harness.devices.profiles import DeviceProfile, HddProfile, Ratio, SsdProfile, load_device
from harness.devices.scaling import scaled_to
from harness.errors import BadParameter

_STEP: Final = 0.02  # of the logarithm of a parameter, for a derivative
_FURTHEST: Final = math.log(100.0)
_LEAST: Final[dict[type, float]] = {Ratio: 1e-3}
_EVALUATIONS: Final = 20
_CLOSE: Final = 1e-5
_DIGITS: Final = 4
_DIES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_PLANES: Final = (1, 2, 4)
_CANDIDATES: Final = 3
_SHORTEST_BLOCK: Final = 8
_UNIT: Final = 4096
_SPARE: Final = (0.02, 1.0)
_HALVINGS: Final = 8
_LEAST_NS: Final = 10
_NO_CACHE_RATIO: Final = 1.1
"""Sequential writes that end less than this much slower than they begin know no SLC cache."""


_BLANK_READ: Final = "read of what holds nothing"
_P = TypeVar("_P", HddProfile, SsdProfile)


@dataclass(frozen=True)
class _Group:
    """`parameters` of the profile that the jobs with these names (or their beginnings) decide."""

    parameters: tuple[str, ...]
    jobs: tuple[str, ...]


_READS: Final = _Group(
    ("read_latency", "read_page", "command_time", "link_rate"),
    (_BLANK_READ, "random read", "sequential read"),
)
_BUFFERED_WRITES: Final = _Group(("write_command_time", "write_latency"), ("random write",))
_PIECES: Final = _Group(("slc_program_page", "program_page", "slc_cache"), ("sequential write",))
_STEADY: Final = _Group(("overprovision",), ("steady random write",))
_TRIMS: Final = _Group(("trim_command_time", "trim_map_time"), ("TRIM",))
_MIXED: Final = _Group((), ("random, ",))
_DISK: Final = (
    _Group(("command_overhead", "link_rate"), ("read of what was read ahead", "read again")),
    _Group(("rpm",), ("read backwards",)),
    _Group(("outer_rate", "inner_rate"), ("sequential read",)),
    _Group(
        ("track_to_track_seek", "average_seek", "full_stroke_seek"),
        ("random read, one", "random read, everywhere", "random read, both ends"),
    ),
)
_TIED: Final = {"trim_map_time": "trim_buffer_time"}


@dataclass(frozen=True)
class Calibrated:
    """A drive's profile, and how well it gives the figures back.

    `decided_by`: the jobs that each fitted parameter was fitted to, by parameter; others are as the
    generic profile has them. `residuals`: a row per job with job, held_out, unit (s or bytes/s),
    measured, simulated, error_ratio.
    """

    profile: DeviceProfile
    decided_by: Mapping[str, tuple[str, ...]]
    residuals: pd.DataFrame

    @property
    def worst_fitted(self) -> float:
        """Largest |error_ratio| of a job that the fit has seen."""
        return float(self.residuals[~self.residuals.held_out].error_ratio.abs().max())

    @property
    def worst_held_out(self) -> float:
        """Largest |error_ratio| of a prediction."""
        return float(self.residuals[self.residuals.held_out].error_ratio.abs().max())


def generic_profile(folder: Path, kind: str) -> DeviceProfile:
    """Where the fit of a drive of that kind begins, from a folder of profiles."""
    return load_device(folder / "generic", kind)


def fit(generic: DeviceProfile, plan: JobPlan, figures: Mapping[str, float]) -> Calibrated:
    """Fits a generic drive to figures (by job, s or bytes/s) of a drive of the plan's size.

    Figures of held-out jobs are only compared. A parameter whose jobs were not run stays. Raises
    BadParameter for a drive that is too small for the generic one's dies.
    """
    seen = [job for job in plan.jobs if job.name in figures]
    fitted = _Fit(plan, [job for job in seen if not job.held_out], figures)
    profile: DeviceProfile
    if isinstance(generic, SsdProfile):
        profile = _fit_flash(fitted, generic, plan.size_bytes)
    else:
        profile = _fit_disk(fitted, generic, plan.size_bytes)
    return Calibrated(profile, fitted.decided_by, _residuals(profile, plan, seen, figures))


def _residuals(
    profile: DeviceProfile, plan: JobPlan, jobs: list[DriveJob], figures: Mapping[str, float]
) -> pd.DataFrame:
    found = simulated(profile, plan, jobs)
    return pd.DataFrame(
        {
            "job": job.name,
            "held_out": job.held_out,
            "unit": job.unit,
            "measured": figures[job.name],
            "simulated": found[job.name],
            "error_ratio": found[job.name] / figures[job.name] - 1.0,
        }
        for job in jobs
    )


class _Fit:
    """The figures, and what has been fitted to them so far."""

    def __init__(self, plan: JobPlan, jobs: list[DriveJob], figures: Mapping[str, float]) -> None:
        self.plan = plan
        self.figures = figures
        self.decided_by: dict[str, tuple[str, ...]] = {}
        self._jobs = jobs

    def jobs_of(self, group: _Group) -> list[DriveJob]:
        """The jobs that were run for a group."""
        return [job for job in self._jobs if job.name.startswith(group.jobs)]

    def errors(self, profile: DeviceProfile, jobs: list[DriveJob]) -> NDArray[np.float64]:
        """ln(simulated / measured) of these jobs."""
        found = simulated(profile, self.plan, jobs)
        return np.array([math.log(found[job.name] / self.figures[job.name]) for job in jobs])

    def has(self, name: str) -> bool:
        """Whether a job whose name begins so was run."""
        return any(job.name.startswith(name) for job in self._jobs)

    def first(self, name: str) -> float:
        """The figure of the first job whose name begins so."""
        return next(self.figures[job.name] for job in self._jobs if job.name.startswith(name))

    def last(self, name: str) -> float:
        """The figure of the last one."""
        return [self.figures[job.name] for job in self._jobs if job.name.startswith(name)][-1]

    def cost(self, profile: DeviceProfile, group: _Group) -> float:
        """Sum of squares of a group's errors; 0 if none of its jobs was run, inf for no drive."""
        jobs = self.jobs_of(group)
        try:
            return float((self.errors(profile, jobs) ** 2).sum()) if jobs else 0.0
        except BadParameter:
            return math.inf

    def solve(self, profile: _P, group: _Group) -> _P:
        """The profile with a group's parameters at the least squares of its jobs' errors."""
        jobs = self.jobs_of(group)
        names = group.parameters
        if len(jobs) < len(names):
            return profile
        begin = np.log([_start(profile, name) for name in names])

        def errors(x: NDArray[np.float64]) -> NDArray[np.float64]:
            try:
                return self.errors(_with(profile, names, np.exp(x)), jobs)
            except BadParameter:  # such as an average seek above the full stroke
                return np.full(len(jobs), _FURTHEST)

        best = scipy.optimize.least_squares(
            errors,
            begin,
            bounds=(begin - _FURTHEST, begin + _FURTHEST),
            diff_step=_STEP,
            ftol=_CLOSE,
            xtol=_CLOSE,
            max_nfev=_EVALUATIONS,
        )
        self.decided_by |= dict.fromkeys(names, tuple(job.name for job in jobs))
        return _with(profile, names, np.exp(best.x))


def _fit_disk(fitted: _Fit, generic: HddProfile, size_bytes: int) -> HddProfile:
    profile = _with_values(generic, {"capacity": size_bytes})
    for group in _DISK:
        profile = fitted.solve(profile, group)
    return profile


def _fit_flash(fitted: _Fit, generic: SsdProfile, size_bytes: int) -> SsdProfile:
    reads = _reads_group(fitted)
    begins = [_reads_begin(fitted, sized) for sized in _with_dies(generic, size_bytes)]
    begins.sort(key=lambda candidate: fitted.cost(candidate, reads))
    profile = min(
        (fitted.solve(candidate, reads) for candidate in begins[:_CANDIDATES]),
        key=lambda candidate: fitted.cost(candidate, reads),
    )
    fitted.decided_by["dies_per_channel"] = _names(fitted.jobs_of(reads))
    profile = fitted.solve(_writes_begin(fitted, profile), _BUFFERED_WRITES)
    begins = [_programs_begin(fitted, candidate) for candidate in _with_planes(profile)]
    profile = min(begins, key=lambda candidate: fitted.cost(candidate, _MIXED))
    fitted.decided_by["planes"] = _names(fitted.jobs_of(_MIXED))
    profile = _solve_pieces(fitted, profile)
    profile = _solve_steady(fitted, profile)
    return fitted.solve(_trims_begin(fitted, profile), _TRIMS)


def _reads_group(fitted: _Fit) -> _Group:
    if fitted.has(_BLANK_READ):
        return _READS
    return replace(_READS, parameters=("read_page", "command_time", "link_rate"))


def _with_dies(generic: SsdProfile, size_bytes: int) -> Iterator[SsdProfile]:
    """The generic drive of that size, with one number of dies a channel after the other."""
    possible = 0
    for dies in _DIES:
        values = {"dies_per_channel": dies}
        try:
            yield _sized(_with_values(generic, values), size_bytes)
        except BadParameter:  # too many for so small a drive
            continue
        possible += 1
    if not possible:
        raise BadParameter("this target is too small for a flash drive: choose a larger one")


def _with_planes(profile: SsdProfile) -> Iterator[SsdProfile]:
    """The profile with other numbers of planes; blocks hold as many bytes as before."""
    pages = profile.parameters.pages_per_block.value * profile.parameters.planes.value
    for planes in _PLANES:
        if planes == 1 or pages // planes >= _SHORTEST_BLOCK:
            values = {"planes": planes, "pages_per_block": pages // planes}
            yield _with_values(profile, values)


# Where the fits begin: arithmetic that is right where only one thing limits a job.


def _reads_begin(fitted: _Fit, profile: SsdProfile) -> SsdProfile:
    p = profile.parameters
    link = fitted.first("sequential read")
    command_s = _UNIT / fitted.last(_BLANK_READ if fitted.has(_BLANK_READ) else "random read")
    alone_s = fitted.first("random read")
    blank_s = fitted.first(_BLANK_READ) if fitted.has(_BLANK_READ) else alone_s / 4
    latency_s = blank_s - command_s - _UNIT / link
    page_s = alone_s - max(blank_s, command_s) - _UNIT / p.channel_rate.value
    values = {"link_rate": link} | _in_ns(
        command_time=command_s, read_latency=latency_s, read_page=page_s
    )
    return _with_values(profile, {name: round(value) for name, value in values.items()})


def _writes_begin(fitted: _Fit, profile: SsdProfile) -> SsdProfile:
    command_s = _UNIT / fitted.last("random write")
    latency_s = fitted.first("random write") - command_s
    latency_s -= _UNIT / profile.parameters.link_rate.value
    return _with_values(profile, _in_ns(write_command_time=command_s, write_latency=latency_s))


def _trims_begin(fitted: _Fit, profile: SsdProfile) -> SsdProfile:
    if not fitted.has("TRIM"):
        return profile
    first, last = fitted.jobs_of(_TRIMS)[0], fitted.jobs_of(_TRIMS)[-1]
    slices = (last.block_bytes - first.block_bytes) / profile.parameters.trim_slice.value
    slice_s = (fitted.figures[last.name] - fitted.figures[first.name]) / slices
    values = _in_ns(
        trim_command_time=fitted.figures[first.name],
        trim_map_time=slice_s / 2,
        trim_buffer_time=slice_s / 2,
    )
    return _with_values(profile, values)


def _programs_begin(fitted: _Fit, profile: SsdProfile) -> SsdProfile:
    rates = [fitted.figures[job.name] for job in fitted.jobs_of(_PIECES)]
    values = _in_ns(
        program_page=_program_s(profile, rates[-1]),
        slc_program_page=_program_s(profile, max(rates[1:])),
    )
    return _with_values(profile, values)


def _program_s(profile: SsdProfile, rate: float) -> float:
    """A page's program time at which all dies together take so many bytes/s."""
    p = profile.parameters
    page = p.page.value * p.planes.value
    dies = p.channels.value * p.dies_per_channel.value
    return dies * page / rate - page / p.channel_rate.value


def _in_ns(**seconds: float) -> dict[str, int]:
    return {name: max(round(value * 1e9), _LEAST_NS) for name, value in seconds.items()}


def _solve_pieces(fitted: _Fit, profile: SsdProfile) -> SsdProfile:
    """SLC and normal rates, and the cache between them: or one rate, where there is no cache."""
    jobs = fitted.jobs_of(_PIECES)
    rates = [fitted.figures[job.name] for job in jobs]
    if max(rates[1:]) < _NO_CACHE_RATIO * rates[-1]:
        alone = replace(_PIECES, parameters=("program_page",), jobs=_names(jobs[2:]))
        profile = fitted.solve(_with_values(profile, {"slc_cache": 0}), alone)
        fitted.decided_by |= dict.fromkeys(_PIECES.parameters, _names(jobs))
        program = profile.parameters.program_page.value
        return _with_values(profile, {"slc_program_page": program})
    ends = [job.range_bytes(fitted.plan.size_bytes)[1] for job in jobs[:-1]]
    begins = [_with_values(profile, {"slc_cache": end}) for end in ends]
    best = min(begins, key=lambda candidate: fitted.cost(candidate, _PIECES))
    return fitted.solve(best, _PIECES)


def _solve_steady(fitted: _Fit, profile: SsdProfile) -> SsdProfile:
    """By bisection: a small drive's spare area changes by whole blocks, so its rate in steps."""
    jobs = fitted.jobs_of(_STEADY)
    if not jobs:
        return profile
    fitted.decided_by["overprovision"] = _names(jobs)

    def error(ratio: float) -> float:
        try:
            return float(fitted.errors(_with(profile, _STEADY.parameters, _array(ratio)), jobs)[0])
        except BadParameter:  # too little for the blocks that are open
            return -math.inf

    tried = {ratio: error(ratio) for ratio in _SPARE}
    for _ in range(_HALVINGS):
        below = [ratio for ratio, found in tried.items() if found < 0.0]
        above = [ratio for ratio, found in tried.items() if found >= 0.0]
        if not below or not above:
            break
        middle = math.sqrt(max(below) * min(above))
        tried[middle] = error(middle)
    best = min(tried, key=lambda ratio: abs(tried[ratio]))
    return _with(profile, _STEADY.parameters, _array(best))


def _array(value: float) -> NDArray[np.float64]:
    return np.array([value])


def _names(jobs: list[DriveJob]) -> tuple[str, ...]:
    return tuple(job.name for job in jobs)


def _sized(profile: SsdProfile, size_bytes: int) -> SsdProfile:
    """The profile with that capacity. Raises BadParameter if its dies do not fit in."""
    p = profile.parameters
    unit = p.map_unit.value
    size_bytes = size_bytes // unit * unit
    if size_bytes <= p.capacity.value:
        return scaled_to(profile, size_bytes)
    slc = p.slc_cache.value * size_bytes // p.capacity.value // unit * unit
    return _with_values(profile, {"capacity": size_bytes, "slc_cache": slc})


def _start(profile: DeviceProfile, name: str) -> float:
    value = getattr(profile.parameters, name)
    return max(float(value.value), _LEAST.get(type(value), 10.0))


def _with(profile: _P, names: tuple[str, ...], values: NDArray[np.float64]) -> _P:
    """The profile with these values, rounded as they are written."""
    changed: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        rounded = float(f"{value:.{_DIGITS}g}")
        whole = not isinstance(getattr(profile.parameters, name), Ratio)
        changed[name] = round(rounded) if whole else rounded
        if name == "slc_cache":
            changed[name] = int(value) // 4096 * 4096
        if name in _TIED:
            changed[_TIED[name]] = changed[name]
    return _with_values(profile, changed)


def _with_values(profile: _P, values: Mapping[str, Any]) -> _P:
    return profile.model_copy(update={"parameters": profile.parameters.with_values(values)})
