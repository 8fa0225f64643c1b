"""A run: many users in several processes, a warm-up, a measured interval, and what came out.

TpmC is the number of New-Order transactions that were completed in the measured interval, those of
clause 2.4.1.4 that are rolled back included, per minute (TPC-C 5.11, clauses 5.1 and 5.4). Response
times are from the call to its result (clause 5.3), retries included.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import BadParameter
from harness.workloads.tpcc import children, client, loading
from harness.workloads.tpcc.client import Log, Times, Users
from harness.workloads.tpcc.connections import Address
from harness.workloads.tpcc.inputs import KINDS, NEW_ORDER, PAYMENT, STANDARD_MIX
from harness.workloads.tpcc.scale import DISTRICTS, run_constants

_CONNECT_LIMIT_S: Final = 60.0
_ANSWER_LIMIT_S: Final = 120.0
"""After the end: as long as two lock waits may take."""

_AHEAD_NS: Final = 50_000_000
_PERCENTILES: Final = (50, 90, 95, 99)
_COUNTS: Final = ("deadlocks", "lock_wait_timeouts", "read_conflicts", "rollbacks")


@dataclass(frozen=True)
class Job:
    """What is to be run. `mix`: cards per kind of transaction, as in inputs.KINDS.

    `part`: of several runs on one database, which; in each the users draw other transactions, of
    the same customers and items (the constants of clause 2.1.6 are the seed's).

    `wait_ratio`: keying and think times, as a ratio of the standard's. With 0 there are none, and
    every transaction is for a warehouse drawn at random: few users then come to all data, which is
    not the standard's. Otherwise users have home warehouses, one after the other. Raises
    BadParameter.
    """

    connections: int
    processes: int
    warm_up_s: float
    measured_s: float
    seed: int = 1
    part: int = 0
    mix: tuple[int, ...] = STANDARD_MIX
    wait_ratio: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.processes <= self.connections:
            raise BadParameter(
                f"processes {self.processes}: 1 to {self.connections}, the number of connections"
            )
        if self.warm_up_s < 0 or self.measured_s <= 0 or self.wait_ratio < 0:
            raise BadParameter("warm_up_s and wait_ratio: 0 or more; measured_s: more than 0")
        if len(self.mix) != len(KINDS) or min(self.mix) < 0 or not any(self.mix):
            raise BadParameter(f"mix {self.mix}: a number for each of {', '.join(KINDS)}")


@dataclass(frozen=True)
class Run:
    """What a run did.

    `metrics` are flat, with their units in their names; those of a kind of transaction that did not
    come up are missing. `new_orders_per_s`: per second since the begin, warm-up included.
    """

    metrics: dict[str, int | float]
    new_orders_per_s: list[int]


def run(
    address: Address,
    job: Job,
    *,
    is_cancelled: Callable[[], bool] = children.never,
    watch: Callable[[], None] = children.nothing,
) -> Run:
    """Runs the transactions on a loaded database.

    `watch` is called some times a second and may raise, such as a server's `check`. Raises
    TargetError if the database is not loaded, Interrupted when cancelled, DiskFull, ServerError if
    the server ends, answers no more, or refuses a transaction for another reason than a deadlock,
    InvalidRun if a client's process ends, and DataCorrupted if rows are missing.
    """
    loading.create_procedures(address)
    arguments = _users(address, job)
    with children.started(client.run, arguments) as clients:
        children.hear_all(clients, is_cancelled=is_cancelled, watch=watch, limit_s=_CONNECT_LIMIT_S)
        times = _times(job)
        for each in clients:
            each.tell(times)
        limit_s = job.warm_up_s + job.measured_s + _ANSWER_LIMIT_S
        heard = children.hear_all(clients, is_cancelled=is_cancelled, watch=watch, limit_s=limit_s)
    return _summary(job, [log for logs in heard for log in logs])


def _users(address: Address, job: Job) -> list[Users]:
    """Who runs in which process."""
    population = loading.population_of(address)
    constants = run_constants(job.seed, population.constants)
    warehouses = population.scale.warehouses

    def home(number: int) -> tuple[int, int] | None:
        at = number % warehouses + 1, number // warehouses % DISTRICTS + 1
        return at if job.wait_ratio else None

    shares = [tuple(range(first, job.connections, job.processes)) for first in range(job.processes)]
    return [
        Users(
            address,
            population.scale,
            constants,
            job.mix,
            job.seed,
            job.part,
            numbers,
            tuple(map(home, numbers)),
            job.wait_ratio,
        )
        for numbers in shares
    ]


def _times(job: Job) -> Times:
    begin_ns = time.monotonic_ns() + _AHEAD_NS
    measured_ns = begin_ns + round(job.warm_up_s * 1e9)
    return Times(begin_ns, measured_ns, measured_ns + round(job.measured_s * 1e9))


def _summary(job: Job, logs: Sequence[Log]) -> Run:
    first_ms, last_ms = job.warm_up_s * 1e3, (job.warm_up_s + job.measured_s) * 1e3
    counts: Counter[str] = sum((log.counts for log in logs), Counter())
    took_us: dict[str, NDArray[np.int64]] = {}
    for kind in KINDS:
        ended_ms = np.concatenate([np.asarray(log.ended_ms[kind], np.int64) for log in logs])
        all_us = np.concatenate([np.asarray(log.took_us[kind], np.int64) for log in logs])
        took_us[kind] = all_us[(ended_ms >= first_ms) & (ended_ms < last_ms)]
        if kind == NEW_ORDER:
            seconds = math.ceil(last_ms / 1000)  # those at whose end nothing was done, too
            per_s = np.bincount(ended_ms[ended_ms < last_ms] // 1000, minlength=seconds)
    transactions = sum(map(len, took_us.values()))
    metrics: dict[str, int | float] = {
        "tpmc": len(took_us[NEW_ORDER]) / job.measured_s * 60,
        "transactions": transactions,
        "measured_s": job.measured_s,
        "warm_up_s": job.warm_up_s,
        "connections": job.connections,
        "processes": job.processes,
        **{name: counts[name] for name in _COUNTS},
        **_shares(counts, len(took_us[NEW_ORDER]), len(took_us[PAYMENT])),
    }
    for kind in KINDS:
        metrics |= _of_kind(kind, took_us[kind], transactions)
    return Run(metrics, [int(count) for count in per_s])


def _shares(counts: Counter[str], new_orders: int, payments: int) -> dict[str, float]:
    """What clauses 2.4.1 and 2.5.1 prescribe."""
    pairs = {
        "rollback_ratio": (counts["rollbacks"], new_orders),
        "order_lines_mean": (counts["order_lines"], new_orders),
        "remote_order_line_ratio": (counts["remote_order_lines"], counts["order_lines"]),
        "remote_payment_ratio": (counts["remote_payments"], payments),
        "payment_by_name_ratio": (counts["payments_by_name"], payments),
    }
    return {name: part / whole for name, (part, whole) in pairs.items() if whole}


def _of_kind(kind: str, took_us: NDArray[np.int64], transactions: int) -> dict[str, int | float]:
    if not len(took_us):
        return {f"{kind}_transactions": 0}
    quantiles = np.percentile(took_us, _PERCENTILES) / 1e3
    return {
        f"{kind}_transactions": len(took_us),
        f"{kind}_ratio": len(took_us) / transactions,
        f"{kind}_mean_ms": float(took_us.mean()) / 1e3,
        **{f"{kind}_p{p}_ms": float(q) for p, q in zip(_PERCENTILES, quantiles, strict=True)},
        f"{kind}_max_ms": float(took_us.max()) / 1e3,
    }
