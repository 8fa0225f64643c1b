"""The report: every claim with its verdict per tier, the figures, the errata, the conditions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Console
from rich.table import Table

import harness
from harness import experiments, tiers
from harness.experiments.base import Results
from harness.paths import Project
from harness.runs import agreement, claims, notebooks, published
from harness.system.files import write_atomically

_STYLES: Final = {
    claims.REPRODUCED: "green",
    claims.TREND_ONLY: "yellow",
    claims.NOT_REPRODUCED: "red",
    claims.NOT_RUN: "dim",
}


def all_published(project: Project) -> Iterator[tuple[str, str, Results]]:
    """Paper, tier and results: for tiers with results, and for the simulated one in any case."""
    for name in claims.load(project):
        for tier in tiers.names():
            results = published.results(project, name, tier)
            if tier == "simulated" or not results.table.empty:
                yield name, tier, results


def print_claims(project: Project, console: Console) -> None:
    """One table per paper and tier, one row per claim."""
    for name, tier, results in all_published(project):
        print_verdicts(claims.judge(project, name, results), _title(project, name, tier), console)


def _title(project: Project, name: str, tier: str) -> str:
    here = published.is_from_here(published.about(project, name, tier))
    return f"{name}, tier {tier}" + ("" if here else " (the authors' machine; not run on this one)")


def print_judged(
    project: Project, experiment: str, results: Results, title: str, console: Console
) -> None:
    """What results that are not published say of a paper's claims."""
    print_verdicts(claims.judge(project, experiment, results), title, console)


def print_verdicts(verdicts: pd.DataFrame, title: str, console: Console) -> None:
    """The claims of one paper on one tier."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("claim", ratio=1)
    table.add_column("paper", max_width=18)
    for heading in ("expected", "here", "min..max"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in verdicts.itertuples():
        style = _STYLES[row.verdict]
        table.add_row(
            f"{row.place}: {row.statement}",
            row.published,
            format_range(row.expected),
            claims.format_value(row.value),
            _spread(row),
            f"[{style}]{row.verdict}[/]",
        )
    console.print(table)
    reproduced = (verdicts.verdict == claims.REPRODUCED).sum()
    console.print(f"{reproduced} of {len(verdicts)} claims reproduced\n")


def write(project: Project) -> Path:
    """Writes build/report/index.html from what is published; returns its path."""
    environment = Environment(
        loader=PackageLoader("harness", "templates"), autoescape=True, undefined=StrictUndefined
    )
    template = environment.get_template("report.html")
    page = project.report / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    papers = [_paper(project, name) for name in claims.load(project)]
    text = template.render(
        version=harness.__version__,
        papers=papers,
        notebooks=_notebooks(project),
        format_value=claims.format_value,
        format_range=format_range,
        spread=_spread,
    )
    write_atomically(page, text.encode())
    return page


def format_range(expected: tuple[float, float]) -> str:
    """'7 .. 13'."""
    return f"{expected[0]:g} .. {expected[1]:g}"


def _spread(row: Any) -> str:
    if pd.isna(row.lowest) or row.lowest == row.highest:
        return ""
    return f"{claims.format_value(row.lowest)}..{claims.format_value(row.highest)}"


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
    agreement = project.results / f"{name}.agreement.csv"
    variants = claims.judge_variants(project, name, results)
    figures = sorted((project.figures / name / tier).glob("*.svg"))
    return {
        "tier": tier,
        "run": not results.table.empty,
        "verdicts": list(claims.judge(project, name, results).itertuples()),
        "variants": _variant_rows(variants),
        "variant_names": [v for v in variants.columns if v not in ("claim", "expected")],
        "figures": [(path.stem, _inline(path)) for path in figures],
        "about": about,
        "elsewhere": not published.is_from_here(about),
        "agreement": _agreement(agreement, name) if tier == "emulated" else [],
    }


def _agreement(path: Path, name: str) -> list[dict[str, Any]]:
    """Rows of agreement.summary, if the two tiers have been compared."""
    if not path.is_file():
        return []
    rows: list[dict[str, Any]] = agreement.summary(pd.read_csv(path), name).to_dict("records")
    return rows


def _variant_rows(variants: pd.DataFrame) -> list[dict[str, Any]]:
    """A claim that no variant has the points for has no row."""
    names = [v for v in variants.columns if v not in ("claim", "expected")]
    rows = []
    for row in variants.dropna(subset=names, how="all").to_dict("records"):
        low, high = row["expected"]
        cells = [(row[n], bool(pd.notna(row[n]) and low <= row[n] <= high)) for n in names]
        rows.append({"claim": row["claim"], "expected": row["expected"], "cells": cells})
    return rows


def _inline(svg: Path) -> str:
    """The picture's own markup, without the XML prologue: the page needs no other file."""
    text = svg.read_text(encoding="utf-8")
    return text[text.index("<svg") :]


def _notebooks(project: Project) -> list[tuple[str, bool]]:
    return [
        (name, (project.report / f"{name}.html").is_file()) for name in notebooks.names(project)
    ]
