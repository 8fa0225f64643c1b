"""Where a run's files lie: in data/ if params.yaml describes it, else in a folder of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.paths import Project


@dataclass(frozen=True)
class Place:
    """A study's table, series, origin and metrics on a tier, its folders of figures and traces.

    `notebook` is the one that ran it, executed, if one did. `page` is the run's own report; None
    for what is published, which the report of all shows.
    """

    table: Path
    series: Path
    about: Path
    metrics: Path
    figures: Path
    traces: Path
    notebook: Path
    page: Path | None = None

    @property
    def folder(self) -> Path:
        """Of the table, and of all else of a run that is not published."""
        return self.table.parent


def published(project: Project, name: str, tier: str) -> Place:
    """Of what the pipelines describe, which is under DVC or under git."""
    stem = f"{name}.{tier}"
    return Place(
        table=project.results / f"{stem}.csv",
        series=project.results / f"{stem}.series.json",
        about=project.results / f"{stem}.about.json",
        metrics=project.metrics / f"{stem}.json",
        figures=project.figures / name / tier,
        traces=project.raw / name / tier,
        notebook=_executed(project, name, tier),
    )


def _executed(project: Project, name: str, tier: str) -> Path:
    """Papermill stamps the time into it: what gives the same bytes everywhere does without."""
    folder = project.report if tier == "simulated" else project.executed
    return folder / f"{name}.{tier}.ipynb"


def own(project: Project, identity: str) -> Place:
    """Of any other run: build/runs/IDENTITY, which nobody else reads."""
    folder = project.build / "runs" / identity
    return Place(
        table=folder / "results.csv",
        series=folder / "results.series.json",
        about=folder / "results.about.json",
        metrics=folder / "metrics.json",
        figures=folder / "figures",
        traces=folder / "traces",
        notebook=folder / "notebook.ipynb",
        page=folder / "index.html",
    )


def identity(name: str, tier: str, scale: str, asked: Mapping[str, Any]) -> str:
    """A folder's name: the same for whoever asks for the same again."""
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()
    return f"{name}.{tier}.{scale}.{digest[:8]}" if scale else f"{name}.{tier}.{digest[:8]}"
