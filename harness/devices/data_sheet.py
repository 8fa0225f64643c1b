"""Data sheets: every published figure of a drive, run as a job on its model and compared.

    measure(profile, profile.data_sheet[0]).error_ratio
    check(profile)

A figure is measured when the drive has settled: a first job, which is not counted, fills the write
buffer, and where the drive is full also its spare blocks. How that is kept short:

- Sequential reads of a new drive read a part of the span only; what was written in order before
  lies there as it would if all of it had been written.
- A full drive larger than `_LARGE_BYTES` is replaced by one with fewer blocks a die, but the same
  dies, share of spare blocks and share of SLC cache. Neither reads nor writes in order see the
  difference: no block is collected that holds anything, so write amplification is 1 in both. For
  random writes it would not be the same (open and reserved blocks are a larger share of a smaller
  drive's spare ones), so for those the drive keeps its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd

from harness.devices.model import Device, Job
from harness.devices.profiles import (
    DataSheetFigure,
    DataSheetJob,
    DeviceProfile,
    SsdParameters,
    SsdProfile,
)
from harness.errors import BadParameter

_RATE_TOLERANCE: Final = 0.05
_LATENCY_TOLERANCE: Final = 0.10
_LARGE_BYTES: Final = 64 << 30
_SEQUENTIAL_BYTES: Final = 1 << 30
_RANDOM_REQUESTS: Final = 40_000
_DISK_REQUESTS: Final = 4_000
# Superblocks (a block of each die) that the host writes to a drive in steady state: at any write
# amplification each die then collects at least as many blocks.
_STEADY_SUPERBLOCKS: Final = 4
_SEED: Final = 1


@dataclass(frozen=True)
class Measured:
    """A figure as the model has it. Units: bytes/s, IOPS, or s (mean latency)."""

    value: float
    unit: str
    expected: float

    @property
    def error_ratio(self) -> float:
        """By how much the model is above the data sheet: 0.05 is five percent."""
        return self.value / self.expected - 1.0

    @property
    def tolerance_ratio(self) -> float:
        """What the error may be: more for latency, of which data sheets give typical values."""
        return _LATENCY_TOLERANCE if self.unit == "s" else _RATE_TOLERANCE

    @property
    def holds(self) -> bool:
        """Whether the model has the figure within the tolerance."""
        return abs(self.error_ratio) <= self.tolerance_ratio


def measure(profile: DeviceProfile, figure: DataSheetFigure) -> Measured:
    """Runs a figure's job on a drive in the figure's state. Raises BadParameter."""
    profile = _small_enough(profile, figure.job)
    device = Device(profile, seed=_SEED)
    span = figure.job.span_bytes(device.capacity_bytes)
    if span > device.capacity_bytes:
        raise BadParameter(f"data sheet, {figure.name}: its span is larger than the drive")
    lengths = _lengths(profile, figure.job, span)
    if figure.job.op == "read" and figure.job.pattern == "sequential":
        span = min(span, sum(lengths) * figure.job.block)
    if isinstance(profile, SsdProfile):
        _bring_to_state(device, figure.job, span)
    for seed, requests in enumerate(lengths):
        run = device.run(
            Job(
                op=figure.job.op,
                pattern=figure.job.pattern,
                block_bytes=figure.job.block,
                begin_bytes=_begin(figure.job, lengths[:seed], span),
                end_bytes=span,
                queue_depth=figure.job.queue_depth,
                requests=requests,
                seed=seed,
            )
        )
    expected, unit = figure.quantity()
    latency_s = run.ops[figure.job.op].latency_mean_ns / 1e9
    value = {"bytes/s": run.bytes_per_s, "IOPS": run.iops, "s": latency_s}[unit]
    return Measured(value, unit, expected)


def check(profile: DeviceProfile) -> pd.DataFrame:
    """All figures of a profile, measured; one row each.

    Columns: figure, use (fit or check), unit (bytes/s, IOPS, s), expected, simulated, error_ratio,
    tolerance_ratio, holds. Raises BadParameter.
    """
    rows = []
    for figure in profile.data_sheet:
        measured = measure(profile, figure)
        rows.append(
            {
                "figure": figure.name,
                "use": figure.use,
                "unit": measured.unit,
                "expected": measured.expected,
                "simulated": measured.value,
                "error_ratio": measured.error_ratio,
                "tolerance_ratio": measured.tolerance_ratio,
                "holds": measured.holds,
            }
        )
    return pd.DataFrame(rows)


def _small_enough(profile: DeviceProfile, job: DataSheetJob) -> DeviceProfile:
    collects = job.op == "write" and job.pattern == "random"
    if not isinstance(profile, SsdProfile) or job.state != "full" or collects:
        return profile
    p = profile.parameters
    if p.capacity.value <= _LARGE_BYTES:
        return profile
    share = _LARGE_BYTES / p.capacity.value
    values = {"capacity": _LARGE_BYTES, "slc_cache": round(p.slc_cache.value * share)}
    return profile.model_copy(update={"parameters": p.with_values(values)})


def _bring_to_state(device: Device, job: DataSheetJob, span: int) -> None:
    if job.state == "steady":
        device.to_steady_state(_SEED)
    elif job.state == "full":
        device.precondition()
    elif job.op == "read":
        device.precondition(fill_ratio=span / device.capacity_bytes)


def _lengths(profile: DeviceProfile, job: DataSheetJob, span: int) -> tuple[int, int]:
    """Requests until the drive has settled, and requests that count."""
    settled = 4 * job.queue_depth
    if not isinstance(profile, SsdProfile):
        return settled, _DISK_REQUESTS
    counted = _RANDOM_REQUESTS
    if job.pattern == "sequential":
        counted = min(_SEQUENTIAL_BYTES, span // 2) // job.block
    if job.op == "write":
        p = profile.parameters
        settled += 4 * p.write_buffer.value // job.block
        if job.state == "full":
            settled += round(p.capacity.value * p.overprovision.value) // job.block
        if job.state == "steady":
            superblock = _superblock_bytes(p)
            settled += superblock // job.block
            counted = max(counted, _STEADY_SUPERBLOCKS * superblock // job.block)
    return settled, max(counted, 1)


def _superblock_bytes(p: SsdParameters) -> int:
    block = p.page.value * p.planes.value * p.pages_per_block.value
    return block * p.channels.value * p.dies_per_channel.value


def _begin(job: DataSheetJob, before: tuple[int, ...], span: int) -> int:
    """A sequential job goes on where the one before it ended, unless the span has ended too."""
    if job.pattern != "sequential":
        return 0
    begin = sum(before) * job.block
    return begin if begin + job.block <= span else 0
