"""The run of one point on a real kernel: TPC-C on a private InnoDB server, its data on ext4.

A modelled drive is filled and aged by fio, which its flash sees and which takes none of its time.
The file system that is made then, and the database that is loaded, are to it data that has been
there since long ago: in the place of what filled it, in all modes alike.

Warm-up and measured interval are two runs of the clients. Between them, and at the end, the server
stands still and the file system is synced: the block trace, the drive's counters and the samples of
write amplification then begin and end at moments at which nothing is on its way, and all speak of
the same writes.

Times are the device's: the clock's, divided by the slowdown. Software is not slowed down, so to the
device the processor is that many times faster; where it is busy with other things, TpmC says little
and the bytes per transaction say more.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from harness.dbms import innodb, mysql, page_writes
from harness.dbms.innodb import LEAST_LRU_SCAN_DEPTH, InnodbSettings
from harness.dbms.mysql import Server
from harness.dbms.page_writes import PageWrites
from harness.dbms.server_memory import ServerMemory
from harness.devices import write_shares
from harness.devices.model import waf_of
from harness.devices.profiles import NamedRange
from harness.devices.write_shares import Sampler, Writes
from harness.errors import BadParameter, DataCorrupted, InvalidRun, TargetError, TraceIncomplete
from harness.experiments.base import Measurement, Point
from harness.experiments.msdj_tpcc import commits, grid, written
from harness.experiments.msdj_tpcc.grid import Cell, Parameters
from harness.experiments.msdj_tpcc.written import Layout
from harness.experiments.variants import overrides_of
from harness.probes import analysis, counters
from harness.probes.counters import BlockCounters
from harness.probes.recorder import Recorder
from harness.system import ext4_spec, filesystems, leases, mounts, processors, writeback
from harness.system.ext4_spec import Ext4Spec
from harness.tiers.base import DATA_OFFSET_BYTES, Bench, DeviceRequest, DeviceUnderTest
from harness.workloads.ageing import Ageing
from harness.workloads.tpcc import consistency, driver, loading
from harness.workloads.tpcc.driver import Job, Run
from harness.workloads.tpcc.population import Population
from harness.workloads.tpcc.scale import Scale, reduced

LEAST: Final = grid.Least(innodb.LEAST_REDO_BYTES, 128 << 20)
"""Page cache and server are bounded together: with a few MiB for the first the second is killed."""

JOURNAL: Final = "journal"
JOURNAL_STREAM: Final = 1
REDO_PLACES: Final = ("device", "elsewhere")

_BLOCK_BYTES: Final = 4096
_AGEING_PASSES: Final = 2
"""The first fills the region; in the second the drive collects garbage."""

_AGEING_BYTES: Final = 16384
"""Of one of fio's writes: a page of InnoDB's. The paper does not say."""

_PROCESSES: Final = 2
_CLIENT_BYTES: Final = 1 << 20
_SERVER_BYTES: Final = 16 << 20
"""What connections and the server will need besides what a loaded server has. Estimates: what is
measured decides as soon as it is more."""

_DIRTY_RATIO: Final = 0.2
"""Of the page cache, what may wait to be written: the kernel's own default (vm.dirty_ratio)."""

_CAPACITY_PAGES_PER_S: Final = 2000
"""innodb_io_capacity, of the device's time: a tenth of the steady random writes of an NVMe drive
for data centres."""

_WARM_UP, _INTERVAL = 0, 1
"""Parts of a run: of the same draws the interval would find its pages in memory."""

_MOST_MISSED: Final = 0.01
_SAMPLES: Final = 60
_INTERVALS: Final = 30
_QUIET_S: Final = 300.0
_STOP_S: Final = 600.0
_STATES: Final = ("buffer_pool_dirty_pages", "history_list_length", "uptime_s")
"""Of InnoDB's counters, those that say how it is and not what was done."""

_JBD2: Final = Path("/proc/fs/jbd2")


def needed_bytes(v: Cell) -> int:
    """`drive_bytes`, and a header before them: some targets begin with one."""
    return drive_bytes(v) + DATA_OFFSET_BYTES


def drive_bytes(v: Cell) -> int:
    """The whole drive, or, where that is as large as it is, room for the database as it grows."""
    return v.device_bytes or grid.room_bytes(v.warehouses, v.journal_bytes, v.redo_bytes)


def run(point: Point, parameters: Parameters, bench: Bench, raw: Path) -> Measurement:
    """One mode with one journal: ageing, load, warm-up, and the measured interval."""
    return run_point(Cell.of(point), bench, raw, overrides_of(Cell.of(point), parameters.variants))


def run_point(
    v: Cell,
    bench: Bench,
    raw: Path,
    overrides: Mapping[str, str] | None = None,
    *,
    small_warehouses: bool = False,
) -> Measurement:
    """Runs TPC-C in one mode and returns what it did, and what was written where.

    `overrides`: parameters of a modelled drive. `small_warehouses`: they have a hundredth of the
    standard's size. Raises HarnessError: DataCorrupted if one of TPC-C's twelve conditions or a
    page's checksum does not hold, InvalidRun if the drive's replies left late or its count of the
    journal is not the kernel's. Whatever it started has ended then.
    """
    mode = page_writes.find(v.mode)
    _check(v, mode)
    writeback.check_share(_DIRTY_RATIO)
    mysql.find_programs()
    request = DeviceRequest(
        device=v.device,
        needed_bytes=needed_bytes(v),
        overrides={**(overrides or {}), **placement(mode)},
        seed=v.seed,
        size_bytes=v.device_bytes,
    )
    traces = raw.absolute() / "msdj_tpcc"
    traces.mkdir(parents=True, exist_ok=True)
    with (
        bench.open_device(request) as device,
        leases.open_lease() as lease,
        _redo_folder(v, raw) as redo,
    ):
        _use(device, v)
        with device.filesystem(
            Ext4Spec(
                dirty_bytes=round(_DIRTY_RATIO * v.page_cache_bytes),
                journal_mode=mode.journal_mode,
                journal_bytes=v.journal_bytes,
                commit_s=ext4_spec.COMMIT_S * v.size_ratio_to_paper,
            )
        ) as folder:
            settings = _settings(v, mode, device, redo)
            point = _Point(v, mode, bench, device, folder, settings, small_warehouses)
            measured = point.run(lease.new_folder(traces, "recording-") / "block.parquet")
            assert measured.block_trace is not None
            kept = traces / f"block-{lease.folder.name}.parquet"  # until the session takes it
            measured.block_trace.replace(kept)
        return replace(measured, block_trace=kept)


def _check(v: Cell, mode: PageWrites) -> None:
    if v.redo_on not in REDO_PLACES:
        raise BadParameter(f"redo_on {v.redo_on!r}: one of {', '.join(REDO_PLACES)}")
    if v.doublewrite_on != "device":
        raise TargetError(
            "a real server has its doublewrite buffer beside its data: doublewrite_on elsewhere is "
            "for the tier simulated"
        )
    if mode.file_system_block_bytes != _BLOCK_BYTES:
        raise TargetError(
            f"mode {v.mode} wants file-system blocks of {mode.file_system_block_bytes} B, which "
            "this tier does not make: use another mode"
        )


def placement(mode: PageWrites) -> dict[str, str]:
    """The drive's parameters: the same drive in all modes, but for the journal's stream."""
    return {"placement": "range" if mode.journal_stream else "none"}


def _use(device: DeviceUnderTest, v: Cell) -> None:
    """What the drive has seen before the file system is made on it, nothing of it discarded."""
    drive = drive_bytes(v)
    filled = round(v.filled_ratio * drive) // _AGEING_BYTES * _AGEING_BYTES
    if filled:
        once = Ageing(region_bytes=filled, written_bytes=filled, block_bytes=_AGEING_BYTES)
        device.age(replace(once, pattern="sequential"))
    aged = min(v.ageing_bytes, drive) // _AGEING_BYTES * _AGEING_BYTES
    if aged:
        twice = Ageing(
            region_bytes=aged,
            written_bytes=_AGEING_PASSES * aged,
            block_bytes=_AGEING_BYTES,
            seed=v.seed,
        )
        device.age(twice)


@contextmanager
def _redo_folder(v: Cell, raw: Path) -> Iterator[Path | None]:
    """Where the redo log is, if that is not on the device under test."""
    if v.redo_on == "device":
        yield None
        return
    with mysql.new_folder(mysql.folder_below(raw)) as folder:
        yield folder


def _settings(
    v: Cell, mode: PageWrites, device: DeviceUnderTest, redo: Path | None
) -> InnodbSettings:
    return InnodbSettings(
        doublewrite="on" if mode.doublewrite else "off",
        buffer_pool_bytes=v.buffer_pool_bytes,
        redo_bytes=v.redo_bytes,
        redo_folder=redo,
        io_capacity_pages_per_s=max(_CAPACITY_PAGES_PER_S // device.slowdown, 100),
        # MariaDB keeps so many pages free: by default a fifth of this pool, of the paper's at most
        # a thirtieth. The default of innodb_old_blocks_time, a second of the clock, is about the
        # part of a page's stay in the old part of the list that it is at the paper's size (8.6 and
        # 6.5 %).
        lru_scan_depth=LEAST_LRU_SCAN_DEPTH,
    )


@dataclass(frozen=True)
class _Look:
    """What everybody has counted at a moment at which the server stands still.

    `journal`: of the device that the journal is on, if that is another one.
    """

    innodb: dict[str, int]
    commits: int
    kernel: BlockCounters
    journal: BlockCounters | None


@dataclass(frozen=True)
class _Measured:
    """The measured interval: clients, samples of the drive's writes, its counters, the trace, the
    journal's commits over time.
    """

    run: Run
    samples: list[Writes]
    counters: dict[str, int | float]
    trace: Path
    commits: dict[str, list[float]]


@dataclass
class _Point:
    """What a point runs on."""

    cell: Cell
    mode: PageWrites
    bench: Bench
    device: DeviceUnderTest
    folder: Path
    settings: InnodbSettings
    small_warehouses: bool
    looks: list[_Look] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.block_device = filesystems.device_of(self.folder)
        self.journal_device = filesystems.journal_device(self.block_device)
        self.data = self.folder / "mysql"

    def run(self, trace: Path) -> Measurement:
        """Everything, once; the block trace is written to `trace`, or beside it."""
        # A real drive counts what it writes, but not by range.
        counts_ranges = self.device.drive is not None and self.device.writes() is not None
        if counts_ranges or self.mode.journal_stream:
            self.device.streams([] if self.journal_device else _journal_ranges(self.block_device))
        with mysql.run(self.data, self.settings, bounded=True, stop_limit_s=_STOP_S) as server:
            address = {**server.address, "database": loading.DATABASE}
            self._load(server, address)
            memory = self._bounded(server)
            self.device.begin()
            self._run_clients(server, memory, address, self.cell.warm_up_s, _WARM_UP)
            measured = self._measure(server, memory, address, trace)
            with self.device.unpaced():
                consistency.assure(address)
                places = self._layout(server)
                server.stop(_STOP_S)
                self._check_pages()
        metrics = {
            **_of_clients(measured.run, self.device.slowdown),
            **self._written(measured, places),
            **self._accesses(measured, places),
            **_of_innodb(self.looks, self.device.slowdown),
            "journal_commits": self.looks[-1].commits - self.looks[0].commits,
            **memory.metrics(),
            **measured.counters,
            "server_version": _number(server.release.version),
        }
        series = {
            **_amplification(measured.samples),
            **measured.commits,
            **_rates(measured.run, self.cell.measured_s, self.device.slowdown),
            **written.page_series(measured.trace, places, self.settings.page_bytes),
        }
        return Measurement(metrics, series, block_trace=measured.trace)

    def _load(self, server: Server, address: Mapping[str, Any]) -> None:
        warehouses = self.cell.warehouses
        scale = reduced(warehouses) if self.small_warehouses else Scale(warehouses)
        loading.load(
            address,
            Population(scale, seed=self.cell.seed),
            processes=_PROCESSES,
            is_cancelled=self._is_cancelled,
            watch=server.check,
        )

    def _is_cancelled(self) -> bool:
        return self.bench.cancel.is_set

    def _bounded(self, server: Server) -> ServerMemory:
        """From now on the page cache is no larger than it is to be."""
        assert server.cgroup is not None
        clients = self.cell.connections * _CLIENT_BYTES
        memory = ServerMemory(
            server.cgroup,
            limit_bytes=0,
            page_cache_bytes=self.cell.page_cache_bytes,
            expected_bytes=clients + _SERVER_BYTES,
        )
        memory.look()
        return memory

    def _run_clients(
        self,
        server: Server,
        memory: ServerMemory,
        address: Mapping[str, Any],
        time_s: float,
        part: int,
    ) -> Run | None:
        """For so long of the device's time; nothing for none. `part`: see `Job`."""

        def watch() -> None:
            server.check()
            memory.look()

        if not time_s:
            return None
        connections = self.cell.connections
        processes = min(_PROCESSES, connections)
        clock_s = time_s * self.device.slowdown
        job = Job(connections, processes, 0.0, clock_s, seed=self.cell.seed + 1, part=part)
        return driver.run(address, job, is_cancelled=self._is_cancelled, watch=watch)

    def _measure(
        self, server: Server, memory: ServerMemory, address: Mapping[str, Any], trace: Path
    ) -> _Measured:
        """The interval, recorded from one standstill to the next."""
        measured_s = self.cell.measured_s
        own = self.device.counted if self.device.counted() else None
        journal = trace.with_name("journal.parquet")
        sampler = Sampler(self.device.writes, measured_s * self.device.slowdown / _SAMPLES)
        with ExitStack() as journal_recording, ExitStack() as recording:
            journal_recording.enter_context(
                Recorder(self.block_device, journal, "jbd2", quiet_s=_QUIET_S)
            )
            with self._standing_still(server):
                self.device.begin()  # what it has counted is of the warm-up, too
                recorder = Recorder(self.block_device, trace, device_counters=own, quiet_s=_QUIET_S)
                recording.enter_context(recorder)
                recording.enter_context(sampler)
            begin_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            before = processors.read()
            run = self._run_clients(server, memory, address, measured_s, _INTERVAL)
            assert run is not None
            busy_ratio = processors.read().busy_ratio_since(before)
            end_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            with self._standing_still(server):
                kept = trace
                try:
                    recording.close()
                except TraceIncomplete as error:  # a skipped probe: see `_missed_ratio`
                    if not recorder.is_output_whole:
                        raise InvalidRun(str(error)) from error
                    kept = Path(error.kept_as)
                journal_recording.close()
                found = self.device.counters()
        moved = self.looks[-1].kernel - self.looks[0].kernel
        found["trace_missed_ratio"] = _missed_ratio(kept, moved)
        found["processor_utilisation_ratio"] = busy_ratio
        found |= _utilisation(kept, begin_ns, end_ns)
        means, series = commits.course(journal, begin_ns, end_ns, self.device.slowdown)
        return _Measured(run, sampler.samples, {**found, **means}, kept, series)

    @contextmanager
    def _standing_still(self, server: Server) -> Iterator[None]:
        """Nothing is on its way to the device while the block runs."""
        status = server.status()
        with server.paused():
            mounts.sync(self.folder, _QUIET_S)
            kernel = counters.read(self.block_device)
            journal = counters.read(self.journal_device) if self.journal_device else None
            commits = _commits(self.block_device, self.journal_device)
            self.looks.append(_Look(status, commits, kernel, journal))
            yield

    def _layout(self, server: Server) -> Layout:
        redo = self.settings.redo_folder or self.data
        return written.layout(
            self.folder, server.folder, loading.DATABASE, self.settings.page_bytes, redo
        )

    def _check_pages(self) -> None:
        found = mysql.check_pages(self.data, self.settings)
        if found.bad:
            first = found.bad[0]
            raise DataCorrupted(
                f"{len(found.bad)} of {found.pages} InnoDB pages have a wrong checksum, the first "
                f"is page {first.page} of {first.file.name}: the run is worthless"
            )

    def _accesses(self, measured: _Measured, places: Layout) -> dict[str, int | float]:
        """By the block trace, and of a journal's own device by the kernel's counters."""
        found = written.accesses(measured.trace, places, _size_of(self.block_device))
        if moved := self._journal_moved():
            return {**found, **_densities(moved, self.cell.journal_bytes)}
        return found

    def _journal_moved(self) -> BlockCounters | None:
        """What the journal's own device was asked in the measured interval."""
        first, last = self.looks[0].journal, self.looks[-1].journal
        return last - first if first and last else None

    def _written(self, measured: _Measured, places: Layout) -> dict[str, int | float]:
        """By place, by the kernel's trace; what the drive made of it, by its own counters."""
        found: dict[str, int | float] = {**written.written_bytes(measured.trace, places)}
        if moved := self._journal_moved():
            found["journal_written_bytes"] = moved.write_sectors * counters.SECTOR_BYTES
        samples = measured.samples
        if not samples or JOURNAL not in samples[-1].shares:
            return {**found, "host_written_bytes": self._host_written(measured, found)}
        first, last = samples[0], samples[-1]
        grown = {name: n - first.counters[name] for name, n in last.counters.items()}
        journal = write_shares.since(last.shares, first.shares)[JOURNAL]
        written.check_journal(int(found["journal_written_bytes"]), journal.written_bytes)
        return {
            **found,
            "host_written_bytes": grown["write_bytes"],
            "nand_written_bytes": grown["nand_write_bytes"],
            "waf_ratio": waf_of(grown),
            "journal_waf_ratio": journal.waf,
        }

    def _host_written(self, measured: _Measured, found: Mapping[str, int | float]) -> int:
        """By the kernel's counters, where no drive says what its journal's stream was written.

        What the trace lacks may then all be one place's: raises InvalidRun if it is more than
        `_MOST_MISSED` of the least of them.
        """
        moved = self.looks[-1].kernel - self.looks[0].kernel
        whole = moved.write_sectors * counters.SECTOR_BYTES
        seen = _moved_bytes(measured.trace)
        missed = abs(whole - seen["write"] - seen["other"])
        least = min((n for n in found.values() if n), default=0)
        if missed > _MOST_MISSED * least:
            raise InvalidRun(
                f"the block trace lacks {missed} B of writes, and the least of places was written "
                f"{least:.0f} B: run it again while this machine has less to do"
            )
        beside = self._journal_moved()
        of_journal = beside.write_sectors * counters.SECTOR_BYTES if beside else 0
        return whole - seen["other"] + of_journal


def _densities(moved: BlockCounters, size_bytes: int) -> dict[str, int | float]:
    """Of a journal on a device of its own, as `written.accesses` has them of places in a trace."""
    lbas = size_bytes / counters.SECTOR_BYTES
    return {
        "journal_size_bytes": size_bytes,
        "journal_requests_per_lba": (moved.read_ios + moved.write_ios) / lbas,
        "journal_accesses_per_lba": (moved.read_sectors + moved.write_sectors) / lbas,
        "journal_writes_per_lba": moved.write_sectors / lbas,
    }


def _missed_ratio(trace: Path, moved: BlockCounters) -> float:
    """Which part of the bytes that the kernel has counted is not in the trace.

    On a busy machine it may skip a probe, and a request is not recorded; that much does not change
    what is made of the trace here. Raises InvalidRun if it is more.
    """
    seen = _moved_bytes(trace)
    pairs = (
        (seen["read"], moved.read_sectors),
        (seen["write"] + seen["other"], moved.write_sectors),
    )
    ratios = [abs(1 - told / (n * counters.SECTOR_BYTES)) for told, n in pairs if n]
    if (worst := max(ratios, default=0.0)) > _MOST_MISSED:
        raise InvalidRun(
            f"the block trace and the kernel's count differ by {worst:.2%}: run it again while "
            "this machine has less to do"
        )
    return worst


def _moved_bytes(trace: Path) -> dict[str, int]:
    """By a block trace; `other` is what the kernel counts among the writes and has no data: zeroes
    that the device is to write itself.
    """
    seen = analysis.latencies(trace).set_index("op").bytes
    return {op: int(seen.get(op, 0)) for op in ("read", "write", "other")}


def _utilisation(trace: Path, begin_ns: int, end_ns: int) -> dict[str, float]:
    """While the clients ran: in which part of the time the drive had a request."""
    found = analysis.within(trace, [(begin_ns, end_ns)])
    return {"device_utilisation_ratio": float(found.utilisation_ratio.iloc[0])}


def _journal_ranges(block_device: Path) -> list[NamedRange]:
    """Ascending, as a drive wants them; in the file system they may come in another order."""
    extents = sorted(filesystems.journal_extents(block_device))
    return [NamedRange(JOURNAL, begin, end, JOURNAL_STREAM) for begin, end in extents]


def _size_of(block_device: Path) -> int:
    with block_device.open("rb") as file:
        return file.seek(0, os.SEEK_END)


def _commits(block_device: Path, journal_device: Path | None) -> int:
    """Transactions that the journal has committed since the file system was mounted.

    A journal inside has its inode's number in its name, one on a device of its own has not.
    """
    name = journal_device.name if journal_device else f"{block_device.name}-*"
    for info in _JBD2.glob(f"{name}/info"):
        return int(info.read_text().split(maxsplit=1)[0])
    raise TargetError(f"the kernel does not say what ext4's journal on {block_device} has done")


def _number(version: tuple[int, int, int]) -> int:
    """As servers put it: 10.11.6 is 101106."""
    major, minor, patch = version
    return major * 10_000 + minor * 100 + patch


def _of_clients(run: Run, slowdown: int) -> dict[str, int | float]:
    """What the clients saw, in the device's time."""
    parameters = {"measured_s", "warm_up_s", "connections", "processes"}
    found = {name: n for name, n in run.metrics.items() if name not in parameters}
    times = {name: n / slowdown for name, n in found.items() if name.endswith("_ms")}
    return {**found, **times, "tpmc": found["tpmc"] * slowdown}


def _of_innodb(looks: Sequence[_Look], slowdown: int) -> dict[str, int | float]:
    """What InnoDB did from the first look to the last, and how it was at the end; its times are the
    device's.
    """
    first, last = looks[0].innodb, looks[-1].innodb
    done = {
        name: (n if name in _STATES else n - first[name])
        / (slowdown if name.endswith(("_ms", "_s")) else 1)
        for name, n in last.items()
    }
    return {
        "pages_flushed": done["pages_written"],
        **{f"innodb_{name}": n for name, n in done.items()},
    }


def _amplification(samples: Sequence[Writes]) -> dict[str, list[Any]]:
    """Over time, from the first sample on at which something was written."""
    found = write_shares.series(samples)
    written_bytes = found.get("waf_written_bytes", [])
    first = next((i for i, n in enumerate(written_bytes) if n), len(written_bytes))
    wanted = ("waf_time_s", "waf_ratio", "waf_written_bytes", "waf_programmed_bytes")
    journal = (f"waf_{JOURNAL}_written_bytes", f"waf_{JOURNAL}_programmed_bytes")
    return {name: found[name][first:] for name in (*wanted, *journal) if name in found}


def _rates(run: Run, measured_s: float, slowdown: int) -> dict[str, list[float]]:
    """TpmC in equal intervals of whole seconds of the clock, the last one left out if shorter."""
    counts = run.new_orders_per_s
    each = max(math.ceil(measured_s * slowdown / _INTERVALS), 1)
    whole = len(counts) // each
    sums = [sum(counts[n * each : (n + 1) * each]) for n in range(whole)]
    return {
        "tpmc_time_s": [(n + 1) * each / slowdown for n in range(whole)],
        "tpmc_per_interval": [count / each * 60 * slowdown for count in sums],
    }
