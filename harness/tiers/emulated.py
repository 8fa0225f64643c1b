"""Tier `emulated`: the device models behind real Linux block devices, in real time.

Every point gets a new device (harness/devices/live), so that it starts from the state from which
the simulated tier starts. A run whose replies left too late is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness import _core
from harness.devices import live
from harness.devices.live import LiveDevice, LiveSpec, stats
from harness.devices.profiles import DeviceProfile, HddProfile, HostProfile, NamedRange, load_device
from harness.devices.write_shares import Writes
from harness.drives import fingerprint
from harness.errors import InvalidRun
from harness.paths import Project
from harness.system import filesystems
from harness.system.ext4_spec import Ext4Spec
from harness.tiers import block_traces, on_device
from harness.tiers.base import CpuCosts, DeviceRequest
from harness.tiers.modelled import ModelledBench, start_angle_ns
from harness.tiers.options import Asked, BenchParameters, EmulatedOptions
from harness.workloads import fio_ageing
from harness.workloads.ageing import Ageing

_SLOWEST = 64  # much beyond it a machine sleeps between two requests, and wakes up late


class EmulatedDevice:
    """A live device, and the engine's way to it."""

    cpu = CpuCosts()
    host: HostProfile | None = None
    profile: DeviceProfile | None = None

    def __init__(self, device: LiveDevice, trace: Path | None, *, each_kind: bool = False) -> None:
        self._device = device
        self._each_kind = each_kind
        self._recording = block_traces.Recording(trace, self.counted)
        self.slowdown = int(device.stats()["slowdown"])
        self._storage: _core.FileStorage | None = None
        self._folder: Path | None = None
        device.set_speed("none")

    @property
    def block_trace(self) -> Path | None:
        """The kernel's view, once it is proven complete."""
        return self._recording.path

    @property
    def drive(self) -> LiveDevice:
        """The drive itself: what no host does to one, such as to cut its power."""
        return self._device

    @property
    def path(self) -> Path:
        """Of its block device."""
        return self._device.path

    @property
    def size_bytes(self) -> int:
        """Of its block device."""
        return self._device.size_bytes

    @property
    def storage(self) -> _core.FileStorage:
        """The engine's way; opened when it is first used, as a file system wants it alone."""
        if self._storage is None:
            self._storage = _core.FileStorage(str(self._device.path), self.slowdown)
        return self._storage

    @contextmanager
    def filesystem(self, spec: Ext4Spec) -> Iterator[Path]:
        """Made at once: to the drive it has been there since long ago."""
        by_the_clock = replace(spec, commit_s=spec.commit_s * self.slowdown)
        self.permit("make a file system", 0)
        with filesystems.ext4(self._device.path, by_the_clock) as folder:
            self._folder = folder
            try:
                yield folder
            finally:
                self._device.set_speed("none")  # what is left to be written is nobody's any more
                self._folder = None

    def age(self, ageing: Ageing) -> None:
        """As fast as this machine is: the drive's translation layer sees every write.

        What fio wrote is forgotten then, so that it takes no memory; the drive, which is not told,
        goes on holding it. Raises TargetError for a disk, which does not age.
        """
        self._device.set_speed("virtual")  # which a disk refuses
        self.permit("age the drive", ageing.written_bytes)
        with self.unpaced():
            fio_ageing.run(self._device.path, ageing, self._device.size_bytes)
        filesystems.discard(self._device.path, ageing.begin_bytes, ageing.region_bytes)

    @contextmanager
    def unpaced(self) -> Iterator[None]:
        """At speed virtual, and `none` for a disk, to which it makes no difference."""
        self._device.set_speed("none" if self.writes() is None else "virtual")
        try:
            yield
            self._sync()
        finally:
            self._device.set_speed("none")

    def streams(self, ranges: Sequence[NamedRange]) -> None:
        """Told to the model, whose part of the drive's address space they are."""
        self._device.set_ranges(ranges)

    def writes(self) -> Writes | None:
        """The model's, which it counts from `begin`; None for a disk."""
        return self._device.writes()

    def place(self, offset_bytes: int, contents: NDArray[np.void]) -> None:
        """Writes the records, at once: to the drive they have been there since long ago."""
        self.permit("write the input", contents.nbytes)
        on_device.write_records(self.storage, offset_bytes, contents)

    def permit(self, step: str, written_bytes: int) -> None:
        """A live device may be overwritten, and what is at its path if it has gone may not."""
        del written_bytes
        self._device.check(step)

    def begin(self) -> None:
        """From here on the drive takes its time."""
        self._sync()
        self._device.set_speed("real")
        self._device.reset()
        self._recording.begin(self._device.path)

    def abandon(self, error: BaseException) -> None:
        """The run has failed."""
        self._recording.abandon(error)

    def close(self) -> None:
        """Ends what is still open."""
        self._recording.end()
        if self._storage is not None:
            self._storage.close()

    def _sync(self) -> None:
        on_device.sync(self._storage, self._folder)

    def counted(self) -> dict[str, int]:
        """The model's counters since `begin`."""
        return dict(self._device.stats()["device"])

    def counters(self) -> dict[str, int | float]:
        """The device's counters, how late its replies were, and what was done about the path.

        Raises InvalidRun if replies left later than a valid run allows, and TraceIncomplete if the
        block trace has a gap.
        """
        if self._folder is not None:
            self._sync()  # or the journal would write while the trace ends
        self._recording.end()
        seen = self._device.stats()
        problems = [*seen["problems"], *(seen["problems_of_kinds"] if self._each_kind else ())]
        if problems:
            raise InvalidRun(f"the run is not valid: {'; '.join(problems)}")
        return {
            **{f"device_{name}": value for name, value in seen["device"].items()},
            "device_requests": sum(v for n, v in seen["live"].items() if n.endswith("_replies"))
            - seen["live"]["unpaced_replies"],
            "slowdown": seen["slowdown"],
            **_prefixed("lateness", seen["lateness"]),
            **_prefixed("model_latency", seen["model_latency"]),
            **_of_kinds(seen["kinds"]),
            "path_read_ns": seen["path"]["read"]["base_ns"],
            "path_write_ns": seen["path"]["write"]["base_ns"],
        }


def open_bench(asked: Asked, parameters: BenchParameters, project: Project) -> EmulatedBench:
    """See tiers.OpenBench."""
    options = EmulatedOptions.of(asked, parameters)
    return EmulatedBench(
        project.profiles,
        options.devices,
        options.overrides,
        options.slowdown,
        block_traces.folder(project),
    )


class EmulatedBench(ModelledBench):
    """Devices from profiles, one at a time, each as large as its profile says.

    `devices` maps the experiment's names to profiles. `slowdown`, of all or of each by its name, is
    how many times slower than the clock they run. Without one, or with 0, a device chooses what
    this machine needs to carry it, and twice that (up to 64) in each further attempt at a point
    whose replies left late. `traces` is a folder for block traces: in one of this bench's own lies
    the last, until the next or the bench's end.
    """

    tier = "emulated"
    parallel = 1
    models = None

    def __init__(
        self,
        profiles: Path,
        devices: Mapping[str, str],
        overrides: Mapping[str, str] | None = None,
        slowdown: int | Mapping[str, int] = 0,
        traces: Path | None = None,
    ) -> None:
        super().__init__(profiles, devices, overrides)
        self._slowdown = slowdown
        self._traces = block_traces.Traces(traces)
        self._attempt = 1
        for device in self._names:
            self._spec(device, {}, 0).check()

    def __exit__(self, *_: object) -> None:
        self._traces.close()

    def reserve(self, needed_bytes: Mapping[str, int]) -> None:
        """What the points write must fit into memory; the rest of a device is never touched.

        Raises TargetError.
        """
        for device, needed in needed_bytes.items():
            room = self._spec(device, {}, 0).model_copy(
                update={"thin": False, "size_bytes": -(-needed // (1 << 30)) * (1 << 30)}
            )
            room.check()

    def attempt(self, number: int) -> None:
        """From the second on, what this machine did not carry runs slower, if it may choose."""
        self._attempt = number

    def identity(self, device: str) -> Mapping[str, str]:
        """The profile's digest, and this machine's fingerprint."""
        profile = self._spec(device, {}, 0).device_profile()
        return {"profile": profile.digest(), **fingerprint.machine()}

    @contextmanager
    def open_device(self, request: DeviceRequest) -> Iterator[EmulatedDevice]:
        """A new drive. A disk's platters stand at an angle that `seed` sets."""
        spec = self._spec(request.device, request.overrides, request.seed).model_copy(
            update={"size_bytes": request.size_bytes}
        )
        with live.created(spec) as made:
            if spec.slowdown == 0 and self._attempt > 1:
                chosen = int(made.stats()["slowdown"])
                slower = min(chosen << (self._attempt - 1), _SLOWEST)
                made.set_speed("real", max(slower, chosen))
            trace = self._traces.new_file() if request.trace else None
            emulated = EmulatedDevice(made, trace, each_kind=request.each_kind)
            try:
                yield emulated
            except BaseException as error:
                emulated.abandon(error)
                raise
            finally:
                emulated.close()

    def _spec(self, device: str, overrides: Mapping[str, str], seed: int) -> LiveSpec:
        name = self.profile_name(device)
        profile = load_device(self._profiles, name, self._overrides)
        slowdown = self._slowdown
        return LiveSpec(
            profile=name,
            profiles=self._profiles,
            overrides={**self._overrides, **overrides},
            thin=True,
            slowdown=slowdown if isinstance(slowdown, int) else slowdown.get(device, 0),
            seed=start_angle_ns(profile, seed) if isinstance(profile, HddProfile) else seed,
        )


def _of_kinds(kinds: Mapping[str, Any]) -> dict[str, float]:
    """How many replies of each kind there were, and what their validity was judged by."""
    found = {}
    for kind, times in kinds.items():
        found[f"replies_{kind}"] = times["lateness"]["count"]
        for what, name in itertools.product(("lateness", "model_latency"), stats.BOUNDS):
            found[f"{what}_{kind}_{name}"] = times[what][name]
    return found


def _prefixed(prefix: str, summary: Mapping[str, Any]) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in summary.items() if name.endswith("_ns")}
