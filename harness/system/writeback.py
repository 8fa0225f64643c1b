"""How the kernel writes back to one block device: what it may hold unwritten, and how fast.

A device is named by its number, as in '7:3'. What is set stays with the number when what lies below
a loop device has gone, so whoever ends such a device lifts it. Linux,
Documentation/ABI/testing/sysfs-class-bdi, Documentation/ABI/stable/sysfs-block.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.errors import MissingTool, TargetError
from harness.system import block_queue, cgroups, repeating

_BDI: Final = Path("/sys/class/bdi")
_THROTTLE: Final = "queue/wbt_lat_usec"
_DEFAULT_THROTTLE: Final = "-1"
_KEPT_EVERY_S: Final = 0.2
_RATIO: Final = Path("/proc/sys/vm/dirty_ratio")
_CANNOT: Final = "the kernel cannot bound a device's dirty pages: use Linux 6.2 or newer"
_UNBOUNDED: Final = {"max_ratio": "100", "strict_limit": "0"}
"""How the kernel makes a device."""

_MOST: Final = 0.99
"""Of what all devices may hold, what one can be bounded to: a bound above all is refused, and what
all may hold shrinks while it is set."""


def check_share(ratio: float) -> None:
    """Whether the kernel lets a server have that share of its page cache dirty at all.

    Raises TargetError where control groups bound it, and to less.
    """
    if not cgroups.bound_writeback():
        return
    wanted, allowed = math.ceil(round(100 * ratio, 6)), int(_RATIO.read_text())
    if allowed < wanted:
        raise TargetError(
            f"control groups of version 2 let vm.dirty_ratio of a server's page cache be dirty, "
            f"{allowed} % on this machine, and here it is to be {wanted} %: for the run, sysctl "
            f"vm.dirty_ratio={wanted} vm.dirty_background_ratio={wanted // 2}"
        )


def check() -> None:
    """Whether the kernel can bound devices at all. Raises MissingTool on those before 6.2."""
    devices = list(_BDI.glob("*:*"))
    if devices and not any((device / "max_bytes").exists() for device in devices):
        raise MissingTool(_CANNOT)


@contextlib.contextmanager
def limited(number: str, limit_bytes: int) -> Iterator[None]:
    """Bounds it while the block runs; 0: does nothing.

    The kernel keeps a share of what all devices may hold, and not the bytes: where memory becomes
    scarce, as it does while a live device fills, the bound shrinks. So it is set again and again.
    Writing in the background begins at the same share of the limit as everywhere on this machine
    (dirty_background_ratio of dirty_ratio: a half, unless changed). Where control groups bound
    write-back, too, it is those of this process that are held to it (see `_of_all`). Raises
    MissingTool on kernels before 6.2, which cannot.
    """
    if not limit_bytes:
        yield
        return
    place = _place(number)
    if not (place / "max_bytes").exists():
        raise MissingTool(_CANNOT)
    by_group = cgroups.bound_writeback()

    def set_bound() -> None:
        with contextlib.suppress(OSError):  # the device may be gone
            bound = _of_all(limit_bytes) if by_group else limit_bytes
            (place / "max_bytes").write_text(str(bound))

    before = bound_of(number)
    try:
        (place / "strict_limit").write_text("1")
        set_bound()
        with repeating.every(_KEPT_EVERY_S, set_bound, name="dirty-limit"):
            yield
    finally:
        lift_bound(number, *before)


def _of_all(limit_bytes: int) -> int:
    """What a device is to be bounded to, so that the groups of this process hold the limit of it.

    The kernel keeps the bound as a share of what all devices may hold, and where groups bound
    write-back takes the same share of what the group may hold, which is vm.dirty_ratio of its
    memory: 8 MiB of 467, and so 0.2 of the 13 of a group of 64 (__wb_calc_thresh(),
    mm/page-writeback.c). Of several groups the one that may hold most decides: none holds more.
    """
    groups = cgroups.made()
    if not groups:
        return limit_bytes
    for_all = _threshold_bytes()
    in_groups = max(group.dirtyable_bytes() for group in groups) * int(_RATIO.read_text()) // 100
    in_groups = max(min(in_groups, for_all), 1)
    return round(for_all * min(limit_bytes / in_groups, _MOST))


def _threshold_bytes() -> int:
    """What all devices may hold unwritten at this moment."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, _, pages = line.partition(" ")
        if name == "nr_dirty_threshold":
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
    raise OSError("/proc/vmstat: no nr_dirty_threshold")


def lift(number: str) -> None:
    """As it was made: whatever the kernel's settings for all devices allow."""
    lift_bound(number)
    _set_throttle(number, _DEFAULT_THROTTLE)


def bound_of(number: str) -> tuple[str, str]:
    """What may be dirty of it now: a share, per cent, and whether it is held to that at all times,
    0 or 1, as `lift_bound` takes them. A kernel that is too old to say has its defaults.
    """
    place = _place(number)
    found = [(place / name, default) for name, default in _UNBOUNDED.items()]
    ratio, strict = (p.read_text().strip() if p.exists() else default for p, default in found)
    return ratio, strict


def lift_bound(number: str, ratio: str = "", strict: str = "") -> None:
    """What may be dirty of it is this share, per cent, of what all devices' may; the kernel's own
    without `ratio` and `strict`.
    """
    place = _place(number)
    with contextlib.suppress(OSError):  # the device may be gone, or the kernel too old
        for (name, default), value in zip(_UNBOUNDED.items(), (ratio, strict), strict=True):
            (place / name).write_text(value or default)


def do_not_throttle(number: str) -> None:
    """Write-back has the device's whole queue, whatever reads beside it take, until `lift`.

    Since Linux 4.10 the block layer lets fewer of its requests in if a read takes more than 2 ms
    (block/blk-wbt.c): of the clock, which a device that is slowed down reaches with every read. The
    papers' kernels and the models of them do not. Does nothing where the kernel cannot.
    """
    _set_throttle(number, "0")


def _set_throttle(number: str, target_us: str) -> None:
    with contextlib.suppress(OSError):  # gone, or a kernel without it
        (block_queue.folder_of(number) / _THROTTLE).write_text(target_us)


def _place(number: str) -> Path:
    """A partition has its drive's; that of a device which has gone is there no more."""
    drive = block_queue.folder_of(number)
    return _BDI / ((drive / "dev").read_text().strip() if drive.exists() else number)
