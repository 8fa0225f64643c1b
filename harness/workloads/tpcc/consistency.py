"""The twelve consistency conditions of TPC-C 5.11, clause 3.3.2, as SQL: rows that violate them.

ORDER-LINE is summed up by order first, a warehouse at a time, and HISTORY by customer: what is left
are joins of small tables. The sums are temporary tables in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from harness.errors import DataCorrupted
from harness.workloads.tpcc import loading
from harness.workloads.tpcc.connections import Address, connected, execute

_MEMORY_BYTES: Final = 4 << 30
_CONNECTIONS: Final = 2


@dataclass(frozen=True)
class Condition:
    """A condition, by its number in clause 3.3.2, and how many rows violate it."""

    number: int
    says: str
    violations: int


_SUMS: Final = {
    "check_paid": """
        CREATE TEMPORARY TABLE check_paid (
            w INT, d INT, c INT, paid DECIMAL(14, 2), PRIMARY KEY (w, d, c)
        ) ENGINE = MEMORY
        SELECT h_c_w_id AS w, h_c_d_id AS d, h_c_id AS c, SUM(h_amount) AS paid FROM history
        WHERE h_c_w_id IN ({all}) GROUP BY h_c_w_id, h_c_d_id, h_c_id""",
    "check_earned": """
        CREATE TEMPORARY TABLE check_earned (
            w INT, d INT, earned DECIMAL(14, 2), PRIMARY KEY (w, d)
        ) ENGINE = MEMORY
        SELECT h_w_id AS w, h_d_id AS d, SUM(h_amount) AS earned FROM history
        WHERE h_w_id IN ({all}) GROUP BY h_w_id, h_d_id""",
}
"""Of all warehouses that a connection checks."""

_SUMS_OF_WAREHOUSE: Final = {
    "check_lines": """
        CREATE TEMPORARY TABLE check_lines (
            d INT, o INT, n INT, undelivered INT, amount DECIMAL(14, 2), PRIMARY KEY (d, o)
        ) ENGINE = MEMORY
        SELECT ol_d_id AS d, ol_o_id AS o, COUNT(*) AS n,
            SUM(ol_delivery_d IS NULL) AS undelivered,
            SUM(IF(ol_delivery_d IS NULL, 0, ol_amount)) AS amount
        FROM order_line WHERE ol_w_id = {w} GROUP BY ol_w_id, ol_d_id, ol_o_id""",
    "check_delivered": """
        CREATE TEMPORARY TABLE check_delivered (
            d INT, c INT, delivered DECIMAL(14, 2), PRIMARY KEY (d, c)
        ) ENGINE = MEMORY
        SELECT o_d_id AS d, o_c_id AS c, SUM(amount) AS delivered
        FROM orders JOIN check_lines ON d = o_d_id AND o = o_id
        WHERE o_w_id = {w} GROUP BY o_d_id, o_c_id""",
}

_DISTRICT_SUMS: Final = """
    SELECT COUNT(*) FROM district
    LEFT JOIN (SELECT o_d_id AS d, {order_sum} AS s FROM orders WHERE o_w_id = {{w}}
        GROUP BY o_d_id) AS a ON a.d = d_id
    LEFT JOIN ({other}) AS b ON b.d = d_id
    WHERE d_w_id = {{w}} AND {wrong}"""

_CUSTOMERS: Final = """
    SELECT COUNT(*) FROM customer LEFT JOIN check_delivered ON d = c_d_id AND c = c_id {more}
    WHERE c_w_id = {{w}} AND NOT {right}"""

_CONDITIONS: Final = (
    (
        "W_YTD is the sum of its districts' D_YTD",
        """SELECT COUNT(*) FROM warehouse WHERE w_id = {w}
        AND NOT w_ytd <=> (SELECT SUM(d_ytd) FROM district WHERE d_w_id = {w})""",
    ),
    (
        "D_NEXT_O_ID - 1 is the last order, and the last new order",
        _DISTRICT_SUMS.format(
            order_sum="MAX(o_id)",
            other="SELECT no_d_id AS d, MAX(no_o_id) AS s FROM new_order WHERE no_w_id = {w} "
            "GROUP BY no_d_id",
            wrong="NOT (d_next_o_id - 1 <=> a.s AND d_next_o_id - 1 = COALESCE(b.s, a.s))",
        ),
    ),
    (
        "new orders of a district have no gap",
        """SELECT COUNT(*) FROM (SELECT no_d_id FROM new_order WHERE no_w_id = {w}
        GROUP BY no_d_id HAVING MAX(no_o_id) - MIN(no_o_id) + 1 <> COUNT(*)) AS gaps""",
    ),
    (
        "a district has as many order lines as its O_OL_CNT say",
        _DISTRICT_SUMS.format(
            order_sum="SUM(o_ol_cnt)",
            other="SELECT d, SUM(n) AS s FROM check_lines GROUP BY d",
            wrong="NOT a.s <=> b.s",
        ),
    ),
    (
        "O_CARRIER_ID is null just where there is a new order",
        """SELECT (SELECT COUNT(*) FROM orders LEFT JOIN new_order
            ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
            WHERE o_w_id = {w} AND (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL))
        + (SELECT COUNT(*) FROM new_order LEFT JOIN orders
            ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
            WHERE no_w_id = {w} AND o_id IS NULL)""",
    ),
    (
        "an order has O_OL_CNT lines",
        """SELECT COUNT(*) FROM orders LEFT JOIN check_lines ON d = o_d_id AND o = o_id
        WHERE o_w_id = {w} AND NOT o_ol_cnt <=> n""",
    ),
    (
        "OL_DELIVERY_D is null just where its order's O_CARRIER_ID is",
        """SELECT COALESCE(SUM(IF(o_carrier_id IS NULL, n - undelivered, undelivered)), 0)
        FROM orders JOIN check_lines ON d = o_d_id AND o = o_id WHERE o_w_id = {w}""",
    ),
    (
        "W_YTD is the sum of its H_AMOUNT",
        """SELECT COUNT(*) FROM warehouse WHERE w_id = {w}
        AND NOT w_ytd <=> (SELECT SUM(earned) FROM check_earned WHERE w = {w})""",
    ),
    (
        "D_YTD is the sum of its H_AMOUNT",
        """SELECT COUNT(*) FROM district LEFT JOIN check_earned ON w = d_w_id AND d = d_id
        WHERE d_w_id = {w} AND NOT d_ytd <=> earned""",
    ),
    (
        "C_BALANCE is what was delivered less what was paid",
        _CUSTOMERS.format(
            more="LEFT JOIN check_paid AS p ON p.w = c_w_id AND p.d = c_d_id AND p.c = c_id",
            right="c_balance <=> COALESCE(delivered, 0) - COALESCE(paid, 0)",
        ).replace("ON d = c_d_id AND c = c_id", "AS e ON e.d = c_d_id AND e.c = c_id"),
    ),
    (
        "orders that are no new orders: those of the population, and those delivered since",
        _DISTRICT_SUMS.format(
            order_sum="COUNT(*)",
            other="SELECT c_d_id AS d, SUM(c_delivery_cnt) AS s FROM customer "
            "WHERE c_w_id = {w} GROUP BY c_d_id",
            wrong="NOT a.s - (SELECT COUNT(*) FROM new_order WHERE no_w_id = {w} "
            "AND no_d_id = d_id) <=> {delivered} + b.s",
        ),
    ),
    (
        "C_BALANCE + C_YTD_PAYMENT is what was delivered",
        _CUSTOMERS.format(more="", right="c_balance + c_ytd_payment <=> COALESCE(delivered, 0)"),
    ),
)
"""In the standard's order: 3.3.2.1 comes first. The eleventh holds there only before anything was
delivered (2,100 orders per district); C_DELIVERY_CNT counts what was delivered since."""


def check(address: Address) -> list[Condition]:
    """All twelve, of the whole database, which nobody changes meanwhile.

    Raises TargetError if it is not loaded, ServerError.
    """
    scale = loading.population_of(address).scale
    shares = [range(first, scale.warehouses + 1, _CONNECTIONS) for first in (1, 2)]
    shares = [share for share in shares if share]
    with ThreadPoolExecutor(len(shares)) as pool:
        counts = list(pool.map(lambda s: _check(address, s, scale.delivered_orders), shares))
    return [
        Condition(number, says, sum(count[number - 1] for count in counts))
        for number, (says, _) in enumerate(_CONDITIONS, 1)
    ]


def assure(address: Address) -> None:
    """Raises DataCorrupted if a condition is violated."""
    if broken := [condition for condition in check(address) if condition.violations]:
        told = "; ".join(f"{c.number} ({c.says}): {c.violations} rows" for c in broken)
        raise DataCorrupted(f"TPC-C's consistency conditions do not hold: {told}")


def _check(address: Address, warehouses: Sequence[int], delivered: int) -> list[int]:
    """Violations by condition, of some warehouses."""
    with connected(address) as connection:
        execute(connection, f"SET SESSION max_heap_table_size = {_MEMORY_BYTES}")
        for sums in _SUMS.values():
            execute(connection, sums.format(all=",".join(map(str, warehouses))))
        each = [_check_warehouse(connection, w, delivered) for w in warehouses]
    return [sum(counts) for counts in zip(*each, strict=True)]


def _check_warehouse(connection: Any, warehouse: int, delivered: int) -> list[int]:
    for name, sums in _SUMS_OF_WAREHOUSE.items():
        execute(connection, f"DROP TEMPORARY TABLE IF EXISTS {name}")
        execute(connection, sums.format(w=warehouse))
    return [
        int(execute(connection, statement.format(w=warehouse, delivered=delivered))[0][0])
        for _, statement in _CONDITIONS
    ]
