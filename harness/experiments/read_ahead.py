"""How far the kernel reads ahead on an emulated drive: as far as it did on the papers' machines.

Left to itself, the kernel decides it by the block device's past. Since Linux 6.17 a device that
spins gets twice its largest request (block/blk-settings.c, blk_apply_bdi_limits), and keeps it when
it no longer does: a loop device that was over a file on a disk once reads 2,560 KiB ahead in the
place of 128, on a modelled flash drive, too. A disk's real queue is left as it is: `--queue
read_ahead_kb=128` sets it for a run.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final

from harness.drives.queue_settings import queue_settings
from harness.tiers.base import DeviceUnderTest

READ_AHEAD_KIB: Final = 128
"""VM_READAHEAD_PAGES: the default of every kernel up to 6.16, for disks and flash drives."""


def as_modelled(device: DeviceUnderTest) -> AbstractContextManager[None]:
    """While the block runs, files that are opened on the device are read ahead that far.

    Of an emulated drive; of others it changes nothing. Raises what `queue_settings` raises.
    """
    if device.drive is None:
        return nullcontext()
    return queue_settings(device.path, {"read_ahead_kb": READ_AHEAD_KIB})
