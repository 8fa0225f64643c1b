"""What a tier gives to an experiment: devices to run on, and the facts about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from harness import _core
from harness.devices.profiles import DeviceProfile, HostProfile, NamedRange
from harness.devices.write_shares import Writes
from harness.system.ext4_spec import Ext4Spec
from harness.workloads.ageing import Ageing

if TYPE_CHECKING:
    from harness.devices.live import LiveDevice
    from harness.tiers.simulated import SimulatedBench

DATA_OFFSET_BYTES: Final = 1 << 20
"""Where an experiment's data begins on a device; what lies before belongs to the harness."""


@dataclass(frozen=True)
class CpuCosts:
    """CPU time per record, in ns, that this tier's clock does not see. Zero where it does."""

    partition_ns: int = 0
    build_ns: int = 0
    probe_ns: int = 0
    match_ns: int = 0


class Cancel(_core.Cancel):
    """Raised by one thread, obeyed by long calls in others: the core's, and those that look."""

    def __init__(self) -> None:
        super().__init__()
        self.is_set = False

    def set(self) -> None:
        """Raises it."""
        self.is_set = True
        super().set()


@dataclass(frozen=True, kw_only=True)
class DeviceRequest:
    """A device that a point asks its bench for.

    `device`: the experiment's name for it. `needed_bytes`: the room that there must be at least.
    `overrides`: parameters that are not the profile's. `seed` varies what repetitions may vary.
    `trace`: record the kernel's block requests, where there is a kernel. `size_bytes`: a smaller
    drive of the same kind (devices/scaling), where drives are modelled; a real one has at least
    that much room; 0: the drive as it is. `contents`: what is written there can be read; without,
    a simulated device only takes its time, for who knows already what would be read. Others keep
    what they are given all the same. `each_kind`: the point says how long requests of one kind
    take, so a device that answers to the clock is held to each kind; else to all of them together.
    """

    device: str
    needed_bytes: int = 0
    overrides: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    trace: bool = False
    size_bytes: int = 0
    contents: bool = True
    each_kind: bool = False


class DeviceUnderTest(Protocol):
    """What a bench opens: ready for the engine."""

    @property
    def storage(self) -> _core.Storage:
        """What the engine runs on."""
        ...

    @property
    def cpu(self) -> CpuCosts:
        """CPU time that has to be declared."""
        ...

    @property
    def profile(self) -> DeviceProfile | None:
        """What is modelled; None for a real device."""
        ...

    @property
    def host(self) -> HostProfile | None:
        """The modelled host; None for a real one."""
        ...

    @property
    def block_trace(self) -> Path | None:
        """The kernel's block requests since `begin`, after `counters`; None if not recorded."""
        ...

    @property
    def drive(self) -> LiveDevice | None:
        """The drive itself, for what no host does to one, such as to cut its power: None but for
        an emulated one.
        """
        ...

    @property
    def path(self) -> Path:
        """The block device or file. Raises TargetError where there is no kernel."""
        ...

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        ...

    @property
    def slowdown(self) -> int:
        """How many times slower than the clock the device's time runs; software's does not."""
        ...

    def filesystem(self, spec: Ext4Spec) -> AbstractContextManager[Path]:
        """An empty ext4 on the device, before `begin`: mounted for as long as the block runs.

        `commit_s` of the spec counts in the device's time. Yields the folder. Raises TargetError (a
        device that knows no discard is to have it), and MissingTool without e2fsprogs.
        """
        ...

    def age(self, ageing: Ageing) -> None:
        """Writes a region of the device by fio before all else (see workloads/ageing).

        Raises BadParameter, MissingTool, and TargetError where there is no kernel.
        """
        ...

    def unpaced(self) -> AbstractContextManager[None]:
        """While the block runs, before `begin` or after `counters`, requests take none of the
        drive's time, where drives are modelled; its flash is written as at any time.
        """
        ...

    def streams(self, ranges: Sequence[NamedRange]) -> None:
        """From now on these ranges' writes are counted apart (`writes`), and go to their streams.

        They go there if the device's parameter `placement` is `range`; with `none` they are only
        counted. Ranges ascend and are disjoint; those of before are forgotten. Raises TargetError
        where the device cannot tell, BadParameter for ranges or streams that it cannot have.
        """
        ...

    def writes(self) -> Writes | None:
        """What the device has written so far, and for which range; None if it does not say."""
        ...

    def place(self, offset_bytes: int, contents: NDArray[np.void]) -> None:
        """Puts records (dtype records.CONTENT) on the device, before the clock starts."""
        ...

    def permit(self, step: str, written_bytes: int) -> None:
        """Asked before a program of others overwrites `path` or trims it, with what it will write.

        Raises TargetError where a real drive is not ours any more, or more would be written to it
        than was allowed.
        """
        ...

    def begin(self) -> None:
        """All input is in place: from here on time counts, and everything is counted."""
        ...

    def counted(self) -> dict[str, int]:
        """The device's own counters while it goes on, to be subtracted; empty if it has none."""
        ...

    def counters(self) -> dict[str, int | float]:
        """The device's own counters since `begin`, names with units. Raises InvalidRun."""
        ...


class Bench(Protocol):
    """A tier, set up: what the points of an experiment run on.

    A context manager: whatever it starts or makes, it also ends.
    """

    tier: str
    parallel: int
    cancel: Cancel

    @property
    def devices(self) -> list[str]:
        """Names of the devices that this bench has."""
        ...

    @property
    def models(self) -> SimulatedBench | None:
        """The models in virtual time, if that is what points run on; None on a real kernel."""
        ...

    @property
    def overrides(self) -> Mapping[str, str]:
        """Profile parameters that are not the profiles'; empty where there are none."""
        ...

    @property
    def remarks(self) -> Mapping[str, str]:
        """Texts for the last point's record, as names of columns and what they say."""
        ...

    def profile_name(self, device: str) -> str:
        """The profile behind a device. Raises UnknownName, and TargetError for a real one."""
        ...

    def check_placement(self, device: str, overrides: Mapping[str, str]) -> None:
        """Whether a point with these parameters can be run: its writes placed as it wants.

        Raises TargetError, BadParameter.
        """
        ...

    def reserve(self, needed_bytes: Mapping[str, int]) -> None:
        """Says how much room the points need at most, by device, before the first of them runs.

        Raises TargetError or DiskFull if there is less. Writes nothing.
        """
        ...

    def attempt(self, number: int) -> None:
        """The next point is run for the `number`-th time (from 1): before, it was not valid."""
        ...

    def identity(self, device: str) -> Mapping[str, str]:
        """What a result on this device depends on: profile digests, or a machine's fingerprint."""
        ...

    def open_device(self, request: DeviceRequest) -> AbstractContextManager[DeviceUnderTest]:
        """The device, for as long as the block runs.

        Raises UnknownName, BadParameter (a size or a parameter that it cannot have), TargetError
        (too little room).
        """
        ...
