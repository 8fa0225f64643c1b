"""The run of one cell of the matrix on a real kernel: a private PostgreSQL, temp files on ext4.

One point is one drive and one file system that age over all repetitions of some queries; the
database lies on the host's own disk, next to the raw data. Page cache and dirty pages are bounded,
as the paper's machine bounds them by its 1 GB for 40 GB: so write-back takes the files in turns
while they grow together.

A repetition has its queries, one after the other, whose two phases are its own time, and the
settling: the file system is synced (with `fstrim`, then trimmed), so that the journal's last commit
issues its discards, and the device has come to rest. Newer kernels (5.14 on) discard behind the
commit's back, so some of them contend with what the query still reads, and some come in the
settling; the paper's kernel issued them in the commit. Settling ends with the last request that the
kernel has seen end.

Times are the device's: the clock's, divided by the slowdown. Software is not slowed down, so to the
device the processor is that many times faster.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from harness.dbms import loading, postgres, server_memory, temp_files
from harness.dbms.postgres import Server
from harness.dbms.server_memory import ServerMemory
from harness.devices.model import waf_of
from harness.errors import BadParameter, DataCorrupted, DiskFull, ServerError
from harness.experiments import read_ahead
from harness.experiments.base import Measurement, Point
from harness.experiments.trim_fallocate import queries
from harness.experiments.trim_fallocate.grid import Cell, Parameters
from harness.experiments.trim_fallocate.queries import Heard, QueryRun
from harness.probes import analysis, counters, extents
from harness.probes.recorder import Recorder
from harness.system import filesystems, leases, mounts, writeback
from harness.system.ext4_spec import Ext4Spec
from harness.tiers.base import Bench, DeviceRequest, DeviceUnderTest
from harness.units import format_bytes
from harness.workloads import tpch_tables
from harness.workloads.tpch_tables import WHOLE_TABLES, TableFiles

TRIMS: Final = ("none", "discard", "fstrim")
_INODES: Final = 16_384
"""A join of 2,048 batches has twice as many files."""

_BLOCK_SECTORS: Final = 8
_CLIENT_BYTES: Final = 4 << 20
"""What a client's process and the kernel need besides work_mem. An estimate: what is measured
decides as soon as it is more."""

_QUIET_S: Final = 0.05
"""Between two of the kernel's discards is only its processor time: far less."""

_QUIET_LIMIT_S: Final = 300.0


@dataclass(frozen=True)
class _Repetition:
    """Some queries; times are of CLOCK_BOOTTIME, in ns; `device`: its counters' change."""

    queries: list[QueryRun]
    quiet_ns: int
    device: dict[str, int]

    @property
    def begin_ns(self) -> int:
        """Of the first query."""
        return self.queries[0].begin_ns

    @property
    def end_ns(self) -> int:
        """Of the last query."""
        return self.queries[-1].end_ns


def needed_bytes(v: Cell) -> int:
    """The whole drive: a file system that ages comes round to all of it."""
    return v.device_bytes


def run(point: Point, parameters: Parameters, bench: Bench, raw: Path) -> Measurement:
    """All repetitions of one cell, on one drive and one file system."""
    del parameters
    return run_point(Cell.of(point), bench, raw)


def run_point(v: Cell, bench: Bench, raw: Path) -> Measurement:
    """Runs one cell and returns what it took.

    Raises HarnessError; whatever it started has ended then.
    """
    trim, preallocation = v.trim, v.preallocation_bytes
    if v.preallocate_again or v.occupied_ratio or v.occupied_piece_bytes:
        raise BadParameter("preallocate_again, occupied_ratio: the simulated tier has them only")
    if trim not in TRIMS:
        raise BadParameter(f"trim {trim!r}: one of {', '.join(TRIMS)}")
    writeback.check_share(v.dirty_ratio)
    tables = tpch_tables.whole_tables(raw, v.scale_factor)
    page_cache_bytes = v.page_cache_bytes
    traces = raw.absolute() / "trim_fallocate"
    traces.mkdir(parents=True, exist_ok=True)
    with (
        bench.open_device(
            DeviceRequest(
                device=v.device,
                needed_bytes=needed_bytes(v),
                size_bytes=v.device_bytes,
            )
        ) as device,
        leases.open_lease() as lease,
    ):
        recordings = lease.new_folder(traces, "recording-")
        with (
            read_ahead.as_modelled(device),
            device.filesystem(
                Ext4Spec(
                    dirty_bytes=round(v.dirty_ratio * page_cache_bytes),
                    discard=trim == "discard",
                    inodes=_INODES,
                    commit_s=v.commit_s,
                )
            ) as folder,
            postgres.run(
                postgres.folder_below(raw),
                _settings(page_cache_bytes, v.max_files),
                bounded=True,
                preload=temp_files.preallocation(preallocation, v.give_back),
            ) as server,
        ):
            runs = _Runs(v, bench, device, folder, server, tables)
            loading.load(
                server, [(each.name, each.ddl, tables.files[each.name]) for each in WHOLE_TABLES]
            )
            server.use_for_temp_files(folder)
            repetitions, trace, files = runs.run(recordings)
            found = device.counters()
            version = server.number
        metrics = {
            **_times(repetitions, trace, device),
            **_amplification(repetitions),
            **_trims(repetitions, trace, device),
            **_files(repetitions, files),
            **runs.memory.metrics(),
            **found,
            "server_version": version,
        }
        series = _series(repetitions, trace, files, device)
        kept = traces / f"block-{lease.folder.name}.parquet"  # until the session takes it
        trace.replace(kept)
        return Measurement(metrics, series, block_trace=kept)


@dataclass
class _Runs:
    """What the repetitions of a point run on."""

    cell: Cell
    bench: Bench
    device: DeviceUnderTest
    folder: Path
    server: Server
    tables: TableFiles

    def __post_init__(self) -> None:
        assert self.server.cgroup is not None
        self.memory = ServerMemory(
            self.server.cgroup,
            limit_bytes=0,
            page_cache_bytes=self.cell.page_cache_bytes,
            expected_bytes=_CLIENT_BYTES + 2 * self.cell.work_mem_bytes,
        )

    def run(self, recordings: Path) -> tuple[list[_Repetition], Path, list[extents.File]]:
        """All repetitions, recorded: also the block trace, and the temp files' extents."""
        block_device = filesystems.device_of(self.folder)
        block, ext4 = recordings / "block.parquet", recordings / "ext4.parquet"
        mounts.sync(self.folder)
        server_memory.forget_files(self.server)
        self.memory.look()
        self.device.begin()
        # Their ends prove that they are complete; ext4's last, as it sees what the other cannot.
        with ExitStack() as stack:
            stack.enter_context(Recorder(block_device, ext4, "ext4_extents"))
            own = self.device.counted if self.device.counted() else None
            stack.enter_context(Recorder(block_device, block, device_counters=own))
            done = [self._repeat(block_device) for _ in range(self.cell.repetitions)]
        return done, block, extents.files(ext4)

    def _repeat(self, block_device: Path) -> _Repetition:
        server_memory.forget_files(self.server)
        before = self.device.counted()
        done = [self._query() for _ in range(self.cell.queries_per_repetition)]
        for query in done:
            self._check(query)
        mounts.sync(self.folder, _QUIET_LIMIT_S)
        _wait_until_quiet(block_device)
        if self.cell.trim == "fstrim":
            filesystems.trim(self.folder)
        quiet_ns = _wait_until_quiet(block_device)
        after = self.device.counted()
        return _Repetition(done, quiet_ns, {n: after[n] - before[n] for n in after})

    def _query(self) -> QueryRun:
        heard = Heard()
        try:
            return queries.run(
                self.server,
                queries.find(self.cell.workload),
                self.cell.work_mem_bytes,
                heard,
                is_cancelled=lambda: self.bench.cancel.is_set,
                watch=self.memory.look,
            )
        except DiskFull as error:
            each = self.cell.preallocation_bytes
            if not each:
                raise
            count = len(heard.file_bytes)
            raise DiskFull(
                f"{error}, or less: with preallocation_bytes = {format_bytes(each)} a file takes "
                f"that from its creation on; {count} files were open, {format_bytes(each * count)}"
            ) from error

    def _check(self, query: QueryRun) -> None:
        if (self.server.folder / "data" / "base" / "pgsql_tmp").exists():
            raise ServerError("PostgreSQL had temp files elsewhere than on the device under test")
        expected = {"create_index": None, "hash_join": self.tables.matches}.get(
            self.cell.workload, self.tables.rows[tpch_tables.LINEITEM.name]
        )
        if query.rows != expected:
            raise DataCorrupted(
                f"{query.rows} rows were found, {expected} by DuckDB: the run is worthless"
            )


def _wait_until_quiet(block_device: Path) -> int:
    """Until the device has had nothing to do for a moment; returns its end (boot time, ns)."""
    seen, _ = counters.quiet(block_device, _QUIET_LIMIT_S)
    while True:
        time.sleep(_QUIET_S)  # the moment in which nothing may change
        now, now_ns = counters.quiet(block_device, _QUIET_LIMIT_S)
        if now == seen:
            return now_ns
        seen = now


def _settings(page_cache_bytes: int, max_files: int) -> dict[str, str]:
    return {
        "shared_buffers": f"{max(page_cache_bytes // 8 >> 10, 1024)}kB",
        "max_files_per_process": str(max_files),
        "max_parallel_workers_per_gather": "0",
        "max_parallel_maintenance_workers": "0",
        "jit": "off",
        "autovacuum": "off",
        "log_temp_files": "0",
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "checkpoint_timeout": "1d",
        "max_wal_size": "64GB",
        "bgwriter_lru_maxpages": "0",
    }


def _settled_ns(repetitions: Sequence[_Repetition], trace: Path) -> list[int]:
    """When the last request of each repetition ended; at least the query's end."""
    last = f"SELECT max(completed_ns) FROM '{trace}' WHERE completed_ns < "
    with duckdb.connect() as db:
        ends = [db.execute(f"{last}{each.quiet_ns}").fetchall()[0][0] for each in repetitions]
    pairs = zip(ends, repetitions, strict=True)
    return [max(each.end_ns, int(end or 0)) for end, each in pairs]


def _times(
    repetitions: Sequence[_Repetition], trace: Path, device: DeviceUnderTest
) -> dict[str, int | float]:
    elapsed, partition, join = _phases(repetitions, device)
    settled = _settled_ns(repetitions, trace)
    settle = [
        (at - each.end_ns) / 1e9 / device.slowdown
        for at, each in zip(settled, repetitions, strict=True)
    ]
    return {
        "elapsed_s": statistics.fmean(elapsed),
        "partition_s": statistics.fmean(partition),
        "join_s": statistics.fmean(join),
        "settle_s": statistics.fmean(settle),
        "first_elapsed_s": elapsed[0],
        "last_elapsed_s": elapsed[-1],
        **_runnable(repetitions, device),
    }


def _runnable(
    repetitions: Sequence[_Repetition], device: DeviceUnderTest
) -> dict[str, int | float]:
    """Of both phases' times, those in which the server's process ran or waited for a processor.

    Nothing where the kernel does not count them.
    """
    runs = [query for each in repetitions for query in each.queries]
    phases = {
        "partition_runnable_s": [run.partition_runnable_ns for run in runs],
        "join_runnable_s": [run.join_runnable_ns for run in runs],
    }
    unit = 1e9 * device.slowdown * len(repetitions)
    return {
        name: sum(ns for ns in of_each if ns is not None) / unit
        for name, of_each in phases.items()
        if None not in of_each
    }


def _phases(
    repetitions: Sequence[_Repetition], device: DeviceUnderTest
) -> tuple[list[float], list[float], list[float]]:
    """Seconds of the queries, of their partition phases, and of their join phases, per
    repetition.
    """
    unit = 1e9 * device.slowdown

    def seconds(of: Callable[[QueryRun], int]) -> list[float]:
        return [sum(map(of, each.queries)) / unit for each in repetitions]

    return (
        seconds(lambda run: run.end_ns - run.begin_ns),
        seconds(lambda run: run.partitioned_ns - run.begin_ns),
        seconds(lambda run: run.end_ns - run.partitioned_ns),
    )


def _amplification(repetitions: Sequence[_Repetition]) -> dict[str, int | float]:
    """Where the device counts what its flash programs."""
    written = [_written(repetition.device) for repetition in repetitions]
    if not all(written):
        return {}
    each = [waf_of(counted) for counted in written]
    total = {name: sum(counted[name] for counted in written) for name in written[0]}
    return {"waf_ratio": waf_of(total), "first_waf_ratio": each[0], "last_waf_ratio": each[-1]}


def _written(counted: Mapping[str, int]) -> dict[str, int]:
    """What flash was written, and by the host: of a drive by what it says itself that the host
    wrote. Empty where it does not count both.
    """
    host = counted.get("write_bytes", counted.get("nand_host_bytes"))
    if host is None or "nand_write_bytes" not in counted:
        return {}
    return {"write_bytes": host, "nand_write_bytes": counted["nand_write_bytes"]}


def _discards(repetitions: Sequence[_Repetition], trace: Path) -> list[list[int]]:
    """Lengths of the discards of each repetition, in sectors.

    One whose end the probe could not see (an interrupt in one of its own programs) is where it was
    issued: a repetition waits until nothing is under way. Raises DataCorrupted where that was not
    seen, either: nobody could say whose it is.
    """
    seen = f"SELECT sectors, coalesce(completed_ns, issued_ns) AS time_ns FROM '{trace}' "
    seen += "WHERE op::VARCHAR = 'discard'"
    nowhere = f"SELECT count(*) FROM ({seen}) WHERE time_ns IS NULL"
    discards = f"SELECT sectors FROM ({seen}) WHERE time_ns >= ? AND time_ns < ?"
    with duckdb.connect() as db:
        [(lost,)] = db.execute(nowhere).fetchall()
        if lost:
            raise DataCorrupted(f"of {lost} discards neither issue nor end was seen: run it again")
        spans = [(each.begin_ns, each.quiet_ns) for each in repetitions]
        return [[int(n) for (n,) in db.execute(discards, span).fetchall()] for span in spans]


def _trims(
    repetitions: Sequence[_Repetition], trace: Path, device: DeviceUnderTest
) -> dict[str, int | float]:
    """Numbers and bytes per repetition; latencies of all, in the device's time."""
    lengths = _discards(repetitions, trace)
    metrics: dict[str, int | float] = {
        "trim_commands": statistics.fmean(map(len, lengths)),
        "trim_bytes": statistics.fmean(sum(each) * counters.SECTOR_BYTES for each in lengths),
    }
    latencies = analysis.latencies(trace).set_index("op")
    if "discard" in latencies.index:
        row = latencies.loc["discard"]
        for name in ("mean", "p50", "p99", "max"):
            metrics[f"trim_latency_{name}_us"] = float(row[f"{name}_us"]) / device.slowdown
    for row in analysis.reads_beside_discards(trace).itertuples():
        beside = "beside_trim" if row.beside_discard else "alone"
        metrics[f"reads_{beside}"] = int(row.reads)
        metrics[f"read_{beside}_mean_us"] = float(row.mean_us) / device.slowdown
    return metrics


def _files(
    repetitions: Sequence[_Repetition], files: Sequence[extents.File]
) -> dict[str, int | float]:
    """Means over the queries, of the temp files; extents over all files that were allocated."""
    runs = [query for each in repetitions for query in each.queries]
    metrics: dict[str, int | float] = {
        "temp_files": statistics.fmean(len(run.file_bytes) for run in runs),
        "batches": statistics.fmean(run.batches for run in runs),
        "extents_per_file": statistics.fmean([len(f.extents()) for f in files] or [0]),
        "temp_file_bytes": statistics.fmean(sum(run.file_bytes) for run in runs),
        "temp_written_bytes": statistics.fmean(run.temp_written_bytes for run in runs),
    }
    if all(run.temp_read_bytes is not None for run in runs):
        metrics["temp_read_bytes"] = statistics.fmean(run.temp_read_bytes or 0 for run in runs)
    return metrics


def _series(
    repetitions: Sequence[_Repetition],
    trace: Path,
    files: Sequence[extents.File],
    device: DeviceUnderTest,
) -> dict[str, list[int] | list[float]]:
    elapsed, partition, join = _phases(repetitions, device)
    lengths = _discards(repetitions, trace)
    unit, firsts = 1e9 * device.slowdown, [each.queries[0] for each in repetitions]
    of_each = [extents.freed_within(files, each.begin_ns, each.quiet_ns) for each in repetitions]
    blocks = [max(sectors // _BLOCK_SECTORS, 1) for each in lengths for sectors in each]
    series: dict[str, list[int] | list[float]] = {
        "repetition_elapsed_s": elapsed,
        "repetition_partition_s": partition,
        "repetition_join_s": join,
        "repetition_first_query_s": [(q.end_ns - q.begin_ns) / unit for q in firsts],
        "repetition_first_partition_s": [(q.partitioned_ns - q.begin_ns) / unit for q in firsts],
        "repetition_first_join_s": [(q.end_ns - q.partitioned_ns) / unit for q in firsts],
        "repetition_trim_commands": [len(each) for each in lengths],
        "repetition_trim_bytes": [sum(each) * counters.SECTOR_BYTES for each in lengths],
        "repetition_extents": [sum(len(f.extents()) for f in each) for each in of_each],
        "repetition_files": [len(each) for each in of_each],
        "trim_length_histogram": extents.length_histogram(blocks),
        "extent_length_histogram": extents.length_histogram(
            extent.blocks for file in files for extent in file.extents()
        ),
    }
    written = [_written(each.device) for each in repetitions]
    if all(written):
        series["repetition_waf_ratio"] = [waf_of(counted) for counted in written]
    return series
