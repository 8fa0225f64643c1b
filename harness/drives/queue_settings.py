"""A drive's queue settings for as long as something is measured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from harness.errors import TargetError
from harness.system import block_queue, leases

DECIDING: Final = (
    "scheduler",
    "nr_requests",
    "max_sectors_kb",
    "nomerges",
    "read_ahead_kb",
    "rq_affinity",
    "wbt_lat_usec",
    "write_cache",
)
"""What of them decides when, where and how large requests reach a drive."""

COUNTS: Final = "iostats"
"""Without it the kernel does not count a drive's requests."""


def deciding(drive: str) -> dict[str, str]:
    """Those of a drive (its kernel name) as runs find it, without what one of them has set."""
    return {n: value for n, value in leases.queue_of(drive).items() if n in DECIDING}


@contextlib.contextmanager
def queue_settings(path: Path, settings: Mapping[str, str | int]) -> Iterator[None]:
    """Sets the queue settings of the drive at, or below the partition at, `path`.

    `settings`: names below /sys/block/DRIVE/queue (scheduler, nr_requests, read_ahead_kb,
    write_cache, ...), set in this order: a scheduler before what it brings. All are put back when
    the block ends, however it does; after a kill `harness clean` does it, or whoever is the next to
    enter such a block, be it with no settings; he also frees the kernel's own work, which a killed
    live device may have bound. Root only. Raises UnknownName, and TargetError if the kernel refuses
    a value, or would not take the present one back: often so with discard_max_bytes, of which it
    takes less than 4 GiB only; and before Linux 5.15 for every change, as the drive could not be
    told from another one of its name.
    """
    if COUNTS in settings:
        raise TargetError(
            f"{COUNTS}: what is written to a drive is known by what the kernel counts: leave it on"
        )
    drive = block_queue.drive_of(path).name
    leases.free_workqueues()
    wanted = {setting: str(value) for setting, value in settings.items()}
    if not block_queue.sequence(drive):
        if not wanted.items() <= block_queue.noted(drive).items():
            raise TargetError(
                f"{drive}: queue settings are not changed, since this kernel has no "
                f"/sys/block/{drive}/diskseq, by which they could be put back after a kill: use "
                "Linux 5.15 or newer, or go without --queue"
            )
        yield
        return
    with leases.open_lease() as lease:
        lease.note_queue(drive, list(wanted))
        block_queue.put(drive, wanted)
        yield
