"""What an emulated user of TPC-C waits for, and how long: without a server, on a clock of ours."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import mysql.connector
import numpy as np
import pytest

from harness.workloads.tpcc import client
from harness.workloads.tpcc.client import Log, Times, Users
from harness.workloads.tpcc.inputs import KINDS, STANDARD_MIX, Call
from harness.workloads.tpcc.scale import NurandConstants, reduced

S = 10**9
STANDARD_S = {
    "new_order": (18, 12),
    "payment": (3, 12),
    "order_status": (2, 10),
    "delivery": (2, 5),
    "stock_level": (2, 5),
}
"""Keying time and mean think time (TPC-C 5.11, clause 5.2.5.7)."""
TIMES = Times(begin_ns=105 * S, measured_from_ns=105 * S, end_ns=10**9 * S)
"""It is 100 s when a session is made, and there is time for everything."""


class Clock:
    """The time, and an event for which one only waits; it is set after so many transactions."""

    def __init__(self, transactions: int) -> None:
        self.now_ns = 100 * S
        self.happened: list[float | str] = []
        self._transactions = transactions

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wait(self, time_s: float) -> None:
        self.happened.append(time_s)
        self.now_ns += round(time_s * S)

    def is_set(self) -> bool:
        return sum(isinstance(each, str) for each in self.happened) == self._transactions

    def set(self) -> None:
        """Nobody else is told."""


def happened(
    monkeypatch: pytest.MonkeyPatch,
    transactions: int,
    *,
    mix: tuple[int, ...] = STANDARD_MIX,
    wait_ratio: float = 1.0,
    times: Times = TIMES,
) -> list[float | str]:
    """Waits in seconds and kinds of transactions, which take no time, in their order."""
    clock = Clock(transactions)

    def measure(_: client._Session, call: Call, times: Times, log: Log) -> None:
        del times, log
        clock.happened.append(call.kind)

    cursor = SimpleNamespace(execute=lambda *_: None, fetchall=list)
    connection = SimpleNamespace(cursor=lambda **_: cursor, close=lambda: None)
    monkeypatch.setattr(mysql.connector, "connect", lambda **_: connection)
    monkeypatch.setattr(client, "time", clock)
    monkeypatch.setattr(client._Session, "_measure", measure)
    constants = NurandConstants(last_name=123, customer=77, item=4321)
    users = Users({}, reduced(2), constants, mix, 1, 0, (0,), ((1, 1),), wait_ratio)
    stop: Any = clock
    client._Session(users, 0, stop).run(times)
    return clock.happened


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_keys_in_before_a_transaction_and_thinks_after_it(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mix = tuple(int(each == kind) for each in KINDS)
    begin, *rest = happened(monkeypatch, 2000, mix=mix)
    keying, kinds, thinking = (rest[first::3] for first in range(3))
    keying_s, thinking_s = STANDARD_S[kind]
    assert begin == 5
    assert set(keying) == {keying_s}
    assert kinds == [kind] * 2000
    times_s = np.array(thinking, float)
    assert len(times_s) == 2000
    assert times_s.mean() == pytest.approx(thinking_s, rel=0.05)
    assert (times_s > thinking_s).mean() == pytest.approx(math.exp(-1), abs=0.03)
    assert times_s.max() <= 10 * thinking_s


def test_every_transaction_of_the_mix_has_its_own_times(monkeypatch: pytest.MonkeyPatch) -> None:
    _, *rest = happened(monkeypatch, 200)
    kinds = [str(kind) for kind in rest[1::3]]
    assert set(kinds) == set(KINDS)
    assert rest[::3] == [STANDARD_S[kind][0] for kind in kinds]


def test_waits_are_a_part_of_the_standard_s(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, half = (happened(monkeypatch, 50, wait_ratio=ratio)[1:] for ratio in (1.0, 0.5))
    assert half[1::3] == whole[1::3]
    for first in (0, 2):
        assert [2 * float(each) for each in half[first::3]] == whole[first::3]


def test_without_waits_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, *rest = happened(monkeypatch, 50, wait_ratio=0.0)
    assert begin == 5
    assert all(isinstance(each, str) for each in rest)
    assert len(rest) == 50


@pytest.mark.parametrize(
    ("runs_s", "waits_s"),
    [
        (17, [5, 17, 0]),  # he has keyed in as much as there was time for
        (18, [5, 18, 0]),
        (18.125, [5, 18, 0.125]),  # and thinks no longer
    ],
)
def test_nobody_waits_beyond_the_end(
    monkeypatch: pytest.MonkeyPatch, runs_s: float, waits_s: list[float]
) -> None:
    times = Times(TIMES.begin_ns, TIMES.begin_ns, TIMES.begin_ns + round(runs_s * S))
    found = happened(monkeypatch, 2, mix=(1, 0, 0, 0, 0), times=times)
    assert found == [*waits_s[:2], "new_order", waits_s[2]]
