"""Tier `hardware`: the real engine on a real file or loop device, past the page cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from harness import _core
from harness.devices import filesystems, fingerprint, scratch
from harness.devices.filesystems import COMMIT_S, INODES
from harness.devices.profiles import NamedRange
from harness.devices.write_shares import Writes
from harness.errors import BadParameter, TargetError
from harness.tiers.base import DATA_OFFSET_BYTES, Cancel, CpuCosts
from harness.workloads import ageing as ageing_job
from harness.workloads.ageing import Ageing
from harness.workloads.tpch import RECORD_BYTES, expand

DEVICE = "file"
assert scratch.HEADER_BYTES <= DATA_OFFSET_BYTES, "data would overwrite the target's marker"
_CHUNK_RECORDS = 1 << 16


def write_records(
    storage: _core.FileStorage | _core.MemoryStorage,
    offset_bytes: int,
    contents: NDArray[np.void],
) -> None:
    """Writes records (dtype tpch.CONTENT) in the form in which the engine reads them."""
    for at in range(0, len(contents), _CHUNK_RECORDS):
        data = expand(contents[at : at + _CHUNK_RECORDS], storage.block_bytes)
        storage.write(offset_bytes + at * RECORD_BYTES, data)


class FileDevice:
    """A scratch file or loop device, opened with O_DIRECT. Its clock is the real one."""

    cpu = CpuCosts()
    profile = None
    host = None
    block_trace = None
    slowdown = 1

    def __init__(self, target: scratch.Scratch) -> None:
        self._target = target
        self.storage = _core.FileStorage(str(target.path))
        self._placed: dict[int, NDArray[np.void]] = {}

    def place(self, offset_bytes: int, contents: NDArray[np.void]) -> None:
        """Writes the records, unless the same ones are there already from the point before."""
        if self._placed.get(offset_bytes) is contents:
            return
        self._placed = {k: v for k, v in self._placed.items() if k != offset_bytes}
        write_records(self.storage, offset_bytes, contents)
        self.storage.sync()
        self._placed[offset_bytes] = contents

    @contextmanager
    def filesystem(
        self,
        *,
        size_bytes: int = 0,
        dirty_bytes: int = 0,
        discard: bool = False,
        inodes: int = INODES,
        commit_s: float = COMMIT_S,
        journal_mode: str = "ordered",
        journal_bytes: int = 0,
    ) -> Iterator[Path]:
        """Behind the header that marks the target as ours, on a loop device over it."""
        self._placed = {}
        with filesystems.ext4_in(
            self._target.path,
            DATA_OFFSET_BYTES,
            size_bytes or self._target.size_bytes - DATA_OFFSET_BYTES,
            dirty_bytes=dirty_bytes,
            discard=discard,
            inodes=inodes,
            commit_s=commit_s,
            journal_mode=journal_mode,
            journal_bytes=journal_bytes,
        ) as folder:
            yield folder

    def age(self, ageing: Ageing) -> None:
        """Behind the header; at the drive's own speed."""
        self._placed = {}
        behind = replace(ageing, begin_bytes=ageing.begin_bytes + DATA_OFFSET_BYTES)
        ageing_job.run(self._target.path, behind, self._target.size_bytes)

    def unpaced(self) -> AbstractContextManager[None]:
        """A real drive always takes its time."""
        return nullcontext()

    def streams(self, ranges: Sequence[NamedRange]) -> None:
        """Raises TargetError, unless there are none: a drive does not place writes by address."""
        if ranges:
            raise TargetError(
                "a real drive does not place writes by their address: its host has to name the "
                "stream. hardware/msdj/ has what does so for ext4's journal: a patch of JBD2, or a "
                "journal on a namespace with an FDP placement handle of its own"
            )

    def writes(self) -> Writes | None:
        """A file does not say."""
        return None

    def begin(self) -> None:
        """Whatever was placed is on the drive already."""

    def counted(self) -> dict[str, int]:
        """A file has no counters of its own."""
        return {}

    def counters(self) -> dict[str, int | float]:
        """A file has no counters of its own."""
        return {}


class HardwareBench:
    """One target, kept for all points; a file is made for the first and deleted after the last."""

    tier = "hardware"
    parallel = 1

    def __init__(self, target: Path) -> None:
        self.cancel = Cancel()
        self._target = target
        self._stack = ExitStack()
        self._device: FileDevice | None = None
        self._size_bytes = 0
        scratch.check(target, 0)

    def __enter__(self) -> HardwareBench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    @property
    def devices(self) -> list[str]:
        """The target, under one name."""
        return [DEVICE]

    def reserve(self, needed_bytes: Mapping[str, int]) -> None:
        """One target for all points, as large as the largest of them needs."""
        self._size_bytes = max(needed_bytes.values(), default=0)
        scratch.check(self._target, self._size_bytes)

    def attempt(self, number: int) -> None:
        """A drive keeps its own time: every attempt is the same."""

    def identity(self, device: str) -> Mapping[str, str]:
        """Fingerprint of this machine and of the drive below the target."""
        if device != DEVICE:
            raise BadParameter(f"tier hardware has one device, {DEVICE!r}, not {device!r}")
        place = self._target if self._target.exists() else self._target.absolute().parent
        return {**fingerprint.machine(), **fingerprint.storage_of(place)}

    @contextmanager
    def open_device(
        self,
        device: str,
        needed_bytes: int,
        *,
        overrides: Mapping[str, str],
        seed: int,
        trace: bool = False,
        size_bytes: int = 0,
    ) -> Iterator[FileDevice]:
        """The target. A real device takes neither seed nor trace."""
        del seed, trace
        needed_bytes = max(needed_bytes, size_bytes)
        self.identity(device)
        if overrides:
            raise BadParameter(f"a real device has no parameter {next(iter(overrides))!r} to set")
        if self._device is None or self._size_bytes < needed_bytes:
            self._close()
            self._size_bytes = max(self._size_bytes, needed_bytes)
            target = self._stack.enter_context(scratch.use(self._target, self._size_bytes))
            self._device = FileDevice(target)
        yield self._device

    def _close(self) -> None:
        self._device = None
        self._stack.close()
