"""Points of refused machines are spared, and the reason is the same in whatever order they come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.runs.sweeps.needless import Needless

MACHINES = st.lists(
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5, unique=True),
    min_size=1,
    max_size=5,
)


def test_later_points_of_a_refused_machine_are_needless_unless_another_has_them() -> None:
    needless = Needless({0: ["a", "b", "c", "d"], 7: ["x", "c"]})
    assert needless.refuse(["b", "of no machine"]) == {"d"}
    assert [key for key in "abcdx" if key in needless] == ["d"]
    assert needless.refuse(["x"]) == {"c"}
    assert [key for key in "abcdx" if key in needless] == ["c", "d"]
    assert not needless.refuse(["d"])  # was on its way when b was refused
    assert "c" in needless


@given(MACHINES, st.sets(st.sampled_from("abcdefgh")), st.data())
def test_what_is_left_says_of_each_machine_what_all_its_points_would(
    machines: list[list[str]], bad: set[str], data: st.DataObject
) -> None:
    needless = Needless(dict(enumerate(machines)))
    todo = sorted({key for keys in machines for key in keys})
    done = set()
    while waiting := [key for key in todo if key not in done and key not in needless]:
        key = data.draw(st.sampled_from(waiting))
        done.add(key)
        before = {key for key in todo if key in needless}
        spared = needless.refuse({key} & bad)
        assert {key for key in todo if key in needless} == before | spared
    for keys in machines:
        first = next((place for place, key in enumerate(keys) if key in bad), len(keys) - 1)
        assert set(keys[: first + 1]) <= done
