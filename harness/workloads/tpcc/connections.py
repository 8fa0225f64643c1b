"""Connections to a MySQL-protocol server, what their errors mean, and files of statements."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

# The connector's compiled half brings an OpenSSL of its own, which must come before the system's
# is loaded by `ssl`; where it cannot be loaded the connector does without it, at more CPU time.
try:
    from _mysql_connector import MySQLInterfaceError as _CompiledError
except ImportError:
    _CompiledError = ()
import mysql.connector
from mysql.connector.errors import get_mysql_exception

from harness.errors import DiskFull, HarnessError, ServerError

Address = Mapping[str, Any]
"""Options of mysql.connector.connect, which can be pickled."""

DEADLOCK: Final = 1213
LOCK_WAIT: Final = 1205
CHANGED_SINCE_READ: Final = 1020
"""What was read has changed: MariaDB with innodb_snapshot_isolation."""

_FULL: Final = (3, 1021, 1026, 1114, 3675)
"""The last one is MySQL's own, for a table's file that cannot be made."""

_GONE: Final = (1053, 1927, 2002, 2003, 2006, 2013, 2055)
_DEVICE: Final = ("errno: 28", "No space left", "Disk full", "Can't change size of file")
"""MariaDB gives no errno, or one that does not exist, for a file that it cannot make longer."""


@contextlib.contextmanager
def connected(address: Address, **options: Any) -> Iterator[Any]:
    """A connection for as long as the block runs. What goes wrong is raised as HarnessError."""
    try:
        connection = mysql.connector.connect(**{**address, **options})
    except mysql.connector.Error as error:
        raise told(error) from error
    try:
        yield connection
    except mysql.connector.Error as error:
        raise told(error) from error
    finally:
        with contextlib.suppress(mysql.connector.Error):
            connection.close()


def told(error: mysql.connector.Error) -> HarnessError:
    """What a server's error means to whoever runs this."""
    said = str(error.msg or error).strip().splitlines()[0]
    if error.errno in _FULL or any(text in said for text in _DEVICE):
        return DiskFull(f"the database does not fit on its device ({said}): use a larger one")
    if error.errno in _GONE or error.errno is None or error.errno == -1:
        return ServerError(f"the server has ended, or ended the connection: {said}")
    return ServerError(f"the server: {said}")


def execute(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    """Runs one statement and returns its rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.with_rows else []


def next_result(cursor: Any) -> bool:
    """Goes on to a statement's next result, if there is one.

    There the connector's compiled half lets errors through that are no mysql.connector.Error.
    """
    try:
        return bool(cursor.nextset())
    except _CompiledError as error:
        raise get_mysql_exception(error.errno, msg=error.msg, sqlstate=error.sqlstate) from error


def statements(name: str, separator: str = ";") -> list[str]:
    """The statements of a file beside this one, without its comments."""
    text = Path(__file__).with_name(name).read_text()
    text = re.sub(r"^\s*--.*\n", "", text, flags=re.MULTILINE)
    parts = re.split(rf"{re.escape(separator)}\s*\n", text + "\n")
    return [part.strip() for part in parts if part.strip()]
