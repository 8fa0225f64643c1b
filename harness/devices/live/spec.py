"""What a live device is to be: written by who creates it, read by the device's own process."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.devices.live.front import DEFAULT, named
from harness.devices.live.placement import Placement
from harness.devices.live.placement import check as check_placement
from harness.devices.live.store import check_folder, check_path, check_state, free_bytes
from harness.devices.profiles import DeviceProfile, HddProfile, SsdProfile, load_device
from harness.devices.scaling import scaled_to
from harness.errors import BadParameter, TargetError
from harness.units import format_bytes

MEMORY = "memory"
_BLOCK_BYTES = 4096
_SPARE_BYTES = 64 << 20


class LiveSpec(BaseModel):
    """A device to be created.

    `profile` is a name in the folder `profiles`, or a path that ends in .yaml; `overrides` replace
    its parameters. A flash drive of `size_bytes` has its spare area and its map in proportion; a
    disk of that size is the outer part of the profile's disk. 0: as large as the profile says.

    `store` is where the data lies: a sparse file, or "memory". It must have room for all of it,
    unless the device is `thin`. The file stays when the device ends. `state` keeps the model's
    state over a stop as well; with it, a store that is there already is continued. `record`
    receives every request as the model sees it (Parquet).

    `speed` none answers at once and asks no model. With `slowdown` N the model's time runs N times
    slower than the clock, 0 lets the device choose N for itself. `condition` is what a flash drive
    has been through before. `honest_flush` off: flushes are acknowledged and forgotten. `front` is
    the way into the kernel (see front/), `placement` where that runs (see placement). A
    `recoverable` device stays when its process is killed, until `recover` or `registry.clean`;
    only front ends that can do that have it, and what lies in memory is lost.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: str
    profiles: Path
    overrides: dict[str, str] = {}
    size_bytes: int = Field(0, ge=0)
    store: str = MEMORY
    thin: bool = False
    state: Path | None = None
    record: Path | None = None
    speed: Literal["real", "none"] = "real"
    slowdown: int = Field(1, ge=0, le=1_000_000)
    condition: Literal["new", "full", "steady"] = "new"
    seed: int = 0
    honest_flush: bool = True
    front: str = DEFAULT
    placement: Placement = "auto"
    recoverable: bool = False

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """A spec of values as a user gave them. Raises BadParameter."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise BadParameter(f"{where} {first['input']!r}: {first['msg']}") from error

    def device_profile(self) -> DeviceProfile:
        """The profile, of this device's size if it is flash.

        Raises UnknownName, BadProfile, or BadParameter for a size that it cannot have.
        """
        profile = load_device(self.profiles, self.profile, self.overrides)
        if isinstance(profile, SsdProfile) and self.size_bytes:
            return scaled_to(profile, self.size_bytes)
        return profile

    def visible_bytes(self, profile: DeviceProfile) -> int:
        """What the host sees. Raises BadParameter for a size that is no device's."""
        capacity = profile.parameters.capacity.value
        size = self.size_bytes or capacity // _BLOCK_BYTES * _BLOCK_BYTES
        if size % _BLOCK_BYTES:
            raise BadParameter(
                f"size {size} B is not a multiple of {format_bytes(_BLOCK_BYTES)}: "
                f"{size // _BLOCK_BYTES * _BLOCK_BYTES} B would be"
            )
        if size > capacity:
            raise BadParameter(
                f"{self.profile} holds {format_bytes(capacity)}, {format_bytes(size)} were asked "
                "for: choose a smaller --size"
            )
        return size

    def check(self) -> None:
        """Raises HarnessError, with what to do, for whatever can be known before starting."""
        check_placement(self.placement)
        profile = self.device_profile()
        size = self.visible_bytes(profile)
        if isinstance(profile, HddProfile) and self.condition != "new":
            raise BadParameter(f"condition {self.condition}: a hard disk has none, only flash has")
        if self.state is not None and self.store == MEMORY:
            raise BadParameter(
                "state: what lies in memory does not survive: give --store PATH, too"
            )
        if self.recoverable:
            self._check_recoverable()
        if self.record is not None:
            check_folder(self.record)
            if self.record.exists():
                raise TargetError(f"{self.record} exists: choose another name for the record")
        self._check_room(size)

    def _check_recoverable(self) -> None:
        if not named(self.front).can_recover:
            raise BadParameter(
                f"recoverable: with {self.front} a device ends with its process: --front ublk"
            )
        if self.store == MEMORY:
            raise BadParameter(
                "recoverable: what lies in memory ends with the process: give --store PATH, too"
            )

    def _check_room(self, size_bytes: int) -> None:
        if self.store == MEMORY:
            free = _available_memory()
            what, instead = "memory", "--store PATH"
        else:
            check_path(Path(self.store), keep=self.state is not None)
            if self.state is not None:
                check_state(self.state.absolute(), Path(self.store).absolute())
            free = free_bytes(Path(self.store))
            what, instead = f"the store {self.store}", "another --store"
        if not self.thin and free < size_bytes + _SPARE_BYTES:
            raise TargetError(
                f"{what} has room for {format_bytes(free)}, the device is to hold "
                f"{format_bytes(size_bytes)}: choose a smaller --size, {instead}, or --thin"
            )


def _available_memory() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
