"""Streams on drives like the PM953, as their maker measured them.

**A stream for each job.** Samsung, "Multi-stream SSD technology: 2x read performance and write
endurance" (a brief on the PM953S, Linux 4.3): fio, four jobs that write in sequence, of data with
lifetimes of 1, 10, 33 and 55, beside six that read at random. With a stream for each job the drive
lives twice as long.

What it does not say, set before the first run: the lifetimes are the jobs' parts of the drive, in
per cent, since they add up to 99; each job writes as fast as the others, in requests of 128 KiB,
one at a time. Reads change nothing on flash and are left out: how fast they are depends on how fast
the writes are let, which the brief does not say.

**A stream for each kind of data of ext4.** Rho et al., "FStream: managing flash streams in the file
system" (FAST '18): journal, inodes, directories and bitmaps apart from the files' data lower write
amplification under filebench by 7 to 46 %, over its workloads and two file systems.

Set before the first run: the workload is `varmail` on ext4, which syncs all that it writes and so
writes most metadata; the journal is mke2fs's of then, 128 MiB on 480 GB; mail fills 85 % of the
drive, since with much less nothing is to be gained. The drive is made a 25th of 480 GB, as in the
study's scale small, and the journal with it; measured once all has been written three times over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from harness.devices.model import Device, Job, waf_of
from harness.devices.profiles import DeviceProfile, SsdProfile
from harness.errors import BadParameter
from harness.experiments.elsewhere import Elsewhere
from harness.workloads.mail_server import THREADS, Kind, MailServer
from harness.workloads.traces import Chunk

LIFETIMES_PERCENT: Final = (1, 10, 33, 55)
_REQUEST_BYTES: Final = 128 << 10
_SHRUNK: Final = 12
"""As the study's scale medium: the drive, and its blocks with it."""

_CYCLES: Final = 2
"""Of the longest-lived data, before measuring and while it is measured."""

_MAIL_DRIVE_BYTES: Final = 480_000_000_000 // 25
_MAIL_FILLED: Final = 0.85
_MAIL_JOURNAL_BYTES: Final = (128 << 20) // 25
_MAIL_WARM_UP: Final = 3
"""Times the drive's capacity, and once more while it is measured."""


def endurance_gain(profile: DeviceProfile) -> float:
    """How many times longer the drive lives with streams: bytes programmed without over with."""
    return _programmed(profile, "none") / _programmed(profile, "id")


def amplification_saved(profile: DeviceProfile) -> float:
    """What share of write amplification a stream for each kind of a mail server's data saves."""
    without, apart = _mail_wafs(profile, _MAIL_DRIVE_BYTES, _MAIL_JOURNAL_BYTES)
    return 1 - apart / without


def _mail_wafs(profile: DeviceProfile, drive_bytes: int, journal_bytes: int) -> list[float]:
    """Of a drive made that small, without streams and with them, of the same writes."""
    by = max(profile.parameters.capacity.value // drive_bytes, 1)
    devices = [Device(_shrunk(profile, placement, len(Kind), by)) for placement in ("none", "id")]
    capacity_bytes = devices[0].capacity_bytes
    mail = MailServer(capacity_bytes, filled_ratio=_MAIL_FILLED, journal_bytes=journal_bytes)

    def write(chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            for device in devices:
                device.replay([chunk], queue_depth=THREADS)

    write([mail.laid_out()])
    write(mail.run(_MAIL_WARM_UP * capacity_bytes))
    before = [device.counters for device in devices]
    write(mail.run(capacity_bytes))
    return [
        waf_of({name: value - old[name] for name, value in device.counters.items()})
        for device, old in zip(devices, before, strict=True)
    ]


def _programmed(profile: DeviceProfile, placement: str) -> float:
    """Per byte that the host writes, when the longest-lived data has been written twice over."""
    device = Device(_shrunk(profile, placement, len(LIFETIMES_PERCENT), _SHRUNK))
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


def _shrunk(profile: DeviceProfile, placement: str, streams: int, by: int) -> SsdProfile:
    if not isinstance(profile, SsdProfile):
        raise BadParameter(f"{profile.title}: a disk has no streams")
    p = profile.parameters
    if p.streams.value < streams:
        raise BadParameter(f"{profile.title}: has {p.streams.value} streams, this needs {streams}")
    values: dict[str, Any] = {
        "capacity": p.capacity.value // by // _REQUEST_BYTES * _REQUEST_BYTES,
        "pages_per_block": max(round(p.pages_per_block.value / by), 1),
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
    Elsewhere(
        id="fstream-mail-server",
        device="pm953",
        source="Rho et al., FStream (FAST '18)",
        statement="share of write amplification that streams save under a mail server on ext4",
        published="reduces WAF by 7 % to 46 %",
        expected=(0.07, 0.46),
        why="the range that its abstract gives for all workloads of filebench",
        measure=amplification_saved,
    ),
)
