"""Records a block device's requests (or what ext4 does) and proves that nothing is missing."""

from __future__ import annotations

import errno
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.errors import (
    BadParameter,
    DataFolderError,
    DiskFull,
    HarnessError,
    TraceError,
    TraceIncomplete,
)
from harness.probes import bpftrace, counters, proof, scripts
from harness.probes.bpftrace import Bpftrace, Buffers
from harness.probes.counters import BlockCounters
from harness.probes.lines import JsonMaps, Lines

METADATA_KEY: Final = b"flashlab.recording"
_READ_BYTES: Final = 1 << 18
_PIECE_BYTES: Final = 1 << 20
_GROUP_ROWS: Final = 262_144
_START_S: Final = 180.0  # in a machine emulated by software it took more than one minute
_STOP_S: Final = 120.0
_UNROLL: Final = 64
_FLUSH: Final = ord("F")

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
    `<stem>.incomplete.parquet`. device_counters: gives the
    device's own counters (read_ios, write_ios, trim_ios, flush_ios, read_bytes, write_bytes,
    trim_bytes, or some of them), which then must agree, too.

    The span that is recorded begins and ends at a moment at which nothing is in flight. Requests of
    others between the probe's start and that moment are not in the file. Raises MissingTool
    without bpftrace or root, TargetError if the device is not left alone at begin or end,
    TraceIncomplete if anything is missing, DiskFull, DataFolderError.
    """

    def __init__(
        self,
        device: Path,
        output: Path,
        script: str = "block_io",
        *,
        device_counters: DeviceCounters | None = None,
        buffers: Buffers | None = None,
        quiet_s: float = 10.0,
    ) -> None:
        self.script = scripts.find(script)
        if output.suffix != ".parquet":
            raise BadParameter(f"{output}: the trace is Parquet, end its name in .parquet")
        self._device = device
        self._output = output
        self._partial = output.with_name(f"{output.stem}.incomplete.parquet")
        self._device_counters = device_counters
        self._buffers = buffers or Buffers()
        self._quiet_s = quiet_s
        self._tally = proof.Tally()
        self._marks: list[tuple[str, int]] = []
        self._lines: Lines | JsonMaps = (
            JsonMaps() if self.script.json else Lines(self.script.fields)
        )
        self._attached = threading.Event()
        self._failure: BaseException | None = None
        self._end_ns: int | None = None
        self._start_ns = 0
        self._begin_sector = 0
        self._pending: list[pa.Table] = []
        self._token = f"fl{os.getpid() % 10**6:06d}{time.monotonic_ns() % 10**6:06d}"
        self.tracefs_mounted = False
        self.recording: Recording | None = None

    def __enter__(self) -> Recorder:
        bpftrace.program()
        counters.block_device(self._device)
        self._begin_sector = counters.begin_sector(self._device)
        self.tracefs_mounted = bpftrace.mount_tracefs()
        self._writer = self._open()
        try:
            # The first time, libraries load more of themselves: while rows wait would be too late.
            zero = [pa.array([0], pa.int64())] * self.script.fields
            proof.Tally().add(self.script.decode(zero))
            self._start()
        except BaseException:
            self._abandon()
            self._partial.unlink(missing_ok=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            moved, device = self._stop() if kind is None else (None, None)
        except BaseException:
            self._abandon()
            raise
        if kind is not None:  # what was recorded so far stays, under its incomplete name
            self._abandon()
            return
        self._finish(moved, device)

    @property
    def process_id(self) -> int:
        """Of bpftrace, while it runs."""
        return self._bpftrace.process.pid

    def mark(self, name: str) -> None:
        """Begins a phase: its name and time stand in the file; histograms are kept per phase."""
        self._switch_phase()
        self._marks.append((name, time.clock_gettime_ns(time.CLOCK_BOOTTIME)))

    def _open(self) -> Any:
        try:
            return pq.ParquetWriter(self._partial, self.script.schema, compression="zstd")
        except OSError as error:
            raise DataFolderError(
                f"{self._partial}: {error.strerror or error}: choose another place"
            ) from error

    def _start(self) -> None:
        self._bpftrace = Bpftrace(self.script, self._arguments(), self._buffers)
        self._reader = threading.Thread(target=self._read, name="probe reader", daemon=True)
        self._reader.start()
        # bpftrace hands on what BEGIN printed only after all probes are attached.
        if not self._attached.wait(_START_S) or not self._lines.ready:
            said = self._bpftrace.errors() or ["it says nothing"]
            raise HarnessError(f"bpftrace did not start {self.script.name}.bt: {said[-1]}")
        self._before, self._start_ns = self._quiet()
        self._device_before = self._read_device()
        self.mark("start")

    def _arguments(self) -> list[str]:
        number = str(counters.kernel_number(self._device, of_requests=self.script.counted))
        if self.script.name == "discards":
            processors = os.cpu_count() or 1
            if processors > _UNROLL:
                raise BadParameter(
                    f"the probe 'discards' counts for at most {_UNROLL} processors, here are "
                    f"{processors}: record with block_io, it has all of it in its rows"
                )
            return [number, str(processors)]
        queues = counters.queues(self._device) if self.script.counted else 1
        return [number, self._token, str(queues)]

    def _quiet(self) -> tuple[BlockCounters, int]:
        if self.script.counted:
            return counters.quiet(self._device, self._quiet_s)
        return counters.read(self._device), time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def _read_device(self) -> dict[str, int]:
        return dict(self._device_counters()) if self._device_counters else {}

    def _switch_phase(self) -> None:
        """The kernel tells the script when a thread gets a name: the one mark that costs others
        nothing, and that has been seen when the call returns.
        """
        comm = Path("/proc/thread-self/comm")
        before = comm.read_text()
        comm.write_text(self._token)
        comm.write_text(before)

    def _read(self) -> None:
        """The reader's thread: output to rows to Parquet. Ends when bpftrace does."""
        try:
            for text in self._pieces():
                for raw in self._lines.feed(text):
                    self._rows(raw)
                if self._lines.ready:
                    self._attached.set()
            for raw in self._lines.close():
                self._rows(raw)
        except BaseException as error:
            self._failure = error
            self._bpftrace.interrupt()
            while self._bpftrace.output.read(_READ_BYTES):
                pass
        finally:
            self._attached.set()

    def _pieces(self) -> Iterator[bytes]:
        """The output in pieces of some size: taking a small one apart costs as much as a large."""
        waiting = bytearray()
        while data := self._bpftrace.output.read(_READ_BYTES):
            waiting += data
            if len(waiting) >= _PIECE_BYTES or not self._attached.is_set():
                yield bytes(waiting)
                waiting.clear()
        yield bytes(waiting)

    def _rows(self, raw: scripts.Raw) -> None:
        table = self.script.decode(raw)
        self._tally.rows += len(table)
        self._keep(table)

    def _keep(self, table: pa.Table) -> None:
        """Counts and writes the rows of the recorded span; the others are only counted."""
        inside = self._relative(self._inside(table))
        self._tally.outside += len(table) - len(inside)
        self._tally.add(inside)
        self._pending.append(inside)
        if sum(map(len, self._pending)) >= _GROUP_ROWS:
            self._write()

    def _relative(self, table: pa.Table) -> pa.Table:
        """LBAs count from where the device begins, if that is a part of a drive."""
        if not self._begin_sector or "lba" not in table.column_names:
            return table
        at = table.column_names.index("lba")
        return table.set_column(
            at, table.schema.field(at), pc.subtract(table["lba"], self._begin_sector)
        )

    def _write(self) -> None:
        table = pa.concat_tables(self._pending or [self.script.schema.empty_table()])
        self._pending = []
        if len(table):
            self._writer.write_table(table.unify_dictionaries())

    def _inside(self, table: pa.Table) -> pa.Table:
        if not self._start_ns:  # still starting: whatever there is was before
            return table.slice(0, 0)
        column = "completed_ns" if "completed_ns" in table.column_names else "time_ns"
        times = table[column]
        if column == "completed_ns":
            times = pc.coalesce(times, table["issued_ns"], pa.scalar(self._start_ns))
        keep = pc.greater_equal(times, self._start_ns)
        if self._end_ns is not None:
            keep = pc.and_(keep, pc.less(times, self._end_ns))
        return table.filter(keep)

    def _stop(self) -> tuple[BlockCounters, dict[str, int]]:
        after, self._end_ns = self._quiet()
        device = self._read_device()
        self.mark("end")
        self._missed = self._bpftrace.missed()
        if not self._bpftrace.idle(_STOP_S):
            raise TraceIncomplete(str(self._partial), [f"bpftrace is behind by {_STOP_S:g} s"])
        self._bpftrace.interrupt()
        if not self._bpftrace.wait(_STOP_S):
            raise TraceIncomplete(str(self._partial), [f"bpftrace did not end in {_STOP_S:g} s"])
        self._reader.join()
        if self._failure is not None:
            raise self._told(self._failure)
        return after - self._before, {
            name: value - self._device_before.get(name, 0) for name, value in device.items()
        }

    def _told(self, error: BaseException) -> BaseException:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return DiskFull(f"no space left to write {self._partial}: free some and record again")
        if isinstance(error, OSError):
            return DataFolderError(f"{self._partial}: {error.strerror or error}")
        return error

    def _finish(self, moved: BlockCounters | None, device: Mapping[str, int] | None) -> None:
        assert moved is not None
        assert device is not None
        errors = self._bpftrace.errors()
        self._bpftrace.close()
        self._leftovers()
        printed = self._printed(errors)
        problems = proof.of_output(self._tally, printed)
        if self.script.counted:
            only = "discard" if self.script.name == "discards" else None
            problems += proof.of_counters(self._tally, printed, moved, only)
            problems += proof.of_device(self._tally, printed, device)
        rows = self._tally.rows - self._tally.outside
        recording = Recording(
            path=self._output,
            script=self.script.name,
            rows=rows,
            unknown_latency=self._tally.unknown,
            missed=self._missed,
            flushes_unseen=printed.flushes_unseen,
            start_ns=self._start_ns,
            end_ns=self._end_ns or 0,
            counters=moved if self.script.counted else None,
            totals=self._lines.totals,
            marks=self._marks,
        )
        self._write()
        self._writer.add_key_value_metadata({METADATA_KEY: self._origin(recording, problems)})
        self._writer.close()
        if problems:
            raise TraceIncomplete(str(self._partial), problems)
        self._partial.replace(self._output)
        self.recording = recording

    def _printed(self, errors: list[str]) -> proof.Printed:
        lines = self._lines
        said = Lines(0)
        list(said.feed("".join(line + "\n" for line in errors).encode()))
        total = lines.totals.get
        flushes = self._tally.ops.get("flush", proof.Moved())
        return proof.Printed(
            lost=max(lines.lost, said.lost),
            bad=lines.bad,
            ended=lines.ended,
            rows=None if self.script.json else total("rows", 0) + self._extra,
            empty_writes=self._in_phases("empty"),
            flushes_unseen=max(0, self._in_phases("flushes_begun") - flushes.ios),
        )

    def _in_phases(self, name: str) -> int:
        """The sum of a counter that the script keeps per phase, over the recorded span."""
        if isinstance(self._lines, JsonMaps):
            counts = [(int(k), int(v)) for k, v in self._lines.maps.get(name, {}).items()]
        else:
            counts = [(key[0], value[0]) for key, value in self._lines.entries.get(name, [])]
        return sum(count for phase, count in counts if 0 < phase < len(self._marks))

    def _leftovers(self) -> None:
        """Rows that the script still had at its end, and requests whose end it did not see."""
        self._extra = 0
        if isinstance(self._lines, JsonMaps):
            self._histograms(self._lines)
            return
        entries = self._lines.entries
        fill = {key[0]: value[0] for key, value in entries.get("fill", [])}
        rows = [v for key, v in entries.get("row", []) if key[1] < fill.get(key[0], 0)]
        if rows:
            self._rows([pa.array(column, pa.int64()) for column in zip(*rows, strict=True)])
        pieces = [value for _, value in entries.get("piece", [])]
        if pieces:  # ends whose beginning nobody saw: (LBA, sectors, time, code)
            self._extra += len(pieces)
            raw = [
                [p[2] for p in pieces],
                [p[1] for p in pieces],
                [p[0] << 24 | p[3] for p in pieces],
            ]
            self._rows([pa.array(column, pa.int64()) for column in raw])
        waiting = entries.get("issued", []) + entries.get("second", [])
        unseen = [(k[0], v[0], v[1]) for k, v in waiting if k[0] & 0xFF != _FLUSH]
        if self.script.name == "discards":
            unseen = [entry for entry in unseen if entry[0] & 0xFF == ord("D")]
        if unseen:
            table = scripts.unseen_rows(self.script.schema, unseen)
            self._extra += len(table)
            self._tally.rows += len(table)
            self._keep(table)

    def _histograms(self, maps: JsonMaps) -> None:
        """Rows of scripts.HISTOGRAMS, and the tally, of the phases of the recorded span."""
        names = [name for name, _ in self._marks]
        rows = []
        for measure, by_key in maps.histograms.items():
            for key, buckets in by_key.items():
                phase, op = (int(n) for n in key.split(","))
                if not 0 < phase < len(names):
                    continue
                word = scripts.OPS.get(chr(op), "other")
                moved = self._tally.ops.setdefault(word, proof.Moved())
                if measure == "size_sectors":
                    moved.ios += sum(count for _, _, count in buckets)
                for low, high, count in buckets:
                    row = (names[phase - 1], word, measure, low, high, count)
                    rows.append(dict(zip(scripts.HISTOGRAMS.names, row, strict=True)))
        for key, sectors in maps.maps.get("sectors", {}).items():
            phase, op = (int(n) for n in key.split(","))
            if 0 < phase < len(names):
                moved = self._tally.ops.setdefault(scripts.OPS.get(chr(op), "other"), proof.Moved())
                moved.sectors += int(sectors)
        waiting = [maps.maps.get(name, {}).items() for name in ("issued", "second")]
        for key, value in chain(*waiting):
            when, sectors = (int(n) for n in value)
            if int(key) & 0xFF == _FLUSH or 4096 <= when < self._start_ns:
                continue
            word = scripts.OPS.get(chr(int(key) & 0xFF), "other")
            moved = self._tally.ops.setdefault(word, proof.Moved())
            moved.ios += 1 if when >= 4096 else when
            moved.sectors += sectors
        self._tally.first_writes = self._in_phases("first")
        self._tally.rows = len(rows)
        self._pending.append(pa.Table.from_pylist(rows, schema=scripts.HISTOGRAMS))

    def _origin(self, recording: Recording, problems: list[str]) -> bytes:
        facts = {
            "format": 1,
            **asdict(recording),
            "path": self._output.name,
            "ops": {op: asdict(moved) for op, moved in self._tally.ops.items()},
            "problems": problems,
            "device_bytes": self._device_bytes(),
            "kernel": platform.release(),
            "bpftrace": bpftrace.version(),
        }
        return json.dumps(facts).encode()

    def _device_bytes(self) -> int:
        sectors = int((counters.block_device(self._device) / "size").read_text())
        return (sectors - self._begin_sector) * counters.SECTOR_BYTES

    def _abandon(self) -> None:
        """Ends everything; what was written so far stays readable under its incomplete name."""
        if hasattr(self, "_bpftrace"):
            self._bpftrace.process.kill()
            self._bpftrace.wait(_STOP_S)
            self._reader.join()
            self._bpftrace.close()
        self._writer.close()


def check_file(path: Path) -> dict[str, Any]:
    """What a trace says of its recording, after counting its rows again.

    Raises TraceIncomplete if it was not complete, or if its rows are not those that were counted;
    TraceError if it is not a recording at all.
    """
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            facts = json.loads((file.metadata.metadata or {}).get(METADATA_KEY) or b"no facts")
            tally = proof.Tally()
            for batch in file.iter_batches(batch_size=_GROUP_ROWS):
                table = pa.Table.from_batches([batch])
                tally.rows += len(table)
                tally.add(table)
    except (OSError, pa.ArrowException, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise TraceError(str(path), 1, f"is not a recording: {reason}") from None
    problems = list(facts["problems"])
    if tally.rows != facts["rows"]:
        problems.append(f"{facts['rows']} rows were recorded, {tally.rows} are there")
    if scripts.find(facts["script"]).name != "io_histograms":
        counted = {op: asdict(moved) for op, moved in tally.ops.items()}
        if counted != facts["ops"]:
            problems.append(f"recorded were {facts['ops']}, there are {counted}")
    if problems:
        raise TraceIncomplete(str(path), problems)
    return dict(facts)
