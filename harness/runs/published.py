"""Results that were published: what they are, and where they were measured."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from harness.drives import fingerprint
from harness.errors import DataFolderError
from harness.experiments.base import Results
from harness.paths import Project
from harness.runs import places
from harness.runs.places import Place
from harness.system.files import digests_of


def results(project: Project, experiment: str, tier: str) -> Results:
    """The published results of an experiment on a tier; empty if there are none.

    Raises DataFolderError if they are of another run than what lies beside them says.
    """
    place = places.published(project, experiment, tier)
    if not place.table.is_file():
        return Results(tier, pd.DataFrame(), {}, lambda _: None)
    series = place.series.read_text() if place.series.is_file() else "{}"
    table = place.table.read_text()
    facts = about(project, experiment, tier) or {}
    _check_same(facts, digests(place, table, series))
    found = read(tier, table, series, place.traces)
    return replace(found, scale=str(facts.get("scale", "")))


def digests(place: Place, table: str, series: str) -> dict[str, str]:
    """What about.json notes of the files beside it: by their names SHA-256 (hex) of them."""
    return digests_of({place.table.name: table.encode(), place.series.name: series.encode()})


def _check_same(facts: Mapping[str, Any], found: Mapping[str, str]) -> None:
    """A crash, or a hand, between a table and what it depends on: who can say whose that is?"""
    said = facts.get("files", found)  # older ones do not say
    other = sorted(name for name in found if said.get(name) != found[name])
    if other:
        raise DataFolderError(
            f"{', '.join(other)}: not what its run has published (see what lies beside it, "
            ".about.json): git checkout data, or run the study again"
        )


def read(tier: str, table: str, series: str, traces: Path) -> Results:
    """Results as they are published: CSV, JSON, and a folder of traces."""
    rows = pd.read_csv(io.StringIO(table), dtype={"point": str}) if table.strip() else None

    def trace(point: str) -> pd.DataFrame | None:
        path = traces / f"{point}.parquet"
        return pd.read_parquet(path) if path.is_file() else None

    return Results(tier, pd.DataFrame() if rows is None else rows, json.loads(series), trace)


def as_csv(table: pd.DataFrame) -> str:
    """The table of results as it is published: nine digits, and whole numbers with all of theirs.

    A column of counts in which some points have nothing is one of floats, of which a size in bytes
    would lose its last digits.
    """
    whole = {name: "Int64" for name, column in table.items() if _is_whole(column)}
    text: str = table.astype(whole).to_csv(index=False, float_format="%.9g", lineterminator="\n")
    return text


def _is_whole(column: pd.Series[Any]) -> bool:
    if not pd.api.types.is_float_dtype(column):
        return False
    found = column.dropna()
    return bool((found.abs() < _EXACT).all() and (found % 1 == 0).all())


_EXACT: Final = 2.0**53
"""Up to here a float holds every whole number."""


def about(project: Project, experiment: str, tier: str) -> dict[str, Any] | None:
    """What the published results depend on; None if there are none."""
    path = places.published(project, experiment, tier).about
    return json.loads(path.read_text()) if path.is_file() else None


def scale_of(project: Project, experiment: str, tier: str) -> str:
    """How large the published run was; "" if there is none, or if it does not say."""
    return str((about(project, experiment, tier) or {}).get("scale", ""))


def is_from_here(facts: dict[str, Any] | None) -> bool:
    """Whether results (`about`) were measured on this machine, or do not depend on one."""
    machine = fingerprint.machine()
    return all(
        device.get(name, value) == value
        for device in (facts or {}).get("devices", {}).values()
        for name, value in machine.items()
    )
