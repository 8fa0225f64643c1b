"""The report: every claim with its verdict per tier, the figures, the errata, the conditions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
from rich.console import Console
from rich.table import Table

import harness
from harness import experiments, tiers
from harness.errors import UnknownName
from harness.experiments.base import Results
from harness.experiments.obtaining import no_results
from harness.paths import Project
from harness.runs import (
    agreement,
    captions,
    claims,
    mutations,
    notebooks,
    places,
    published,
    summary,
    times,
)
from harness.runs.captions import Caption
from harness.runs.checkout import made_here
from harness.runs.run_page import inline, template
from harness.system.files import write_atomically
from harness.units import format_bytes

_STYLES: Final = {
    claims.REPRODUCED: "green",
    claims.DIRECTION_ONLY: "yellow",
    claims.UNDECIDED: "yellow",
    claims.NOT_REPRODUCED: "red",
    claims.FITTED: "dim",
    claims.NOT_JUDGED: "dim",
}


def all_published(
    project: Project, papers: Sequence[str] = ()
) -> Iterator[tuple[str, str, Results]]:
    """Paper, tier and results: for tiers with results, and for the simulated one in any case.

    `papers`: of these only; none: of all. Raises UnknownName.
    """
    known = claims.load(project)
    for name in papers:
        if name not in known:
            raise UnknownName("paper", name, known)
    for name in papers or known:
        for tier in tiers.names():
            results = published.results(project, name, tier)
            if tier == "simulated" or not results.table.empty:
                yield name, tier, results


def print_claims(
    project: Project, papers: Sequence[str], console: Console, *, only_failed: bool = False
) -> None:
    """One table per paper and tier, one row per claim; of papers as `all_published`."""
    for name, tier, results in all_published(project, papers):
        title = _title(project, name, tier)
        verdicts = claims.judge(project, name, results)
        print_verdicts(verdicts, title, console, only_failed=only_failed)
        if results.table.empty:
            console.print(f"{_missing(name, tier)}\n")


def print_mutations(project: Project, papers: Sequence[str], console: Console) -> None:
    """Of each claim, a change of the results that changes its verdict, or that there is none."""
    for name, tier, results in all_published(project, papers):
        if results.table.empty:
            console.print(f"{_missing(name, tier)}\n")
            continue
        table = Table(title=_title(project, name, tier), title_justify="left", box=None)
        for heading in ("claim", "verdict", "changed by"):
            table.add_column(heading)
        for row in mutations.can_fail(project, name, results).itertuples():
            table.add_row(row.id, row.verdict, row.changes or "[red]nothing: it cannot fail[/]")
        console.print(table)


def _missing(name: str, tier: str) -> str:
    """That there are no results, and how to get them if there can be."""
    if name in experiments.names() and tier in experiments.find(name).tiers:
        return no_results(name, tier)
    return f"{name} does not run on tier {tier}"


def _title(project: Project, name: str, tier: str) -> str:
    here = published.is_from_here(published.about(project, name, tier))
    scale = published.scale_of(project, name, tier)
    title = f"{name}, tier {tier}" + (f", scale {scale}" if scale else "")
    return title + ("" if here else " (the authors' machine; not run on this one)")


def print_judged(
    project: Project, experiment: str, results: Results, title: str, console: Console
) -> None:
    """What results that are not published say of a paper's claims."""
    print_verdicts(claims.judge(project, experiment, results), title, console)


def print_verdicts(
    verdicts: pd.DataFrame, title: str, console: Console, *, only_failed: bool = False
) -> None:
    """The claims of one paper on one tier, or those that it does not reproduce, or not wholly."""
    shown = verdicts[verdicts.verdict.isin(claims.WANTING)] if only_failed else verdicts
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("claim", ratio=1)
    table.add_column("paper", max_width=18)
    for heading in ("expected", "here", "min..max"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in shown.itertuples():
        style = _STYLES[row.verdict]
        table.add_row(
            f"{row.place}: {row.statement}",
            row.published,
            claims.format_range(row.expected, row.unit),
            claims.format_value(row.value, row.unit, row.expected),
            claims.format_spread(row),
            f"[{style}]{claims.said(row)}[/]",
        )
    console.print(table)
    console.print(f"{claims.count(verdicts)}\n")


def write(project: Project) -> Path:
    """Writes build/report/index.html from what is published; returns its path."""
    page = project.report / "index.html"
    papers = [_paper(project, name) for name in claims.load(project)]
    scales = {tier["scale"] for paper in papers for tier in paper["tiers"] if tier["simulated"]}
    text = template("report.html").render(
        version=harness.__version__,
        made=made_here(project),
        reduced=sorted(scales) if "paper" not in scales else [],
        papers=papers,
        overview=summary.lines(project),
        headings=summary.HEADINGS,
        sceptic=summary.sceptic(project),
        notebooks=_notebooks(project),
        stages=[stage for stage in times.read(project) if stage.name != times.REPORT],
        format_value=claims.format_value,
        format_range=claims.format_range,
        format_bytes=format_bytes,
        said=claims.said,
        spread=claims.format_spread,
    )
    write_atomically(page, text.encode(), make_folder=True)
    return page


def _paper(project: Project, name: str) -> dict[str, Any]:
    paper = claims.load(project)[name]
    title = experiments.find(name).title if name in experiments.names() else paper.title
    return {
        "name": name,
        "title": title,
        "paper": paper,
        "tiers": [_tier(project, name, tier) for tier in tiers.names()],
    }


def _tier(project: Project, name: str, tier: str) -> dict[str, Any]:
    results = published.results(project, name, tier)
    about = published.about(project, name, tier)
    compared = agreement.published_table(project, name)
    place = places.published(project, name, tier)
    judged, variants = claims.judge_all(project, name, results)
    below = captions.of(project, name, judged)
    return {
        "tier": tier,
        "scale": results.scale,
        "run": not results.table.empty,
        "missing": _missing(name, tier),
        "simulated": tier == "simulated" and results.scale,
        "command": _command(name, tier),
        "table": _link(project, place.table),
        "traces": _link(project, place.traces),
        "verdicts": list(judged.itertuples()),
        "count": claims.count(judged),
        "variants": _variant_rows(variants),
        "variant_names": [v for v in variants.columns if v not in claims.NOT_VARIANTS],
        "figures": [_figure(project, path, below) for path in sorted(place.figures.glob("*.svg"))],
        "about": about,
        "elsewhere": not published.is_from_here(about),
        "agreement": _agreement(compared, name) if tier == "emulated" else [],
        "goal": _goal(name),
        "model_of_run": _model_of_run(project, name, judged) if tier == "emulated" else [],
    }


def _command(name: str, tier: str) -> str:
    """What runs a study on a tier; nothing if it does not run there."""
    if name not in experiments.names() or tier not in experiments.find(name).tiers:
        return ""
    drives = " --drive DEVICE=CLAIMED" if tier == "hardware" else ""
    return f"harness run {name} --tier {tier}{drives}"


def _figure(project: Project, path: Path, below: Mapping[str, Sequence[Caption]]) -> dict[str, Any]:
    """A picture, what it shows of the paper's claims, and where it lies."""
    return {
        "name": path.stem,
        "svg": inline(path.read_text(encoding="utf-8")),
        "file": _link(project, path),
        "claims": below.get(path.stem, ()),
    }


def _link(project: Project, path: Path) -> str:
    """From the report to a place in the checkout."""
    return Path(os.path.relpath(path, project.report)).as_posix()


def _agreement(path: Path, name: str) -> list[dict[str, Any]]:
    """Rows of agreement.summary, if the two tiers have been compared."""
    if not path.is_file():
        return []
    rows: list[dict[str, Any]] = agreement.summary(pd.read_csv(path), name).to_dict("records")
    return rows


def _goal(name: str) -> str:
    """Within how much of each other its tiers are to be: '15 %'; nothing if none compares them."""
    compared = experiments.find(name).agreement if name in experiments.names() else None
    return f"{100 * compared.goal_ratio:g} %" if compared else ""


def _model_of_run(project: Project, name: str, judged: pd.DataFrame) -> list[Any]:
    """Rows of agreement.claims_of, if the two tiers have been compared. `judged`: the run."""
    model = agreement.modelled(project, name)
    if model.table.empty:
        return []
    found = agreement.claims_of(judged, claims.judge(project, name, model))
    return list(found[found.modelled.notna()].itertuples())


def _variant_rows(variants: pd.DataFrame) -> list[dict[str, Any]]:
    """A claim that no variant has the points for has no row."""
    names = [v for v in variants.columns if v not in claims.NOT_VARIANTS]
    rows = []
    for row in variants.dropna(subset=names, how="all").to_dict("records"):
        low, high = row["expected"]
        cells = [(row[n], bool(pd.notna(row[n]) and low <= row[n] <= high)) for n in names]
        rows.append({**{name: row[name] for name in claims.NOT_VARIANTS}, "cells": cells})
    return rows


def _notebooks(project: Project) -> list[tuple[str, bool]]:
    """All, and whether there is a page; and studies' pages on other tiers, by their own names."""
    studies = notebooks.of_studies(project).values()
    others = (f"{study}.{tier}" for study in studies for tier in tiers.names())
    there = {path.stem for path in project.report.glob("*.html")}
    own = notebooks.names(project)
    return [(name, name in there) for name in own] + [(n, True) for n in others if n in there]
