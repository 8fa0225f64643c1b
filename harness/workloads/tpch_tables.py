"""Two TPC-H tables for a database, one ten times as large as the other on its disk.

The paper of the sort-merge join has tables of 0.5 GB and 5 GB and does not say of what. Here the
large one is lineitem with all its columns, and the small one orders with those of its columns that
leave it a tenth of lineitem's size: all but o_orderpriority, o_clerk and o_comment. In PostgreSQL's
heap that is 1 to 10.2, and the join is on TPC-H's own key. TPC-H writes both tables in the key's
order, which is no input to a sort: the rows are shuffled, always in the same way.

The paper of TRIM and fallocate joins TPC-H's own tables: `whole_tables` has all columns of both, in
TPC-H's order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import duckdb

from harness.errors import DataCorrupted, DataFolderError, DiskFull
from harness.workloads import tpch

LARGE_BYTES: Final = 5 << 30
"""Size of the large table at the paper's scale; the small one has a tenth."""

_LINEITEM_HEAP_BYTES: Final = 922_290_000
"""lineitem of scale factor 1 in PostgreSQL's heap (12 to 18: the layout is the same)."""

_FORMAT: Final = 1  # of the cached files: raise it when their content changes


@dataclass(frozen=True)
class Table:
    """A table: its key's column, its columns (name, SQL type), and what tells its rows apart."""

    name: str
    key: str
    columns: tuple[tuple[str, str], ...]
    identity: str

    @property
    def ddl(self) -> str:
        """The columns, as CREATE TABLE has them."""
        return ", ".join(f"{name} {kind}" for name, kind in self.columns)


_MONEY: Final = "numeric(15,2)"
SMALL: Final = Table(
    "orders",
    "o_orderkey",
    (
        ("o_orderkey", "integer"),
        ("o_custkey", "integer"),
        ("o_orderstatus", "char(1)"),
        ("o_totalprice", _MONEY),
        ("o_orderdate", "date"),
        ("o_shippriority", "integer"),
    ),
    "o_orderkey",
)
LARGE: Final = Table(
    "lineitem",
    "l_orderkey",
    (
        ("l_orderkey", "integer"),
        ("l_partkey", "integer"),
        ("l_suppkey", "integer"),
        ("l_linenumber", "integer"),
        ("l_quantity", _MONEY),
        ("l_extendedprice", _MONEY),
        ("l_discount", _MONEY),
        ("l_tax", _MONEY),
        ("l_returnflag", "char(1)"),
        ("l_linestatus", "char(1)"),
        ("l_shipdate", "date"),
        ("l_commitdate", "date"),
        ("l_receiptdate", "date"),
        ("l_shipinstruct", "char(25)"),
        ("l_shipmode", "char(10)"),
        ("l_comment", "varchar(44)"),
    ),
    "l_orderkey || '/' || l_linenumber",
)
TABLES: Final = (SMALL, LARGE)
ORDERS: Final = Table(
    SMALL.name,
    SMALL.key,
    (
        *SMALL.columns,
        ("o_orderpriority", "char(15)"),
        ("o_clerk", "char(15)"),
        ("o_comment", "varchar(79)"),
    ),
    SMALL.identity,
)
LINEITEM: Final = LARGE
WHOLE_TABLES: Final = (ORDERS, LINEITEM)


@dataclass(frozen=True)
class TableFiles:
    """Both tables as CSV files without a header, by the table's name.

    `rows` of each; `matches`: rows of their join by DuckDB; `digest`: SHA-256 (hex) of the files.
    """

    files: dict[str, Path]
    rows: dict[str, int]
    matches: int
    digest: str


@dataclass(frozen=True)
class _Manifest:
    format: int
    rows: dict[str, int]
    matches: int
    sha256: dict[str, str]


def table_files(raw: Path, size_ratio_to_paper: float) -> TableFiles:
    """Both tables at a share of the paper's sizes, made on first use in `raw`/tpch_tables.

    Raises MissingTool, DiskFull, DataFolderError, or DataCorrupted if a cached file is not what was
    made.
    """
    factor = size_ratio_to_paper * LARGE_BYTES / _LINEITEM_HEAP_BYTES
    return _table_files(raw / "tpch_tables" / f"{factor:.6f}", factor, TABLES, shuffled=True)


def whole_tables(raw: Path, scale_factor: float) -> TableFiles:
    """Orders and lineitem of a scale factor, all columns, in the key's order, made on first use in
    `raw`/tpch_whole. Raises as `table_files`.
    """
    folder = raw / "tpch_whole" / f"{scale_factor:.6f}"
    return _table_files(folder, scale_factor, WHOLE_TABLES, shuffled=False)


def _table_files(
    folder: Path, factor: float, tables: Sequence[Table], *, shuffled: bool
) -> TableFiles:
    manifest = _manifest(folder)
    if manifest is None:
        _make(folder, factor, tables, shuffled=shuffled)
        manifest = _manifest(folder)
    assert manifest is not None
    files = {table.name: folder / f"{table.name}.csv" for table in tables}
    for name, file in files.items():
        if _digest(file) != manifest.sha256[name]:
            raise DataCorrupted(f"{file} has changed since it was made: delete {folder}")
    whole = hashlib.sha256("".join(manifest.sha256.values()).encode()).hexdigest()
    return TableFiles(files, manifest.rows, manifest.matches, whole)


def _manifest(folder: Path) -> _Manifest | None:
    try:
        found = json.loads((folder / "manifest.json").read_text())
    except FileNotFoundError:
        return None
    return _Manifest(**found) if found.get("format") == _FORMAT else None


def _make(folder: Path, factor: float, tables: Sequence[Table], *, shuffled: bool) -> None:
    try:
        with tpch.making(folder) as made:
            if _manifest(folder) is not None:  # somebody else was quicker
                return
            tpch.generate(made, factor)
            manifest = _convert(made, tables, shuffled=shuffled)
            (made / "manifest.json").write_text(json.dumps(asdict(manifest), indent=1) + "\n")
            tpch.put_in_place(made, folder, [f"{table.name}.csv" for table in tables])
    except OSError as error:
        if error.errno == 28:  # ENOSPC
            raise DiskFull(f"no space left for the tables in {folder}: free some") from error
        raise DataFolderError(f"cannot write the tables to {folder}: {error.strerror}") from error


def _convert(folder: Path, tables: Sequence[Table], *, shuffled: bool) -> _Manifest:
    """Parquet to CSV."""
    rows, sha256 = {}, {}
    with duckdb.connect() as db:
        db.execute(f"SET temp_directory = '{folder}'")
        for table in tables:
            source, target = folder / f"{table.name}.parquet", folder / f"{table.name}.csv"
            names = ", ".join(name for name, _ in table.columns)
            order = f"ORDER BY md5(({table.identity})::VARCHAR)" if shuffled else ""
            rows_of = f"SELECT {names} FROM '{source}' {order}"
            found = db.execute(f"COPY ({rows_of}) TO '{target}' (FORMAT csv, HEADER false)")
            rows[table.name] = int(found.fetchall()[0][0])
            sha256[table.name] = _digest(target)
        counted = db.execute(
            f"SELECT count(*) FROM '{folder / 'orders.parquet'}' "
            f"JOIN '{folder / 'lineitem.parquet'}' ON {SMALL.key} = {LARGE.key}"
        ).fetchone()
    assert counted is not None
    return _Manifest(_FORMAT, rows, int(counted[0]), sha256)


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
