"""Streams on the PM953, as its maker measured them.

Samsung, "Multi-stream SSD technology: 2x read performance and write endurance" (a brief on the
PM953S, Linux 4.3): fio, four jobs that write in sequence, of data with lifetimes of 1, 10, 33 and
55, beside six that read at random. With a stream for each job the drive lives twice as long.

What it does not say, set before the first run: the lifetimes are the jobs' parts of the drive, in
per cent, since they add up to 99; each job writes as fast as the others, in requests of 128 KiB,
one at a time. Reads change nothing on flash and are left out: how fast they are depends on how fast
the writes are let, which the brief does not say.
"""

from __future__ import annotations

from typing import Any, Final

from harness.devices.model import Device, Job
from harness.devices.profiles import DeviceProfile, SsdProfile
from harness.errors import BadParameter
from harness.experiments.elsewhere import Elsewhere

LIFETIMES_PERCENT: Final = (1, 10, 33, 55)
_REQUEST_BYTES: Final = 128 << 10
_SHRUNK: Final = 12
"""As the study's scale medium: the drive, and its blocks with it."""

_CYCLES: Final = 2
"""Of the longest-lived data, before measuring and while it is measured."""


def endurance_gain(profile: DeviceProfile) -> float:
    """How many times longer the drive lives with streams: bytes programmed without over with."""
    return _programmed(profile, "none") / _programmed(profile, "id")


def _programmed(profile: DeviceProfile, placement: str) -> float:
    """Per byte that the host writes, when the longest-lived data has been written twice over."""
    device = Device(_shrunk(profile, placement))
    jobs = _jobs(device.capacity_bytes)
    device.run(*jobs)
    return device.run(*jobs).waf


def _jobs(capacity_bytes: int) -> list[Job]:
    """Side by side; equally many requests each."""
    requests = capacity_bytes // _REQUEST_BYTES
    each = _CYCLES * requests * max(LIFETIMES_PERCENT) // 100
    jobs, begin = [], 0
    for stream, percent in enumerate(LIFETIMES_PERCENT):
        end = begin + requests * percent // 100
        jobs.append(
            Job(
                pattern="sequential",
                block_bytes=_REQUEST_BYTES,
                begin_bytes=begin * _REQUEST_BYTES,
                end_bytes=end * _REQUEST_BYTES,
                requests=each,
                stream=stream,
            )
        )
        begin = end
    return jobs


def _shrunk(profile: DeviceProfile, placement: str) -> SsdProfile:
    if not isinstance(profile, SsdProfile):
        raise BadParameter(f"{profile.title}: a disk has no streams")
    p = profile.parameters
    if p.streams.value < len(LIFETIMES_PERCENT):
        raise BadParameter(f"{profile.title}: has {p.streams.value} streams, this needs four")
    values: dict[str, Any] = {
        "capacity": p.capacity.value // _SHRUNK // _REQUEST_BYTES * _REQUEST_BYTES,
        "pages_per_block": max(round(p.pages_per_block.value / _SHRUNK), 1),
        "placement": placement,
    }
    return profile.model_copy(update={"parameters": p.with_values(values)})


ELSEWHERE: Final = (
    Elsewhere(
        id="samsung-streams-endurance",
        device="pm953",
        source="Samsung, Multi-stream SSD technology (PM953S)",
        statement="bytes programmed without streams over bytes programmed with four",
        published="2x write endurance",
        expected=(1.5, 2.5),
        why="'2x' of a brief: nearer to 2 than to 1 or 3",
        measure=endurance_gain,
    ),
)
