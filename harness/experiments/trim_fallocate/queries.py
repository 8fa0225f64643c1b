"""The workloads that write temporary files, and one run of one of them.

EXPLAIN ANALYZE runs the whole query and keeps its rows to itself: the tuples have all columns of
both tables, and no client costs time. Its clock is off (see sort_merge_join/clients.py).

When a hash join's partition phase ends: as soon as it joins its first batch from files, the inner
one of them is read, closed and deleted, and the server says so (log_temp_files). What comes before
is the partition phase, what comes after is the join phase; so reading that one file counts to the
former. Sorts and hash aggregation have a file for all of their runs, which goes at the end: their
second phase is next to nothing.

Of each phase it is taken, too, for how long the server's process was runnable: the rest is what it
waited for the drive.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from harness.dbms import server_time, watched
from harness.dbms.postgres import Server
from harness.dbms.server_time import Moment
from harness.errors import DataCorrupted, HarnessError, UnknownName

_FILE: Final = re.compile(r"temporary file: .* size (\d+)")
_BLOCK_BYTES: Final = 8192
_FULL: Final = "use a larger device_bytes or a smaller scale_factor"


@dataclass(frozen=True)
class Workload:
    """A statement, the settings that it is to run with, and what its plan must be.

    `node`: the plan's first node; empty for a statement that has no plan. `strategy`: how that node
    has to do it, if it can do otherwise. `undo` follows the statement.
    """

    statement: str
    settings: dict[str, str]
    node: str = ""
    strategy: str = ""
    undo: str = ""


WORKLOADS: Final = {
    "hash_join": Workload(
        "SELECT * FROM lineitem JOIN orders ON l_orderkey = o_orderkey",
        {"enable_mergejoin": "off", "enable_nestloop": "off"},
        "Hash Join",
    ),
    "sort": Workload("SELECT * FROM lineitem ORDER BY l_partkey, l_suppkey", {}, "Sort"),
    "hash_aggregate": Workload(
        "SELECT l_orderkey, l_linenumber, max(l_comment), max(l_shipinstruct) FROM lineitem "
        "GROUP BY l_orderkey, l_linenumber",
        {"enable_sort": "off"},
        "Aggregate",
        "Hashed",
    ),
    "create_index": Workload(
        "CREATE INDEX by_part ON lineitem (l_partkey, l_suppkey, l_comment)",
        {},
        undo="DROP INDEX by_part",
    ),
}


@dataclass
class Heard:
    """Sizes of deleted temp files as the server named them, and when it named the first."""

    first: Moment | None = None
    file_bytes: list[int] = field(default_factory=list)

    def note(self, message: str, pid: int) -> None:
        """A message of the server's process that has this number."""
        if found := _FILE.search(message):
            self.first = self.first or server_time.moment(pid)
            self.file_bytes.append(int(found[1]))


@dataclass(frozen=True)
class QueryRun:
    """What one run took; times are of CLOCK_BOOTTIME, in ns.

    `partition_runnable_ns`, `join_runnable_ns`: of each phase, see `Moment.runnable_since`.
    `batches`: of the hash join, or of the hash aggregate; 0 for others. Bytes read are None where
    no plan tells them.
    """

    begin_ns: int
    partitioned_ns: int
    end_ns: int
    partition_runnable_ns: int | None
    join_runnable_ns: int | None
    rows: int | None
    batches: int
    file_bytes: list[int]
    temp_written_bytes: int
    temp_read_bytes: int | None


def find(name: str) -> Workload:
    """The workload of that name. Raises UnknownName."""
    if name not in WORKLOADS:
        raise UnknownName("workload", name, WORKLOADS)
    return WORKLOADS[name]


def run(
    server: Server,
    workload: Workload,
    work_mem_bytes: int,
    heard: Heard,
    *,
    is_cancelled: Callable[[], bool],
    watch: Callable[[], None],
) -> QueryRun:
    """Runs the workload once, on a connection of its own; `heard` is filled meanwhile.

    Raises as watched.wait_for, DataCorrupted if the plan is not the one that is studied, and
    HarnessError if nothing was spilled.
    """
    with server.connect() as connection, ThreadPoolExecutor(1) as pool:
        for name, value in _settings(workload, work_mem_bytes, server.number).items():
            connection.execute(f"SET {name} = '{value}'")
        pid = connection.info.backend_pid
        connection.add_notice_handler(lambda notice: heard.note(notice.message_primary or "", pid))
        future = pool.submit(_run, connection, workload, heard)
        try:
            watched.wait_for([future], server, is_cancelled, watch, full=_FULL)
        except BaseException:
            watched.cancel([connection], [future], server)
            raise
        return future.result()


def _settings(workload: Workload, work_mem_bytes: int, version: int) -> dict[str, str]:
    memory = f"{max(work_mem_bytes // 1024, 64)}kB"
    return {
        "client_min_messages": "log",
        "work_mem": memory,
        "maintenance_work_mem": f"{max(work_mem_bytes // 1024, 1024)}kB",
        **({"hash_mem_multiplier": "1"} if version >= 130_000 else {}),
        **workload.settings,
    }


def _run(connection: psycopg.Connection[Any], workload: Workload, heard: Heard) -> QueryRun:
    statement = workload.statement
    if workload.node:
        statement = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}"
    pid = connection.info.backend_pid
    begin = server_time.moment(pid)
    cursor = connection.execute(statement)
    end = server_time.moment(pid)
    plan = cursor.fetchone()[0][0]["Plan"] if workload.node else {}  # type: ignore[index]
    partitioned = _checked(plan, workload, heard)
    if workload.undo:
        connection.execute(workload.undo)
    written = plan.get("Temp Written Blocks")
    read = plan.get("Temp Read Blocks")
    return QueryRun(
        begin_ns=begin.at_ns,
        partitioned_ns=partitioned.at_ns,
        end_ns=end.at_ns,
        partition_runnable_ns=partitioned.runnable_since(begin),
        join_runnable_ns=end.runnable_since(partitioned),
        rows=int(plan["Actual Rows"]) if plan else None,
        batches=_batches(plan),
        file_bytes=heard.file_bytes,
        temp_written_bytes=sum(heard.file_bytes) if written is None else written * _BLOCK_BYTES,
        temp_read_bytes=None if read is None else read * _BLOCK_BYTES,
    )


def _checked(plan: dict[str, Any], workload: Workload, heard: Heard) -> Moment:
    """When the first file was deleted, of a query that is the one to be studied."""
    if workload.node and plan["Node Type"] != workload.node:
        raise DataCorrupted(f"the plan is a {plan['Node Type']}, not a {workload.node}")
    if workload.strategy and plan.get("Strategy") != workload.strategy:
        raise DataCorrupted(
            f"the plan's {workload.node} is {plan.get('Strategy', 'of no strategy')}, not "
            f"{workload.strategy}: a server before PostgreSQL 13 does not hash what does not fit"
        )
    if workload.node == "Hash Join" and _below(plan, "Hash").get("Relation Name") != "orders":
        raise DataCorrupted("the plan does not hash the table orders")
    if heard.first is None:
        raise HarnessError("nothing was spilled: use less work_mem_bytes or a larger scale_factor")
    return heard.first


def _below(plan: dict[str, Any], node: str) -> dict[str, Any]:
    """The only input of the first node of that type."""
    for child in plan.get("Plans", []):
        if child["Node Type"] == node:
            return dict(child["Plans"][0])
    return {}


def _batches(plan: dict[str, Any]) -> int:
    hashes = [child for child in plan.get("Plans", []) if "Hash Batches" in child]
    return int(hashes[0]["Hash Batches"] if hashes else plan.get("HashAgg Batches", 0))
