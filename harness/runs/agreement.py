"""Simulated against emulated: the same points in virtual time and behind a real kernel.

What is comparable, and how near it must be, a study says itself; here is what all have in common.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from harness.errors import BadParameter
from harness.experiments.base import Results
from harness.experiments.beside import JudgedAgreement
from harness.paths import Project
from harness.runs import places, published
from harness.runs.study import StudyRuns, agreement_of
from harness.system.files import publication, write_atomically


def compare(project: Project, experiment: str, **options: Any) -> pd.DataFrame:
    """One row per emulated point that has been run here, with columns NAME_emulated,
    NAME_simulated and NAME_ratio. Raises UnknownName, or BadParameter if nothing has been run.
    """
    return StudyRuns(project, experiment).compare(**options)


def write(
    project: Project, experiment: str, *, publish: bool
) -> tuple[pd.DataFrame, pd.DataFrame, Path]:
    """Compares, and writes the table: beside the published results, or below build/runs/.

    The published one is of the machine whose emulated results are published, and under git; and so
    are the model's results of the same points beside it. Returns the table, what both say of the
    claims (`claims_of`; no rows if the study's comparison gives no results), and the file.
    """
    name = f"{experiment}.agreement"
    own = places.own(project, name).table
    path = published_table(project, experiment) if publish else own
    agreement = agreement_of(experiment)
    runs = StudyRuns(project, experiment)
    if not isinstance(agreement, JudgedAgreement):
        table = agreement.compare(runs)
        _write(path, _as_csv(table))
        return table, pd.DataFrame(columns=_CLAIMED), path
    laid = agreement.beside(runs)
    if publish:
        _check_published(runs.published("emulated"), laid.emulated)
    results, series = _modelled(path)
    texts = {
        path: _as_csv(laid.table),
        results: published.as_csv(laid.modelled.table),
        series: json.dumps(laid.modelled.series, sort_keys=True) + "\n",
    }
    with publication() as files:
        for each, text in texts.items():
            files.write(each, text.encode(), make_folder=True)
    return laid.table, claims_of(runs.judge(laid.emulated), runs.judge(laid.modelled)), path


def _check_published(said: Results, used: Results) -> None:
    """That what is compared is what is published, and no other run of this machine's.

    Raises BadParameter.
    """
    columns = said.table.columns
    both = (published.as_csv(each.table.reindex(columns=columns)) for each in (said, used))
    there, here = (set(text.splitlines()) for text in both)
    if said.table.empty or here != there:
        raise BadParameter(
            "what was run here on tier emulated is not what is published, or a part of it: publish "
            "it first (its notebook, tier=emulated), or compare without --publish"
        )


def published_table(project: Project, experiment: str) -> Path:
    """Where it is, or would be."""
    return project.results / f"{experiment}.agreement.csv"


def _as_csv(table: pd.DataFrame) -> str:
    text: str = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    return text


def _write(path: Path, text: str) -> None:
    write_atomically(path, text.encode(), make_folder=True)


def _modelled(table: Path) -> tuple[Path, Path]:
    """Beside a table of both: the model's results of the same points, and their series."""
    return table.with_suffix(".modelled.csv"), table.with_suffix(".modelled.series.json")


def modelled(project: Project, experiment: str) -> Results:
    """What the model says of the points whose emulated results are published, as it was published:
    results as if they were of tier emulated. Empty if the two have not been compared.
    """
    table, series = _modelled(published_table(project, experiment))
    if not (table.is_file() and series.is_file()):
        return Results("emulated", pd.DataFrame(), {}, lambda _: None)
    found = published.read("emulated", table.read_text(), series.read_text(), table.parent)
    return replace(found, scale=published.scale_of(project, experiment, "emulated"))


_CLAIMED: Final = [
    *("id", "statement", "unit"),
    *("emulated", "emulated_verdict", "modelled", "modelled_verdict"),
]


def claims_of(emulated: pd.DataFrame, model: pd.DataFrame) -> pd.DataFrame:
    """One row per claim that the run judges: what run and model of the same run say of it.

    Of both the verdicts, as `claims.judge` gives them. Columns: id, statement, unit, emulated and
    modelled (values; NaN: that side does not answer), emulated_verdict and modelled_verdict.
    """
    both = emulated.merge(model[["id", "value", "verdict"]], on="id", suffixes=("", "_modelled"))
    names = {"value": "emulated", "verdict": "emulated_verdict"}
    names |= {"value_modelled": "modelled", "verdict_modelled": "modelled_verdict"}
    found = both.rename(columns=names)[_CLAIMED]
    return found[found.emulated.notna()].reset_index(drop=True)


def ratios(table: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """Emulated over simulated, of each number that is compared: its cells, one for each point that
    has one. What a study picks out of several (the worst repetition) has no two sides, and is none.
    """
    found = {}
    for column in (c for c in table if c.endswith("_ratio")):
        what = column.removesuffix("_ratio")
        if any(other.startswith(f"{what}_emulated") for other in table):
            found[what] = table[column].dropna()
    return found


def summary(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Per device and what was compared: points, median ratio, extremes, share within the goal."""
    goal_ratio = agreement_of(experiment).goal_ratio
    rows = []
    for device, group in table.groupby("device"):
        for column in (c for c in table if c.endswith("_ratio")):
            ratio = group[column].dropna()
            within = float((ratio - 1.0).abs().le(goal_ratio).mean())
            ends = float(ratio.min()), float(ratio.max())
            what = column.removesuffix("_ratio")
            rows.append((device, what, len(ratio), ratio.median(), *ends, within))
    names = ["device", "what", "points", "median", "lowest", "highest", "within_goal_ratio"]
    return pd.DataFrame(rows, columns=names)
