"""A FUSE file that the core serves, mounted over the device's mark; a loop device lies over it.

    block layer | loop device (direct I/O) | FUSE | core/live/fuse_file

The loop device carries the mark as its name in the kernel (`loops`), the mount is found by its
place. What each request becomes on the way: docs/architecture.md, Live devices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness import _core
from harness.devices.live.front import loops
from harness.devices.live.front.base import Attachment, Leftovers, Need, QueueLimits, Told
from harness.errors import MissingTool, TargetError
from harness.system import loop_devices, mounts

_THREADS: Final = 2
_FUSE: Final = Path("/dev/fuse")


class FuseLoop:
    """See the module, and `base.Front`."""

    told: Final = Told(
        largest_request_bytes=loops.LARGEST_REQUEST_BYTES,
        fua="write and flush",
        write_zeroes="trim",
    )
    can_recover: Final = False
    needs: Final = (Need("libfuse3", _core.FuseFile.available, "libfuse3-dev"),)

    def check(self) -> None:
        """Needs the library in the core, and both kernel modules."""
        if not _core.FuseFile.available():
            raise MissingTool(
                "the core was built without libfuse: apt-get install libfuse3-dev, then make env"
            )
        if not _FUSE.exists():
            raise TargetError(f"there is no {_FUSE}: modprobe fuse, or allow it in this container")
        if not loop_devices.CONTROL.exists():
            raise TargetError(
                f"there is no {loop_devices.CONTROL}: modprobe loop, or allow it here"
            )

    def attach(
        self,
        device: _core.LiveDevice,
        mark: Path,
        *,
        name: str,
        limits: QueueLimits,
        recoverable: bool = False,
    ) -> Attachment:
        """Mounts the file, then lays a loop device over it."""
        assert not recoverable
        source = f"flashlab:{name}"
        served = _Served(_core.FuseFile(device, str(mark), source=source, threads=_THREADS), mark)
        try:
            served.path = loops.attach(mark)
            loops.limit_queue(served.path, limits)
        except BaseException:
            served.detach()
            served.close()
            raise
        return served

    def recover(self, device: _core.LiveDevice, mark: Path, *, limits: QueueLimits) -> Attachment:
        """A FUSE file dies with its process."""
        del device, limits
        raise TargetError(f"{mark}: the file below a loop device ends with its process")

    def leftovers(self, mark: Path) -> Leftovers:
        """Loop devices with this mark, and the mount over it."""
        return _Left(mark)


class _Served:
    """The mounted file, and the loop device over it once there is one."""

    path: Path

    def __init__(self, file: _core.FuseFile, mark: Path) -> None:
        self._file = file
        self._mark = mark
        self.in_use = False

    def detach(self) -> None:
        """The file below the loop device must be served until that has gone."""
        self.in_use = bool(loops.detach(self._mark))

    def close(self) -> None:
        """A file that a loop device still lies over is served until the process ends."""
        if not self.in_use:
            self._file.close()
        mounts.drop(self._mark)  # libfuse leaves the mount of an aborted connection


class _Left:
    """See `base.Leftovers`."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def block_devices(self) -> list[Path]:
        """Loop devices with the mark, even if the file below has died."""
        return loops.over(self._mark)

    def abort(self) -> None:
        """Ends the FUSE connection; the mount may stay."""
        mounts.abort(self._mark)

    def detach(self, *, limit_s: float) -> list[Path]:
        """A loop device in use detaches itself after its last user."""
        return loops.detach(self._mark, limit_s=limit_s)

    def drop(self) -> list[str]:
        """The mount."""
        if not mounts.is_point(self._mark):
            return []
        mounts.drop(self._mark)
        return [f"unmounted {self._mark}"]
