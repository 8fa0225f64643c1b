"""Claims that no wrong result within reason could change are found, and what the others read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.experiments.base import Results
from harness.paths import Project
from harness.runs import claims, mutations

HEAD = """
grace_hash_join:
  title: t
  reference: r
  relation: |
    SELECT * FROM results
    WHERE variant = $variant AND ($repetition IS NULL OR repetition = $repetition)
  claims:
"""

CLAIMS = (
    HEAD
    + """\
    - {id: level, place: p, statement: s, published: about 10, why: w, expected: [8, 12],
       metric: SELECT avg(elapsed_s) FROM r}
    - {id: anything, place: p, statement: s, published: more, why: w, expected: [1.01, 1000],
       metric: SELECT avg(elapsed_s) FROM r}
    - {id: ratio, place: p, statement: s, published: "2", why: w, expected: [1.8, 2.2],
       metric: "SELECT avg(elapsed_s) FILTER (device = 'hdd') /
       avg(elapsed_s) FILTER (device = 'ssd') FROM r"}
    - {id: other, place: p, statement: s, published: "3", why: w, expected: [2, 4], fitted: true,
       metric: SELECT avg(read_bytes) FROM r}
    - {id: never, place: p, statement: s, published: none, why: w, expected: [0, 0],
       metric: SELECT max(lost_blocks) FROM r}
    - {id: late, place: p, statement: s, published: none, why: w, expected: [0, 1],
       metric: SELECT avg(nominal_read_buffer_bytes) FROM r}
"""
)


def can_fail(folder: Path, text: str, results: Results) -> pd.DataFrame:
    published = folder / "data" / "published"
    published.mkdir(parents=True)
    (published / "claims.yaml").write_text(text)
    return mutations.can_fail(Project(folder), "grace_hash_join", results).set_index("id")


@pytest.fixture
def judged(tmp_path: Path) -> pd.DataFrame:
    rows = [
        {"point": f"{device}{i}", "device": device, "variant": "paper", "repetition": i}
        | {"nominal_read_buffer_bytes": 1, "elapsed_s": time_s, "read_bytes": 3}
        | {"lost_blocks": 0}
        for device, time_s in (("hdd", 13.0), ("ssd", 6.5))
        for i in range(2)
    ]
    return can_fail(tmp_path, CLAIMS, Results("simulated", pd.DataFrame(rows), {}, lambda _: None))


def test_what_no_change_can_change_is_found(judged: pd.DataFrame) -> None:
    assert judged.changes["anything"] == ""
    assert judged.changes["level"] == "elapsed_s x 0.5"


def test_what_is_wrong_everywhere_leaves_a_ratio_as_it_is(judged: pd.DataFrame) -> None:
    assert judged.changes["ratio"] == "elapsed_s x 0.5 where device = hdd"


def test_a_claim_is_changed_by_what_it_reads_and_nothing_else(judged: pd.DataFrame) -> None:
    assert judged.reads.to_dict() == {
        "level": ["elapsed_s"],
        "anything": ["elapsed_s"],
        "ratio": ["elapsed_s"],
        "other": ["read_bytes"],
        "never": ["lost_blocks"],
        "late": [],  # of the points' own parameters
    }


def test_a_fitted_claim_counts_nowhere_though_it_could_fail(judged: pd.DataFrame) -> None:
    assert judged.verdict["other"] == claims.FITTED
    assert judged.changes["other"] == "read_bytes x 0.5"
    assert not judged.counts["other"]
    assert judged.counts["level"]


def test_what_was_never_met_could_have_been_met(judged: pd.DataFrame) -> None:
    assert judged.changes["never"] == "lost_blocks 1 for 0"


@pytest.mark.parametrize(
    ("number", "wrong"), [(None, range(9)), (0, range(2)), (-1, range(7, 9))], ids=str
)
def test_the_end_of_a_series_is_its_last_quarter(number: int | None, wrong: range) -> None:
    """A single entry would leave a claim about means as it is."""
    table = pd.DataFrame([{"point": "a"}])
    results = Results("simulated", table, {"a": {"waf": [1.0] * 9}}, lambda _: None)
    changed = mutations.Mutation("waf", {}, 0.5, number).of(results).series["a"]["waf"]
    assert [i for i, value in enumerate(changed) if value == 0.5] == list(wrong)


GAINS = (
    HEAD
    + """\
    - {id: as-much-on-both, place: p, statement: s, published: x, why: w, expected: [0, 4],
       metric: "WITH gains AS (
       SELECT device, avg(elapsed_s) FILTER (algorithm = 'grace')
       - avg(elapsed_s) FILTER (algorithm = 'hybrid') AS gain_s FROM r GROUP BY device)
       SELECT max(gain_s) - min(gain_s) FROM gains"}
"""
)


def joins(ssd_hybrid_s: float) -> Results:
    """Two algorithms on two devices, twice each."""
    times_s = {("hdd", "grace"): 10.0, ("hdd", "hybrid"): 8.0}
    times_s |= {("ssd", "grace"): 8.0, ("ssd", "hybrid"): ssd_hybrid_s}
    rows = [
        {"point": f"{device}-{algorithm}-{i}", "device": device, "algorithm": algorithm}
        | {"variant": "paper", "repetition": i, "elapsed_s": time_s}
        for (device, algorithm), time_s in times_s.items()
        for i in range(2)
    ]
    return Results("simulated", pd.DataFrame(rows), {}, lambda _: None)


def test_what_no_part_of_the_grid_changes_two_parts_may(tmp_path: Path) -> None:
    """A device or an algorithm that is wrong by half leaves gains within 1.5 s of each other."""
    [found] = can_fail(tmp_path, GAINS, joins(ssd_hybrid_s=6.5)).itertuples()
    assert found.verdict == claims.REPRODUCED
    assert found.changes == "elapsed_s x 0.5 where device = hdd, algorithm = grace"


DOUBLE = (
    HEAD
    + """\
    - {id: as-much-on-both, place: p, statement: s, published: x, why: w, expected: [0.9, 1.2],
       metric: "WITH gains AS (
       SELECT device, avg(elapsed_s) FILTER (algorithm = 'hybrid')
       / avg(elapsed_s) FILTER (algorithm = 'grace') AS gain FROM r GROUP BY device)
       SELECT max(gain) FILTER (device = 'hdd') / max(gain) FILTER (device = 'ssd') FROM gains"}
"""
)


def test_where_a_wrong_part_cancels_out_two_are_tried_all_the_same(tmp_path: Path) -> None:
    """Neither device nor algorithm changes the value by itself, to the last bit."""
    [found] = can_fail(tmp_path, DOUBLE, joins(ssd_hybrid_s=6.0)).itertuples()
    assert found.verdict == claims.REPRODUCED
    assert found.changes == "elapsed_s x 0.5 where device = hdd, algorithm = grace"


SERIES = """
grace_hash_join:
  title: t
  reference: r
  relation: |
    SELECT * FROM samples JOIN results USING (point)
    WHERE variant = $variant AND ($repetition IS NULL OR repetition = $repetition)
  claims:
    - {id: flat-at-the-end, place: p, statement: s, published: "1", why: w, expected: [0.9, 1.1],
       metric: SELECT avg(waf_ratio) FILTER (number >= 6)
       / avg(waf_ratio) FILTER (number BETWEEN 2 AND 5) FROM r}
    - {id: anything, place: p, statement: s, published: more, why: w, expected: [0, 1000],
       metric: SELECT max(waf_ratio) FROM r}
"""


def test_two_parts_are_tried_once_where_they_have_something_in_common() -> None:
    rows = [
        {"point": f"{device}{users}", "device": device, "variant": "paper", "users": users}
        | {"port": f"{device}'s", "elapsed_s": 1.0}
        for device, users in (("hdd", 1), ("hdd", 2), ("ssd", 1))
    ]
    results = Results("simulated", pd.DataFrame(rows), {}, lambda _: None)
    devices = [{"device": "hdd"}, {"device": "ssd"}]
    parts: list[dict[str, Any]] = [*devices, {"users": 1}, {"users": 2}, {"port": "hdd's"}]
    tried = [m.part for m in mutations._of_pairs(parts, results, {"elapsed_s"})]
    # Not ssd and 2, of which there is nothing; nor what is a part by itself, or one of these again.
    assert {tuple(part.items()) for part in tried} == {(("device", "hdd"), ("users", 1))}


def test_what_only_the_end_of_a_series_changes_is_found(tmp_path: Path) -> None:
    """Its last two samples of eight, beside the four in the middle; no other series is read."""
    rows = [
        {"point": f"{i}", "device": "ssd", "variant": "paper", "repetition": i, "elapsed_s": 3.0}
        for i in range(2)
    ]
    one = {
        "waf_time_s": [*range(1, 9)],
        "waf_ratio": [3.0, *[2.0] * 7],
        "waf_written_bytes": [7] * 8,
    }
    results = Results("simulated", pd.DataFrame(rows), {"0": one, "1": one}, lambda _: None)
    found = can_fail(tmp_path, SERIES, results)
    assert set(found.verdict) == {claims.REPRODUCED}
    assert found.changes.to_dict() == {
        "flat-at-the-end": "waf_ratio x 0.5 at the end",
        "anything": "",
    }
    assert found.reads.to_dict() == {"flat-at-the-end": ["waf_ratio"], "anything": ["waf_ratio"]}
