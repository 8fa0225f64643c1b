"""Claims on how far curves are apart: a sweep has machines on which they lie on each other."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pytest
from conftest import REPOSITORY

from harness.paths import Project
from harness.runs import claims

CLAIMS = {claim.id: claim for claim in claims.load(Project(REPOSITORY))["msdj_tpcc"].claims}
GROWS = {
    "mj-figure3-oj-grows": ("oj_dwb", "small"),
    "mj-figure4-dj-grows": ("dj", "large"),
    "mj-section4-dj-grows": ("dj", "small"),
}
SHRINKS = "mj-section5-dj-shrinks"


def curve(mode: str, journal: str, waf: list[float], begin: int = 0) -> pd.DataFrame:
    """Of 10 moments, without those before `begin`."""
    number = np.arange(10)
    table = pd.DataFrame({"number": number, "time_s": number + 1.0, "waf_so_far": waf})
    facts = {"mode": mode, "journal": journal, "measured_s": 10.0, "has_written": True}
    return table.assign(**facts)[begin:]


def value(claim: str, distance: list[float], begin: int = 0) -> float | None:
    """What the claim's metric says of two curves that are so far apart."""
    other, journal = GROWS.get(claim, ("dj", "small"))
    above = [1.5 + each for each in distance]
    r = pd.concat([curve("msdj", journal, [1.5] * 10, begin), curve(other, journal, above, begin)])
    with duckdb.connect() as database:
        database.register("r", r)
        [[found]] = database.execute(CLAIMS[claim].metric).fetchall()
    return None if found is None else float(found)


@pytest.mark.parametrize("claim", sorted(GROWS))
def test_what_grows_from_nothing_has_to_become_a_distance(claim: str) -> None:
    assert value(claim, [0.05] * 5 + [0.1] * 5) == pytest.approx(2)
    for before in (0.0, 1e-5, -1e-5, 0.004):
        assert value(claim, [before] * 5 + [0.009] * 5) == pytest.approx(0.9)
        assert value(claim, [before] * 5 + [0.02] * 5) == pytest.approx(2)
    assert value(claim, [-0.05] * 5 + [0.1] * 5) == pytest.approx(2)
    assert value(claim, [0.1] * 10, begin=7) is None  # nothing is known of half time


def test_curves_that_never_were_apart_do_not_approach_each_other() -> None:
    def holds(distance: list[float]) -> bool:
        low, high = CLAIMS[SHRINKS].expected
        found = value(SHRINKS, distance)
        assert found is not None
        return low <= found <= high

    assert holds([0.1] * 5 + [0.05] * 5)
    assert not holds([0.05] * 5 + [0.1] * 5)
    assert not holds([0.008] * 5 + [0.001] * 5)
    assert not holds([-0.1] * 10)
