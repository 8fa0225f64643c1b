"""Tier `simulated`: the device models in virtual time. Needs nothing, gives the same everywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness import _core
from harness.devices.model import Device
from harness.devices.profiles import (
    DeviceProfile,
    HddProfile,
    HostProfile,
    NamedRange,
    SsdProfile,
    load_device,
    load_host,
)
from harness.devices.scaling import scaled_to
from harness.devices.write_shares import Writes, shares_of
from harness.errors import BadParameter, TargetError, UnknownName
from harness.paths import Project
from harness.system.ext4_spec import Ext4Spec
from harness.tiers.base import CpuCosts, DeviceRequest
from harness.tiers.modelled import ModelledBench, start_angle_ns
from harness.tiers.options import Asked, BenchParameters, SimulatedOptions
from harness.units import format_bytes
from harness.workloads.ageing import Ageing
from harness.workloads.records import CONTENT, RECORD_BYTES


class SimulatedDevice:
    """A modelled drive under a modelled host."""

    block_trace = None
    slowdown = 1
    drive = None

    def __init__(
        self, storage: _core.VirtualStorage, profile: DeviceProfile, host: HostProfile
    ) -> None:
        costs = host.join_cpu
        if costs is None:
            raise BadParameter(f"host profile {host.title}: has no join_cpu, which a join needs")
        self.storage = storage
        self.profile = profile
        self.host = host
        self._ranges: tuple[NamedRange, ...] = ()
        self.cpu = CpuCosts(
            partition_ns=costs.partition_cpu.value,
            build_ns=costs.build_cpu.value,
            probe_ns=costs.probe_cpu.value,
            match_ns=costs.match_cpu.value,
        )

    @property
    def path(self) -> Path:
        """Virtual time has no kernel. Raises TargetError, always."""
        raise TargetError("a simulated device has no path: use the tier emulated or hardware")

    @property
    def size_bytes(self) -> int:
        """As its profile says, or was scaled to."""
        return self.storage.capacity_bytes

    def place(self, offset_bytes: int, contents: NDArray[np.void]) -> None:
        """Mounts the records without a copy."""
        self.storage.mount(offset_bytes, contents.view(np.uint8))

    def filesystem(self, spec: Ext4Spec) -> AbstractContextManager[Path]:
        """Virtual time has no kernel. Raises TargetError, always."""
        del spec
        raise TargetError(
            "a simulated device has no file system of the kernel's: use the tier emulated or "
            "hardware"
        )

    def age(self, ageing: Ageing) -> None:
        """Virtual time has no fio. Raises TargetError, always."""
        del ageing
        raise TargetError(
            "fio cannot write to a simulated device: age a model by devices.model.Device.run"
        )

    def unpaced(self) -> AbstractContextManager[None]:
        """Virtual time has no kernel. Raises TargetError, always."""
        raise TargetError("a simulated device is written by models, which take their time")

    def streams(self, ranges: Sequence[NamedRange]) -> None:
        """Told to the model."""
        self._ranges = tuple(ranges)
        self.storage.set_ranges([(r.name, r.begin_bytes, r.end_bytes, r.stream) for r in ranges])

    def writes(self) -> Writes | None:
        """The model's; None for a disk."""
        if not isinstance(self.profile, SsdProfile):
            return None
        unit = self.profile.parameters.map_unit.value
        shares = shares_of(self._ranges, self.storage.range_shares(), unit)
        return Writes(self.storage.now_ns, self.storage.counters(), shares)

    def permit(self, step: str, written_bytes: int) -> None:
        """A model may be overwritten."""

    def begin(self) -> None:
        """Nothing has taken time so far."""

    def counted(self) -> dict[str, int]:
        """The model's counters so far."""
        return self.storage.counters()

    def counters(self) -> dict[str, int | float]:
        """The model's counters, and the utilisation that the host sees (io_ticks / time)."""
        now_ns = max(self.storage.now_ns, 1)
        return {
            **{f"device_{name}": value for name, value in self.storage.counters().items()},
            "device_requests": self.storage.device_requests,
            "device_utilisation_ratio": self.storage.device_busy_ns / now_ns,
        }


TRACE_ROWS: Final = 20_000
"""Of a point's requests on a modelled drive, at most: every n-th is kept as its raw trace."""


@dataclass(frozen=True)
class ModelledStack:
    """Profiles of a drive and of the host above it; `device_core` is what the core makes of it."""

    device: DeviceProfile
    device_core: _core.HddParameters | _core.SsdParameters
    host: HostProfile


def open_bench(asked: Asked, parameters: BenchParameters, project: Project) -> SimulatedBench:
    """See tiers.OpenBench."""
    options = SimulatedOptions.of(asked, parameters)
    return SimulatedBench(project.profiles, options.devices, options.host, options.overrides)


class SimulatedBench(ModelledBench):
    """Devices from profiles.

    `devices` maps the names by which an experiment calls its devices to profile names. All
    profiles are read, and refused if bad, before anything runs.
    """

    tier = "simulated"

    def __init__(
        self,
        profiles: Path,
        devices: Mapping[str, str],
        host: str,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(profiles, devices, overrides)
        self.parallel = max(os.cpu_count() or 1, 1)
        self._pool = _core.ChunkPool()
        self._host_name = host
        for device in self._names:
            self._load(device, self._overrides)

    @property
    def models(self) -> SimulatedBench:
        """Itself."""
        return self

    def reserve(self, needed_bytes: Mapping[str, int]) -> None:
        """Every device is as large as its profile says."""
        for device, needed in needed_bytes.items():
            profile, _ = self._load(device, self._overrides)
            self._check_room(device, profile.parameters.capacity.value, needed)

    def _check_room(self, device: str, capacity_bytes: int, needed_bytes: int) -> None:
        if capacity_bytes < needed_bytes:
            raise TargetError(
                f"{self._names[device]} holds {format_bytes(capacity_bytes)}, "
                f"{format_bytes(needed_bytes - capacity_bytes)} less than the experiment needs: "
                "choose a smaller scale or a larger device"
            )

    def attempt(self, number: int) -> None:
        """Virtual time is never late: every attempt is the same."""

    def identity(self, device: str) -> Mapping[str, str]:
        """Digests of the device's and the host's profile."""
        profile, host = self._load(device, self._overrides)
        return {"profile": profile.digest(), "host": host.digest()}

    @contextmanager
    def open_device(self, request: DeviceRequest) -> Iterator[SimulatedDevice]:
        """A new drive, never used before. A disk's platters stand at an angle that `seed` sets."""
        stack = self.stack(request)
        storage = _core.VirtualStorage(
            stack.device_core,
            stack.host.to_core(),
            cell_bytes=RECORD_BYTES,
            kept_bytes=CONTENT.itemsize,
            pool=self._pool,
            has_contents=request.contents,
        )
        self._check_room(request.device, storage.capacity_bytes, request.needed_bytes)
        yield SimulatedDevice(storage, stack.device, stack.host)

    def stack(self, request: DeviceRequest) -> ModelledStack:
        """A new drive and the host above it, for models of whole software.

        They have no kernel whose requests could be traced, and check themselves whether there is
        room. Raises as `new_model`.
        """
        profile, host = self._load(request.device, {**self._overrides, **request.overrides})
        if request.size_bytes and isinstance(profile, SsdProfile):
            profile = scaled_to(profile, request.size_bytes)
        profile = _behind_port(profile, host)
        parameters: _core.HddParameters | _core.SsdParameters
        if isinstance(profile, HddProfile):
            parameters = profile.to_core(start_angle_ns=start_angle_ns(profile, request.seed))
        else:
            parameters = profile.to_core()
        return ModelledStack(profile, parameters, host)

    def new_model(
        self,
        device: str,
        *,
        overrides: Mapping[str, str],
        seed: int = 0,
        ranges: Sequence[NamedRange] = (),
    ) -> Device:
        """A new drive without a host above it, for experiments with the model itself.

        What the user has overridden is what the point starts from. Raises UnknownName, BadProfile
        or BadParameter.
        """
        profile, _ = self._load(device, {**self._overrides, **overrides})
        model = Device(profile, seed=seed, ranges=ranges)
        model.cancel = self.cancel
        return model

    def _load(self, device: str, overrides: Mapping[str, str]) -> tuple[DeviceProfile, HostProfile]:
        name = self.profile_name(device)
        host_profile = load_host(self._profiles, self._host_name)
        known_to_host = host_profile.parameter_names
        for_host = {k: v for k, v in overrides.items() if k in known_to_host}
        profile = load_device(self._profiles, name)
        for_device = {k: v for k, v in overrides.items() if k in _fields(profile.parameters)}
        unknown = set(overrides) - set(for_host) - set(for_device) - self._known_elsewhere(device)
        if unknown:
            known = {*known_to_host, *_fields(profile.parameters)}
            raise UnknownName("profile parameter", sorted(unknown)[0], known)
        return (
            load_device(self._profiles, name, for_device),
            load_host(self._profiles, self._host_name, for_host),
        )

    def _known_elsewhere(self, device: str) -> set[str]:
        """Parameters of the other devices: an override of a disk's rate says nothing to a flash."""
        others = (name for key, name in self._names.items() if key != device)
        profiles = (load_device(self._profiles, name) for name in others)
        return {field for profile in profiles for field in _fields(profile.parameters)}


def _behind_port(profile: DeviceProfile, host: HostProfile) -> DeviceProfile:
    """The drive, with a link and a queue that are no better than the host's port."""
    if host.ports is None:
        return profile
    link, queue = profile.parameters.link_rate, profile.parameters.queue_depth
    values = {
        "link_rate": min(link.value, host.ports.port_rate.value),
        "queue_depth": min(queue.value, host.ports.port_queue.value),
    }
    if isinstance(profile, HddProfile):
        disk = profile.parameters.with_values(values)
        return profile.model_copy(update={"parameters": disk})
    flash = profile.parameters.with_values(values)
    return profile.model_copy(update={"parameters": flash})


def _fields(model: object) -> set[str]:
    return set(type(model).model_fields)  # type: ignore[attr-defined]
