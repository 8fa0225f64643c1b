"""The core's merge plans against the slow reference, for every tape count and run count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import merges as reference

from harness.errors import BadParameter
from harness.experiments.sort_merge_join.plans import lengths_read, level_table, planned, runs_read

POLYPHASE_ORDERS = range(2, 20)  # 3 to 20 tapes
BALANCED_ORDERS = range(2, 21)
MOST_RUNS = 2000


def compare(name: str, order: int, runs: int) -> None:
    """Merge by merge: where each run lies, which are taken, how long they are, where they go."""
    is_polyphase = name == "polyphase"
    make = reference.polyphase if is_polyphase else reference.balanced
    expected = make(order + 1 if is_polyphase else order, runs)
    dealt, merges = planned(name, order, runs)
    assert tuple(dealt) == expected.dealt
    assert runs_read(name, order, runs) == expected.runs_read
    lengths = [[len(run) for _, run in merge.inputs] for merge in expected.merges]
    assert lengths_read(name, order, runs) == lengths
    for (inputs, output, last), wanted in zip(merges, expected.merges, strict=True):
        assert last == (wanted.target is None)
        # The reference's balanced merge does not tell a pass's inputs from its outputs.
        tapes = [*inputs, output] if is_polyphase else [tape % order for tape in [*inputs, output]]
        assert tapes[:-1] == [tape for tape, _ in wanted.inputs]
        assert last or tapes[-1] == wanted.target


any_runs = st.integers(1, MOST_RUNS)


@pytest.mark.parametrize("order", POLYPHASE_ORDERS)
def test_polyphase_with_few_runs(order: int) -> None:
    for runs in range(1, 121):
        compare("polyphase", order, runs)


@pytest.mark.parametrize("order", BALANCED_ORDERS)
def test_balanced_with_few_runs(order: int) -> None:
    for runs in range(1, 121):
        compare("balanced", order, runs)


@given(st.sampled_from(POLYPHASE_ORDERS), any_runs)
def test_polyphase_with_any_number_of_runs(order: int, runs: int) -> None:
    compare("polyphase", order, runs)


@given(st.sampled_from(BALANCED_ORDERS), any_runs)
def test_balanced_with_any_number_of_runs(order: int, runs: int) -> None:
    compare("balanced", order, runs)


@pytest.mark.slow
@pytest.mark.parametrize("order", POLYPHASE_ORDERS)
def test_polyphase_with_every_number_of_runs(order: int) -> None:
    for runs in range(1, MOST_RUNS + 1):
        compare("polyphase", order, runs)


@pytest.mark.slow
@pytest.mark.parametrize("order", BALANCED_ORDERS)
def test_balanced_with_every_number_of_runs(order: int) -> None:
    for runs in range(1, MOST_RUNS + 1):
        compare("balanced", order, runs)


@pytest.mark.parametrize("order", POLYPHASE_ORDERS)
def test_the_level_table_is_the_papers(order: int) -> None:
    levels = sum(sum(level) <= MOST_RUNS for level in reference.level_table(order + 1, 30))
    assert levels >= 2
    assert level_table(order, levels) == reference.level_table(order + 1, levels)


@pytest.mark.parametrize(
    ("name", "order", "runs"), [("cascade", 4, 4), ("polyphase", 1, 4), ("balanced", 4, 0)]
)
def test_what_is_no_plan_is_refused(name: str, order: int, runs: int) -> None:
    with pytest.raises(BadParameter):
        planned(name, order, runs)
