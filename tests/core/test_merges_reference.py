"""The references of the merge plans do what Knuth and the paper say."""

from __future__ import annotations

import heapq
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.merges import Merge, Plan, balanced, level_table, polyphase

PLANS = {"polyphase": lambda order, runs: polyphase(order + 1, runs), "balanced": balanced}

any_plan = st.sampled_from(sorted(PLANS))
any_order = st.integers(2, 19)
any_runs = st.integers(1, 2000)


def fewest_runs_read(order: int, runs: int) -> int:
    """What no merging of `order` runs at a time can go below (Huffman)."""
    filler = -(runs - 1) % (order - 1) if runs > 1 else 0
    waiting = [0] * filler + [1] * runs
    heapq.heapify(waiting)
    read = 0 if runs > 1 else 1
    while len(waiting) > 1:
        merged = sum(heapq.heappop(waiting) for _ in range(order))
        read += merged
        heapq.heappush(waiting, merged)
    return read


def replay(plan: Plan) -> list[Merge]:
    """Does the plan with runs alone, each on its tape, and fails where one is not the next."""
    tapes: dict[int, list[tuple[int, ...]]] = {}
    for number, tape in enumerate(plan.dealt):
        tapes.setdefault(tape, []).append((number,))
    for merge in plan.merges:
        for tape, run in merge.inputs:
            assert tapes[tape].pop(0) == run
        if merge.target is not None:
            tapes.setdefault(merge.target, []).append(merge.result)
    assert not any(tapes.values())
    return list(plan.merges)


# Knuth, volume 3, section 5.4.2: 21, 13 runs on two tapes and so on; here one step smaller.
def test_three_tapes_and_a_fibonacci_number_of_runs() -> None:
    plan = polyphase(3, 13)
    assert plan.levels == ((1, 1), (2, 1), (3, 2), (5, 3), (8, 5))
    assert plan.dummies == (0, 0)
    sizes = [[len(run) for _, run in merge.inputs] for merge in plan.merges]
    assert sizes == [[1, 1]] * 5 + [[1, 2]] * 3 + [[3, 2]] * 2 + [[5, 3]] + [[5, 8]]
    assert [merge.target for merge in plan.merges] == [2] * 5 + [1] * 3 + [0] * 2 + [2, None]
    assert plan.intermediate_runs_read == 5 * 2 + 3 * 3 + 2 * 5 + 8
    assert plan.runs_read == 37 + 13


def test_three_tapes_with_dummies() -> None:
    """6 runs want level 4 (5, 3): 2 dummies, which meet each other or shorten a merge."""
    plan = polyphase(3, 6)
    assert plan.dealt == (0, 1, 0, 0, 1, 0)
    assert plan.dummies == (1, 1)
    assert [merge.inputs for merge in plan.merges] == [
        ((0, (0,)), (1, (1,))),
        ((0, (2,)), (1, (4,))),
        ((0, (3,)),),
        ((0, (5,)), (2, (0, 1))),
        ((1, (3,)), (2, (2, 4))),
        ((0, (2, 3, 4)), (1, (0, 1, 5))),
    ]


def test_one_run_more_than_the_tapes_can_hold_costs_one_merge_of_two() -> None:
    plan = polyphase(15, 15)
    assert plan.dummies == (0, *[1] * 12, 0)
    first, last = plan.merges
    assert [tape for tape, _ in first.inputs] == [0, 13]
    assert (plan.intermediate_runs_read, last.runs_read) == (2, 15)


def test_six_tapes_as_in_knuths_table() -> None:
    """Table 1 of section 5.4.2."""
    assert level_table(6, 6) == [
        (1, 1, 1, 1, 1),
        (2, 2, 2, 2, 1),
        (4, 4, 4, 3, 2),
        (8, 8, 7, 6, 4),
        (16, 15, 14, 12, 8),
        (31, 30, 28, 24, 16),
    ]


def test_balanced_by_hand() -> None:
    plan = balanced(3, 10)
    assert plan.dealt == (0, 1, 2, 0, 1, 2, 0, 1, 2, 0)
    assert plan.levels == ((1, 1), (2, 1, 1), (4, 3, 3))
    assert [merge.result for merge in plan.merges] == [
        (0, 1, 2),
        (3, 4, 5),
        (6, 7, 8),
        (9,),
        (0, 1, 2, 3, 4, 5, 6, 7, 8),
        (9,),
        (0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    ]
    assert [merge.target for merge in plan.merges] == [0, 1, 2, 0, 0, 1, None]
    assert (plan.intermediate_runs_read, plan.runs_read) == (20, 30)


# Each run is read "a ln S + b" times, the pass that makes the initial runs included (Knuth, volume
# 3, table 5.4.2-1; S runs, a perfect distribution).
@pytest.mark.parametrize(
    ("tapes", "a", "b"),
    [(3, 1.504, 0.992), (4, 1.015, 0.965), (5, 0.863, 0.921), (6, 0.795, 0.864), (8, 0.744, 0.723)],
)
def test_passes_as_knuth_has_them(tapes: int, a: float, b: float) -> None:
    runs = max(sum(level) for level in level_table(tapes, 20) if sum(level) <= 20_000)
    passes = 1 + polyphase(tapes, runs).runs_read / runs
    assert passes == pytest.approx(a * math.log(runs) + b, rel=0.005)


@given(any_plan, any_order, any_runs)
def test_a_plan_can_be_done_and_loses_no_run(name: str, order: int, runs: int) -> None:
    plan = PLANS[name](order, runs)
    *others, last = replay(plan)
    assert len(plan.dealt) == runs
    assert last.target is None
    assert last.result == tuple(range(runs))
    assert all(merge.target is not None for merge in others)
    assert plan.runs_read == plan.intermediate_runs_read + runs


@given(any_plan, any_order, any_runs)
def test_no_plan_beats_the_best_one(name: str, order: int, runs: int) -> None:
    assert PLANS[name](order, runs).runs_read >= fewest_runs_read(order, runs)


@given(any_plan, any_order, st.data())
def test_as_many_runs_as_tapes_need_no_merge_before_the_last(
    name: str, order: int, data: st.DataObject
) -> None:
    plan = PLANS[name](order, data.draw(st.integers(1, order)))
    assert len(plan.merges) == 1
    assert plan.intermediate_runs_read == 0


@given(st.integers(3, 20), any_runs)
def test_the_level_table_is_the_papers(tapes: int, runs: int) -> None:
    plan = polyphase(tapes, runs)
    assert list(plan.levels) == level_table(tapes, len(plan.levels))
    room = [sum(level) for level in plan.levels]
    assert runs <= room[-1]
    assert len(room) == 1 or runs > room[-2]


@given(st.integers(3, 20), st.data())
def test_a_perfect_distribution_needs_no_dummies(tapes: int, data: st.DataObject) -> None:
    level = data.draw(st.sampled_from([t for t in level_table(tapes, 15) if sum(t) <= 2000]))
    plan = polyphase(tapes, sum(level))
    held = Counter(plan.dealt)
    assert tuple(held[tape] for tape in range(tapes - 1)) == level
    assert not any(plan.dummies)
    assert not any(merge.dummies for merge in plan.merges)


@given(st.integers(3, 20), any_runs)
def test_dummies_fill_the_last_level_evenly(tapes: int, runs: int) -> None:
    """Every tape gets its share of the level; none is short by two while another misses none."""
    plan = polyphase(tapes, runs)
    held = Counter(plan.dealt)
    for tape, need in enumerate(plan.levels[-1]):
        assert held[tape] + plan.dummies[tape] == need
    before = plan.levels[-2] if len(plan.levels) > 1 else (0,) * (tapes - 1)
    misses = [need - had for need, had in zip(plan.levels[-1], before, strict=True)]
    worst = max(plan.dummies)
    assert all(
        worst - left <= 1 or left == missed
        for left, missed in zip(plan.dummies, misses, strict=True)
    )


@given(st.integers(3, 20), any_runs)
def test_a_polyphase_merge_takes_one_run_or_dummy_of_every_tape_but_the_target(
    tapes: int, runs: int
) -> None:
    for merge in polyphase(tapes, runs).merges:
        taken = [tape for tape, _ in merge.inputs] + list(merge.dummies)
        assert len(set(taken)) == len(taken) == tapes - 1
        assert merge.inputs
        assert merge.target not in taken


@given(any_order, any_runs)
def test_a_balanced_merge_takes_one_run_of_every_tape_that_has_one(order: int, runs: int) -> None:
    plan = balanced(order, runs)
    merges = iter(plan.merges)
    for level in reversed(plan.levels):
        left = list(level)
        while any(left):
            tapes = [tape for tape, held in enumerate(left) if held]
            assert [tape for tape, _ in next(merges).inputs] == tapes
            left = [max(0, held - 1) for held in left]
    assert next(merges, None) is None


@given(any_order, any_runs)
def test_every_pass_of_a_balanced_merge_reads_everything(order: int, runs: int) -> None:
    passes = 1
    while order**passes < runs:
        passes += 1
    plan = balanced(order, runs)
    assert plan.runs_read == passes * runs
    assert len(plan.levels) == passes
