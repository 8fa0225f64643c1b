"""The run of one point on a real kernel: a private PostgreSQL, its temp files on the device.

The database lies on the host's own disk, next to the raw data. The server and the page cache that
it fills are bounded by a control group, as the paper's machine bounds them by its 4 GB; what the
kernel may hold unwritten of the device under test is bounded in the same proportion as there (20 %,
writing in the background from 10 %).

What a server needs for itself does not shrink with the tables (about 10 MB, and for each client
1.6 MB and two times work_mem), so in a scaled-down run it would leave next to nothing of a limit
that is scaled down, too. There `page_cache_bytes` is the parameter to set: the group's limit then
follows what the server has for itself, and the page cache is what it was asked to be.

Times are the device's: on the emulated tier the clock's, divided by the slowdown. Software is not
slowed down, so to the device the processor is that many times faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from harness.dbms import loading, postgres, server_memory
from harness.dbms.postgres import Server
from harness.dbms.server_memory import ServerMemory
from harness.errors import DataCorrupted
from harness.experiments import read_ahead
from harness.experiments.base import Measurement, Point
from harness.experiments.sort_merge_join import clients
from harness.experiments.sort_merge_join.clients import ClientRun
from harness.experiments.sort_merge_join.grid import Cell, Parameters
from harness.probes import analysis
from harness.system import writeback
from harness.system.ext4_spec import Ext4Spec
from harness.tiers.base import Bench, DeviceRequest, DeviceUnderTest
from harness.workloads import tpch_tables
from harness.workloads.tpch_tables import LARGE, SMALL, TABLES, Table, TableFiles

_SHARED_BUFFERS_RATIO: Final = 1 / 32
"""128 MB of the paper's 4 GB: PostgreSQL's default, unchanged there."""

_LEAST_SHARED_BUFFERS_KB: Final = 1024
_CLIENT_BYTES: Final = 1_600_000
"""What a client's process has besides two sorts: 12.0, 13.9, 17.8 MB with 1, 2, 4 clients of
128 kB (PostgreSQL 15). An estimate: what is measured decides as soon as it is more."""

_KERNEL_BYTES: Final = 2 << 20
"""What the kernel needs for the server's work besides: page tables, pages' places in files."""

_QUERY: Final = f"SELECT * FROM {SMALL.name} JOIN {LARGE.name} ON {SMALL.key} = {LARGE.key}"
_HEAP_HEADER_BYTES: Final = 24
_MINIMAL_HEADER_BYTES: Final = 16
_FILE_SYSTEM_SPARE: Final = 1.5
_LEAST_FILE_SYSTEM_BYTES: Final = 256 << 20


@dataclass(frozen=True)
class TableFacts:
    """A loaded table: rows, heap bytes, and average bytes of a row's data without headers."""

    rows: int
    heap_bytes: int
    data_width_bytes: float

    @property
    def sort_width_bytes(self) -> float:
        """Of the minimal tuple, which is what a sort keeps in memory and, but for 6 bytes, on tape.

        PostgreSQL's htup_details.h: a header of 16 bytes where a row in the heap has 24.
        """
        return self.data_width_bytes + _MINIMAL_HEADER_BYTES


def needed_bytes(v: Cell) -> int:
    """Room for the temp files on the device: a sort's is hardly larger than what it sorts."""
    pair = tpch_tables.LARGE_BYTES * 1.1 * v.size_ratio_to_paper
    room = round(_FILE_SYSTEM_SPARE * pair * v.clients)
    return max(room, _LEAST_FILE_SYSTEM_BYTES) // 4096 * 4096


def run(point: Point, parameters: Parameters, bench: Bench, raw: Path) -> Measurement:
    """All clients once, side by side."""
    del parameters
    return run_point(Cell.of(point), bench, raw)


def run_point(
    v: Cell, bench: Bench, raw: Path, *, memory_bytes: int = 0, file_system_bytes: int = 0
) -> Measurement:
    """Runs the clients once and returns what they took.

    `memory_bytes`: what the server and its page cache may have together, in place of the cell's
    page_cache_bytes. `file_system_bytes`: in place of what is needed. Raises HarnessError; whatever
    it started has ended then.
    """
    writeback.check_share(v.dirty_ratio)
    count = v.clients
    cache_bytes = memory_bytes or v.page_cache_bytes
    tables = tpch_tables.table_files(raw, v.size_ratio_to_paper)
    with bench.open_device(
        DeviceRequest(
            device=v.device,
            needed_bytes=needed_bytes(v),
            seed=v.repetition,
            trace=True,
        )
    ) as device:
        with (
            read_ahead.as_modelled(device),
            device.filesystem(
                Ext4Spec(
                    size_bytes=file_system_bytes or needed_bytes(v),
                    dirty_bytes=round(v.dirty_ratio * cache_bytes),
                )
            ) as folder,
            postgres.run(
                postgres.folder_below(raw), _settings(cache_bytes), bounded=True
            ) as server,
        ):
            databases = [_database(client) for client in range(count)]
            facts = _load(server, tables, databases)
            server.use_for_temp_files(folder)
            assert server.cgroup is not None
            server_memory.forget_files(server)
            memory = ServerMemory(
                server.cgroup,
                limit_bytes=memory_bytes,
                page_cache_bytes=0 if memory_bytes else v.page_cache_bytes,
                expected_bytes=count * (_CLIENT_BYTES + 2 * v.work_mem_bytes) + _KERNEL_BYTES,
            )
            memory.look()
            device.begin()
            runs = clients.run(
                server,
                _QUERY,
                databases,
                v.work_mem_bytes,
                is_cancelled=lambda: bench.cancel.is_set,
                watch=memory.look,
            )
            counters = device.counters()
            version = server.number
        _check(runs, tables)
        metrics = {
            **_times(runs, device),
            **_amounts(runs, facts),
            **memory.metrics(),
            "page_cache_filled_mean_bytes": filled_mean_bytes(memory.cache, v.page_cache_bytes),
            **_utilisation(runs, device),
            **counters,
            "server_version": version,
        }
        return Measurement(metrics, _series(runs, device), block_trace=device.block_trace)


def filled_mean_bytes(looks: Sequence[int], asked_bytes: int) -> int:
    """The page cache's mean size from the first look on at which it has what was asked for.

    Before, it fills: a short run is half of that, and its mean says less of what a page's chances
    are than of how long it took. Its greatest size where it never has as much.
    """
    filled = next((at for at, found in enumerate(looks) if found >= asked_bytes), None)
    return max(looks) if filled is None else round(statistics.fmean(looks[filled:]))


def _settings(cache_bytes: int) -> dict[str, str]:
    buffers_kb = max(round(cache_bytes * _SHARED_BUFFERS_RATIO) >> 10, _LEAST_SHARED_BUFFERS_KB)
    return {
        "shared_buffers": f"{buffers_kb}kB",
        "max_connections": "100",
        "enable_hashjoin": "off",
        "enable_nestloop": "off",
        "max_parallel_workers_per_gather": "0",
        "max_parallel_maintenance_workers": "0",
        "jit": "off",
        "autovacuum": "off",
        "log_temp_files": "0",
        "trace_sort": "on",
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "checkpoint_timeout": "1d",
        "max_wal_size": "64GB",
        "bgwriter_lru_maxpages": "0",
    }


def _database(client: int) -> str:
    return postgres.DATABASE if client == 0 else f"client_{client}"


def _load(server: Server, tables: TableFiles, databases: Sequence[str]) -> dict[str, TableFacts]:
    """Tables of their own for each client, in a database of its own; returns facts by table.

    Loaded, frozen and analysed once, and then copied as files: as rows it took 13 times as long
    (seven more clients, a 64th of the paper's tables).
    """
    loading.load(server, [(each.name, each.ddl, tables.files[each.name]) for each in TABLES])
    with loading.told(), server.connect() as db:
        facts = {table.name: _facts(db, table) for table in TABLES}
    loading.copy_database(server, databases[1:])
    for name, found in facts.items():
        if found.rows != tables.rows[name]:
            raise DataCorrupted(f"{name}: {tables.rows[name]} rows were made, {found.rows} loaded")
    return facts


def _facts(db: psycopg.Connection[Any], table: Table) -> TableFacts:
    found = db.execute(
        sql.SQL("SELECT count(*), avg(pg_column_size(t.*)), pg_relation_size({}) FROM {} t").format(
            sql.Literal(table.name), sql.Identifier(table.name)
        )
    ).fetchone()
    assert found is not None
    return TableFacts(int(found[0]), int(found[2]), float(found[1]) - _HEAP_HEADER_BYTES)


def _check(runs: Sequence[ClientRun], tables: TableFiles) -> None:
    for number, run in enumerate(runs):
        if run.rows != tables.matches:
            raise DataCorrupted(
                f"client {number} found {run.rows} rows, an independent join {tables.matches}: "
                "the run is worthless"
            )


def _times(runs: Sequence[ClientRun], device: DeviceUnderTest) -> dict[str, float]:
    def seconds(of: Sequence[int]) -> list[float]:
        return [ns / 1e9 / device.slowdown for ns in of]

    elapsed = seconds([run.end_ns - run.begin_ns for run in runs])
    return {
        "elapsed_s": statistics.fmean(elapsed),
        "elapsed_min_s": min(elapsed),
        "elapsed_max_s": max(elapsed),
        "sort_s": statistics.fmean(seconds([run.sorted_ns - run.begin_ns for run in runs])),
        "join_s": statistics.fmean(seconds([run.end_ns - run.sorted_ns for run in runs])),
    }


def _amounts(runs: Sequence[ClientRun], facts: Mapping[str, TableFacts]) -> dict[str, float]:
    """Sums over the clients, and what is the same for each: its tables and its sorts."""
    metrics: dict[str, float] = {
        name: sum(int(getattr(run, name)) for run in runs)
        for name in ("temp_read_bytes", "temp_written_bytes", "temp_file_bytes")
    }
    for side, each in zip(("outer", "inner"), runs[0].inputs, strict=True):
        table = facts[each.table]
        metrics |= {
            f"{side}_rows": table.rows,
            f"{side}_heap_bytes": table.heap_bytes,
            f"{side}_data_width_bytes": table.data_width_bytes,
            f"{side}_sort_width_bytes": table.sort_width_bytes,
            f"{side}_sort_space_bytes": each.sort_space_bytes,
            f"{side}_tapes": each.sort.tapes,
            f"{side}_runs": each.sort.runs,
            f"{side}_final_ways": each.sort.final_ways,
        }
    return metrics


def _utilisation(runs: Sequence[ClientRun], device: DeviceUnderTest) -> dict[str, float]:
    """The device's busy share and bytes, in each client's sort and join: means over the clients."""
    if device.block_trace is None:
        return {}
    phases = {
        "sort": [(run.begin_ns, run.sorted_ns) for run in runs],
        "join": [(run.sorted_ns, run.end_ns) for run in runs],
    }
    metrics: dict[str, float] = {}
    for phase, spans in phases.items():
        found = analysis.within(device.block_trace, spans)
        means = found.drop(columns=["begin_ns", "end_ns"]).mean()
        metrics |= {f"{phase}_{name}": float(value) for name, value in means.items()}
    return metrics


def _series(
    runs: Sequence[ClientRun], device: DeviceUnderTest
) -> dict[str, list[int] | list[float]]:
    """Per client."""
    unit = 1e9 * device.slowdown
    return {
        "client_sort_s": [(run.sorted_ns - run.begin_ns) / unit for run in runs],
        "client_join_s": [(run.end_ns - run.sorted_ns) / unit for run in runs],
    }
