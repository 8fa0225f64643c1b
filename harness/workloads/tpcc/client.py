"""The emulated users of one process: each a thread with a connection, in a closed loop."""

from __future__ import annotations

import contextlib
import threading
import time
from array import array
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import mysql.connector

from harness.errors import DataCorrupted, ServerError
from harness.workloads.tpcc import connections
from harness.workloads.tpcc.children import Parent
from harness.workloads.tpcc.connections import Address
from harness.workloads.tpcc.inputs import KINDS, NEW_ORDER, PAYMENT, Call, User
from harness.workloads.tpcc.scale import NurandConstants, Scale

_KEYING_S: Final = dict(zip(KINDS, (18.0, 3.0, 2.0, 2.0, 2.0), strict=True))
_THINKING_S: Final = dict(zip(KINDS, (12.0, 12.0, 10.0, 5.0, 5.0), strict=True))
"""Clause 5.2.5.7."""

_RETRIED: Final = {
    connections.DEADLOCK: "deadlocks",
    connections.LOCK_WAIT: "lock_wait_timeouts",
    connections.CHANGED_SINCE_READ: "read_conflicts",
}
_MOST_RETRIES: Final = 100


@dataclass(frozen=True)
class Users:
    """What the users of one process need: `numbers` are those of the users among all."""

    address: Address
    scale: Scale
    constants: NurandConstants
    mix: tuple[int, ...]
    seed: int
    part: int
    numbers: tuple[int, ...]
    homes: tuple[tuple[int, int] | None, ...]
    wait_ratio: float


@dataclass
class Log:
    """What one user's transactions took, by kind: their ends (ms since the begin), and us each.

    `counts` have the calls that ended in the measured interval: lines, remote lines and the like.
    """

    ended_ms: dict[str, array[int]] = field(default_factory=lambda: {k: array("Q") for k in KINDS})
    took_us: dict[str, array[int]] = field(default_factory=lambda: {k: array("Q") for k in KINDS})
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Times:
    """When it all begins, is measured and ends: by CLOCK_MONOTONIC, which all processes share."""

    begin_ns: int
    measured_from_ns: int
    end_ns: int


def run(parent: Parent, users: Users) -> list[Log]:
    """Connects all users, says so, waits for the times, and runs until the end."""
    stop = threading.Event()
    sessions = [_Session(users, index, stop) for index in range(len(users.numbers))]
    parent.tell("connected")
    times: Times = parent.receive()
    with ThreadPoolExecutor(len(sessions)) as pool:
        futures = [pool.submit(session.run, times) for session in sessions]
        return [future.result() for future in futures]


class _Session:
    """A user and his connection."""

    def __init__(self, users: Users, index: int, stop: threading.Event) -> None:
        self._number = users.numbers[index]
        seed = f"tpcc {users.seed} {users.part} {self._number}"
        self._user = User(users.scale, users.constants, users.mix, seed, users.homes[index])
        self._wait_ratio = users.wait_ratio
        self._stop = stop
        try:
            self._connection = mysql.connector.connect(**users.address)
            self._cursor = self._connection.cursor(raw=True)  # nobody reads more than a digit
            self._set_isolation()
        except mysql.connector.Error as error:
            raise connections.told(error) from error

    def _set_isolation(self) -> None:
        """Repeatable reads, of which updates see the latest rows, as in MySQL."""
        self._cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._cursor.execute("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'")
        if self._cursor.fetchall():
            self._cursor.execute("SET SESSION innodb_snapshot_isolation = OFF")

    def run(self, times: Times) -> Log:
        """All transactions until the end, or until another user has met an error."""
        log = Log()
        try:
            self._stop.wait((times.begin_ns - time.monotonic_ns()) / 1e9)
            while time.monotonic_ns() < times.end_ns and not self._stop.is_set():
                call = self._user.next()
                self._wait(_KEYING_S[call.kind], times)
                self._measure(call, times, log)
                if self._wait_ratio:
                    self._wait(self._user.wait_s(_THINKING_S[call.kind]), times)
        except mysql.connector.Error as error:
            raise connections.told(error) from error
        finally:
            self._stop.set()
            self._end()
        return log

    def _end(self) -> None:
        """Rolls back what an error has left open: other users would wait for its locks."""
        with contextlib.suppress(mysql.connector.Error):
            self._connection.close()

    def _wait(self, time_s: float, times: Times) -> None:
        if self._wait_ratio:
            left_s = (times.end_ns - time.monotonic_ns()) / 1e9
            self._stop.wait(max(min(time_s * self._wait_ratio, left_s), 0.0))

    def _measure(self, call: Call, times: Times, log: Log) -> None:
        """One transaction, as often as it takes; it counts when it has ended."""
        begin_ns = time.monotonic_ns()
        retried: Counter[str] = Counter()
        rows = self._run(call, retried)
        end_ns = time.monotonic_ns()
        if call.kind == NEW_ORDER and (rows[0][0] == b"1") == call.rolls_back:
            raise DataCorrupted(f"{call.statement}: an item or its stock is not there: load again")
        log.ended_ms[call.kind].append((end_ns - times.begin_ns) // 1_000_000)
        log.took_us[call.kind].append((end_ns - begin_ns) // 1000)
        if times.measured_from_ns <= end_ns < times.end_ns:
            log.counts.update(retried)
            log.counts.update(_counted(call))

    def _run(self, call: Call, retried: Counter[str]) -> list[tuple[Any, ...]]:
        for _ in range(_MOST_RETRIES):
            try:
                return self._call(call.statement)
            except mysql.connector.Error as error:
                if error.errno not in _RETRIED:
                    raise
                retried[_RETRIED[error.errno]] += 1
                self._connection.rollback()
        raise ServerError(f"{call.statement} has met a deadlock {_MOST_RETRIES} times in a row")

    def _call(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of the procedure's result; after them comes its status."""
        cursor = self._cursor
        cursor.execute(statement)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        while connections.next_result(cursor):
            pass
        return rows


def _counted(call: Call) -> dict[str, int]:
    if call.kind == NEW_ORDER:
        return {
            "order_lines": call.lines,
            "remote_order_lines": call.remote_lines,
            "rollbacks": int(call.rolls_back),
        }
    if call.kind == PAYMENT:
        return {"remote_payments": int(call.is_remote), "payments_by_name": int(call.by_name)}
    return {}
