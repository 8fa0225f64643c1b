"""Results that were published: what they are, and where they were measured."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from harness.drives import fingerprint
from harness.experiments.base import Results
from harness.paths import Project


def results(project: Project, experiment: str, tier: str) -> Results:
    """The published results of an experiment on a tier; empty if there are none."""
    path = project.results / f"{experiment}.{tier}.csv"
    if not path.is_file():
        return Results(tier, pd.DataFrame(), {}, lambda _: None)
    table = pd.read_csv(path, dtype={"point": str})
    series = path.with_suffix(".series.json")
    repeated = json.loads(series.read_text()) if series.is_file() else {}
    return Results(tier, table, repeated, lambda _: None)


def about(project: Project, experiment: str, tier: str) -> dict[str, Any] | None:
    """What the published results depend on; None if there are none."""
    path = project.results / f"{experiment}.{tier}.about.json"
    return json.loads(path.read_text()) if path.is_file() else None


def is_from_here(facts: dict[str, Any] | None) -> bool:
    """Whether results (`about`) were measured on this machine, or do not depend on one."""
    machine = fingerprint.machine()
    return all(
        device.get(name, value) == value
        for device in (facts or {}).get("devices", {}).values()
        for name, value in machine.items()
    )
