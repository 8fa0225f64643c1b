"""Which runs an external sort merges with which: slow, exact, and obvious.

The oracle of the engine's merge plans. Tapes are lists, a run is the tuple of the initial runs that
it has swallowed, a dummy run is None, and nothing is counted that is not first done. Where Knuth's
Algorithm D keeps counters and renames tapes, this reference looks:

- how many runs a level needs is found backwards, by undoing merges from the last one;
- initial runs are dealt in layers, the tapes that miss most first;
- the target is the tape that is empty.

Knuth, The Art of Computer Programming, volume 3, section 5.4.2 (polyphase merge).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

Run = tuple[int, ...]  # numbers of the initial runs in it, ascending
Tape = list[Run | None]  # the next to be read first; None is a dummy


@dataclass(frozen=True)
class Merge:
    """One merge: at most one run of each tape becomes one run.

    `inputs` holds (tape, run), by tape; `dummies` the tapes of which only a dummy was taken.
    `target` is the tape that is written, None if the result goes to the reader instead.
    """

    inputs: tuple[tuple[int, Run], ...]
    dummies: tuple[int, ...]
    target: int | None

    @property
    def result(self) -> Run:
        return tuple(sorted(number for _, run in self.inputs for number in run))

    @property
    def runs_read(self) -> int:
        """What is read, in initial runs."""
        return sum(len(run) for _, run in self.inputs)


@dataclass(frozen=True)
class Plan:
    """A whole sort after its initial runs.

    `dealt` is the tape of each initial run, `dummies` how many of them each tape starts with.
    `levels` is how many runs, dummies included, every tape has before each phase (a polyphase
    level, a pass of the balanced merge), the last phase first, so that row 0 is all ones.
    Polyphase rows are in the paper's order, the fullest tape first, without the empty one.
    Merges of dummies alone cost nothing and are not listed.
    """

    dealt: tuple[int, ...]
    dummies: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...]
    merges: tuple[Merge, ...]

    @property
    def runs_read(self) -> int:
        """Initial runs read in all merges, the last one on the fly included."""
        return sum(merge.runs_read for merge in self.merges)

    @property
    def intermediate_runs_read(self) -> int:
        """The same without the last merge: what is written back to a tape."""
        return sum(merge.runs_read for merge in self.merges if merge.target is not None)


def level_table(tapes: int, levels: int) -> list[tuple[int, ...]]:
    """Runs per sort tape at levels 1 to `levels`, straight from the paper's recurrence.

    T_i(1) = 1; T_n(t) = T_1(t-1); T_i(t) = T_1(t-1) + T_(i+1)(t-1) for i < n = tapes - 1.
    """
    n = tapes - 1
    table = [(1,) * n]
    while len(table) < levels:
        first, *rest = table[-1]
        table.append((*(first + runs for runs in rest), first))
    return table


def polyphase(tapes: int, runs: int) -> Plan:
    """The polyphase merge of `runs` initial runs on `tapes` tapes, one of them the empty target."""
    assert tapes >= 3
    assert runs >= 1
    levels = _levels_up_to(tapes, runs)
    dealt = _deal_in_layers(levels, runs)
    dummies = tuple(need - dealt.count(tape) for tape, need in enumerate(levels[-1]))
    content: list[Tape] = [
        [*[None] * dummies[tape], *[(run,) for run, at in enumerate(dealt) if at == tape]]
        for tape in range(tapes - 1)
    ]
    return Plan(dealt, dummies, tuple(levels), tuple(_polyphase_merges([*content, []])))


def balanced(order: int, runs: int) -> Plan:
    """PostgreSQL 15's balanced merge: up to `order` tapes are read, and as many written.

    Runs are dealt in turn, and a merge takes one run of each tape; so it takes the next `order`
    runs in the order in which they were written.
    """
    assert order >= 2
    assert runs >= 1
    rows: list[tuple[int, ...]] = []
    merges: list[Merge] = []
    waiting: list[Run] = [(run,) for run in range(runs)]
    while True:
        rows.append(_dealt_in_turn(len(waiting), order))
        last = len(waiting) <= order
        groups = [waiting[i : i + order] for i in range(0, len(waiting), order)]
        passed = [
            Merge(tuple(enumerate(group)), (), None if last else number % order)
            for number, group in enumerate(groups)
        ]
        merges += passed
        if last:
            break
        waiting = [merge.result for merge in passed]
    dealt = tuple(run % order for run in range(runs))
    return Plan(dealt, (0,) * len(rows[0]), tuple(reversed(rows)), tuple(merges))


def _dealt_in_turn(runs: int, order: int) -> tuple[int, ...]:
    return tuple(len(range(tape, runs, order)) for tape in range(min(runs, order)))


def _levels_up_to(tapes: int, runs: int) -> list[tuple[int, ...]]:
    """Level 1, 2, ... to the first one that has room for all runs."""
    levels: list[tuple[int, ...]] = []
    for level in _levels_backwards(tapes):
        levels.append(level)
        if sum(level) >= runs:
            break
    return levels


def _levels_backwards(tapes: int) -> Iterator[tuple[int, ...]]:
    """Undoes one phase after the other, beginning before the last merge.

    The fullest tape is the one that the phase before has written: each of its runs came from one
    run of every other tape. Undone, it is empty and all others have as many more.
    """
    holding = [1] * (tapes - 1) + [0]
    while True:
        yield tuple(sorted(filter(None, holding), reverse=True))
        fullest = holding.index(max(holding))
        written = holding[fullest]
        holding = [held + written for held in holding]
        holding[fullest] = 0


def _deal_in_layers(levels: Sequence[tuple[int, ...]], runs: int) -> tuple[int, ...]:
    """Level by level; within one, the tapes that miss the most get a run first, in their order.

    This is Knuth's horizontal distribution: it leaves dummies spread as evenly as can be.
    """
    dealt: list[int] = []
    has = (0,) * len(levels[0])
    for level in levels:
        missing = [need - held for need, held in zip(level, has, strict=True)]
        for layer in range(max(missing), 0, -1):
            dealt += [tape for tape, misses in enumerate(missing) if misses >= layer]
        has = level
    return tuple(dealt[:runs])


def _polyphase_merges(tapes: list[Tape]) -> Iterator[Merge]:
    """Merges onto the empty tape until another one is empty, then onto that one."""
    for target in _targets(tapes):
        sources = [tape for tape in range(len(tapes)) if tape != target]
        last = all(len(tapes[tape]) == 1 for tape in sources)
        while all(tapes[tape] for tape in sources):
            taken = [(tape, tapes[tape].pop(0)) for tape in sources]
            inputs = tuple((tape, run) for tape, run in taken if run is not None)
            dummies = tuple(tape for tape, run in taken if run is None)
            merge = Merge(inputs, dummies, None if last else target)
            if inputs:
                yield merge
            tapes[target].append(merge.result if inputs else None)
        if last:
            return


def _targets(tapes: list[Tape]) -> Iterator[int]:
    """The tape that is empty, each time that it is asked for."""
    for _ in count():
        (empty,) = (number for number, tape in enumerate(tapes) if not tape)
        yield empty
