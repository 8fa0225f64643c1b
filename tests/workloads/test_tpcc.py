"""TPC-C without a server: inputs, population, decks, constants, and processes that do not hang."""

from __future__ import annotations

import itertools
import os
import random
import re
import select
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import mysql.connector
import numpy as np
import pyarrow as pa
import pytest
import tpcc_children
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.errors import (
    BadParameter,
    DiskFull,
    HarnessError,
    Interrupted,
    InvalidRun,
    ServerError,
)
from harness.workloads.tpcc import children, connections, loading, population, scale
from harness.workloads.tpcc.driver import Job
from harness.workloads.tpcc.inputs import (
    DELIVERY,
    KINDS,
    NEW_ORDER,
    ORDER_STATUS,
    PAYMENT,
    STANDARD_MIX,
    STOCK_LEVEL,
    Call,
    Deck,
    User,
)
from harness.workloads.tpcc.population import Population
from harness.workloads.tpcc.scale import NurandConstants, Scale

CONSTANTS = NurandConstants(last_name=123, customer=77, item=4321)


def user(warehouses: int = 10, seed: str = "test", **options: Any) -> User:
    return User(Scale(warehouses), CONSTANTS, STANDARD_MIX, seed, **options)


def arguments(call: Call) -> list[str]:
    found = re.fullmatch(r"CALL tpcc_(\w+)\((.*)\)", call.statement)
    assert found is not None
    assert found[1] == call.kind
    return [argument.strip("'") for argument in found[2].split(",")]


# NURand


def exact_nurand(a: int, low: int, high: int, c: int) -> dict[int, float]:
    """The distribution by its definition, all pairs counted."""
    values = np.arange(low, high + 1)
    pairs = (np.arange(a + 1)[:, None] | values[None, :]).ravel()
    results = (pairs + c) % (high - low + 1) + low
    numbers, counts = np.unique(results, return_counts=True)
    return {int(n): float(k) / len(pairs) for n, k in zip(numbers, counts, strict=True)}


@pytest.mark.parametrize(("a", "low", "high"), [(255, 0, 999), (1023, 1, 3000), (255, 0, 29)])
@pytest.mark.parametrize("vectorised", [False, True])
def test_nurand_is_distributed_as_defined(a: int, low: int, high: int, vectorised: bool) -> None:
    count, c = 60_000, 41
    if vectorised:
        drawn = population.nurand(np.random.default_rng(3), a, low, high, c, count).tolist()
    else:
        one = user()
        drawn = [one.nurand(a, low, high, c) for _ in range(count)]
    expected = exact_nurand(a, low, high, c)
    assert set(drawn) <= set(expected)
    seen = Counter(drawn)
    bins: list[list[int]] = [[]]
    for value in sorted(expected, key=lambda v: expected[v]):  # so that each is expected often
        if sum(expected[v] for v in bins[-1]) * count > 100:
            bins.append([])
        bins[-1].append(value)
    observed = [sum(seen[v] for v in group) for group in bins]
    wanted = [sum(expected[v] for v in group) * count for group in bins]
    assert stats.chisquare(observed, wanted).pvalue > 1e-4


@given(
    st.sampled_from([255, 1023, 8191]),
    st.integers(0, 10),
    st.integers(0, 5000),
    st.integers(0, 8191),
    st.integers(0, 2**32),
)
def test_nurand_stays_in_its_range(a: int, low: int, width: int, c: int, seed: int) -> None:
    high = low + width
    one = user(seed=str(seed))
    assert all(low <= one.nurand(a, low, high, c) <= high for _ in range(20))
    many = population.nurand(np.random.default_rng(seed), a, low, high, c, 20)
    assert low <= many.min()
    assert many.max() <= high


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_the_run_has_another_constant_than_the_load(load_seed: int, run_seed: int) -> None:
    load = scale.load_constants(load_seed)
    run = scale.run_constants(run_seed, load)
    delta = abs(run.last_name - load.last_name)
    assert 65 <= delta <= 119
    assert delta not in (96, 112)
    assert 0 <= run.last_name <= 255
    assert 0 <= run.customer <= 1023
    assert 0 <= run.item <= 8191


# last names


def test_last_names_are_the_standards() -> None:
    assert scale.last_name(371) == "PRICALLYOUGHT"
    assert scale.last_name(40) == "BARPRESBAR"
    assert len({scale.last_name(number) for number in range(1000)}) == 1000


# decks


@given(st.lists(st.integers(0, 50), min_size=5, max_size=5).filter(any), st.integers(1, 5))
def test_a_deck_has_every_card_as_often_as_the_mix_says(mix: list[int], decks: int) -> None:
    deck = Deck(tuple(mix), random.Random(1))
    drawn = Counter(deck.draw() for _ in range(decks * sum(mix)))
    assert drawn == Counter({k: decks * n for k, n in zip(KINDS, mix, strict=True) if n})


def test_decks_are_shuffled_each_time() -> None:
    deck = Deck(STANDARD_MIX, random.Random(1))
    decks = [tuple(deck.draw() for _ in range(100)) for _ in range(3)]
    assert len(set(decks)) == 3


# inputs


def many(kind: str, count: int, **options: Any) -> list[Call]:
    one = user(**options)
    return [getattr(one, kind)() for _ in range(count)]


def test_the_same_seed_gives_the_same_calls() -> None:
    first, again, other = user(seed="a"), user(seed="a"), user(seed="b")
    calls = [first.next() for _ in range(300)]
    assert calls == [again.next() for _ in range(300)]
    assert calls != [other.next() for _ in range(300)]
    assert {call.kind for call in calls} == set(KINDS)


def test_new_orders_are_as_the_standard_wants_them() -> None:
    calls = many(NEW_ORDER, 20_000)
    lines = remote = duplicates = 0
    for call in calls:
        w, d, c, count, all_local, packed = arguments(call)
        assert 1 <= int(w) <= 10
        assert 1 <= int(d) <= 10
        assert 1 <= int(c) <= 3000
        assert 5 <= int(count) <= 15
        assert len(packed) == 16 * int(count)
        each = [packed[at : at + 16] for at in range(0, len(packed), 16)]
        parts = [(int(p[:2]), int(p[2:8]), int(p[8:14]), int(p[14:])) for p in each]
        assert sorted(number for number, *_ in parts) == list(range(1, len(parts) + 1))
        assert all(1 <= supply <= 10 for *_, supply, _ in parts)
        assert all(1 <= quantity <= 10 for *_, quantity in parts)
        known = parts[:-1] if call.rolls_back else parts
        assert all(1 <= item <= 100_000 for _, item, *_ in known)
        assert (parts[-1][1] == 100_001) == call.rolls_back
        if call.rolls_back:
            assert parts[-1][0] == len(parts)  # the last item of the order
        places = [(supply, item) for _, item, supply, _ in known]
        assert places == sorted(places)  # stock is locked in one order
        duplicates += len(places) != len(set(places))
        others = sum(supply != int(w) for *_, supply, _ in parts)
        assert others == call.remote_lines
        assert int(all_local) == (others == 0)
        lines += len(parts)
        remote += others
    assert lines / len(calls) == pytest.approx(10, abs=0.1)
    assert remote / lines == pytest.approx(0.01, abs=0.002)
    assert sum(call.rolls_back for call in calls) / len(calls) == pytest.approx(0.01, abs=0.004)
    assert duplicates  # an order may have the same item twice


def test_payments_are_as_the_standard_wants_them() -> None:
    calls = many(PAYMENT, 20_000)
    remote = 0
    for call in calls:
        w, d, c_w, c_d, number, name, amount = arguments(call)
        remote += w != c_w
        assert (w != c_w) == call.is_remote
        assert call.is_remote or d == c_d
        assert (int(number) == 0) == bool(name) == call.by_name
        assert 1.00 <= float(amount) <= 5000.00
        assert re.fullmatch(r"\d+\.\d\d", amount)
    assert remote / len(calls) == pytest.approx(0.15, abs=0.01)
    assert sum(call.by_name for call in calls) / len(calls) == pytest.approx(0.6, abs=0.015)
    assert {arguments(call)[2] for call in calls} == {str(w) for w in range(1, 11)}


def test_the_others_are_as_the_standard_wants_them() -> None:
    by_name = many(ORDER_STATUS, 10_000)
    assert sum(call.by_name for call in by_name) / 10_000 == pytest.approx(0.6, abs=0.02)
    assert {int(arguments(c)[1]) for c in many(DELIVERY, 500)} == set(range(1, 11))
    assert {int(arguments(c)[2]) for c in many(STOCK_LEVEL, 500)} == set(range(10, 21))


def test_with_one_warehouse_nothing_is_remote() -> None:
    assert not any(call.remote_lines for call in many(NEW_ORDER, 2000, warehouses=1))
    assert not any(call.is_remote for call in many(PAYMENT, 2000, warehouses=1))


def test_who_has_a_home_stays_there() -> None:
    one = user(home=(7, 3))
    for kind, place in itertools.product(KINDS, range(20)):
        del place
        assert arguments(getattr(one, kind)())[0] == "7"
    assert {arguments(one.stock_level())[1] for _ in range(20)} == {"3"}


def test_think_times_have_the_standards_mean_and_bound() -> None:
    one = user()
    times = [one.wait_s(12.0) for _ in range(20_000)]
    assert np.mean(times) == pytest.approx(12.0, rel=0.03)
    assert max(times) <= 120.0


# population


def rows(table: str, warehouse: int = 1, size: Scale | None = None, seed: int = 1) -> pa.Table:
    return Population(size or Scale(2), seed).rows(table, warehouse)


def column(table: pa.Table, number: int) -> Any:
    return table.column(number).to_numpy(zero_copy_only=False)


@pytest.mark.parametrize("size", [Scale(2), scale.reduced(2)], ids=["standard", "reduced"])
@pytest.mark.parametrize("table", population.TABLES)
def test_the_same_seed_gives_the_same_rows(table: str, size: Scale) -> None:
    first = rows(table, size=size)
    assert first.equals(rows(table, size=size))
    assert table == "new_order" or not first.equals(rows(table, size=size, seed=2))
    assert table == "item" or not first.equals(rows(table, warehouse=2, size=size))


def test_a_table_has_the_columns_of_the_schema() -> None:
    for statement in connections.statements("schema.sql"):
        found = re.match(r"CREATE TABLE (\w+) \(\n(.*)\n\)", statement, re.DOTALL)
        assert found is not None
        names = re.findall(r"^    ([a-z]\w+) ", found[2], re.MULTILINE)
        assert rows(found[1], size=scale.reduced(1)).num_columns == len(names), found[1]


def lengths(values: Any) -> set[int]:
    return set(map(len, values))


@pytest.mark.parametrize(("table", "data"), [("item", 4), ("stock", 16)])
def test_a_tenth_of_items_and_stock_is_original(table: str, data: int) -> None:
    texts = column(rows(table), data)
    assert len(texts) == 100_000
    assert lengths(texts) == set(range(26, 51))
    original = [text for text in texts if "ORIGINAL" in text]
    assert len(original) == 10_000
    places = {text.index("ORIGINAL") for text in original}
    assert 0 in places
    assert max(places) == 42  # at the end of the longest ones, too


def test_items() -> None:
    table = rows("item")
    assert list(column(table, 0)) == list(range(1, 100_001))
    assert {column(table, 1).min(), column(table, 1).max()} == {1, 10_000}
    assert lengths(column(table, 2)) == set(range(14, 25))
    assert (column(table, 3).min(), column(table, 3).max()) == (1.0, 100.0)


def test_stock() -> None:
    table = rows("stock")
    assert (column(table, 2).min(), column(table, 2).max()) == (10, 100)
    assert all(lengths(column(table, at)) == {24} for at in range(3, 13))
    assert not any(column(table, at).any() for at in (13, 14, 15))


def test_customers() -> None:
    table = rows("customer")
    assert table.num_rows == 30_000
    names = column(table, 5).reshape(10, 3000)
    expected = [scale.last_name(number) for number in range(1000)]
    assert all(list(district[:1000]) == expected for district in names)
    drawn = Counter(names[:, 1000:].ravel())
    exact = exact_nurand(255, 0, 999, scale.load_constants(1).last_name)
    often = sorted(exact, key=lambda n: exact[n])
    half = [scale.last_name(n) for n in often[500:]]
    wanted = sum(exact[n] for n in often[500:])
    assert sum(drawn[name] for name in half) / 20_000 == pytest.approx(wanted, abs=0.02)
    assert Counter(column(table, 13)) == {"GC": 27_000, "BC": 3_000}
    assert (column(table, 15).min(), column(table, 15).max()) == (0.0, 0.5)
    assert set(column(table, 16)) == {-10.0}
    assert lengths(column(table, 20)) == set(range(300, 501))
    assert all(re.fullmatch(r"\d{4}11111", text) for text in column(table, 10)[:100])
    assert all(re.fullmatch(r"\d{16}", text) for text in column(table, 11)[:100])


def test_orders() -> None:
    table = rows("orders")
    customers = column(table, 3).reshape(10, 3000)
    for district in customers:
        assert sorted(district) == list(range(1, 3001))
        assert list(district) != list(range(1, 3001))
    number, carrier = column(table, 0), column(table, 5)
    assert all((c == r"\N") == (n > 2100) for n, c in zip(number, carrier, strict=True))
    assert {int(c) for c in carrier if c != r"\N"} == set(range(1, 11))
    assert set(column(table, 6)) == set(range(5, 16))


def test_order_lines_and_new_orders_belong_to_the_orders() -> None:
    orders, lines, new = rows("orders"), rows("order_line"), rows("new_order")
    counted = Counter(zip(column(lines, 1), column(lines, 0), strict=True))
    wanted = zip(column(orders, 1), column(orders, 0), strict=True)
    assert counted == dict(zip(wanted, column(orders, 6), strict=True))
    number, order, amount = column(lines, 3), column(lines, 0), column(lines, 8)
    assert (number[np.r_[True, order[1:] != order[:-1]]] == 1).all()
    assert (amount[order <= 2100] == 0).all()
    late = amount[order > 2100]
    assert late.min() >= 0.01
    assert late.max() <= 9999.99
    assert set(column(lines, 6)[order > 2100]) == {r"\N"}
    assert list(column(new, 0)) == list(range(2101, 3001)) * 10


def test_money_adds_up_at_any_scale() -> None:
    for size in (Scale(1), scale.reduced(1)):
        [ytd] = column(rows("warehouse", size=size), 8)
        assert ytd == column(rows("district", size=size), 9).sum()
        assert ytd == column(rows("history", size=size), 6).sum()


@pytest.mark.parametrize(
    "arguments",
    [{"warehouses": 0}, {"warehouses": 1, "customers": 3010}, {"warehouses": 1, "items": 95}],
)
def test_impossible_scales_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(BadParameter):
        Scale(**arguments)


@pytest.mark.parametrize(
    "options",
    [
        {"connections": 1, "processes": 2},
        {"connections": 0, "processes": 0},
        {"measured_s": 0},
        {"wait_ratio": -1},
        {"mix": (1, 2, 3)},
        {"mix": (0, 0, 0, 0, 0)},
    ],
)
def test_impossible_jobs_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        Job(**{"connections": 2, "processes": 1, "warm_up_s": 0, "measured_s": 1, **options})


def test_every_transaction_has_its_procedure() -> None:
    text = "\n".join(connections.statements("procedures.sql", separator="//"))
    assert re.findall(r"CREATE PROCEDURE tpcc_(\w+)", text) == list(loading.PROCEDURES)
    assert set(loading.PROCEDURES) == set(KINDS)


# processes


def hear(started: list[children.Child], **options: Any) -> list[Any]:
    given: dict[str, Any] = {"is_cancelled": lambda: False, "watch": lambda: None, "limit_s": 60.0}
    return children.hear_all(started, **{**given, **options})


@pytest.mark.parametrize(
    ("errno", "said", "kind"),
    [
        (1114, "The table 'warehouse' is full", DiskFull),
        (3675, "Create table/tablespace 'warehouse' failed, as disk is full", DiskFull),
        (1005, "Can't create table `tpcc`.`item` (errno: 28)", DiskFull),
        (2013, "Lost connection to MySQL server during query", ServerError),
        (1062, "Duplicate entry '1' for key 'PRIMARY'", ServerError),
    ],
)
def test_what_a_server_s_error_means(errno: int, said: str, kind: type[HarnessError]) -> None:
    """In the words of MariaDB 10.11 and MySQL 9."""
    told = connections.told(mysql.connector.Error(msg=said, errno=errno))
    assert type(told) is kind
    assert said in str(told)
    assert ("use a larger one" in str(told)) == (kind is DiskFull)


def test_children_are_told_and_answer() -> None:
    with children.started(tpcc_children.echo, [1, 2]) as started:
        assert hear(started) == ["begun", "begun"]
        for child in started:
            child.tell("go")
        assert hear(started) == [(1, "go"), (2, "go")]


def test_a_childs_error_is_the_parents() -> None:
    with (
        children.started(tpcc_children.fail, ["rows"]) as started,
        pytest.raises(DiskFull, match="no room for rows"),
    ):
        hear(started)


@pytest.mark.parametrize(
    "function", [tpcc_children.die, tpcc_children.fail], ids=["killed", "failed"]
)
def test_one_child_that_ends_does_not_let_the_others_wait(function: Any) -> None:
    with children.started(tpcc_children.sleep, [None]) as sleeping:
        hear(sleeping)
        with (
            children.started(function, [None]) as ending,
            pytest.raises((InvalidRun, DiskFull)),
        ):
            hear(sleeping + ending)


def test_children_can_be_cancelled_watched_and_do_not_last_for_ever() -> None:
    def broken() -> None:
        raise HarnessError("the server is gone")

    cases: list[tuple[dict[str, Any], type[HarnessError], str]] = [
        ({"is_cancelled": lambda: True}, Interrupted, "cancelled"),
        ({"watch": broken}, HarnessError, "the server is gone"),
        ({"limit_s": 0.1}, ServerError, "not answered"),
    ]
    for options, kind, said in cases:
        with children.started(tpcc_children.sleep, [None]) as started:
            [pid] = hear(started)
            with pytest.raises(kind, match=said):
                hear(started, **options)
        assert not Path(f"/proc/{pid}").exists()


def test_children_end_with_their_parent_even_if_that_is_killed() -> None:
    program = (
        "import sys; sys.path[:] = sys.argv[1].split(':')\n"
        "import tpcc_children; from harness.workloads.tpcc import children\n"
        "with children.started(tpcc_children.sleep, [None]) as started:\n"
        "    print(started[0].hear(), flush=True); started[0].hear()\n"
    )
    command = [sys.executable, "-c", program, ":".join(sys.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        fd = os.pidfd_open(pid)
        parent.kill()
    assert select.select([fd], [], [], 30.0)[0]
    os.close(fd)
