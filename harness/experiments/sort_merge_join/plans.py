"""The core's merge plans, done with runs alone: what they read, and how runs lie on tapes.

A plan says which tapes one run each is taken of, and where the result goes. Here this is done with
tapes that hold lengths, so that a plan that takes a run that is not there, or leaves one behind,
is found out.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import count

from harness import _core

Merge = tuple[list[int], int, bool]  # tapes that a run is taken of, tape of the result, the last?


def planned(name: str, order: int, runs: int) -> tuple[list[int], list[Merge]]:
    """The plan `name` (polyphase, balanced): the tape of each initial run, and all merges.

    `order` is how many runs are merged at once, `runs` the number of initial ones.
    Raises BadParameter for a name that is not known, an order below 2, or no run.
    """
    dealt, merges = _core.merge_plan(name, order, runs)
    return dealt, merges


def lengths_read(name: str, order: int, runs: int) -> list[list[int]]:
    """The lengths of the runs that each merge takes, in initial runs, merge by merge.

    The last merge, on the fly, is the last item. Asserts that each merge finds a run on each of its
    tapes, that only the last one is called so, and that nothing is left after it.
    """
    dealt, merges = planned(name, order, runs)
    tapes: dict[int, deque[int]] = {tape: deque() for tape in dealt}
    for tape in dealt:
        tapes[tape].append(1)
    read: list[list[int]] = []
    for inputs, output, last in merges:
        assert last == (len(read) == len(merges) - 1)
        read.append([tapes[tape].popleft() for tape in inputs])
        if not last:
            tapes.setdefault(output, deque()).append(sum(read[-1]))
    assert not any(tapes.values())
    return read


def runs_read(name: str, order: int, runs: int) -> int:
    """Initial runs that all merges of the plan read together, the last one on the fly included."""
    return sum(map(sum, lengths_read(name, order, runs)))


def level_table(order: int, levels: int) -> list[tuple[int, ...]]:
    """How the polyphase plan deals runs onto tapes 0 to `order` - 1, at levels 1 to `levels`.

    A level is a number of runs with which every merge takes a run of each tape: found by trying
    each number, not by the recurrence that the levels follow.
    """
    table: list[tuple[int, ...]] = []
    for runs in count(order):
        if len(table) == levels:
            break
        dealt, merges = planned("polyphase", order, runs)
        if all(len(inputs) == order for inputs, _, _ in merges):
            held = Counter(dealt)
            table.append(tuple(held[tape] for tape in range(order)))
    return table
