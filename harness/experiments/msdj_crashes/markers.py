"""Commits that are counted: what a client was told is durable has to be there after a power cut.

Some clients raise a number each, one commit after another; each notes which number it has sent, and
which was acknowledged. Afterwards a number has to be one of these two, or one between.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final

import mysql.connector

from harness.errors import ServerError
from harness.workloads.tpcc.connections import Address, connected, execute

CLIENTS: Final = 2
_LIMIT_S: Final = 60.0
_READ: Final = "SELECT id, number FROM crash_markers ORDER BY id"


def create(address: Address) -> None:
    """The table, with a row for each client."""
    rows = ",".join(f"({number}, 0)" for number in range(CLIENTS))
    with connected(address) as connection:
        execute(
            connection,
            "CREATE TABLE crash_markers (id INT PRIMARY KEY, number BIGINT NOT NULL) "
            "ENGINE = InnoDB",
        )
        execute(connection, f"INSERT INTO crash_markers VALUES {rows}")


class Markers:
    """The clients, and their books. `address`: of the server that they write to."""

    def __init__(self, address: Address) -> None:
        self._address = address
        with connected(address) as connection:
            self.sent = [int(number) for _, number in execute(connection, _READ)]
        self.acknowledged = list(self.sent)
        self._before = sum(self.sent)
        self._stop = threading.Event()
        self._begun = [threading.Event() for _ in self.sent]

    @property
    def commits(self) -> int:
        """How many were acknowledged."""
        return sum(self.acknowledged) - self._before

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All clients commit while the block runs, or until their server is gone.

        Raises ServerError if one of them cannot begin.
        """
        with ThreadPoolExecutor(len(self.sent)) as pool:
            for client in range(len(self.sent)):
                pool.submit(self._write, client)
            try:
                if not all(begun.wait(_LIMIT_S) for begun in self._begun):
                    raise ServerError("a client could not commit: see whether the server answers")
                yield
            finally:
                self._stop.set()

    def _write(self, client: int) -> None:
        """Until its server is gone: which error that is does not matter."""
        with (
            suppress(mysql.connector.Error, OSError),
            mysql.connector.connect(**self._address) as connection,
        ):
            while not self._stop.is_set():
                number = self.sent[client] = self.sent[client] + 1
                statement = f"UPDATE crash_markers SET number = {number} WHERE id = {client}"
                execute(connection, statement)
                self.acknowledged[client] = number
                self._begun[client].set()

    def lost(self, address: Address) -> int:
        """Commits that are missing at a server that has recovered; numbers never sent count, too.

        Raises ServerError if it cannot say.
        """
        with connected(address) as connection:
            found = [int(number) for _, number in execute(connection, _READ)]
        if len(found) != len(self.sent):
            return self.commits
        books = zip(found, self.acknowledged, self.sent, strict=True)
        return sum(max(least - number, 0) + max(number - most, 0) for number, least, most in books)
