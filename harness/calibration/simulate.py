"""The jobs of a calibration on the device model, in virtual time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np

from harness.calibration.jobs import DriveJob, JobPlan, join, plan_for, rates_of
from harness.devices.model import OPS, Device, Job, Run
from harness.devices.profiles import DeviceProfile, HddProfile, SsdProfile
from harness.devices.scaling import scaled_to
from harness.workloads.traces.base import SECTOR_BYTES, Chunk

_LARGEST_FLASH: Final = 8 << 30
_SEED: Final = 1
_MORE: Final = 4
_ENDS_RATIO: Final = 0.01


def simulated(profile: DeviceProfile, plan: JobPlan, jobs: Iterable[DriveJob]) -> dict[str, float]:
    """The figures of some of a plan's jobs, by name: s or bytes/s.

    A large flash drive is replaced by a small one that behaves like it (devices/scaling.py), with
    the same plan for its size. Raises BadParameter for a profile that no drive can have.
    """
    wanted = {job.name for job in jobs}
    if isinstance(profile, HddProfile):
        device = Device(profile, seed=_SEED)
        found = [job for job in plan.jobs if job.name in wanted]
        return {job.name: _figure(device, _longer(job)) for job in found}
    if profile.parameters.capacity.value > _LARGEST_FLASH:
        profile = scaled_to(profile, _LARGEST_FLASH)
    discards = any(job.op == "trim" for job in plan.jobs)
    small = plan_for(plan.kind, profile.parameters.capacity.value, discards=discards)
    return _flash(profile, [job for job in small.jobs if job.name in wanted], small)


def _flash(profile: SsdProfile, jobs: list[DriveJob], plan: JobPlan) -> dict[str, float]:
    """State by state, as on the drive: but no job depends on one of another state."""
    figures: dict[str, float] = {}
    for state, overwrites in (("full", 0.0), ("steady", 1.0)):
        wanted = [job for job in jobs if job.state == state]
        if not wanted:
            continue
        device = Device(profile, seed=_SEED)
        device.precondition(overwrites=overwrites, seed=_SEED)
        figures |= {job.name: _figure(device, job) for job in wanted}
    if any(job.state == "blank" for job in jobs):
        figures |= _blank(profile, jobs, plan)
    return {job.name: figures[job.name] for job in jobs}


def _blank(profile: SsdProfile, jobs: list[DriveJob], plan: JobPlan) -> dict[str, float]:
    """Each phase takes of the SLC cache what the next ones have not."""
    device = Device(profile, seed=_SEED)
    figures: dict[str, float] = {}
    filled = any(job.pattern == "sequential" and job.state == "blank" for job in jobs)
    for phase in plan.phases:
        for job in phase.jobs if not phase.joined else ():
            if job.state == "blank" and (filled or job in jobs):
                figures[job.name] = _figure(device, job)
        if phase.joined and filled:
            run = _run(device, join(phase.jobs), rows=True)
            done_ns = run.rows.submitted_ns + run.rows.latency_ns
            figures |= rates_of(phase.jobs, done_ns.to_numpy() / 1e9)
    return figures


def _longer(job: DriveJob) -> DriveJob:
    """Where the platters stand is chance: the model's mean shall have next to none of it."""
    chance = job.pattern in ("random", "ends")
    return replace(job, requests=job.requests * _MORE) if chance else job


def _figure(device: Device, job: DriveJob) -> float:
    run = _run(device, job, rows=job.figure == "median latency")
    if job.figure == "rate":
        return run.bytes_per_s
    return float(run.rows.latency_ns.median()) / 1e9  # a histogram's is one of its steps


def _run(device: Device, job: DriveJob, *, rows: bool) -> Run:
    begin, end = job.range_bytes(device.capacity_bytes)
    if job.pattern in ("backward", "ends"):
        return device.replay([_requests(job, begin, end)], queue_depth=job.queue_depth)
    return device.run(
        Job(
            op="read" if job.op == "mixed" else job.op,
            read_ratio=job.read_ratio if job.op == "mixed" else None,
            pattern=job.pattern,
            block_bytes=job.block_bytes,
            begin_bytes=begin,
            end_bytes=end,
            queue_depth=job.queue_depth,
            requests=job.requests,
            seed=_SEED,
        ),
        rows=rows,
    )


def _requests(job: DriveJob, begin: int, end: int) -> Chunk:
    blocks = (end - begin) // job.block_bytes
    if job.pattern == "backward":  # fio begins at the begin, and then at the end
        at = -np.arange(job.requests, dtype=np.int64) % blocks
    else:
        random = np.random.default_rng(_SEED)
        most = max(int(blocks * _ENDS_RATIO), 1)
        at = random.integers(0, most, job.requests)
        at = np.where(random.random(job.requests) < 0.5, at, blocks - 1 - at)
    n = len(at)
    return Chunk(
        time_ns=np.zeros(n, np.int64),
        op=np.full(n, OPS.index(job.op), np.uint8),
        lba=(begin + at * job.block_bytes) // SECTOR_BYTES,
        sectors=np.full(n, job.block_bytes // SECTOR_BYTES, np.int64),
        stream=np.zeros(n, np.uint16),
        fua=np.zeros(n, np.bool_),
        first_line=1,
    )
