"""A block device of the kernel's driver ublk, which the core serves through io_uring.

    block layer | ublk | core/live/ublk

Nothing of what the host asks is changed on the way. The kernel keeps 64 bits of ours for each
device: its mark, made of the path of the device's file. Needs Linux 6.4 (`modprobe ublk_drv`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import Final

from harness import _core
from harness.devices.live.front.base import Attachment, Leftovers, Need, QueueLimits, Told
from harness.errors import MissingTool, TargetError
from harness.system import block_queue, writeback

CONTROL: Final = Path("/dev/ublk-control")
_SERVED: Final = Path("/sys/class/ublk-char")
_LARGEST_REQUEST_BYTES: Final = 1280 << 10
"""The block layer's own limit where a drive names a higher one (BLK_DEF_MAX_SECTORS)."""

_LIMIT_S: Final = 3.0
_NO_UBLK: Final = "the core was built without ublk"


class Ublk:
    """See the module, and `base.Front`."""

    told: Final = Told(
        largest_request_bytes=_LARGEST_REQUEST_BYTES,
        fua="fua",
        write_zeroes="write",
    )
    can_recover: Final = True
    needs: Final = (Need("liburing", _core.Ublk.available, "liburing-dev"),)

    def check(self) -> None:
        """Needs the library in the core, and the kernel's driver."""
        if not _core.Ublk.available():
            raise MissingTool(f"{_NO_UBLK}: apt-get install liburing-dev, then make env")
        if not CONTROL.exists():
            raise TargetError(f"there is no {CONTROL}: modprobe ublk_drv (Linux 6.4 or newer)")

    def attach(
        self,
        device: _core.LiveDevice,
        mark: Path,
        *,
        name: str,
        limits: QueueLimits,
        recoverable: bool = False,
    ) -> Attachment:
        """Adds, limits and starts a device; the driver has no place for `name`."""
        del name
        attached = _Served(_serve(device, mark, limits, recoverable=recoverable))
        where = Path("/sys/block") / attached.path.name
        with contextlib.suppress(OSError):  # a queue of one kind of scheduler only
            (where / "queue/scheduler").write_text("none")
        writeback.do_not_throttle(block_queue.number_of(attached.path.name))
        return attached

    def recover(self, device: _core.LiveDevice, mark: Path, *, limits: QueueLimits) -> Attachment:
        """Serves the driver's device with this mark."""
        numbers = _numbers(_mark(mark))
        if not numbers:
            raise TargetError(f"{mark}: the kernel has no such device any more")
        return _Served(_serve(device, mark, limits, recoverable=True, again=numbers[0]))

    def leftovers(self, mark: Path) -> Leftovers:
        """Devices of the driver with this mark."""
        return _Left(_mark(mark))


class _Served:
    """A device that this process serves."""

    def __init__(self, served: _core.Ublk) -> None:
        self._served = served
        self.path = _block_device(served.number)
        self.in_use = False

    def detach(self) -> None:
        """Also from who still uses it, after a moment's patience."""
        self.in_use = not _is_free(self.path, _LIMIT_S)
        _lift(self.path)
        self._served.take()

    def close(self) -> None:
        """And out of the kernel."""
        self._served.close()


class _Left:
    """See `base.Leftovers`. The numbers of dead devices are theirs until these are dropped."""

    def __init__(self, mark: int) -> None:
        self._mark = mark

    def block_devices(self) -> list[Path]:
        """Those with this mark, even if the kernel has ended the block device with its process."""
        return [_block_device(number) for number in _numbers(self._mark)]

    def abort(self) -> None:
        """The kernel itself ends what a dead process has not answered, unless another may come."""
        for number in _numbers(self._mark):
            if _core.Ublk.is_recoverable(number):
                _core.Ublk.take_other(number, self._mark)

    def detach(self, *, limit_s: float) -> list[Path]:
        """Takes them from the host; who uses them gets errors from then on."""
        busy = []
        for number in _numbers(self._mark):
            path = _block_device(number)
            if not _is_free(path, limit_s):
                busy.append(path)
            _lift(path)
            _core.Ublk.take_other(number, self._mark)
        return busy

    def drop(self) -> list[str]:
        """Out of the kernel."""
        for number in _numbers(self._mark):
            _core.Ublk.remove_other(number, self._mark)
        return []


def _serve(
    device: _core.LiveDevice,
    mark: Path,
    limits: QueueLimits,
    *,
    recoverable: bool,
    again: int | None = None,
) -> _core.Ublk:
    return _core.Ublk(
        device,
        mark=_mark(mark),
        rotational=limits.rotational,
        depth=limits.at_a_time,
        largest_bytes=_LARGEST_REQUEST_BYTES,
        discard_bytes=limits.discard_bytes,
        recoverable=recoverable,
        again=again,
    )


def _numbers(mark: int) -> list[int]:
    entries = _SERVED.iterdir() if _SERVED.is_dir() else ()
    there = [int(entry.name.removeprefix("ublkc")) for entry in entries]
    if there and not _core.Ublk.available():
        raise MissingTool(f"{_NO_UBLK}: what is left of it cannot be looked for")
    return sorted(number for number in there if _core.Ublk.mark_of(number) == mark)


def _mark(file: Path) -> int:
    """64 bits of what only this device's file is called."""
    return int.from_bytes(hashlib.sha256(os.fsencode(file)).digest()[:8], "little")


def _block_device(number: int) -> Path:
    return Path(f"/dev/ublkb{number}")


def _lift(device: Path) -> None:
    """The bounds of what the kernel may hold of it unwritten."""
    with contextlib.suppress(FileNotFoundError):
        writeback.lift(block_queue.number_of(device.name))


def _is_free(device: Path, limit_s: float) -> bool:
    """Whether nobody has it to himself (a mount has), or stops to within the limit."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
        except FileNotFoundError:
            return True
        except OSError:  # busy; or dead, which says nothing of its users
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        else:
            return True
