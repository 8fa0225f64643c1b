"""Claims: what papers and theory say, as data, judged by results.

`data/published/claims.yaml` holds them: where in the paper, the statement, a metric in SQL over the
results, what is expected and why that is tolerance enough. No number of a paper stands in code.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from harness.errors import BadClaim, UnknownName
from harness.experiments.base import Results
from harness.paths import Project
from harness.system.files import write_atomically

REPRODUCED: Final = "reproduced"
TREND_ONLY: Final = "trend only"
NOT_REPRODUCED: Final = "not reproduced"
NOT_RUN: Final = "not run"

_REPEATED: Final = "repetition_"
_TIMES: Final = "_time_s"
_BASE: Final = "paper"  # the variant in which nothing is varied


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Claim(_Strict):
    """One statement of a paper.

    `metric` is a SQL query that gives one number from the relation `r`. The claim is reproduced if
    the number lies in `expected` (both ends included), and shows the trend if it lies in `trend`.
    `figure` names the figure of ours that shows it. `published` is what the paper printed.
    """

    id: str
    place: str
    statement: str
    figure: str = ""
    metric: str
    unit: str = "ratio"
    published: str
    expected: tuple[float, float]
    trend: tuple[float, float] | None = None
    why: str
    errata: str = ""

    @model_validator(mode="after")
    def _ordered(self) -> Claim:
        for low, high in filter(None, (self.expected, self.trend)):
            if low > high:
                raise ValueError(f"{self.id}: {low} .. {high} is an empty range")
        return self

    def verdict(self, value: float | None) -> str:
        """What a value says of the claim; None: not run."""
        if value is None:
            return NOT_RUN
        if self.expected[0] <= value <= self.expected[1]:
            return REPRODUCED
        if self.trend and self.trend[0] <= value <= self.trend[1]:
            return TREND_ONLY
        return NOT_REPRODUCED


class Paper(_Strict):
    """A paper: its title, the relation that its claims' metrics query, and the claims.

    `relation` is a SQL query over `results`, the table of all points, `repetitions`, their series
    `repetition_...` with a row per point and repetition, and `samples`, their series over time
    (NAME_time_s, and what else begins with NAME_ and is as long) with a row per point and moment;
    it knows the parameters $variant and $repetition (NULL: all). `against` says whose numbers stand
    under `published`.
    """

    title: str
    reference: str
    against: str = "paper"
    relation: str
    errata: list[str] = []
    claims: list[Claim]


def load(project: Project) -> dict[str, Paper]:
    """All papers by name. Raises BadClaim for a file that is not as described here."""
    return _load(project.published / "claims.yaml")


@lru_cache(maxsize=4)
def _load(path: Path) -> dict[str, Paper]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        papers = {name: Paper.model_validate(paper) for name, paper in data.items()}
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise BadClaim(f"{path.name}: {' '.join(str(error).split())}") from error
    ids = [claim.id for paper in papers.values() for claim in paper.claims]
    twice = {name for name in ids if ids.count(name) > 1}
    if twice:
        raise BadClaim(f"{path.name}: two claims are called {sorted(twice)[0]}")
    return papers


def load_fresh() -> None:
    """Forgets what was loaded: the next `load` reads the file."""
    _load.cache_clear()


def judge(project: Project, experiment: str, results: Results) -> pd.DataFrame:
    """One row per claim: its texts, value, lowest and highest over the repetitions, verdict."""
    paper = _paper(project, experiment)
    with _Judge(paper, results) as judge:
        return pd.DataFrame([_row(claim, judge) for claim in paper.claims])


def judge_variants(project: Project, experiment: str, results: Results) -> pd.DataFrame:
    """The claims' values under every variant that was run: one row per claim, a column per variant.

    `expected` holds the claims' ranges. Empty if there are no variants.
    """
    paper = _paper(project, experiment)
    if "variant" not in results.table:
        return pd.DataFrame()
    rows = []
    with _Judge(paper, results) as judge:
        for claim in paper.claims:
            values = {v: judge.value(claim, v, None) for v in results.table.variant.unique()}
            rows.append({"claim": claim.id, "expected": claim.expected, **values})
    return pd.DataFrame(rows)


class _Judge:
    """Metrics over one table of results, one database for all of them."""

    def __init__(self, paper: Paper, results: Results) -> None:
        self._paper = paper
        self._table = results.table
        self._repeated = _repetitions(results)
        self._samples = _samples(results)
        self._relations: dict[tuple[str, int | None], pd.DataFrame] = {}

    def __enter__(self) -> _Judge:
        self._db = duckdb.connect()
        if not self._table.empty:
            self._db.register("results", self._table)
            self._db.register("repetitions", self._repeated)
            self._db.register("samples", self._samples)
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    @property
    def repetitions(self) -> list[int]:
        """Repetitions that there are results of."""
        table = self._table
        return sorted(table.repetition.unique().tolist()) if "repetition" in table else []

    def value(self, claim: Claim, variant: str, repetition: int | None) -> float | None:
        """The claim's metric; None if the points that it needs were not run."""
        if self._table.empty:
            return None
        try:
            self._db.register("r", self._relation(variant, repetition))
            found = self._db.execute(claim.metric).fetchall()
        except duckdb.Error as error:
            raise BadClaim(f"claim {claim.id}: {' '.join(str(error).split())}") from error
        value = found[0][0] if found else None
        return None if value is None or pd.isna(value) else float(value)

    def _relation(self, variant: str, repetition: int | None) -> pd.DataFrame:
        key = (variant, repetition)
        if key not in self._relations:
            parameters = {"variant": variant, "repetition": repetition}
            self._relations[key] = self._db.execute(self._paper.relation, parameters).df()
        return self._relations[key]


def notes(project: Project, experiment: str, results: Results) -> dict[str, list[str]]:
    """Lines that put the paper's claims beside ours, by the figure that shows them."""
    lines: dict[str, list[str]] = {}
    if results.table.empty:
        return lines
    against = _paper(project, experiment).against
    for row in judge(project, experiment, results).itertuples():
        if row.figure and row.verdict != NOT_RUN:
            text = f"{row.statement}: {against} {row.published}, here {format_value(row.value)}"
            lines.setdefault(row.figure, []).append(f"{text} ({row.verdict})")
    return lines


def format_value(value: float | None) -> str:
    """Three significant digits, or a dash for what was not run."""
    return "-" if value is None or pd.isna(value) else f"{value:.3g}"


def write_metrics(project: Project, experiment: str, tier: str, verdicts: pd.DataFrame) -> None:
    """Values and verdicts as JSON, for `dvc metrics`."""
    metrics = {
        row.id: {"value": _rounded(row.value), "verdict": row.verdict}
        for row in verdicts.itertuples()
    }
    path = project.metrics / f"{experiment}.{tier}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(metrics, indent=1) + "\n").encode())


def _repetitions(results: Results) -> pd.DataFrame:
    """A row per point and repetition: point, number (from 0), and the series `repetition_...`."""
    frames = [pd.DataFrame({"point": pd.Series(dtype=str), "number": pd.Series(dtype=int)})]
    for point, series in results.series.items():
        own = {
            name.removeprefix(_REPEATED): values
            for name, values in series.items()
            if name.startswith(_REPEATED)
        }
        if own:
            frame = pd.DataFrame(own)
            frames.append(frame.assign(point=point, number=range(len(frame))))
    return pd.concat(frames[1:] or frames)


def _samples(results: Results) -> pd.DataFrame:
    """A row per point and moment: point, number (from 0), and the series that have times."""
    frames = [pd.DataFrame({"point": pd.Series(dtype=str), "number": pd.Series(dtype=int)})]
    for point, series in results.series.items():
        for clock in (name for name in series if name.endswith(_TIMES)):
            of_clock = clock.removesuffix(_TIMES) + "_"
            own = {
                name: values
                for name, values in series.items()
                if name.startswith(of_clock) and len(values) == len(series[clock])
            }
            frame = pd.DataFrame(own)
            frames.append(frame.assign(point=point, number=range(len(frame))))
    return pd.concat(frames[1:] or frames)


def _paper(project: Project, experiment: str) -> Paper:
    papers = load(project)
    if experiment not in papers:
        raise UnknownName("paper", experiment, papers)
    return papers[experiment]


def _row(claim: Claim, judge: _Judge) -> dict[str, Any]:
    value = judge.value(claim, _BASE, None)
    repeated = (judge.value(claim, _BASE, repetition) for repetition in judge.repetitions)
    each = [v for v in repeated if v is not None]
    texts = ("id", "place", "statement", "figure", "published", "unit", "why", "errata")
    return {
        **{name: getattr(claim, name) for name in texts},
        "expected": claim.expected,
        "value": value,
        "lowest": min(each, default=None),
        "highest": max(each, default=None),
        "verdict": claim.verdict(value),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None or pd.isna(value) else float(f"{value:.6g}")
