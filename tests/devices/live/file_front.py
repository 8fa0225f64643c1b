"""Another front end, as small as one can be: a loop device over a plain file, and a link to it.

The device's model is asked for nothing. What it leaves behind is not what FUSE leaves: there is no
mount, but a link in a folder, which nobody but this front end knows of.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from harness import _core
from harness.devices.live.front import loops
from harness.devices.live.front.base import Front, Need, QueueLimits, Told
from harness.errors import TargetError

SIZE_BYTES = 64 << 20


class FileFront:
    """See the module. With `fails`, it finds out at the end that it cannot work here."""

    told = Told(
        largest_request_bytes=512 << 10,
        fua="write and flush",
        write_zeroes="trim",
    )
    needs: Sequence[Need] = ()
    can_recover = False

    def __init__(self, links: Path, *, fails: bool = False) -> None:
        self._links = links
        self._fails = fails

    def check(self) -> None:
        """It works wherever there are loop devices."""

    def attach(
        self,
        device: _core.LiveDevice,
        mark: Path,
        *,
        name: str,
        limits: QueueLimits,
        recoverable: bool = False,
    ) -> Attached:
        """The mark itself is the file."""
        os.truncate(mark, SIZE_BYTES)
        attached = Attached(Left(self._links, mark), loops.attach(mark))
        loops.limit_queue(attached.path, limits)
        (self._links / mark.name).symlink_to(attached.path)
        if self._fails:
            attached.detach()
            attached.close()
            raise TargetError("the test's front end fails: use another one")
        return attached

    def recover(self, device: _core.LiveDevice, mark: Path, *, limits: QueueLimits) -> Attached:
        """It can do without a process, but nobody asks it to."""
        raise NotImplementedError

    def leftovers(self, mark: Path) -> Left:
        """The loop device, and the link."""
        return Left(self._links, mark)


class Attached:
    """A file that the kernel serves: it needs no process."""

    def __init__(self, left: Left, path: Path) -> None:
        self._left = left
        self.path = path
        self.in_use = False

    def detach(self) -> None:
        """From the host."""
        self.in_use = bool(self._left.detach(limit_s=3.0))

    def close(self) -> None:
        """And the link."""
        self._left.drop()


class Left:
    """What there is of a device."""

    def __init__(self, links: Path, mark: Path) -> None:
        self._mark = mark
        self._link = links / mark.name

    def block_devices(self) -> list[Path]:
        """Loop devices with this mark."""
        return loops.over(self._mark)

    def abort(self) -> None:
        """Nobody waits for a process."""

    def detach(self, *, limit_s: float) -> list[Path]:
        """Detaches them."""
        return loops.detach(self._mark, limit_s=limit_s)

    def drop(self) -> list[str]:
        """The link."""
        if not self._link.is_symlink():
            return []
        self._link.unlink()
        return [f"deleted the link {self._link.name}"]


def fronts(links: Path) -> dict[str, Front]:
    """What to put into the table."""
    return {"file": FileFront(links), "failing": FileFront(links, fails=True)}
