"""The clients of a run: one connection each, all started together, each with a merge join.

How a client's time is taken apart. A merge join asks its first input for a row, then its second,
and each sort reads all of its own input before it gives a row; so both sorts come first, one after
the other, and the join is what follows. The sort time is what passes until the second sort has said
that it is done (all runs written and merged but for the last merge, which happens on the fly inside
the join); the join time is the rest. Both add up to the whole by construction.

The server says so itself, when `trace_sort` is on: a message at the moment at which a sort is done,
which the client hears at once. EXPLAIN's own timing would tell the same, in the sort nodes' startup
times (which include what is below them and nothing else, so that the two add up), but it reads the
clock twice per row and node: measured, a quarter more for the whole query (521 ms instead of 418
ms, 546,077 rows, all in the page cache, PostgreSQL 15). It is off.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from harness.dbms import watched
from harness.dbms.postgres import Server
from harness.errors import DataCorrupted, HarnessError, ServerError

_SORTS: Final = 2
_BEGIN: Final = re.compile(r"begin tuple sort")
_TAPES: Final = re.compile(r"switching to external sort with (\d+) tapes")
_RUN: Final = re.compile(r"finished writing run (\d+) to tape")
_DONE: Final = re.compile(r"performsort of worker -?\d+ done(?: \(except (\d+)-way final merge\))?")
_FILE: Final = re.compile(r"temporary file: .* size (\d+)")
_FULL: Final = "use a larger device, smaller tables or fewer clients"


@dataclass
class Sort:
    """What the server said of a sort. `tapes`, `runs`, `final_ways`: 0 where it did not say."""

    tapes: int = 0
    runs: int = 0
    final_ways: int = 0
    done_ns: int = 0


@dataclass
class Heard:
    """What the server said to one client, in order; times are of CLOCK_BOOTTIME, in ns."""

    sorts: list[Sort] = field(default_factory=list)
    temp_file_bytes: int = 0

    def note(self, message: str) -> None:
        """A message of the server."""
        if _BEGIN.search(message):
            self.sorts.append(Sort())
        elif found := _FILE.search(message):
            self.temp_file_bytes += int(found[1])
        elif self.sorts:
            _note_sort(self.sorts[-1], message)


def _note_sort(sort: Sort, message: str) -> None:
    if found := _TAPES.search(message):
        sort.tapes = int(found[1])
    elif found := _RUN.search(message):
        sort.runs = max(sort.runs, int(found[1]))
    elif found := _DONE.search(message):
        sort.final_ways = int(found[1] or 0)
        sort.done_ns = _now_ns()


@dataclass(frozen=True)
class Input:
    """One input of the join: the table, the bytes of its sort's files, and what the sort said."""

    table: str
    rows: int
    sort_space_bytes: int
    sort: Sort


@dataclass(frozen=True)
class ClientRun:
    """What one client measured; times are of CLOCK_BOOTTIME, in ns.

    `inputs`: outer, inner. Bytes of `temp_*` are of the client's own blocks read and written.
    """

    begin_ns: int
    sorted_ns: int
    end_ns: int
    rows: int
    inputs: tuple[Input, Input]
    temp_read_bytes: int
    temp_written_bytes: int
    temp_file_bytes: int


def run(
    server: Server,
    query: str,
    databases: Sequence[str],
    work_mem_bytes: int,
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
    watch: Callable[[], None] = lambda: None,
) -> list[ClientRun]:
    """One client per database, all at once, all with the same query; `watch` is called some times a
    second meanwhile.

    Raises Interrupted when cancelled, DiskFull, ServerError if the server ends or a query fails, or
    DataCorrupted if a plan is not the one that is studied. All clients have ended then.
    """
    with ExitStack() as stack:
        connections = [stack.enter_context(server.connect(name)) for name in databases]
        for connection in connections:
            connection.execute(f"SET work_mem = '{max(work_mem_bytes // 1024, 64)}kB'")
            connection.execute("SET client_min_messages = log")
        together = threading.Barrier(len(databases))
        with ThreadPoolExecutor(len(databases)) as pool:
            futures = [
                pool.submit(_run_one, connection, query, together) for connection in connections
            ]
            try:
                watched.wait_for(futures, server, is_cancelled, watch, full=_FULL)
            except BaseException:
                together.abort()
                watched.cancel(connections, futures, server)
                raise
        return [future.result() for future in futures]


def _run_one(
    connection: psycopg.Connection[Any], query: str, together: threading.Barrier
) -> ClientRun:
    heard = Heard()
    connection.add_notice_handler(lambda notice: heard.note(notice.message_primary or ""))
    explain = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {query}"
    together.wait()
    begin_ns = _now_ns()
    row = connection.execute(explain).fetchone()
    end_ns = _now_ns()
    assert row is not None
    plan = row[0][0]["Plan"]
    inputs = _inputs(plan, heard)
    return ClientRun(
        begin_ns=begin_ns,
        sorted_ns=max(each.sort.done_ns for each in inputs),
        end_ns=end_ns,
        rows=int(plan["Actual Rows"]),
        inputs=inputs,
        temp_read_bytes=int(plan["Temp Read Blocks"]) * BLOCK_BYTES,
        temp_written_bytes=int(plan["Temp Written Blocks"]) * BLOCK_BYTES,
        temp_file_bytes=heard.temp_file_bytes,
    )


BLOCK_BYTES: Final = 8192
"""PostgreSQL's block."""


def _inputs(plan: dict[str, Any], heard: Heard) -> tuple[Input, Input]:
    """Outer and inner input of the plan. Raises HarnessError if it is not the plan to study."""
    sorts = [_sort_below(child) for child in plan.get("Plans", [])]
    if plan["Node Type"] != "Merge Join" or len(sorts) != _SORTS or None in sorts:
        raise DataCorrupted(f"the plan is not a merge join of two sorts: {_shape(plan)}")
    for sort in sorts:
        assert sort is not None
        if sort["Sort Method"] != "external merge":
            raise HarnessError(
                f"the sort of {_table(sort)} is an {sort['Sort Method']}, which needs no temp "
                "files: use less work_mem or larger tables"
            )
    if len(heard.sorts) != _SORTS or not all(sort.done_ns for sort in heard.sorts):
        raise ServerError("PostgreSQL does not say when its sorts end: it lacks trace_sort")
    outer, inner = (
        Input(
            _table(node),  # type: ignore[arg-type]
            int(node["Actual Rows"]),  # type: ignore[index]
            int(node["Sort Space Used"]) * 1024,  # type: ignore[index]
            said,
        )
        for node, said in zip(sorts, heard.sorts, strict=True)
    )
    return outer, inner


def _sort_below(node: dict[str, Any]) -> dict[str, Any] | None:
    """The node itself, or what a node that only keeps rows for a second reading has below it."""
    if node["Node Type"] == "Materialize":
        node = node["Plans"][0]
    return node if node["Node Type"] == "Sort" else None


def _table(sort: dict[str, Any]) -> str:
    return str(sort["Plans"][0].get("Relation Name", ""))


def _shape(plan: dict[str, Any]) -> str:
    below = ", ".join(_shape(child) for child in plan.get("Plans", []))
    return str(plan["Node Type"]) + (f" ({below})" if below else "")


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
