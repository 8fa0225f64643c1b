"""Tier `hardware`: the same experiments on drives that their user has claimed, or on a file.

A claimed drive is held by the guard for as long as the run lasts; whatever overwrites it asks the
guard first. A file or loop device of this machine takes the drive's place where nothing better is
at hand: it is made, marked, held and deleted by drives/scratch, which is asked as the guard is.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness import _core
from harness.devices.profiles import NamedRange
from harness.devices.write_shares import REST, Share, Writes
from harness.drives import conditions, fingerprint, guard, placement, scratch
from harness.drives.discovery import Drive
from harness.drives.external_journal import external_journal
from harness.drives.guard import ClaimedDrive
from harness.drives.lab_file import Claim
from harness.drives.queue_settings import deciding, queue_settings
from harness.drives.trim_log import counted_between
from harness.drives.wear import reading
from harness.drives.wear.counters import Wear, between
from harness.errors import BadParameter, Interrupted, TargetError, UnknownName
from harness.paths import Project
from harness.probes import counters
from harness.system import filesystems, leases, repeating
from harness.system.ext4_spec import Ext4Spec
from harness.tiers import block_traces, on_device
from harness.tiers.base import DATA_OFFSET_BYTES, Cancel, CpuCosts, DeviceRequest
from harness.tiers.options import Asked, BenchParameters, HardwareOptions
from harness.units import format_bytes
from harness.workloads import fio_ageing
from harness.workloads.ageing import Ageing
from harness.workloads.records import RECORD_BYTES

DEVICE = "file"
assert scratch.HEADER_BYTES <= DATA_OFFSET_BYTES, "data would overwrite the target's marker"
NO_JOURNAL: Final = (
    "a real drive does not place writes by their address: its host has to name the stream. "
    "hardware/msdj/ has what does so for ext4's journal: a patch of JBD2, or a second namespace "
    "with an FDP placement handle of its own, claimed and named with --journal"
)
FILE_SAYS: Final = "a file or loop device counts nothing of what its drive does"
"""In the place of a write amplification, and of what a firmware has noted of TRIM."""

_FINE_BYTES: Final = 1 << 20
"""Steps of a drive's counters that can be subtracted within a point, and over time: NVMe's are 1
or 512,000 B, many SATA drives' tens of MB."""

_OF_OTHERS_RATIO: Final = 0.02
"""More than that of what the host is counted to have written is not the rounding of two counts."""

_WATCH_S = 1.0
WEAR_BY: Final[Mapping[str, reading.Transport]] = {
    "nvme": "nvme",
    "sata": "sata",
    "sas": "sas",
    **dict.fromkeys(("usb", "virtio", "other"), "other"),
}
"""How a drive is asked for its wear, by how it is attached."""


class RealDevice(ABC):
    """What a file and a drive have in common. Its clock is the real one."""

    cpu = CpuCosts()
    profile = None
    host = None
    slowdown = 1
    drive = None
    size_bytes: int

    def __init__(self, path: Path) -> None:
        self._path = path
        self._storage: _core.FileStorage | None = None
        self._placed: dict[int, NDArray[np.void]] = {}
        self._folder: Path | None = None
        self._recording = block_traces.Recording()

    @property
    def path(self) -> Path:
        """What is opened."""
        return self._path

    @property
    def storage(self) -> _core.FileStorage:
        """The engine's way; opened when it is first used, as a file system wants it alone."""
        if self._storage is None:
            self._storage = _core.FileStorage(str(self._path))
        return self._storage

    def place(self, offset_bytes: int, contents: NDArray[np.void]) -> None:
        """Writes the records, unless the same ones are there already from the point before."""
        if self._placed.get(offset_bytes) is contents:
            return
        self._placed = {k: v for k, v in self._placed.items() if k != offset_bytes}
        self.permit("write the input", len(contents) * RECORD_BYTES)
        on_device.write_records(self.storage, offset_bytes, contents)
        self.storage.sync()
        self._placed[offset_bytes] = contents

    @property
    def block_trace(self) -> Path | None:
        """The kernel's view, once it is proven complete."""
        return self._recording.path

    @contextmanager
    def recorded(self, trace: Path | None) -> Iterator[None]:
        """The file into which the kernel's requests of the point are to be recorded, if at all."""
        self._recording = block_traces.Recording(trace)
        try:
            yield
        except BaseException as error:
            self._recording.abandon(error)
            raise

    @contextmanager
    def filesystem(self, spec: Ext4Spec) -> Iterator[Path]:
        """See tiers.base.DeviceUnderTest."""
        self._emptied()
        with self._mounted(spec) as folder:
            self._folder = folder
            try:
                yield folder
            finally:
                self._folder = None

    @abstractmethod
    def _mounted(self, spec: Ext4Spec) -> AbstractContextManager[Path]:
        """Makes the file system."""

    @abstractmethod
    def _block_device(self) -> Path | None:
        """To which a point's requests go, as the kernel counts them; None for a file's."""

    @abstractmethod
    def age(self, ageing: Ageing) -> None:
        """At the drive's own speed."""

    def unpaced(self) -> AbstractContextManager[None]:
        """A real drive always takes its time."""
        return nullcontext()

    def streams(self, ranges: Sequence[NamedRange]) -> None:
        """Raises TargetError, unless there are none: a drive does not place writes by address."""
        if ranges:
            raise TargetError(NO_JOURNAL)

    def writes(self) -> Writes | None:
        """A file does not say it."""
        return None

    def begin(self) -> None:
        """Whatever was placed is on the drive. From here on its requests are recorded."""
        self._sync()
        self._begin_counting()
        device = self._block_device()
        if self._recording.is_wanted and device is not None:
            self._recording.begin(device)

    @abstractmethod
    def _begin_counting(self) -> None:
        """From here on its counters count; before the recording, which would see the questions."""

    def counted(self) -> dict[str, int]:
        """Nothing that could be subtracted within a point."""
        return {}

    def counters(self) -> dict[str, int | float]:
        """A file counts nothing. Raises TraceIncomplete if the block trace has a gap."""
        if self._recording.has_begun:
            self._sync()  # or the journal would write while the trace ends
            self._recording.end()
        return {}

    def close(self) -> None:
        """Gives up what is open."""
        self._recording.end()
        if self._storage is not None:
            self._storage.close()
            self._storage = None

    @abstractmethod
    def permit(self, step: str, written_bytes: int) -> None:
        """Asks whoever guards it. Raises TargetError."""

    def _sync(self) -> None:
        on_device.sync(self._storage, self._folder)

    def _emptied(self) -> None:
        """Nothing that was placed is there any more."""
        self._placed = {}
        self.close()


class FileDevice(RealDevice):
    """A scratch file or loop device, opened with O_DIRECT."""

    def __init__(self, target: scratch.Scratch) -> None:
        super().__init__(target.path)
        self._target = target
        self._opened = ExitStack()
        self._block: Path | None = None
        self.size_bytes = target.size_bytes - DATA_OFFSET_BYTES

    @property
    def path(self) -> Path:
        """A block device over what lies behind the header, for who writes and trims it himself."""
        if self._block is None:
            self._emptied()
            self.permit("make a block device over it", 0)
            self._block = self._opened.enter_context(scratch.block_device(self._target))
        return self._block

    def close(self) -> None:
        """Gives up what is open."""
        super().close()
        self._opened.close()
        self._block = None

    def _mounted(self, spec: Ext4Spec) -> AbstractContextManager[Path]:
        """Behind the header that marks the target as ours, on a loop device over it."""
        self.permit("make a file system", 0)
        sized = spec.sized(self._target.size_bytes - DATA_OFFSET_BYTES)
        return filesystems.ext4_in(self._target.path, DATA_OFFSET_BYTES, sized)

    def _block_device(self) -> Path | None:
        """The file system's loop device, or the target itself, if it is one."""
        if self._folder is not None:
            return filesystems.device_of(self._folder)
        return self._target.path if self._target.path.is_block_device() else None

    def _begin_counting(self) -> None:
        """A file counts nothing."""

    def age(self, ageing: Ageing) -> None:
        """Behind the header; at the drive's own speed."""
        self._emptied()
        self.permit("age the drive", ageing.written_bytes)
        behind = replace(ageing, begin_bytes=ageing.begin_bytes + DATA_OFFSET_BYTES)
        fio_ageing.run(self._target.path, behind, self._target.size_bytes)

    def permit(self, step: str, written_bytes: int) -> None:
        """Its target's guard."""
        self._target.permit(step, written_bytes)


class DriveDevice(RealDevice):
    """A claimed drive, behind its header.

    `journal`: a namespace of the same drive that places writes apart, for the journals of file
    systems that are to have a stream of their own.
    """

    def __init__(self, drive: ClaimedDrive, journal: ClaimedDrive | None = None) -> None:
        super().__init__(drive.path)
        self._drive = drive
        self._journal = journal
        self._is_journal_apart = False
        self.size_bytes = drive.size_bytes
        self._part_bytes = 0
        self._before: Wear | None = None
        self._begin_bytes = 0
        self.waf_says = ""

    def empty(self, part_bytes: int, *, journal_apart: bool = False) -> None:
        """Discards all, where the drive can: every point begins on an empty one.

        `part_bytes`: how much of it the point uses; 0: all. `journal_apart`: its file systems have
        their journal on the namespace for it. Raises TargetError.
        """
        self._emptied()
        self._part_bytes = part_bytes
        self._is_journal_apart = journal_apart
        for drive in (self._drive, self._journal if journal_apart else None):
            if drive is not None and drive.drive.trim:
                drive.permit("discard what the point before has left", 0)
                filesystems.discard(drive.path, 0, drive.size_bytes)

    @contextmanager
    def _mounted(self, spec: Ext4Spec) -> Iterator[Path]:
        """On the part of the drive that the point uses, or on its first `spec.size_bytes`.

        A journal of its own holds data, too: see external_journal.
        """
        sized = spec.sized(self._part_bytes)
        if self._is_journal_apart:
            assert self._journal is not None
            if spec.journal_mode != "journal":
                raise TargetError(
                    f"a journal apart is for data=journal, not for {spec.journal_mode}"
                )
            with external_journal(self._drive, self._journal, sized) as folder:
                yield folder
            return
        self.permit("make a file system", 0)
        with filesystems.ext4(self.path, sized) as folder:
            yield folder

    def _block_device(self) -> Path:
        return self._drive.path

    def age(self, ageing: Ageing) -> None:
        """At the drive's own speed."""
        self._emptied()
        self.permit("age the drive", ageing.written_bytes)
        fio_ageing.run(self.path, ageing, self.size_bytes)

    def writes(self) -> Writes | None:
        """By its own counters, not by range; None where they are too coarse for a course in time:
        of such a drive nothing is asked while it is measured, which would hold its requests up.

        Raises DeviceError.
        """
        if self._before is not None and self._before.written_bytes(_FINE_BYTES) is None:
            return None
        found = self._wear().written_bytes(_FINE_BYTES)
        if found is None:
            return None
        host_bytes, media_bytes = found
        return Writes(
            time_ns=time.monotonic_ns(),
            counters={"write_bytes": host_bytes, "nand_write_bytes": media_bytes},
            shares={REST: Share(host_bytes=host_bytes)},
        )

    def _begin_counting(self) -> None:
        """Asks the drive what it has written so far."""
        self._begin_bytes = self._written_bytes()
        self._before = self._wear()

    def counted(self) -> dict[str, int]:
        """Since `begin`: what flash was written, and by the host, if the drive counts that finely
        enough to be subtracted within a point (by a model's names); and of a firmware with delayed
        TRIM its statistics, with what is pending. Raises InvalidRun, DeviceError.
        """
        if self._before is None:
            return {}
        now = self._wear()
        found = counted_between(self._before.trim, now.trim) if self._before.trim else {}
        if now.written_bytes(_FINE_BYTES) is not None:
            moved = between(self._before, now).counts
            found["nand_host_bytes"] = moved["host_written_bytes"]
            found["nand_write_bytes"] = moved["media_written_bytes"]
        return found

    def counters(self) -> dict[str, int | float]:
        """What the drive says that it has written since `begin`: none where it cannot say.

        Raises BudgetSpent, TraceIncomplete.
        """
        super().counters()
        self.check_budget()
        assert self._before is not None
        now = self._wear()
        moved = between(self._before, now)
        if said := self._of_others(now, moved.counts):
            if now.written_bytes(_FINE_BYTES) is not None:  # by which more is told than this ratio
                raise TargetError(f"{self._drive.name}: {said}; stop that, and run again")
            moved = replace(moved, waf=None, note=said)
        self.waf_says = moved.waf_text
        found: dict[str, int | float] = {f"drive_{name}": n for name, n in moved.counts.items()}
        found |= counted_between(self._before.trim, now.trim)
        return found if moved.waf is None else {**found, "waf_ratio": moved.waf}

    def check_budget(self) -> None:
        """Raises BudgetSpent if more has been written than was given."""
        for drive in (self._drive, self._journal):
            if drive is not None:
                drive.check_budget()

    def _of_others(self, now: Wear, moved: Mapping[str, int]) -> str:
        """What is wrong if the drive counts more written by its host than this run has: it counts
        for all of its namespaces, or tells late, and its write amplification is not this run's.
        """
        count = now.counts.get("host_written_bytes")
        if count is None or count.estimated or "host_written_bytes" not in moved:
            return ""
        told, ours = moved["host_written_bytes"], self._written_bytes() - self._begin_bytes
        if told - ours <= _OF_OTHERS_RATIO * told + 2 * count.step:
            return ""
        return (
            f"the drive counts {format_bytes(told)} written by its host, and this run wrote "
            f"{format_bytes(ours)}: something else writes to it, such as to another namespace, or "
            "it counts late"
        )

    def _written_bytes(self) -> int:
        """By the kernel, to all that is held of the drive."""
        return sum(d.written_bytes for d in (self._drive, self._journal) if d is not None)

    @property
    def temperature_c(self) -> str:
        """How warm the drive is now, as a text for the record."""
        warmth = conditions.temperature_c(self._drive.drive.node)
        return "not told" if warmth is None else f"{warmth:g}"

    def _wear(self) -> Wear:
        drive = self._drive.drive
        return reading.read(drive.node, WEAR_BY[drive.transport])

    def permit(self, step: str, written_bytes: int) -> None:
        """Its claim's guard."""
        self._drive.permit(step, written_bytes)


def open_bench(asked: Asked, parameters: BenchParameters, project: Project) -> HardwareBench:
    """See tiers.OpenBench."""
    del parameters  # they are about models
    options = HardwareOptions.of(asked)
    return HardwareBench(
        options.target,
        options.drives,
        options.write_budget_bytes,
        project,
        options.queue,
        options.journals,
        cached=options.cached,
    )


class HardwareBench:
    """Claimed drives by the experiment's names for its devices, or one file or loop device.

    `drives`: the experiment's name -> the name under which the drive is claimed. `journals`: the
    same for namespaces that take journals with a stream of their own. `cached`: a file also where
    there is no O_DIRECT. `queue`: settings of the
    drives' queues in the kernel, put back afterwards. Drives are taken when the first point runs
    and held to the last, if they still are those of the same claims; a file is made and deleted
    then. Raises TargetError, UnknownName, DeviceError for what may not be used, a drive that is to
    be two at once among it; writes nothing yet.
    """

    tier = "hardware"
    parallel = 1
    models = None
    overrides: Mapping[str, str] = {}

    def __init__(
        self,
        target: Path | None = None,
        drives: Mapping[str, str] | None = None,
        budget_bytes: int = 0,
        project: Project | None = None,
        queue: Mapping[str, str] | None = None,
        journals: Mapping[str, str] | None = None,
        *,
        cached: bool = False,
    ) -> None:
        self.cancel = Cancel()
        self._cached = cached
        self._target = target
        self._names = dict(drives or {})
        self._budget_bytes = budget_bytes
        self._project = project
        self._traces = block_traces.Traces(block_traces.folder(project) if project else None)
        self._queue = dict(queue or {})
        self._queues: dict[str, dict[str, str]] = {}
        self._journals = dict(journals or {})
        self._stack = ExitStack()
        self._file: FileDevice | None = None
        self._held: dict[str, DriveDevice] = {}
        self._size_bytes = 0
        self._remarks: dict[str, str] = {}
        if (target is None) == (not self._names):
            raise TargetError("tier hardware: give claimed drives or a file, and not both")
        if target is not None:
            scratch.check(target, 0, cached=cached)
        _check_once(self._names, self._journals)
        names = (*self._names.values(), *self._journals.values())
        self._claims: dict[str, Claim] = {}
        found: dict[str, Drive] = {}
        for name in names:
            self._claims[name], found[name] = guard.find(name, project=project)
        for drive in found.values():
            counters.block_device(drive.node)
        for device, name in self._journals.items():
            check_journal(found[self._claimed_as(device)], found[name])

    def __enter__(self) -> HardwareBench:
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self._traces):
            self._close()

    @property
    def devices(self) -> list[str]:
        """The drives' names in the experiment; of a file, DEVICE."""
        return list(self._names) or [DEVICE]

    def profile_name(self, device: str) -> str:
        """Raises TargetError, always."""
        raise TargetError(f"{device}: a real device has no profile")

    @property
    def remarks(self) -> Mapping[str, str]:
        """Texts for the last point's record: where its write amplification is from, or why not."""
        return dict(self._remarks)

    def reserve(self, needed_bytes: Mapping[str, int]) -> None:
        """There must be room for what the points need. Raises TargetError, DiskFull."""
        if self._target is not None:
            self._size_bytes = max(needed_bytes.values(), default=0)
            scratch.check(self._target, self._size_bytes, cached=self._cached)
            return
        for device, needed in needed_bytes.items():
            drive = self.drive(device)
            room = guard.room_bytes(drive)
            if needed > room:
                raise TargetError(
                    f"{device} ({self._names[device]}) has room for {format_bytes(room)}, "
                    f"{format_bytes(needed - room)} less than the experiment needs: choose a "
                    "larger drive, or a smaller --scale"
                )

    def attempt(self, number: int) -> None:
        """A drive keeps its own time: every attempt is the same."""

    def identity(self, device: str) -> Mapping[str, str]:
        """Fingerprint of this machine and of the drive."""
        if self._target is not None:
            if device != DEVICE:
                raise BadParameter(f"a file has one device, {DEVICE!r}, not {device!r}")
            place = self._target if self._target.exists() else self._target.absolute().parent
            return {**fingerprint.machine(), **fingerprint.storage_of(place)}
        found = self.drive(device)
        drive = fingerprint.of_drive(found) | conditions.of_drive(found.node)
        if device in self._journals:
            apart = self._check(self._journals[device])
            drive |= {f"journal_{k}": v for k, v in fingerprint.of_drive(apart).items()}
        return {**fingerprint.machine(), **drive, **self._queue_of(device)}

    def _queue_of(self, device: str) -> dict[str, str]:
        """What decides how the kernel hands it requests, as a point finds it: as it was when this
        run began, and over that what was asked for. What is asked for is put back, what was there
        stays, so that another run may find it otherwise.
        """
        if device not in self._queues:
            self._queues[device] = deciding(self.drive(device).name)
        settings = {**self._queues[device], **self._queue}
        return {f"queue_{name}": value for name, value in settings.items()}

    def check_placement(self, device: str, overrides: Mapping[str, str]) -> None:
        """Whether a point with these parameters can be run. Raises TargetError, BadParameter."""
        if is_journal_apart(overrides) and device not in self._journals:
            raise TargetError(NO_JOURNAL)

    def drive(self, device: str) -> Drive:
        """The claimed drive behind one of the device names. Raises UnknownName, TargetError."""
        return self._check(self._claimed_as(device))

    @contextmanager
    def open_device(self, request: DeviceRequest) -> Iterator[RealDevice]:
        """A real device takes no seed; a drive is empty, where it can discard.

        Of its parameters it knows where writes are placed (`placement`): not by who they are from,
        or a file system's journal apart (`range`).
        """
        self.check_placement(request.device, request.overrides)
        self._remarks = {}
        trace = self._traces.new_file() if request.trace else None
        if self._target is not None:
            self.identity(request.device)
            file = self._file_of(max(request.needed_bytes, request.size_bytes))
            with file.recorded(trace):
                yield file
            self._remarks = {"waf_says": FILE_SAYS}
            return
        opened = self._drive_of(request.device)
        opened.empty(request.size_bytes, journal_apart=is_journal_apart(request.overrides))
        try:
            with opened.recorded(trace):
                yield opened
        except Interrupted:  # also what stops it when more is written than was given
            opened.check_budget()
            raise
        finally:
            opened.close()
        self._remarks = {
            "waf_says": opened.waf_says,
            "drive_temperature_c": opened.temperature_c,
        }

    def _claimed_as(self, device: str) -> str:
        if device not in self._names:
            raise UnknownName("device", device, self._names)
        return self._names[device]

    def _file_of(self, needed_bytes: int) -> FileDevice:
        if self._file is None or self._size_bytes < needed_bytes:
            self._close()
            leases.free_workqueues()  # which serve a loop device, too
            self._size_bytes = max(self._size_bytes, needed_bytes)
            assert self._target is not None
            target = self._stack.enter_context(
                scratch.use(self._target, self._size_bytes, cached=self._cached)
            )
            self._file = FileDevice(target)
        return self._file

    def _drive_of(self, device: str) -> DriveDevice:
        if device not in self._held:
            drive = self._hold(self._claimed_as(device))
            journal = self._journals.get(device)
            self._held[device] = DriveDevice(drive, self._hold(journal) if journal else None)
        return self._held[device]

    def _check(self, name: str) -> Drive:
        claim, drive = guard.find(name, project=self._project)
        self._check_claim(name, claim)
        return drive

    def _check_claim(self, name: str, claim: Claim) -> None:
        """Results carry the identity that the run began with, hours before a drive is taken."""
        if claim != self._claims[name]:
            raise TargetError(
                f"{name} was released and claimed again since this run began: run it again, so "
                "that its results are filed under the drive that they are of"
            )

    def _hold(self, name: str) -> ClaimedDrive:
        drive = self._stack.enter_context(
            guard.claimed(name, budget_bytes=self._budget_bytes, project=self._project)
        )
        self._check_claim(name, drive.claim)
        self._stack.enter_context(queue_settings(drive.drive.node, self._queue))

        def watch() -> None:
            """Whatever looks at `cancel` stops as soon as more is written than it was given."""
            if drive.is_overspent:
                self.cancel.set()

        self._stack.enter_context(repeating.every(_WATCH_S, watch, name="write budget"))
        return drive

    def _close(self) -> None:
        for device in (self._file, *self._held.values()):
            if device is not None:
                device.close()
        self._file, self._held = None, {}
        self._stack.close()


def _check_once(drives: Mapping[str, str], journals: Mapping[str, str]) -> None:
    """Each is held for itself: the second of two that are one drive would wait for the first."""
    asked: dict[str, str] = {}
    for option, named in (("--drive", drives), ("--journal", journals)):
        for device, claimed in named.items():
            said = f"{option} {device}={claimed}"
            if claimed in asked:
                raise TargetError(
                    f"{asked[claimed]} and {said} are one drive, which cannot be two at once: "
                    "claim another, or leave one of them out"
                )
            asked[claimed] = said


def is_journal_apart(overrides: Mapping[str, str]) -> bool:
    """Whether a point wants its file system's journal to be placed apart.

    `overrides`: as of a DeviceRequest. Raises BadParameter for what is a model's only.
    """
    unknown = [name for name in overrides if name != "placement"]
    if unknown:
        raise BadParameter(f"a real device has no parameter {unknown[0]!r} to set")
    return overrides.get("placement", "none") == "range"


def check_journal(drive: Drive, journal: Drive) -> None:
    """Both are namespaces of one drive, which writes them to different reclaim units.

    Raises TargetError, DeviceError (no FDP), MissingTool.
    """
    if not drive.controller or drive.controller != journal.controller:
        raise TargetError(
            f"{journal.node} is not a namespace of the same drive as {drive.node}: a journal on "
            "another drive is no stream of its own; see hardware/msdj/README.md"
        )
    placement.check_apart(drive.node, journal.node)
