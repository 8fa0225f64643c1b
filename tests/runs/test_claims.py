"""Claims: verdicts, and claims files that are refused."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from claims_world import PAPER, project_of, results

from harness.errors import BadClaim
from harness.experiments.base import Results
from harness.paths import Project
from harness.runs import claims

CLAIMS = (
    PAPER
    + """\
    - {id: a, place: p, statement: s, metric: SELECT avg(x) FROM r, published: about 10,
       expected: [8, 12], direction: [2, 50], why: w}
"""
)


@pytest.fixture
def small(tmp_path: Path) -> Project:
    return project_of(tmp_path, CLAIMS)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([10.0], claims.REPRODUCED),
        ([8.0], claims.REPRODUCED),
        ([12.0], claims.REPRODUCED),
        ([12.1], claims.DIRECTION_ONLY),
        ([2.0], claims.DIRECTION_ONLY),
        ([1.9], claims.NOT_REPRODUCED),
        ([], claims.NOT_JUDGED),
        ([9.9, 10.1], claims.REPRODUCED),  # of two a 95 % interval is 12.7 times as wide as both
        ([9.5, 10.5], claims.UNDECIDED),
        ([9.0, 13.0], claims.UNDECIDED),
        ([11.0, 16.0], claims.UNDECIDED),
        ([2.0, 26.0], claims.UNDECIDED),  # from below the range to above it
        ([1.0, 2.0, 30.0], claims.UNDECIDED),
        ([10.0, 10.1, 9.9, 10.0, 12.1], claims.REPRODUCED),
        ([10.0, 14.0, 9.9, 10.0, 13.0], claims.UNDECIDED),
        ([30.0, 32.0, 31.0, 29.0, 11.0], claims.DIRECTION_ONLY),
        ([13.0, 13.1], claims.DIRECTION_ONLY),
        ([1.0, 1.1], claims.NOT_REPRODUCED),
        ([1.9, 2.2], claims.UNDECIDED),  # from beyond the direction into it
        ([45.0, 52.0], claims.UNDECIDED),
    ],
)
def test_verdicts(small: Project, values: list[float], verdict: str) -> None:
    (row,) = claims.judge(small, "grace_hash_join", results(*values)).itertuples()
    assert row.verdict == verdict


def claim(expected: tuple[float, float]) -> claims.Claim:
    said = {"id": "c", "place": "p", "statement": "s", "metric": "SELECT 1", "published": "0"}
    return claims.Claim(**said, expected=expected, why="w")


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.0, 0.0, 0.0], claims.REPRODUCED),
        ([0.0, 1.0, 0.0], claims.NOT_REPRODUCED),
        ([0.0, 1.0], claims.NOT_REPRODUCED),
    ],
)
def test_what_never_happens_is_refuted_by_once(values: list[float], verdict: str) -> None:
    """However wide the interval of the mean is."""
    assert claim((0, 0)).verdict(sum(values) / len(values), values) == verdict


def test_an_interval_ends_at_0_only_for_what_cannot_be_below() -> None:
    values = [0.01, 0.02, 0.04]
    ratio = claim((0, 0.07))
    assert ratio.verdict(0.023, values) == claims.REPRODUCED
    gain = ratio.model_copy(update={"signed": True})
    assert gain.verdict(0.023, values) == claims.UNDECIDED  # from -0.015 on


def test_what_is_no_number_is_in_no_range() -> None:
    assert claim((-math.inf, math.inf)).verdict(math.nan) == claims.NOT_REPRODUCED


@pytest.mark.parametrize(
    ("expected", "unit", "words"),
    [
        ((7, 13), "ratio", "7 .. 13"),
        ((1.1, math.inf), "ratio", "at least 1.1"),
        ((-math.inf, 0.9), "ratio", "at most 0.9"),
        ((-math.inf, -0.1), "share", "at most -10 %"),
        ((0, 0.9), "ratio", "0 .. 0.9"),
        ((0, 0), "commits", "0 commits"),
        ((356.25, 393.75), "ms", "356.25 .. 393.75 ms"),
        ((0.1, 0.3), "share", "10 .. 30 %"),
        ((0.5, math.inf), "share", "at least 50 %"),
    ],
)
def test_what_is_expected_in_words(expected: tuple[float, float], unit: str, words: str) -> None:
    assert claims.format_range(expected, unit) == words


@pytest.mark.parametrize(
    ("lowest", "highest", "unit", "words"),
    [
        (0.0376, 0.06814, "share", "3.76 .. 6.81 %"),
        (9.557, 12345.0, "ms", "9.56 .. 12,300 ms"),
        (-0.5, 1.0, "ratio", "-0.5 .. 1"),
        (2.0, 2.0, "ratio", ""),
        (math.nan, math.nan, "ms", ""),
        (None, None, "ms", ""),
    ],
)
def test_the_lowest_and_the_highest_repetition_in_words(
    lowest: float | None, highest: float | None, unit: str, words: str
) -> None:
    row = SimpleNamespace(lowest=lowest, highest=highest, unit=unit)
    assert claims.format_spread(row) == words


def test_values_have_their_units() -> None:
    assert claims.format_value(375.2, "ms") == "375 ms"
    assert claims.format_value(0.1444, "share") == "14.4 %"
    assert claims.format_value(9.557) == "9.56"
    assert claims.format_value(3619.6, "ms") == "3,620 ms"
    assert claims.format_value(-1589.34, "TpmC") == "-1,590 TpmC"
    assert claims.format_value(999.7) == "1,000"
    assert claims.format_value(0.000123) == "0.000123"
    assert claims.format_value(float("inf")) == "inf"
    assert claims.format_value(None, "ms") == "-"


def test_a_value_is_shown_on_its_own_side_of_what_is_expected() -> None:
    assert claims.format_value(1.60388, expected=(0.9, 1.6)) == "1.604"
    assert claims.format_value(1.6, expected=(0.9, 1.6)) == "1.6"
    assert claims.format_value(1.04891, expected=(1.05, math.inf)) == "1.049"
    assert claims.format_value(1.05, expected=(1.05, math.inf)) == "1.05"
    assert claims.format_value(0.89996, expected=(0.9, 1.6)) == "0.89996"
    assert claims.format_value(0.35004, "share", (0.2, 0.35)) == "35.004 %"
    assert claims.format_value(3_619.6, "ms", (0, 3_620)) == "3619.6 ms"
    assert claims.format_value(0.28, "share", (0.2, 0.28)) == "28 %"
    assert claims.format_value(math.inf, expected=(0, 1)) == "inf"


def test_a_bound_may_be_infinite(small: Project) -> None:
    open_ended = CLAIMS.replace("[8, 12]", "[8, .inf]").replace("[2, 50]", "[2, .inf]")
    (small.published / "claims.yaml").write_text(open_ended)
    [row] = claims.judge(small, "grace_hash_join", results(1e9)).itertuples()
    assert row.verdict == claims.REPRODUCED


def test_a_share_is_not_below_nothing(small: Project) -> None:
    path = small.published / "claims.yaml"
    path.write_text(path.read_text().replace("[8, 12]", "[0, 12]"))
    judged = claims.judge(small, "grace_hash_join", results(0.0, 0.0, 9.0))
    assert set(judged.verdict) == {claims.UNDECIDED}  # up to 16
    judged = claims.judge(small, "grace_hash_join", results(0.0, 0.0, 3.0))
    assert set(judged.verdict) == {claims.REPRODUCED}


def test_what_a_fit_has_seen_is_in_no_count(small: Project) -> None:
    path = small.published / "claims.yaml"
    judged = claims.judge(small, "grace_hash_join", results(10.0))
    assert claims.count(judged) == "1 of 1 claims that could have failed are reproduced"
    path.write_text(path.read_text().replace("why: w", "why: w, fitted: true"))
    judged = claims.judge(small, "grace_hash_join", results(10.0))
    assert set(judged.verdict) == {claims.FITTED}
    assert claims.count(judged) == "0 of 0 claims that could have failed are reproduced"
    assert set(claims.judge(small, "grace_hash_join", results()).verdict) == {claims.NOT_JUDGED}


def test_what_is_no_claim_of_its_own_is_judged_and_in_no_count(small: Project) -> None:
    path = small.published / "claims.yaml"
    path.write_text(path.read_text().replace("why: w", "why: w, uncounted: a control"))
    for value, verdict in ((10.0, claims.REPRODUCED), (1.0, claims.NOT_REPRODUCED)):
        judged = claims.judge(small, "grace_hash_join", results(value))
        assert set(judged.verdict) == {verdict}
        assert claims.count(judged) == "0 of 0 claims that could have failed are reproduced"
        (row,) = judged.itertuples()
        assert claims.said(row) == f"{verdict} (in no count: a control)"
        small.metrics.mkdir(parents=True, exist_ok=True)
        (small.metrics / "grace_hash_join.simulated.json").write_text(claims.metrics(judged))
        found = claims.published_verdicts(small, "grace_hash_join", "simulated")
        assert found["a"]["no_evidence"]


def test_what_a_fit_has_seen_and_misses_has_failed(small: Project) -> None:
    path = small.published / "claims.yaml"
    path.write_text(path.read_text().replace("why: w", "why: w, fitted: true"))
    judged = claims.judge(small, "grace_hash_join", results(1.0))
    assert set(judged.verdict) == {claims.NOT_REPRODUCED}
    assert claims.count(judged) == "0 of 1 claims that could have failed are reproduced"


@pytest.mark.parametrize(
    ("tier", "verdict"),
    [
        ("simulated", claims.FITTED),
        ("emulated", claims.FITTED),
        ("hardware", claims.REPRODUCED),
    ],
)
def test_a_real_drive_was_fitted_to_nothing(small: Project, tier: str, verdict: str) -> None:
    path = small.published / "claims.yaml"
    path.write_text(path.read_text().replace("why: w", "why: w, fitted: true"))
    measured = dataclasses.replace(results(10.0), tier=tier)
    judged = claims.judge(small, "grace_hash_join", measured)
    assert [(row.verdict, row.fitted) for row in judged.itertuples()] == [
        (verdict, tier != "hardware")
    ]


@pytest.mark.parametrize(
    ("value", "said", "counted"),
    [(10.0, "reproduced, cannot fail", "0 of 0"), (1.0, "not reproduced", "0 of 1")],
)
def test_what_cannot_fail_is_in_no_count_and_what_fails_is(
    small: Project, value: float, said: str, counted: str
) -> None:
    small.metrics.mkdir(parents=True)
    record = {"grace_hash_join": {"simulated": {"changed_by": {"a": ""}}}}
    (small.metrics / "could_fail.json").write_text(json.dumps(record))
    judged = claims.judge(small, "grace_hash_join", results(value))
    assert [claims.said(row) for row in judged.itertuples()] == [said]
    assert claims.count(judged).startswith(counted)


def test_the_interval_stands_beside_the_mean(small: Project) -> None:
    (row,) = claims.judge(small, "grace_hash_join", results(9, 10, 14)).itertuples()
    assert (row.value, row.lowest, row.highest) == (11, 9, 14)


def test_what_repeats_within_a_point_has_an_interval_too(small: Project) -> None:
    """`each`: a row each, of a point that has no repetitions of its own."""
    path = small.published / "claims.yaml"
    path.write_text(
        path.read_text().replace(
            "published: about 10",
            'each: "SELECT x FROM r ORDER BY repetition", published: about 10',
        )
    )
    for values, verdict in (
        ([9.9, 10.0, 10.4], claims.REPRODUCED),
        ([7.0, 10.0, 13.0], claims.UNDECIDED),
        ([9.9, float("nan"), 10.1], claims.REPRODUCED),
    ):
        (row,) = claims.judge(small, "grace_hash_join", results(*values)).itertuples()
        assert (row.lowest, row.highest) == (min(values), max(values))
        assert row.verdict == verdict
    path.write_text(path.read_text().replace("SELECT x FROM", "SELECT nonesuch FROM"))
    with pytest.raises(BadClaim, match="claim a: "):
        claims.judge(small, "grace_hash_join", results(10))


def test_variants_are_judged_apart(small: Project) -> None:
    rows = [{"variant": v, "repetition": 0, "x": x} for v, x in (("paper", 10.0), ("other", 30.0))]
    table = Results("simulated", pd.DataFrame(rows), {}, lambda _: None)
    (row,) = claims.judge_variants(small, "grace_hash_join", table).to_dict("records")
    assert (row["paper"], row["other"]) == (10, 30)
    (judged,) = claims.judge(small, "grace_hash_join", table).itertuples()
    assert judged.value == 10


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("avg(x)", "avg(nonesuch)"),
        ("avg(x)", "avg(("),
        ("[8, 12]", "[12, 8]"),
        ("why: w", "why: w, colour: red"),
        ("id: a,", ""),
        ("expected: [8, 12],", ""),
    ],
)
def test_a_claims_file_that_is_wrong_is_refused(small: Project, old: str, new: str) -> None:
    path = small.published / "claims.yaml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(BadClaim):
        claims.judge(small, "grace_hash_join", results(10))


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "grace_hash_join\n"])
def test_a_claims_file_that_has_no_papers_is_refused(small: Project, text: str) -> None:
    (small.published / "claims.yaml").write_text(text)
    with pytest.raises(BadClaim):
        claims.load(small)


def test_a_fitted_claim_that_is_missed_and_reaches_its_range_is_undecided() -> None:
    """Only where it comes out it is no evidence."""
    seen = claim((356, 394)).model_copy(update={"fitted": True})
    assert seen.verdict(380, [370, 380, 390]) == claims.FITTED
    assert seen.verdict(400, [385, 400, 415]) == claims.UNDECIDED
    assert seen.verdict(420, [419, 420, 421]) == claims.NOT_REPRODUCED


def test_two_claims_of_one_name_are_refused(small: Project) -> None:
    path = small.published / "claims.yaml"
    first = path.read_text()
    path.write_text(first + first[first.index("    - {id") :])
    with pytest.raises(BadClaim, match="two claims"):
        claims.load(small)


def test_the_real_claims_load(project: Project) -> None:
    for paper in claims.load(project).values():
        for claim in paper.claims:
            low, high = claim.expected
            assert low <= high
            assert claim.why


def test_metrics_of_the_real_claims_can_be_computed(project: Project, tmp_path: Path) -> None:
    """On a table with all columns and no matching point, claims are `not judged`, and no error."""
    shutil.copytree(project.published, tmp_path / "data" / "published")
    columns = {
        "device": "hdd",
        "variant": "paper",
        "algorithm": "grace",
        "queue_depth": 1,
        "users": 7,
        "nominal_read_buffer_bytes": 1,
        "write_buffer_bytes": 1,
        "repetition": 0,
        "elapsed_s": 1.0,
    }
    table = Results("simulated", pd.DataFrame([columns]), {}, lambda _: None)
    judged = claims.judge(Project(tmp_path), "grace_hash_join", table)
    assert set(judged.verdict) == {claims.NOT_JUDGED}


def test_what_was_tuned_is_told_where_people_read(project: Project) -> None:
    pages = [project.validation, *sorted(project.validation.with_suffix("").glob("*.md"))]
    validation = "".join(page.read_text() for page in pages)
    papers = claims.load(project)
    for study in ("msdj_tpcc", "msdj_crashes", "sort_merge_join"):
        assert len(claims.tuned(project, study)) > 0
    for choice in (each for paper in papers.values() for each in paper.tuned):
        assert f"| {choice.what} | {choice.before} | {choice.after} |" in validation


def test_an_edit_is_seen_by_a_process_that_has_read_the_file(small: Project) -> None:
    """A notebook's kernel outlives it."""
    path = small.published / "claims.yaml"
    first = claims.load(small)
    assert claims.load(small) is first
    path.write_text(path.read_text().replace("why: w", "why: because"))
    [claim] = claims.load(small)["grace_hash_join"].claims
    assert claim.why == "because"
