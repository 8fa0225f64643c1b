"""TPC-C on a real server: population, transactions, runs, the twelve conditions, what goes wrong.

Most of it on warehouses of a hundredth of the standard's size (`scale.reduced`), to be quick.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import socketserver
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from conftest import loop_device, mounted, open_folder
from live_world import eventually

from harness.dbms import mysql
from harness.dbms.innodb import InnodbSettings
from harness.dbms.mysql import Server
from harness.errors import (
    DataCorrupted,
    DiskFull,
    Interrupted,
    InvalidRun,
    MissingTool,
    ServerError,
    TargetError,
)
from harness.workloads.tpcc import client, connections, consistency, driver, loading
from harness.workloads.tpcc.client import Users
from harness.workloads.tpcc.connections import Address
from harness.workloads.tpcc.driver import Job
from harness.workloads.tpcc.inputs import KINDS, NEW_ORDER, STANDARD_MIX
from harness.workloads.tpcc.population import TABLES, Population
from harness.workloads.tpcc.scale import DISTRICTS, Scale, last_name, reduced, run_constants

SETTINGS = InnodbSettings(buffer_pool_bytes=64 << 20, redo_bytes=48 << 20)
SMALL = Population(reduced(2), seed=7)
SHORT = Job(connections=4, processes=2, warm_up_s=0.2, measured_s=1.0)

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    try:
        mysql.find_programs()
    except MissingTool as error:
        pytest.skip(str(error))
    if os.geteuid() == 0:  # pytest's own folders are closed to the server's user
        with open_folder() as folder:
            yield folder
    else:
        yield tmp_path_factory.mktemp("tpcc")


def address_of(server: Server) -> Address:
    return {**server.address, "database": loading.DATABASE}


@pytest.fixture(scope="module")
def loaded(place: Path) -> Path:
    """A data folder with two reduced warehouses, stopped: to be copied."""
    folder = place / "loaded"
    with mysql.run(folder, SETTINGS) as server:
        loading.load(address_of(server), SMALL)
    return folder


@pytest.fixture(scope="module")
def server(loaded: Path, place: Path) -> Iterator[Server]:
    """One that all tests share that leave the data consistent."""
    shutil.copytree(loaded, place / "shared")
    with mysql.run(place / "shared", SETTINGS) as running:
        yield running


@pytest.fixture
def copied(loaded: Path, place: Path, tmp_path: Path) -> Iterator[Path]:
    folder = place / tmp_path.name
    shutil.copytree(loaded, folder)
    yield folder
    shutil.rmtree(folder)


def ask(address: Address, *statements: str) -> list[tuple[Any, ...]]:
    """Runs statements, and returns the rows of the last one."""
    with connections.connected(address) as connection:
        return [connections.execute(connection, statement) for statement in statements][-1]


def one(address: Address, statement: str) -> Any:
    [[value]] = ask(address, statement)
    return value


def broken(address: Address) -> list[int]:
    """Numbers of the conditions that do not hold."""
    return [found.number for found in consistency.check(address) if found.violations]


def settled(address: Address) -> Address:
    """The address, once nobody else is connected: the server ends the call of a client that was
    killed, and commits it.
    """
    others = (
        "SELECT COUNT(*) FROM information_schema.processlist "
        "WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    )
    with connections.connected(address) as connection:
        eventually(lambda: connections.execute(connection, others) == [(0,)])
    return address


def call(address: Address, statement: str) -> list[tuple[Any, ...]]:
    with connections.connected(address) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        while cursor.nextset():
            pass
        return rows


# population


def test_what_is_loaded_is_what_the_rules_want(server: Server) -> None:
    address, size = address_of(server), SMALL.scale
    each, warehouses = size.customers, size.warehouses
    rows = {table: one(address, f"SELECT COUNT(*) FROM {table}") for table in TABLES}
    lines = sum(int(SMALL.order_lines_of(w).sum()) for w in (1, 2))
    orders_at_least = warehouses * DISTRICTS * each
    assert rows["item"] == size.items
    assert rows["warehouse"] == warehouses
    assert rows["district"] == warehouses * DISTRICTS
    assert rows["stock"] == warehouses * size.items
    assert rows["customer"] == warehouses * DISTRICTS * each
    assert rows["orders"] >= orders_at_least
    assert rows["order_line"] >= lines
    found = loading.population_of(address)
    assert found == SMALL
    assert broken(address) == []


@pytest.mark.slow
def test_the_standards_warehouse_is_loaded_whole(place: Path) -> None:
    """Clause 4.3.3.1, as the server sees it; and that twelve conditions hold before any run."""
    with mysql.new_folder(place) as folder, mysql.run(folder, SETTINGS) as fresh:
        address = address_of(fresh)
        loading.load(address, Population(Scale(1)), foreign_keys=True)
        counts = {table: one(address, f"SELECT COUNT(*) FROM {table}") for table in TABLES}
        lines = counts.pop("order_line")
        assert counts == {
            "item": 100_000,
            "warehouse": 1,
            "district": 10,
            "stock": 100_000,
            "customer": 30_000,
            "history": 30_000,
            "orders": 30_000,
            "new_order": 9_000,
        }
        assert lines == one(address, "SELECT SUM(o_ol_cnt) FROM orders")
        zero = {
            "original items": "SELECT COUNT(*) - 10000 FROM item WHERE i_data LIKE '%ORIGINAL%'",
            "original stock": "SELECT COUNT(*) - 10000 FROM stock WHERE s_data LIKE '%ORIGINAL%'",
            "bad credit": "SELECT COUNT(*) - 3000 FROM customer WHERE c_credit = 'BC'",
            "names": "SELECT COUNT(DISTINCT c_last) - 1000 FROM customer",
            "one of each name": "SELECT COUNT(*) FROM customer WHERE c_id <= 1000 AND "
            f"c_last <> CONCAT({_syllable(100)}, {_syllable(10)}, {_syllable(1)})",
            "permutation": "SELECT COUNT(*) FROM (SELECT o_d_id FROM orders GROUP BY o_d_id "
            "HAVING COUNT(DISTINCT o_c_id) <> 3000 OR MIN(o_c_id) <> 1 OR MAX(o_c_id) <> 3000) x",
            "carriers": "SELECT COUNT(*) FROM orders WHERE (o_id < 2101) <> "
            "(o_carrier_id BETWEEN 1 AND 10 AND o_carrier_id IS NOT NULL)",
            "new orders": "SELECT COUNT(*) FROM new_order WHERE no_o_id NOT BETWEEN 2101 AND 3000",
            "delivered lines": "SELECT COUNT(*) FROM order_line WHERE ol_o_id < 2101 AND "
            "(ol_delivery_d IS NULL OR ol_amount <> 0)",
            "other lines": "SELECT COUNT(*) FROM order_line WHERE ol_o_id >= 2101 AND "
            "(ol_delivery_d IS NOT NULL OR ol_amount NOT BETWEEN 0.01 AND 9999.99)",
            "history": "SELECT COUNT(*) FROM history WHERE h_amount <> 10 OR h_c_d_id <> h_d_id",
            "balances": "SELECT COUNT(*) FROM customer WHERE c_balance <> -10 OR c_middle <> 'OE' "
            "OR c_ytd_payment <> 10 OR c_payment_cnt <> 1 OR c_delivery_cnt <> 0",
            "ytd": "SELECT COUNT(*) FROM warehouse WHERE w_ytd <> 300000",
            "district": "SELECT COUNT(*) FROM district WHERE d_ytd <> 30000 OR d_next_o_id <> 3001",
        }
        assert {what: int(one(address, sql)) for what, sql in zero.items()} == dict.fromkeys(
            zero, 0
        )
        keys = "SELECT COUNT(*) FROM information_schema.referential_constraints"
        assert one(address, keys) == 10
        assert broken(address) == []
        metrics = driver.run(address, SHORT, watch=fresh.check).metrics
        assert metrics["new_order_transactions"] > 0
        assert broken(address) == []


def _syllable(unit: int) -> str:
    names = ", ".join(f"'{last_name(n)[6:]}'" for n in range(10))  # BARBAR and the last one
    return f"ELT((c_id - 1) DIV {unit} % 10 + 1, {names})"


def test_the_same_seed_loads_the_same_data_and_another_one_other(place: Path) -> None:
    sums = []
    with mysql.new_folder(place) as folder, mysql.run(folder, SETTINGS) as fresh:
        address = address_of(fresh)
        for seed, processes in ((1, 1), (1, 2), (2, 2)):
            loading.load(address, Population(reduced(2), seed), processes=processes)
            tables = ", ".join(t for t in TABLES if t != "history")  # it has no order
            sums.append([total for _, total in ask(address, f"CHECKSUM TABLE {tables}")])
    assert sums[0] == sums[1]
    assert all(a != b for a, b in zip(sums[0][:-2], sums[2][:-2], strict=True))


def test_a_database_that_is_not_loaded_is_told(server: Server) -> None:
    with pytest.raises(TargetError, match="nonesuch is not loaded"):
        loading.population_of({**server.address, "database": "nonesuch"})
    with pytest.raises((TargetError, ServerError)):
        driver.run({**server.address, "database": "nonesuch"}, SHORT)


# transactions


def test_a_new_order_does_what_clause_2_4_2_says(copied: Path) -> None:
    with mysql.run(copied, SETTINGS) as fresh:
        address = address_of(fresh)
        # Line 2 before line 1, item 5 twice, the last one from the other warehouse.
        lines = [(2, 5, 1, 7), (3, 5, 1, 2), (1, 9, 1, 3), (4, 2, 2, 10)]
        packed = "".join(f"{n:02}{i:06}{w:06}{q:02}" for n, i, w, q in lines)
        ask(address, "UPDATE stock SET s_quantity = 16, s_data = 'x ORIGINAL x' WHERE s_i_id = 5")
        ask(address, "UPDATE item SET i_data = 'ORIGINAL' WHERE i_id = 5")
        ask(address, "UPDATE item SET i_data = '' WHERE i_id <> 5")
        ask(address, "UPDATE stock SET s_quantity = 30 WHERE s_i_id = 9 OR s_i_id = 2")
        [(committed, o_id, *_, w_tax, d_tax, total, brands)] = call(
            address, f"CALL tpcc_new_order(1, 3, 8, 4, 0, '{packed}')"
        )
        assert committed == 1
        assert o_id == SMALL.scale.customers + 1
        prices = dict(ask(address, "SELECT i_id, i_price FROM item WHERE i_id IN (2, 5, 9)"))
        amounts = {n: q * prices[i] for n, i, _, q in lines}
        assert ask(
            address,
            "SELECT ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d, "
            f"ol_dist_info = s_dist_03 FROM order_line, stock WHERE ol_w_id = 1 AND ol_d_id = 3 "
            f"AND ol_o_id = {o_id} AND s_w_id = ol_supply_w_id AND s_i_id = ol_i_id "
            "ORDER BY ol_number",
        ) == [(n, i, w, q, amounts[n], None, 1) for n, i, w, q in sorted(lines)]
        discount = one(
            address, "SELECT c_discount FROM customer WHERE c_w_id=1 AND c_d_id=3 AND c_id=8"
        )
        expected = sum(amounts.values()) * (1 - discount) * (1 + w_tax + d_tax)
        assert total == pytest.approx(expected, abs=Decimal("0.01"))
        assert brands == 1 << 2 | 1 << 3  # lines 2 and 3
        # 16 - 7 < 10, so 91 more: 100; then 100 - 2.
        assert ask(
            address,
            "SELECT s_w_id, s_i_id, s_quantity, s_ytd, s_order_cnt, s_remote_cnt FROM stock "
            "WHERE s_order_cnt > 0 ORDER BY s_w_id, s_i_id",
        ) == [(1, 5, 98, 9, 2, 0), (1, 9, 27, 3, 1, 0), (2, 2, 20, 10, 1, 1)]
        assert ask(
            address,
            f"SELECT o_c_id, o_carrier_id, o_ol_cnt, o_all_local FROM orders "
            f"WHERE o_w_id = 1 AND o_d_id = 3 AND o_id = {o_id}",
        ) == [(8, None, 4, 0)]
        assert broken(address) == []


def test_an_unused_item_rolls_everything_back(copied: Path) -> None:
    with mysql.run(copied, SETTINGS) as fresh:
        address = address_of(fresh)
        tables = f"CHECKSUM TABLE {', '.join(TABLES)}"
        before = ask(address, tables)
        unused = SMALL.scale.items + 1
        packed = f"01{5:06}{1:06}03" + f"02{unused:06}{1:06}04"
        [(committed, *_)] = call(address, f"CALL tpcc_new_order(1, 1, 1, 2, 1, '{packed}')")
        assert committed == 0
        assert ask(address, tables) == before


MIDDLE = ((4, 2), (5, 3))
"""Of so many namesakes, the one that is meant, rounded up: the second of four, third of five."""


def name_alike(address: Address, count: int) -> list[int]:
    """Gives customers of district 5 of warehouse 2 one name, SAME and the count; the numbers of
    these by first name. In two other districts more have it, whose first names come before theirs.
    """
    ask(
        address,
        f"UPDATE customer SET c_last = 'SAME{count}', c_credit = 'BC', "
        f"c_first = CONCAT('F', 10 - c_id) WHERE c_w_id = 2 AND c_d_id = 5 AND c_id <= {count}",
        f"UPDATE customer SET c_last = 'SAME{count}', c_first = 'A' WHERE c_id >= 20 "
        "AND (c_w_id, c_d_id) IN ((1, 5), (2, 6))",
    )
    return sorted(range(1, count + 1), reverse=True)


def test_a_payment_by_name_is_the_middle_customers(copied: Path) -> None:
    with mysql.run(copied, SETTINGS) as fresh:
        address = address_of(fresh)
        for count, expected in MIDDLE:
            by_first_name = name_alike(address, count)
            row = call(address, f"CALL tpcc_payment(1, 1, 2, 5, 0, 'SAME{count}', 12.34)")[0]
            assert row[0] == by_first_name[expected - 1]
            number = row[0]
            data = f"{number} 5 2 1 1 12.34|"
            assert row[7].startswith(data)
            assert one(
                address,
                "SELECT LEFT(c_data, 20) FROM customer WHERE c_w_id = 2 AND "
                f"c_d_id = 5 AND c_id = {number}",
            ).startswith(data)
        balance, ytd, times = ask(
            address,
            "SELECT c_balance, c_ytd_payment, c_payment_cnt FROM "
            "customer WHERE c_w_id = 2 AND c_d_id = 5 AND c_payment_cnt > 1 LIMIT 1",
        )[0]
        assert (balance, ytd, times) == (
            Decimal("-34.68"),
            Decimal("34.68"),
            3,
        )  # it was the same one
        assert one(address, "SELECT w_ytd FROM warehouse WHERE w_id = 1") == one(
            address, "SELECT w_ytd + 24.68 FROM warehouse WHERE w_id = 2"
        )
        assert broken(address) == []


def test_order_status_finds_the_last_order(copied: Path) -> None:
    with mysql.run(copied, SETTINGS) as fresh:
        address = address_of(fresh)
        call(address, f"CALL tpcc_new_order(1, 2, 9, 1, 1, '01{5:06}{1:06}03')")
        rows = call(address, "CALL tpcc_order_status(1, 2, 9, '')")
        assert [(row[0], row[4], row[6], row[7:10]) for row in rows] == [
            (9, SMALL.scale.customers + 1, None, (5, 1, 3))
        ]


def test_order_status_by_name_is_the_middle_customers(copied: Path) -> None:
    with mysql.run(copied, SETTINGS) as fresh:
        address = address_of(fresh)
        for count, expected in MIDDLE:
            number = name_alike(address, count)[expected - 1]
            rows = call(address, f"CALL tpcc_order_status(2, 5, 0, 'SAME{count}')")
            [(o_id, lines)] = ask(
                address,
                "SELECT o_id, o_ol_cnt FROM orders "
                f"WHERE o_w_id = 2 AND o_d_id = 5 AND o_c_id = {number}",
            )
            told = {(row[0], row[1], row[2], row[4]) for row in rows}
            assert told == {(number, f"F{10 - number}", f"SAME{count}", o_id)}
            assert len(rows) == lines
            items = ask(
                address,
                "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount FROM order_line "
                f"WHERE ol_w_id = 2 AND ol_d_id = 5 AND ol_o_id = {o_id}",
            )
            assert sorted(row[7:11] for row in rows) == sorted(items)


def test_a_delivery_takes_the_oldest_order_of_each_district(copied: Path) -> None:
    with mysql.run(copied, SETTINGS) as fresh:
        address = address_of(fresh)
        ask(address, "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 4")
        first = SMALL.scale.delivered_orders + 1
        assert call(address, "CALL tpcc_delivery(1, 6)") == [(9,)]  # one district has none
        assert (
            one(
                address,
                "SELECT COUNT(*) FROM orders WHERE o_w_id = 1 AND o_carrier_id = 6 "
                f"AND o_id = {first}",
            )
            >= 9
        )
        left = ask(
            address,
            "SELECT no_d_id, MIN(no_o_id) FROM new_order WHERE no_w_id = 1 GROUP BY no_d_id",
        )
        assert left == [(d, first + 1) for d in range(1, 11) if d != 4]
        assert one(address, "SELECT SUM(c_delivery_cnt) FROM customer") == 9
        ask(address, "UPDATE orders SET o_carrier_id = 1 WHERE o_w_id = 1 AND o_d_id = 4")
        # District 4 was broken above; all others are as they should be.
        found = {c.number: c.violations for c in consistency.check(address)}
        assert found[10] == found[12] == 0


def test_stock_level_counts_what_is_low_in_the_last_twenty_orders(copied: Path) -> None:
    """Threshold 15; of each item that is low without being counted there is another reason why."""
    with mysql.run(copied, SETTINGS) as fresh:
        address = address_of(fresh)
        lines = ask(address, "SELECT ol_w_id, ol_d_id, ol_o_id, ol_i_id FROM order_line")
        oldest = SMALL.scale.customers - 19  # of the last twenty
        recent = [item for w, d, o, item in lines if (w, d) == (1, 1) and o >= oldest]
        twice = min(item for item in recent if recent.count(item) > 1)
        first = next(
            item
            for w, d, o, item in lines
            if (w, d, o) == (1, 1, oldest) and recent.count(item) == 1
        )
        full, other, *_ = sorted({*recent} - {twice, first})
        before = {item for w, d, o, item in lines if (w, d) == (1, 1) and o < oldest}
        elsewhere = {item for w, d, _, item in lines if (w, d) in ((1, 2), (2, 1))}
        not_recent = (before | elsewhere) - {*recent}
        assert before & not_recent
        assert elsewhere & not_recent

        def leave(quantity: int, items: Iterable[int], warehouse: int = 1) -> None:
            chosen = ",".join(map(str, items))
            where = f"s_w_id = {warehouse} AND s_i_id IN ({chosen})"
            ask(address, f"UPDATE stock SET s_quantity = {quantity} WHERE {where}")

        ask(address, "UPDATE stock SET s_quantity = 50")
        assert call(address, "CALL tpcc_stock_level(1, 1, 15)") == [(0,)]
        leave(0, not_recent)
        leave(0, [other], warehouse=2)
        leave(15, [full])
        assert call(address, "CALL tpcc_stock_level(1, 1, 15)") == [(0,)]
        leave(14, [twice, first])
        assert call(address, "CALL tpcc_stock_level(1, 1, 15)") == [(2,)]
        assert call(address, "CALL tpcc_stock_level(1, 1, 16)") == [(3,)]


# the twelve conditions

A_DISTRICT = "w_id = 1 AND {0}d_id = 2"
BREAKS: dict[int, tuple[str, set[int]]] = {
    1: ("UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 1", {1, 8}),
    2: ("UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 2", {2}),
    3: (
        "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 2 AND no_o_id = 25",
        {3, 5, 11},
    ),
    4: (
        (
            "INSERT INTO order_line SELECT 9999, ol_d_id, ol_w_id, ol_number, ol_i_id, "
            "ol_supply_w_id, NULL, ol_quantity, ol_amount, ol_dist_info FROM order_line "
            "WHERE ol_w_id = 1 AND ol_d_id = 2 AND ol_o_id = 25"
        ),
        {4},
    ),
    5: (
        "UPDATE orders SET o_carrier_id = 3 WHERE o_w_id = 1 AND o_d_id = 2 AND o_id = 25",
        {5, 7},
    ),
    6: (
        (
            "UPDATE orders SET o_ol_cnt = o_ol_cnt + IF(o_id = 25, 1, -1) WHERE o_w_id = 1 "
            "AND o_d_id = 2 AND o_id IN (25, 26)"
        ),
        {6},
    ),
    7: (
        (
            "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 1 AND ol_d_id = 2 "
            "AND ol_o_id = 3 AND ol_number = 1"
        ),
        {7},
    ),
    8: (
        (
            "UPDATE warehouse, district SET w_ytd = w_ytd + 1, d_ytd = d_ytd + 1 "
            "WHERE w_id = 1 AND d_w_id = 1 AND d_id = 2"
        ),
        {8, 9},
    ),
    9: (
        (
            "UPDATE district SET d_ytd = d_ytd + IF(d_id = 2, 1, -1) WHERE d_w_id = 1 "
            "AND d_id IN (2, 3)"
        ),
        {9},
    ),
    10: (
        (
            "UPDATE customer SET c_balance = c_balance + 1, c_ytd_payment = c_ytd_payment - 1 "
            "WHERE c_w_id = 1 AND c_d_id = 2 AND c_id = 4"
        ),
        {10},
    ),
    11: (
        (
            "UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1 "
            "WHERE c_w_id = 1 AND c_d_id = 2 AND c_id = 4"
        ),
        {11},
    ),
    12: (
        (
            "UPDATE customer SET c_ytd_payment = c_ytd_payment + 1 "
            "WHERE c_w_id = 1 AND c_d_id = 2 AND c_id = 4"
        ),
        {12},
    ),
}


@pytest.fixture(scope="module")
def breakable(loaded: Path, place: Path) -> Iterator[Address]:
    shutil.copytree(loaded, place / "breakable")
    with mysql.run(place / "breakable", SETTINGS) as running:
        yield address_of(running)


TABLES_OF_BREAKS = ("warehouse", "district", "new_order", "order_line", "orders", "customer")


@pytest.fixture
def unbroken(breakable: Address) -> Iterator[Address]:
    """All that a break may change is put back afterwards."""
    for table in TABLES_OF_BREAKS:
        ask(breakable, f"CREATE TABLE kept_{table} AS SELECT * FROM {table}")
    yield breakable
    for table in TABLES_OF_BREAKS:
        ask(
            breakable,
            f"DELETE FROM {table}",
            f"INSERT INTO {table} SELECT * FROM kept_{table}",
            f"DROP TABLE kept_{table}",
        )


@pytest.mark.parametrize("number", BREAKS)
def test_a_broken_row_violates_its_condition(unbroken: Address, number: int) -> None:
    statement, expected = BREAKS[number]
    assert broken(unbroken) == []
    ask(unbroken, statement)
    found = broken(unbroken)
    assert number in found
    assert set(found) == expected
    with pytest.raises(DataCorrupted, match=rf"\b{number} \("):
        consistency.assure(unbroken)


def test_condition_11_counts_what_was_delivered_since(copied: Path) -> None:
    """3.3.2.11 says 2,100 orders per district, before any delivery; here as the scale says."""
    assert Scale(1).delivered_orders == 2100
    with mysql.run(copied, SETTINGS) as fresh:
        address = address_of(fresh)

        def violations() -> int:
            found = consistency.check(address)[10]
            assert found.number == 11
            return found.violations

        assert violations() == 0
        assert call(address, "CALL tpcc_delivery(1, 6)") == [(DISTRICTS,)]
        assert violations() == 0
        ask(address, "UPDATE customer SET c_delivery_cnt = 0 WHERE c_w_id = 1 AND c_d_id <= 3")
        assert violations() == 3  # districts


# runs


def test_a_run_in_two_processes_counts_what_the_server_has(server: Server) -> None:
    address = address_of(server)
    orders = "SELECT COUNT(*) FROM orders"
    before = one(address, orders)
    run = driver.run(address, Job(4, 2, warm_up_s=0, measured_s=2.0), watch=server.check)
    made = one(address, orders) - before
    m = run.metrics
    committed = m["new_order_transactions"] - m["rollbacks"]
    assert 0 < committed <= made <= committed + 4  # those that were under way at the end
    assert m["tpmc"] == m["new_order_transactions"] * 30
    assert sum(run.new_orders_per_s) == m["new_order_transactions"]
    assert m["transactions"] == sum(m[f"{kind}_transactions"] for kind in KINDS)
    for kind in KINDS:
        if m[f"{kind}_transactions"]:
            levels = [m[f"{kind}_p{p}_ms"] for p in (50, 90, 95, 99)] + [m[f"{kind}_max_ms"]]
            assert levels == sorted(levels)
            assert levels[0] > 0
    assert broken(address) == []


def test_the_same_number_of_users_in_one_process_do_the_same(server: Server) -> None:
    address = address_of(server)
    run = driver.run(address, Job(2, 1, warm_up_s=0.3, measured_s=0.7), watch=server.check)
    assert run.metrics["new_order_transactions"] > 0
    assert sum(run.new_orders_per_s) > run.metrics["new_order_transactions"]  # the warm-up's
    assert broken(address) == []


def test_with_keying_and_think_times_users_wait(server: Server) -> None:
    job = Job(4, 1, warm_up_s=0, measured_s=1.5, wait_ratio=0.01)
    slow = driver.run(address_of(server), job, watch=server.check).metrics["transactions"]
    # With a hundredth of 21 s between two, on average, these users come to 32 on a server that
    # takes no time (61 without keying, 65 without thinking), and to 8 on one that takes 0.5 s.
    assert 8 <= slow <= 32


def users(server: Server) -> Users:
    constants = run_constants(1, SMALL.constants)
    address = address_of(server)
    return Users(address, SMALL.scale, constants, STANDARD_MIX, 1, 0, (0,), (None,), 0.0)


@contextmanager
def session(server: Server, part: int = 0) -> Iterator[client._Session]:
    """One user, who is connected for as long as the block runs."""
    made = client._Session(replace(users(server), part=part), 0, threading.Event())
    try:
        yield made
    finally:
        made._end()


def test_a_user_goes_on_with_other_transactions_in_another_part(server: Server) -> None:
    """Of the same draws a second run would find the pages of the first in memory."""
    with session(server) as one, session(server) as same, session(server, part=1) as other:
        first, again, second = one._user, same._user, other._user
    calls = [first.next().statement for _ in range(20)]
    assert [again.next().statement for _ in range(20)] == calls
    assert not set(calls) & {second.next().statement for _ in range(20)}


def test_seconds_without_an_order_are_seconds() -> None:
    log = client.Log()
    log.ended_ms[NEW_ORDER].extend([100, 1200, 1300])
    log.took_us[NEW_ORDER].extend([1, 1, 1])
    run = driver._summary(Job(1, 1, warm_up_s=0, measured_s=4.5), [log])
    assert run.new_orders_per_s == [1, 2, 0, 0, 0]


def test_a_deadlock_is_rolled_back_retried_and_counted(server: Server) -> None:
    address = address_of(server)
    counted: Counter[str] = Counter()
    with (
        session(server) as user,
        connections.connected(address, autocommit=False) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        payment = user._user.payment()
        w, d = payment.statement.split("(")[1].split(",")[:2]
        # It has the district and wants the warehouse; the payment takes them in the other order.
        district = f"UPDATE district SET d_name = d_name WHERE d_w_id = {w} AND d_id = {d}"
        connections.execute(other, "UPDATE stock SET s_ytd = s_ytd")  # more to undo: it is not it
        connections.execute(other, district)
        running = pool.submit(user._run, payment, counted)
        waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        while one(address, waiting) == 0:
            time.sleep(0.2)  # InnoDB makes that table anew if nobody has read it for 0.1 s
        connections.execute(other, f"UPDATE warehouse SET w_name = w_name WHERE w_id = {w}")
        other.rollback()
        [row] = running.result()
    assert int(row[0]) > 0
    assert counted == {"deadlocks": 1}
    assert broken(address) == []


def test_a_lock_wait_that_takes_too_long_is_retried_and_counted(server: Server) -> None:
    address = address_of(server)
    counted: Counter[str] = Counter()
    with (
        session(server) as user,
        connections.connected(address, autocommit=False) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        user._cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
        connections.execute(other, "UPDATE warehouse SET w_name = w_name")
        running = pool.submit(user._run, user._user.payment(), counted)
        while not counted:
            assert not running.done()
        other.rollback()
        running.result()
    assert set(counted) == {"lock_wait_timeouts"}
    assert broken(address) == []


def test_another_error_ends_the_run_and_says_what(copied: Path) -> None:
    with mysql.run(copied, SETTINGS) as fresh:
        address = address_of(fresh)
        ask(address, "DROP TABLE history")
        with pytest.raises(ServerError, match="history"):
            driver.run(address, SHORT, watch=fresh.check)


@pytest.mark.parametrize(
    ("errno", "told"),
    [(1644, "the server: .*late"), (connections.DEADLOCK, "a deadlock 100 times")],
)
def test_an_error_after_the_rows_is_as_any_other(
    server: Server, errno: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients have the connector's compiled half, which raises it as something of its own."""
    address = address_of(server)
    create = loading.create_procedures
    [payment] = [p for p in connections.statements("procedures.sql", "//") if "_payment" in p]
    late = f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {errno}, MESSAGE_TEXT = 'late'"

    def create_one_that_fails(address: Address) -> None:
        create(address)
        ask(address, "DROP PROCEDURE tpcc_payment")
        ask(address, f"{payment.split('BEGIN')[0]} BEGIN SELECT 1; {late}; END")

    monkeypatch.setattr(loading, "create_procedures", create_one_that_fails)
    with pytest.raises(ServerError, match=told):
        driver.run(address, SHORT, watch=server.check)
    assert broken(settled(address)) == []


def test_missing_rows_are_told(copied: Path) -> None:
    with mysql.run(copied, SETTINGS) as fresh:
        address = address_of(fresh)
        ask(address, "DELETE FROM stock WHERE s_i_id > 10")
        with pytest.raises(DataCorrupted, match="load again"):
            driver.run(address, SHORT, watch=fresh.check)


def test_a_run_can_be_cancelled(server: Server) -> None:
    job = Job(2, 2, warm_up_s=0, measured_s=600)
    asked = iter([False] * 20)
    with pytest.raises(Interrupted):
        driver.run(address_of(server), job, is_cancelled=lambda: next(asked, True))
    assert broken(settled(address_of(server))) == []


def during_a_run(
    server: Server, act: Callable[[], None], *, watch: Callable[[], None] | None = None
) -> None:
    """A run that is longer than any test, during which something happens."""
    address = address_of(server)
    job = Job(4, 2, warm_up_s=0, measured_s=600)
    begun = server.status()["redo_written_bytes"]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(driver.run, address, job, watch=watch or server.check)
        deadline = time.monotonic() + 30
        while server.status()["redo_written_bytes"] < begun + (1 << 20):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        act()
        running.result(timeout=60)


def test_a_killed_server_ends_the_run_and_recovers_consistent(copied: Path) -> None:
    with (
        pytest.raises(ServerError, match="the server has ended"),
        mysql.run(copied, SETTINGS) as fresh,
    ):
        during_a_run(fresh, fresh.kill)
    with mysql.run(copied, SETTINGS) as again:
        address = address_of(again)
        assert broken(address) == []
        assert one(address, "SELECT COUNT(*) FROM orders") > 2 * DISTRICTS * SMALL.scale.customers
        assert driver.run(address, SHORT, watch=again.check).metrics["tpmc"] > 0
        assert broken(address) == []
    assert mysql.check_pages(copied, SETTINGS).bad == []


def test_a_server_that_dies_in_the_middle_is_told_with_its_last_words(copied: Path) -> None:
    with mysql.run(copied, SETTINGS) as fresh:

        def die() -> None:
            os.kill(fresh.pid, signal.SIGABRT)

        with pytest.raises(ServerError, match=r"ended in the middle: .*got signal 6"):
            during_a_run(fresh, die)


def test_a_killed_client_ends_the_run(server: Server) -> None:
    def kill_one() -> None:
        own = [
            int(path.name)
            for path in Path("/proc").iterdir()
            if path.name.isdigit() and _is_child(path)
        ]
        assert len(own) == 2
        os.kill(random.choice(own), signal.SIGKILL)

    with pytest.raises(InvalidRun, match="ended in the middle"):
        during_a_run(server, kill_one)
    assert broken(settled(address_of(server))) == []


def _is_child(process: Path) -> bool:
    """Whether it is a client's process of ours."""
    try:
        parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        return parent == os.getpid() and b"tpcc.children" in (process / "cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.root
def test_a_full_device_ends_the_load_and_says_so(place: Path) -> None:
    before = texts_of_loaders()
    with (
        loop_device(place, 200 << 20) as device,
        mounted(device, place / "device") as mount,
    ):
        mount.chmod(0o711)
        with (
            pytest.raises(DiskFull, match="larger"),
            mysql.run(mount / "data", SETTINGS) as fresh,
        ):
            loading.load(address_of(fresh), Population(Scale(4)), watch=fresh.check)
    assert texts_of_loaders() <= before


def texts_of_loaders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("flashlab-tpcc-*"))


class HostileServer(socketserver.ThreadingUnixStreamServer):
    """Passes on what client and server say, but asks for a file of its own in place of a loader's.

    By the protocol it is the server that names the file (LOCAL INFILE request: 0xFB, a path).
    """

    daemon_threads = True

    def __init__(self, path: Path, behind: str, wants: Callable[[Path], Path]) -> None:
        super().__init__(str(path), HostileConnection)
        self.behind, self.wants = behind, wants
        self.asked: list[Path] = []
        self.heard: list[bytes] = []


class HostileConnection(socketserver.StreamRequestHandler):
    server: HostileServer

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as behind, ThreadPoolExecutor(1) as pool:
            behind.connect(self.server.behind)
            hears = pool.submit(self._hear, behind)
            with behind.makefile("rb") as says:
                while packet := self._packet(says):
                    self.connection.sendall(packet)
            self.connection.shutdown(socket.SHUT_RDWR)
            hears.result()

    def _hear(self, behind: socket.socket) -> None:
        """To the server, as it is."""
        while heard := self.connection.recv(1 << 16):
            self.server.heard.append(heard)
            behind.sendall(heard)
        behind.shutdown(socket.SHUT_WR)

    def _packet(self, says: BinaryIO) -> bytes:
        """The server's next one: three bytes of length, a number, and what it says."""
        head = says.read(4)
        said = says.read(int.from_bytes(head[:3], "little"))
        if said.startswith(b"\xfb/"):
            self.server.asked.append(self.server.wants(Path(os.fsdecode(said[1:]))))
            said = b"\xfb" + bytes(self.server.asked[-1])
        return len(said).to_bytes(3, "little") + head[3:] + said if head else b""


SECRET = "nobody's business"


def elsewhere(text: Path) -> Path:
    """In the folder above the loader's."""
    secret = text.parent.parent / "secret"
    secret.write_text(SECRET)
    return secret


def by_way_of_its_own(text: Path) -> Path:
    return text.parent / ".." / elsewhere(text).name


def like_named(text: Path) -> Path:
    """In a folder whose name begins as the loader's does."""
    folder = text.parent.with_name(text.parent.name + "-secret")
    folder.mkdir(exist_ok=True)
    (folder / text.name).write_text(SECRET)
    return folder / text.name


@pytest.mark.parametrize("wants", [elsewhere, by_way_of_its_own, like_named])
def test_the_server_gets_no_file_but_those_that_the_loader_wrote(
    server: Server,
    place: Path,
    wants: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts, door = place / f"texts-{wants.__name__}", place / f"hostile-{wants.__name__}"
    texts.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(texts))
    with HostileServer(door, server.address["unix_socket"], wants) as hostile:
        threading.Thread(target=hostile.serve_forever).start()
        try:
            address = {**server.address, "unix_socket": str(door), "database": "spied"}
            with pytest.raises(ServerError, match="LOAD DATA LOCAL INFILE"):
                loading.load(address, Population(reduced(1)))
        finally:
            hostile.shutdown()
    assert hostile.asked
    assert SECRET.encode() not in b"".join(hostile.heard)
