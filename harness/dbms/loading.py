"""Tables in a private PostgreSQL: loaded from files, and copied as databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from harness.dbms.postgres import DATABASE, Server
from harness.errors import ServerError

_CHUNK_BYTES: Final = 1 << 20
_ASIDE: Final = "template1"  # who copies a database may not be connected to it
_COPIES_ROWS: Final = 15_00_00
"""The first version, as the server counts it, that logs a copy row by row if not told."""


@contextmanager
def told() -> Iterator[None]:
    """What the server says of a load is a ServerError."""
    try:
        yield
    except psycopg.errors.DiskFull as error:
        raise ServerError("no space left for the database itself: free some") from error
    except psycopg.Error as error:
        raise ServerError(f"the tables were not loaded: {str(error).splitlines()[0]}") from error


def load(server: Server, tables: Iterable[tuple[str, str, Path]]) -> None:
    """Tables by name, columns as CREATE TABLE has them, and a CSV file without a header: unlogged,
    frozen and analysed, on the disk. Raises ServerError.
    """
    with told(), server.connect() as db:
        for table, columns, file in tables:
            name = sql.Identifier(table)
            db.execute(sql.SQL(f"CREATE UNLOGGED TABLE {{}} ({columns})").format(name))
            into = sql.SQL("COPY {} FROM STDIN (FORMAT csv)").format(name)
            with db.cursor().copy(into) as copy, file.open("rb") as rows:
                while chunk := rows.read(_CHUNK_BYTES):
                    copy.write(chunk)
            db.execute(sql.SQL("VACUUM (FREEZE, ANALYZE) {}").format(name))
        db.execute("CHECKPOINT")


def copy_database(server: Server, names: Iterable[str]) -> None:
    """Makes databases of these names, each with all that DATABASE has: file by file, which is a
    small part of what it takes to load the rows again. Nobody may be connected to DATABASE.

    Raises ServerError.
    """
    strategy = " STRATEGY file_copy" if server.number >= _COPIES_ROWS else ""
    make = sql.SQL("CREATE DATABASE {} TEMPLATE {}" + strategy)
    with told(), server.connect(_ASIDE) as db:
        for name in names:
            db.execute(make.format(sql.Identifier(name), sql.Identifier(DATABASE)))
