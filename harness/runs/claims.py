"""Claims: what papers and theory say, as data, judged by results.

`data/published/claims.yaml` holds them: where in the paper, the statement, a metric in SQL over the
results, what is expected and why that is tolerance enough. No number of a paper stands in code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pandas as pd
import scipy
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from harness.errors import BadClaim, UnknownName
from harness.experiments.base import Results
from harness.paths import Project
from harness.runs import queries
from harness.runs.queries import Queries
from harness.system.documents import read_yaml

REPRODUCED: Final = "reproduced"
DIRECTION_ONLY: Final = "direction only"
UNDECIDED: Final = "undecided"
NOT_REPRODUCED: Final = "not reproduced"
FITTED: Final = "fitted"
NOT_JUDGED: Final = "not judged"

COULD_FAIL: Final = (REPRODUCED, DIRECTION_ONLY, UNDECIDED, NOT_REPRODUCED)
"""Verdicts that count: no fit has seen the claim, and the points that it needs were run. A claim
that would be reproduced with any wrong result (`cannot_fail`) counts nowhere all the same."""

WANTING: Final = (DIRECTION_ONLY, UNDECIDED, NOT_REPRODUCED)
"""Verdicts of what is not reproduced, or not wholly."""

SHARE: Final = "share"
"""The unit of ratios that papers print in per cent; only what is shown is in per cent, too."""

_WITHOUT_A_MODEL: Final = ("hardware",)
"""Tiers on which no model has a part in the result."""

BASE: Final = queries.BASE
"""The variant in which nothing is varied."""

NOT_VARIANTS: Final = ("claim", "expected", "unit")
"""Columns of `judge_variants`."""

_MOST_DIGITS: Final = 6


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Claim(_Strict):
    """One statement of a paper.

    `metric` is a SQL query that gives one number from the relation `r`. `each` gives it once per
    repeat, in a row each, where repeats are rows of `r` and not repetitions of whole points; the
    interval of the mean of these decides, as it does of repetitions. `signed`: the number may be
    below 0, as may its interval. The claim is reproduced if it lies in `expected` (both ends
    included), and has the paper's direction if it lies in `direction`. `figure` names the figure of
    ours that shows it. `published` is what the paper printed, `words` what it says of it, short,
    and `measures` what the metric takes for that.
    `unit`: "ratio" has none, a "share" is shown in per cent. A bound may be infinite.
    `fitted`: a fit of the models, or whoever chose among them, has seen the number: coming out is
    then no evidence where they run, and failing to is.
    `uncounted`: why a verdict is in no count: a second reading of one sentence, a check of ours.
    `because`: why a result is not the paper's, as far as it is known. `condition`: what a verdict
    holds under, and is said with.
    `needs`: the points and the scale without which it is not judged, in words.
    """

    id: str
    place: str
    statement: str
    figure: str = ""
    metric: str
    each: str = ""
    signed: bool = False
    unit: str = "ratio"
    published: str
    words: str = ""
    measures: str = ""
    expected: tuple[float, float]
    direction: tuple[float, float] | None = None
    fitted: bool = False
    uncounted: str = ""
    why: str
    errata: str = ""
    because: str = ""
    condition: str = ""
    needs: str = ""

    @model_validator(mode="after")
    def _ordered(self) -> Claim:
        for low, high in filter(None, (self.expected, self.direction)):
            if low > high:
                raise ValueError(f"{self.id}: {low} .. {high} is an empty range")
        return self

    def on(self, tier: str) -> Claim:
        """As it is judged of a tier's results: no fit is part of what a real drive does."""
        return self.model_copy(update={"fitted": False}) if tier in _WITHOUT_A_MODEL else self

    def verdict(self, value: float | None, repetitions: Sequence[float] = ()) -> str:
        """What a value says of the claim, and what it is in each repetition; None: not run.

        One that a fit has seen and that is missed all the same has failed like any other.
        """
        if value is None:
            return NOT_JUDGED
        one_is_enough = self.expected == (0, 0) and value > 0  # what never happens has happened
        if self.fitted and _is_in(value, self.expected):
            return FITTED
        ends = (value, *_interval(repetitions, self.signed))
        for bounds, found in ((self.expected, REPRODUCED), (self.direction, DIRECTION_ONLY)):
            if bounds and _crosses(ends, bounds) and not one_is_enough:
                return UNDECIDED
            if bounds and _is_in(value, bounds):
                return found
        return NOT_REPRODUCED


def _interval(repetitions: Sequence[float], signed: bool) -> tuple[float, ...]:
    """Where the mean lies with 95 % (Student's t); of less than two repetitions, nobody knows."""
    if len(repetitions) < 2:
        return tuple(repetitions)
    mean, error = float(np.mean(repetitions)), float(scipy.stats.sem(repetitions))
    wide = float(scipy.stats.t.ppf(0.975, len(repetitions) - 1)) * error
    may_be_below = signed or min(repetitions) < 0
    return mean - wide if may_be_below else max(mean - wide, 0.0), mean + wide


def _crosses(values: Sequence[float], bounds: tuple[float, float]) -> bool:
    """Whether they are on both sides of one of a range's ends."""
    return len({_side(each, bounds) for each in values}) > 1


def _is_in(value: float, bounds: tuple[float, float]) -> bool:
    return _side(value, bounds) == 0


def _side(value: float, bounds: tuple[float, float]) -> int:
    """0 in the range, 1 above, -1 below: an interval from below to above says nothing of it.

    What is no number is in none.
    """
    if bounds[0] <= value <= bounds[1]:
        return 0
    return 1 if value > bounds[1] else -1


class Tuned(_Strict):
    """A choice that was made, or made again, after looking at results: no evidence for it is left.

    `commit`: which one, or from which to which; `why`: the reason, as far as one is on file.
    """

    what: str
    before: str
    after: str
    commit: str
    why: str


class Source(_Strict):
    """Who wrote a paper, and where and when it appeared: what is left out is not known.

    `title` is the paper's own, in English; `year` in words; `same_as` another study's paper.
    """

    authors: list[str] = []
    affiliation: str = ""
    title: str = ""
    venue: str = ""
    year: str = ""
    pages: str = ""
    doi: str = ""
    same_as: str = ""

    @property
    def unknown(self) -> list[str]:
        """What is not known of it, of what one cites a paper by."""
        cited = ("authors", "title", "venue", "year", "doi")
        return [_CITED_AS.get(name, name) for name in cited if not getattr(self, name)]

    @property
    def said(self) -> str:
        """All that is known, in a line, and what is not."""
        if self.same_as:
            return f"The paper of {self.same_as}."
        known = [
            f"{', '.join(self.authors)} ({self.affiliation})" if self.authors else "",
            f'"{self.title}"' if self.title else "",
            *(self.venue, self.pages, self.year),
            f"doi:{self.doi}" if self.doi else "",
        ]
        words = ", ".join(text for text in known if text)
        missing = f"; {', '.join(self.unknown)} unknown" if self.unknown else ""
        return f"{words[:1].upper()}{words[1:]}{missing}."


_CITED_AS: Final = {"doi": "DOI", "title": "original title"}


class Paper(_Strict):
    """A paper: its title, the relation that its claims' metrics query, and the claims.

    `relation` is a SQL query over `results`, the table of all points, `repetitions`, their series
    `repetition_...` with a row per point and repetition, and `samples`, their series over time
    (NAME_time_s, and what else begins with NAME_ and is as long) with a row per point and moment;
    it knows the parameters $variant and $repetition (NULL: all). `against` says whose numbers stand
    under `published`. `identification`: whose paper it is, as far as that is known. `sceptic`:
    what is not reproduced and why, in a sentence or two. `tuned`: what was chosen after looking at
    results.
    """

    title: str
    reference: str
    against: str = "paper"
    identification: Source | None = None
    sceptic: str = ""
    relation: str
    errata: list[str] = []
    tuned: list[Tuned] = []
    claims: list[Claim]


def load(project: Project) -> dict[str, Paper]:
    """All papers by name. Raises BadClaim for a file that is not as described here."""
    path = project.published / "claims.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadClaim(f"{path.name}: {' '.join(str(error).split())}") from error
    return _read(path, text)


@lru_cache(maxsize=4)
def _read(path: Path, text: str) -> dict[str, Paper]:
    """By its text: a notebook's kernel outlives an edit of the file."""
    try:
        data = read_yaml(text)
        if not isinstance(data, dict):
            raise BadClaim(f"{path.name}: is not a mapping of papers' names to their claims")
        papers = {name: Paper.model_validate(paper) for name, paper in data.items()}
    except (yaml.YAMLError, ValidationError) as error:
        raise BadClaim(f"{path.name}: {' '.join(str(error).split())}") from error
    ids = [claim.id for paper in papers.values() for claim in paper.claims]
    twice = {name for name in ids if ids.count(name) > 1}
    if twice:
        raise BadClaim(f"{path.name}: two claims are called {sorted(twice)[0]}")
    return papers


def could_fail(project: Project) -> dict[str, Any]:
    """What `mutations` found, by paper and tier: `changed_by` (per claim a change of the results
    that changes its verdict, or nothing), and `of`, a digest of what was asked.
    """
    path = could_fail_record(project)
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def could_fail_record(project: Project) -> Path:
    """Where that is kept."""
    return project.metrics / "could_fail.json"


def published_verdicts(project: Project, experiment: str, tier: str) -> dict[str, Any]:
    """Per claim `value`, `verdict` and `no_evidence` (see `is_no_evidence`), as published; nothing
    if nothing was judged.
    """
    known = {claim.id: claim for claim in _paper(project, experiment).claims}
    path = project.metrics / f"{experiment}.{tier}.json"
    found = json.loads(path.read_text()) if path.is_file() else {}
    never = unchanged(project, experiment, tier)
    found = {name: each for name, each in found.items() if name in known}
    for name, each in found.items():
        each["no_evidence"] = is_no_evidence(known[name], each, never)
    return found if any(each["value"] is not None for each in found.values()) else {}


def unchanged(project: Project, experiment: str, tier: str) -> Collection[str]:
    """Claims whose verdict no change of that tier's results was found to change."""
    changes = could_fail(project).get(experiment, {}).get(tier, {}).get("changed_by", {})
    return {name for name, change in changes.items() if change == ""}


def is_no_evidence(claim: Claim, judged: Mapping[Hashable, Any], never: Collection[str]) -> bool:
    """Whether a claim's verdict is in no count: fitted, uncounted, or it cannot fail."""
    if judged["verdict"] in (FITTED, NOT_JUDGED):
        return bool(judged["verdict"] == FITTED)
    return bool(claim.uncounted) or cannot_fail(claim.id, judged, never)


def cannot_fail(name: str, judged: Mapping[Hashable, Any], never: Collection[str]) -> bool:
    """Whether a claim is reproduced, and would be with any wrong result (`never`: `unchanged`)."""
    return judged["verdict"] == REPRODUCED and name in never


def judge(
    project: Project, experiment: str, results: Results, only: Collection[str] | None = None
) -> pd.DataFrame:
    """One row per claim: its texts, value, lowest and highest over the repetitions, verdict, and
    whether it is reproduced and, as is known, would be with any wrong result (`cannot_fail`).

    `only`: of claims with these ids.
    """
    with Judge(project, experiment, results) as judge:
        return _verdicts(project, experiment, judge, only)


def judge_variants(project: Project, experiment: str, results: Results) -> pd.DataFrame:
    """The claims' values under every variant that was run: one row per claim, a column per variant.

    Before these stand `NOT_VARIANTS`: the claims' ranges and units. Empty if there are no variants.
    """
    with Judge(project, experiment, results) as judge:
        return _variants(project, experiment, judge)


def judge_all(
    project: Project, experiment: str, results: Results
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What `judge` and `judge_variants` give, and no query twice."""
    with Judge(project, experiment, results) as judge:
        verdicts = _verdicts(project, experiment, judge)
        return verdicts, _variants(project, experiment, judge)


def _verdicts(
    project: Project, experiment: str, judge: Judge, only: Collection[str] | None = None
) -> pd.DataFrame:
    paper = _paper(project, experiment)
    wanted = [claim.on(judge.tier) for claim in paper.claims if only is None or claim.id in only]
    rows = pd.DataFrame([_row(claim, judge) for claim in wanted])
    never = unchanged(project, experiment, judge.tier)
    found = zip(wanted, rows.to_dict("records"), strict=True)
    vain = [cannot_fail(claim.id, row, never) for claim, row in found]
    return rows.assign(cannot_fail=pd.Series(vain, dtype=bool))


def _variants(project: Project, experiment: str, judge: Judge) -> pd.DataFrame:
    rows = []
    for claim in _paper(project, experiment).claims if judge.variants else []:
        values = {variant: judge.value(claim, variant, None) for variant in judge.variants}
        own = {"claim": claim.id, "expected": claim.expected, "unit": claim.unit}
        rows.append({**own, **values})
    return pd.DataFrame(rows)


class Judge(Queries):
    """The metrics of a paper's claims over results.

    Beside the results they may read `published`, the paper's numbers that are on file.
    """

    def __init__(self, project: Project, experiment: str, results: Results) -> None:
        numbers = project.published / f"{experiment}.csv"
        published = pd.read_csv(numbers) if numbers.is_file() else pd.DataFrame()
        try:
            super().__init__(_paper(project, experiment).relation, published, results)
        except ValueError as error:
            raise BadClaim(f"{experiment}, tier {results.tier}: {error}") from error

    def repeated(self, claim: Claim) -> list[float]:
        """The claim's metric in each repetition that has the points that it needs."""
        if claim.each:
            with _blamed_on(claim):
                return self._in_each(claim.each)
        values = (self.value(claim, BASE, repetition) for repetition in self.repetitions)
        return [value for value in values if value is not None]

    def _in_each(self, query: str) -> list[float]:
        """A number from each row."""
        if self._table.empty:
            return []
        self._db.register("r", self._relation(BASE, None))
        return [float(n) for n, *_ in self._db.execute(query).fetchall() if not pd.isna(n)]

    def value(self, claim: Claim, variant: str, repetition: int | None) -> float | None:
        """The claim's metric; None if the points that it needs were not run."""
        with _blamed_on(claim):
            return self.ask(claim.metric, variant, repetition)


@contextmanager
def _blamed_on(claim: Claim) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise BadClaim(f"claim {claim.id}: {' '.join(str(error).split())}") from error


def count(verdicts: pd.DataFrame) -> str:
    """How many are reproduced, of those that could have failed, in words; and at which scale, if
    that is not the paper's.
    """
    could_fail = verdicts.verdict.isin(COULD_FAIL) & ~verdicts.cannot_fail
    could_fail &= verdicts.uncounted == ""
    reproduced = int((verdicts.verdict[could_fail] == REPRODUCED).sum())
    reduced = set(verdicts.get("scale", [])) - {"", "paper"}
    at = f" (at a reduced scale: {'; '.join(sorted(reduced))})" if reduced else ""
    return (
        f"{reproduced} of {int(could_fail.sum())} claims that could have failed are reproduced{at}"
    )


def said(row: Any) -> str:
    """The verdict of a row of `judge`, with what it holds under, and whether it means nothing."""
    verdict = f"{row.verdict}, cannot fail" if row.cannot_fail else str(row.verdict)
    not_counted = f"in no count: {row.uncounted}" if row.uncounted else ""
    under = "; ".join(filter(None, (row.condition, not_counted)))
    return f"{verdict} ({under})" if under else verdict


def tuned(project: Project, experiment: str) -> pd.DataFrame:
    """What was chosen after looking at results, a row each: as in `Tuned`."""
    rows = [choice.model_dump() for choice in _paper(project, experiment).tuned]
    return pd.DataFrame(rows, columns=list(Tuned.model_fields))


def format_value(value: float | None, unit: str = "ratio", expected: Sequence[float] = ()) -> str:
    """Three significant digits and the unit of what has one, or a dash for what was not run.

    More digits where three would lie on the other side of an end of the range that is expected:
    1.604 beside '0.9 .. 1.6'.
    """
    if value is None or pd.isna(value):
        return "-"
    value, *ends = (float(f"{each * _scaled(unit):.12g}") for each in (value, *expected))
    sides = _sides(value, ends)
    enough = (n for n in range(3, _MOST_DIGITS) if _sides(float(f"{value:.{n}g}"), ends) == sides)
    return _with_unit(_digits(value, next(enough, _MOST_DIGITS)), unit)


def _sides(value: float, ends: Sequence[float]) -> list[int]:
    """Of each end: 1 above it, -1 below it, 0 at it."""
    return [(value > end) - (value < end) for end in ends]


def _digits(value: float, number: int = 3) -> str:
    """'0.144', '9.56', '3,620': no power of ten where people read thousands."""
    text = f"{value:.{number}g}"
    return f"{float(text):,.0f}" if "e+" in text else text


def format_range(expected: tuple[float, float], unit: str = "ratio") -> str:
    """'7 .. 13', 'at least 1.1', 'at most 0.9', '0'; with the unit of what has one."""
    low, high = (f"{bound * _scaled(unit):g}" for bound in expected)
    if low == high:
        text = low
    elif math.isinf(expected[1]):
        text = f"at least {low}"
    elif math.isinf(expected[0]):
        text = f"at most {high}"
    else:
        text = f"{low} .. {high}"
    return _with_unit(text, unit)


def format_spread(row: Any) -> str:
    """'3.76 .. 6.81 %': a judged claim's lowest and highest repetition, if they are two."""
    if pd.isna(row.lowest) or row.lowest == row.highest:
        return ""
    low, high = (_digits(bound * _scaled(row.unit)) for bound in (row.lowest, row.highest))
    return _with_unit(f"{low} .. {high}", row.unit)


def _with_unit(number: str, unit: str) -> str:
    """'375 ms', '20 %'; a ratio has no unit."""
    return number if unit == "ratio" else f"{number} {'%' if unit == SHARE else unit}"


def _scaled(unit: str) -> float:
    return 100.0 if unit == SHARE else 1.0


def metrics(verdicts: pd.DataFrame) -> str:
    """Values and verdicts as JSON, for `dvc metrics`."""
    found = {
        row.id: {"value": _rounded(row.value), "verdict": row.verdict}
        for row in verdicts.itertuples()
    }
    return json.dumps(found, indent=1) + "\n"


def _paper(project: Project, experiment: str) -> Paper:
    papers = load(project)
    if experiment not in papers:
        raise UnknownName("paper", experiment, papers)
    return papers[experiment]


def _row(claim: Claim, judge: Judge) -> dict[str, Any]:
    value, each = judge.value(claim, BASE, None), judge.repeated(claim)
    texts = (
        *("id", "place", "statement", "words", "measures", "figure", "published", "unit", "why"),
        *("errata", "fitted", "uncounted", "because", "condition"),
    )
    verdict = claim.verdict(value, each)
    return {
        **{name: getattr(claim, name) for name in texts},
        "expected": claim.expected,
        "value": value,
        "lowest": min(each, default=None),
        "highest": max(each, default=None),
        "verdict": verdict,
        "needs": claim.needs,
        "scale": judge.scale,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None or pd.isna(value) else float(f"{value:.6g}")
