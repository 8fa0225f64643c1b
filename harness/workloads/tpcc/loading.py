"""Loads the initial population: several processes, a table and warehouse at a time.

Rows go as text by LOAD DATA LOCAL INFILE in the order of the primary keys. Indexes that are not
needed for that are added when all rows are there. A table of ours, `tpcc_population`, is written
last: a database without it is not loaded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mysql.connector
from pyarrow import csv

from harness.errors import TargetError
from harness.system import leases
from harness.workloads.tpcc import children, connections
from harness.workloads.tpcc.children import Parent
from harness.workloads.tpcc.connections import Address, connected, execute, statements
from harness.workloads.tpcc.population import TABLES, Population
from harness.workloads.tpcc.scale import LINES, Scale

DATABASE: Final = "tpcc"
PROCEDURES: Final = ("new_order", "payment", "order_status", "delivery", "stock_level")

_LIMIT_S: Final = 24 * 3600.0
_FORMAT: Final = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
_NO_TABLE: Final = (1049, 1146)
_POPULATION: Final = (
    "CREATE TABLE tpcc_population (seed BIGINT NOT NULL, warehouses INT NOT NULL, "
    "customers INT NOT NULL, items INT NOT NULL, populated_at DATETIME NOT NULL)"
)


@dataclass(frozen=True)
class _Share:
    """What one process loads: pairs of table and warehouse, by way of files in `folder`."""

    address: Address
    population: Population
    parts: tuple[tuple[str, int], ...]
    folder: Path


def load(
    address: Address,
    population: Population,
    *,
    processes: int = 2,
    foreign_keys: bool = False,
    is_cancelled: Callable[[], bool] = children.never,
    watch: Callable[[], None] = children.nothing,
) -> None:
    """Makes the database of the address anew and fills it.

    `foreign_keys`: with the references of clause 1.3. `watch`, `is_cancelled` and errors as of
    driver.run.
    """
    _create(address)
    divided = _divided(population.scale, processes)
    with leases.open_lease() as lease:  # a loader that is killed deletes nothing
        folder = lease.new_folder(Path(tempfile.gettempdir()), "flashlab-tpcc-")
        shares = [_Share(address, population, tuple(parts), folder) for parts in divided]
        with children.started(_load_share, shares) as loaders:
            children.hear_all(loaders, is_cancelled=is_cancelled, watch=watch, limit_s=_LIMIT_S)
    with connected(address) as connection:
        for statement in statements("keys.sql"):
            execute(connection, statement)
        # With the checks off, a reference is added without copying its table.
        execute(connection, "SET SESSION foreign_key_checks = 0")
        for statement in statements("foreign_keys.sql") if foreign_keys else []:
            execute(connection, statement)
        for table in TABLES:
            execute(connection, f"ANALYZE TABLE {table}")
        _note(connection, population)
    create_procedures(address)


def create_procedures(address: Address) -> None:
    """The five transactions, made anew: what is run is always what is in procedures.sql."""
    with connected(address) as connection:
        for name in PROCEDURES:
            execute(connection, f"DROP PROCEDURE IF EXISTS tpcc_{name}")
        for statement in statements("procedures.sql", separator="//"):
            execute(connection, statement)


def population_of(address: Address) -> Population:
    """What a database was loaded with. Raises TargetError if it is not loaded."""
    try:
        with mysql.connector.connect(**address) as connection:
            rows = execute(
                connection,
                "SELECT seed, warehouses, customers, items, CAST(populated_at AS CHAR) "
                "FROM tpcc_population",
            )
    except mysql.connector.Error as error:
        if error.errno in _NO_TABLE:
            raise TargetError(
                f"the database {address['database']} is not loaded, or not to its end: load it"
            ) from error
        raise connections.told(error) from error
    [(seed, warehouses, customers, items, populated_at)] = rows
    return Population(Scale(warehouses, customers, items), seed, populated_at)


def _create(address: Address) -> None:
    name = address["database"]
    without = {key: value for key, value in address.items() if key != "database"}
    with connected(without) as connection:
        execute(connection, f"DROP DATABASE IF EXISTS `{name}`")
        execute(connection, f"CREATE DATABASE `{name}` CHARACTER SET latin1 COLLATE latin1_bin")
        execute(connection, f"USE `{name}`")
        for statement in statements("schema.sql"):
            execute(connection, statement)


def _note(connection: Any, population: Population) -> None:
    scale = population.scale
    execute(connection, "CREATE TABLE tpcc_numbers (n INT NOT NULL PRIMARY KEY)")
    numbers = ",".join(f"({n})" for n in range(1, max(LINES) + 1))
    execute(connection, f"INSERT INTO tpcc_numbers VALUES {numbers}")
    execute(connection, _POPULATION)
    execute(
        connection,
        f"INSERT INTO tpcc_population VALUES ({population.seed}, {scale.warehouses}, "
        f"{scale.customers}, {scale.items}, '{population.populated_at}')",
    )


def _divided(scale: Scale, processes: int) -> list[list[tuple[str, int]]]:
    """Warehouses in turns; ITEM, of which there is one, with the process that has fewest."""
    tables = [table for table in TABLES if table != "item"]
    shares: list[list[tuple[str, int]]] = [[] for _ in range(min(processes, scale.warehouses))]
    for warehouse in range(1, scale.warehouses + 1):
        shares[(warehouse - 1) % len(shares)] += [(table, warehouse) for table in tables]
    shares[-1].insert(0, ("item", 0))
    return shares


def _load_share(parent: Parent, share: _Share) -> None:
    """In a process of its own."""
    del parent
    # The server names the file that it is sent: any of this machine, if no folder is given.
    only = {"allow_local_infile_in_path": str(share.folder)}
    with connected(share.address, **only) as connection:
        for table, warehouse in share.parts:
            rows = share.population.rows(table, warehouse)
            _load_rows(connection, table, rows, share.folder / f"{table}-{warehouse}")


def _load_rows(connection: Any, table: str, rows: Any, file: Path) -> None:
    csv.write_csv(rows, str(file), _FORMAT)
    execute(
        connection,
        f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table} CHARACTER SET latin1 "
        r"FIELDS TERMINATED BY '\t' LINES TERMINATED BY '\n'",
    )
    file.unlink()
