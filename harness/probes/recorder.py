"""Records a block device's requests (or what ext4 does) and proves that nothing is missing."""

from __future__ import annotations

import errno
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.errors import DataFolderError, DiskFull, HarnessError, TraceIncomplete
from harness.probes import bpftrace, counters, proof, scripts
from harness.probes.bpftrace import Bpftrace, Buffers
from harness.probes.counters import BlockCounters
from harness.probes.decoding import Decoder, Reader
from harness.probes.probe import Probe
from harness.probes.span import Span
from harness.probes.trace_file import TraceFile

_START_S: Final = 180.0  # in a machine emulated by software it took more than one minute
_STOP_S: Final = 120.0
_TRIES: Final = 100

DeviceCounters = Callable[[], Mapping[str, int]]


@dataclass(frozen=True)
class Recording:
    """A complete recording.

    rows: in the file. unknown_latency: of these, requests whose issue or end was not seen, or that
    two of the same place shared. missed: at least so many events were skipped by the kernel
    (see Bpftrace.missed); their rows are there, without a latency, except for flushes_unseen:
    flushes whose end was skipped are counted, and have no row.
    counters: what the kernel counted of the device meanwhile (None for ext4 and its journal).
    marks: (name, boot time in ns).
    """

    path: Path
    script: str
    rows: int
    unknown_latency: int
    missed: int
    flushes_unseen: int
    start_ns: int
    end_ns: int
    counters: BlockCounters | None
    totals: Mapping[str, int]
    marks: list[tuple[str, int]] = field(default_factory=list)


class Recorder:
    """Records while its `with` block runs; afterwards `recording` says what is in the file.

    device: a whole block device, or the part of a claimed drive behind its header. output: the
    Parquet file to make; until the recording is proven complete, and if it is not, it is called
    `<stem>.incomplete.parquet`. script: a probe, or the name of one. device_counters: gives the
    device's own counters (read_ios, write_ios, trim_ios, flush_ios, read_bytes, write_bytes,
    trim_bytes, or some of them), which then must agree, too.

    `is_output_whole`: whether all that was printed has arrived and ended as it should, whatever
    counters say; known afterwards, of an incomplete recording, too.

    The span that is recorded begins and ends at a moment at which nothing is in flight. Requests of
    others between the probe's start and that moment are not in the file. Raises MissingTool
    without bpftrace or root, TargetError if the device is not left alone at begin or end,
    TraceIncomplete if anything is missing, DiskFull, DataFolderError.
    """

    def __init__(
        self,
        device: Path,
        output: Path,
        script: str | Probe = "block_io",
        *,
        device_counters: DeviceCounters | None = None,
        buffers: Buffers | None = None,
        quiet_s: float = 10.0,
    ) -> None:
        self.probe = scripts.find(script) if isinstance(script, str) else script
        self._device = device
        self._file = TraceFile(output, self.probe.schema)
        self._device_counters = device_counters
        self._buffers = buffers or Buffers()
        self._quiet_s = quiet_s
        self._span = Span()
        self._begin_sector = 0
        self._child: Bpftrace | None = None
        self.tracefs_mounted = False
        self.recording: Recording | None = None
        self.is_output_whole = False

    def __enter__(self) -> Recorder:
        bpftrace.program()
        counters.block_device(self._device)
        self._begin_sector = counters.begin_sector(self._device)
        self.tracefs_mounted = bpftrace.mount_tracefs()
        self._file.open()
        try:
            self._start()
        except BaseException:
            self._abandon()
            self._file.partial.unlink(missing_ok=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # what was recorded so far stays, under its incomplete name
            self._abandon()
            return
        try:
            moved, device = self._stop()
        except BaseException:
            self._abandon()
            raise
        self._finish(moved, device)

    @property
    def process_id(self) -> int:
        """Of bpftrace, while it runs."""
        return self._running.process.pid

    def mark(self, name: str) -> None:
        """Begins a phase: its name and time stand in the file; histograms are kept per phase."""
        self._span.mark(name)

    @property
    def _running(self) -> Bpftrace:
        assert self._child is not None, "bpftrace was not started"
        return self._child

    def _start(self) -> None:
        self._decoder = Decoder(self.probe, self._span, self._file, self._begin_sector)
        arguments = self.probe.arguments(self._device, self._span)
        self._child = Bpftrace(self.probe, arguments, self._buffers)
        self._reader = Reader(self._child, self._decoder)
        if not self._reader.attached(_START_S):
            said = self._child.errors() or ["it says nothing"]
            raise HarnessError(f"bpftrace did not start {self.probe.source.name}: {said[-1]}")
        self._before, self._device_before, self._span.start_ns = self._at_rest()
        self.mark("start")

    def _at_rest(self) -> tuple[BlockCounters, dict[str, int], int]:
        """What the kernel and the device itself have counted at one moment, and that moment (ns).

        A request that comes between the two is in what the device says, and not in what the kernel
        does: both are asked again then. After _TRIES of that the proof has it.
        """
        for _ in range(_TRIES):
            kernel, now_ns = self._quiet()
            device = self._read_device()
            if not self.probe.counted or counters.unchanged(self._device, kernel):
                break
        return kernel, device, now_ns

    def _quiet(self) -> tuple[BlockCounters, int]:
        if self.probe.counted:
            return counters.quiet(self._device, self._quiet_s)
        return counters.read(self._device), time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def _read_device(self) -> dict[str, int]:
        return dict(self._device_counters()) if self._device_counters else {}

    def _stop(self) -> tuple[BlockCounters, dict[str, int]]:
        """Ends bpftrace; what the kernel and the device itself counted meanwhile."""
        after, device, self._span.end_ns = self._at_rest()
        self.mark("end")
        self._missed = self._running.missed()
        if not self._running.idle(_STOP_S):
            raise self._incomplete([f"bpftrace is behind by {_STOP_S:g} s"])
        self._running.interrupt()
        if not self._running.wait(_STOP_S):
            raise self._incomplete([f"bpftrace did not end in {_STOP_S:g} s"])
        if (failure := self._reader.join()) is not None:
            raise self._told(failure)
        return after - self._before, {
            name: value - self._device_before.get(name, 0) for name, value in device.items()
        }

    def _told(self, error: BaseException) -> BaseException:
        partial = self._file.partial
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return DiskFull(f"no space left to write {partial}: free some and record again")
        if isinstance(error, OSError):
            return DataFolderError(f"{partial}: {error.strerror or error}")
        return error

    def _incomplete(self, problems: list[str]) -> TraceIncomplete:
        return TraceIncomplete(str(self._file.partial), problems)

    def _finish(self, moved: BlockCounters, device: Mapping[str, int]) -> None:
        """Proves the recording, and gives its file the name if it is complete."""
        errors = self._running.errors()
        self._running.close()
        printed = self._decoder.finish(errors)
        tally = self._decoder.tally
        problems = proof.of_output(tally, printed)
        self.is_output_whole = not problems
        problems += self.probe.problems(tally, printed, moved, device)
        if self._missed and not self.probe.counted:  # what a device counts would show it
            problems.append(f"the kernel left out {self._missed} events")
        recording = Recording(
            path=self._file.output,
            script=self.probe.name,
            rows=tally.rows - tally.outside,
            unknown_latency=tally.unknown,
            missed=self._missed,
            flushes_unseen=printed.flushes_unseen,
            start_ns=self._span.start_ns,
            end_ns=self._span.end_ns or 0,
            counters=moved if self.probe.counted else None,
            totals=self._decoder.output.totals,
            marks=self._span.marks,
        )
        self._file.finish(self._facts(recording, problems))
        if problems:
            self._file.close()
            raise self._incomplete(problems)
        self._file.publish()
        self.recording = recording

    def _facts(self, recording: Recording, problems: list[str]) -> dict[str, Any]:
        return {
            "format": 1,
            **asdict(recording),
            "path": recording.path.name,
            "ops": proof.as_facts(self._decoder.tally),
            "problems": problems,
            "device_bytes": self._device_bytes(),
            "kernel": platform.release(),
            "bpftrace": bpftrace.version(),
        }

    def _device_bytes(self) -> int:
        sectors = int((counters.block_device(self._device) / "size").read_text())
        return (sectors - self._begin_sector) * counters.SECTOR_BYTES

    def _abandon(self) -> None:
        """Ends everything; what was written so far stays readable under its incomplete name."""
        if self._child is not None:
            self._child.process.kill()
            self._child.wait(_STOP_S)
            self._reader.join()
            self._child.close()
        self._file.close()
