"""What a front end is: it serves a live device to the kernel, and removes what is left of that.

A device has a mark: the path of an empty file of its own, with a random part, that nobody else's
device has or gets. A front end ties all that it makes in the kernel to it, so that any process
finds that again, after a kill of the one that made it, and takes nobody else's for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, Self

from harness import _core
from harness.devices.profiles import DeviceProfile, HddProfile

_SATA_RANGE_SECTORS: Final = 65_535
_MAX_DISCARD_BYTES: Final = (1 << 32) - 512
_GRAIN_BYTES: Final = 4096
_LEAST_TAGS: Final = 4
_MOST_TAGS: Final = 128


@dataclass(frozen=True)
class QueueLimits:
    """What the block layer is to see of the drive that a profile describes.

    `depth`: requests at a time. `discard_bytes`: the most that one command frees; 0: it knows none.
    """

    rotational: bool
    depth: int
    discard_bytes: int

    @property
    def at_a_time(self) -> int:
        """How many of these the kernel lets in: a block device has 4 tags at least, ours 128."""
        return max(min(self.depth, _MOST_TAGS), _LEAST_TAGS)

    @classmethod
    def of(cls, profile: DeviceProfile) -> Self:
        """Those of a drive."""
        depth = profile.parameters.queue_depth.value
        if isinstance(profile, HddProfile):
            return cls(rotational=True, depth=depth, discard_bytes=0)
        # SATA's ranges are short.
        most = profile.parameters.trim_max_ranges.value * _SATA_RANGE_SECTORS * 512
        whole = min(most, _MAX_DISCARD_BYTES) // _GRAIN_BYTES * _GRAIN_BYTES
        return cls(rotational=False, depth=depth, discard_bytes=whole)


@dataclass(frozen=True)
class Told:
    """What a front end makes of the host's requests before the device is told of them.

    `largest_request_bytes`: what is larger comes in pieces. `fua`: a write that is to be durable.
    `write_zeroes`: one that may free the space (fallocate -p on the device).
    """

    largest_request_bytes: int
    fua: Literal["fua", "write and flush"]
    write_zeroes: Literal["write", "trim"]


@dataclass(frozen=True)
class Need:
    """Something that may be missing on a machine: how to see that, and the Debian package of it."""

    name: str
    present: Callable[[], bool]
    package: str


class Attachment(Protocol):
    """A device that is served by this process. Held until `close`, or the process's end."""

    @property
    def path(self) -> Path:
        """The host's block device."""

    @property
    def in_use(self) -> bool:
        """Whether the host still used it when it was detached: it goes with its last user."""

    def detach(self) -> None:
        """Takes the block device from the host, and waits for it: nothing is written after that."""

    def close(self) -> None:
        """Ends serving, whoever still has something of it, and removes what is in the kernel."""


class Leftovers(Protocol):
    """What the kernel has of one device, found by its mark; looked at anew in each call.

    Nothing of it depends on the device's process, which may be alive, dead, or killed and unable
    to end. What somebody else removes meanwhile is no error. In the order in which they are called:
    """

    def block_devices(self) -> list[Path]:
        """The host's block devices of this device."""

    def abort(self) -> None:
        """Lets everybody who waits for an answer of the device's process get an error.

        Nothing can be written from then on. A killed process may wait for itself until then.
        """

    def detach(self, *, limit_s: float) -> list[Path]:
        """Takes the block devices from the host; those that are in use even after `limit_s`.

        These go with their last user. No file system is on any that could be unmounted.
        """

    def drop(self) -> list[str]:
        """Removes all that is left in the kernel; says what, a line each. Raises TargetError."""


class Front(Protocol):
    """A way into the kernel. Has no state of its own: several processes use it for one device."""

    @property
    def told(self) -> Told:
        """See there."""

    @property
    def needs(self) -> Sequence[Need]:
        """Libraries and programs beside the kernel's own."""

    def check(self) -> None:
        """Raises MissingTool or TargetError, with what to do, if it cannot work here."""

    @property
    def can_recover(self) -> bool:
        """Whether a block device can stay when its process dies, until another one serves it."""

    def attach(
        self,
        device: _core.LiveDevice,
        mark: Path,
        *,
        name: str,
        limits: QueueLimits,
        recoverable: bool = False,
    ) -> Attachment:
        """Makes a block device of it; `name` may appear in the kernel's tables, for who reads them.

        With `recoverable` it stays when this process dies, and who asks it waits; only where
        `can_recover`. Raises TargetError, and then leaves nothing.
        """

    def recover(self, device: _core.LiveDevice, mark: Path, *, limits: QueueLimits) -> Attachment:
        """Serves the block device that a dead process was serving. What that had not answered is
        asked for again. `limits` are those that it was attached with.

        Raises TargetError: there is none, or it cannot be served; in the latter case it is gone.
        """

    def leftovers(self, mark: Path) -> Leftovers:
        """What there is of a device, whoever has made it."""
