"""Machines that a recorded sweep has already: those a longer one need not run again.

A machine is the same if all of its points have the same keys in the journal, which say code,
profiles, inputs and parameters. Of its claims' values those are taken whose claims ask for the same
as when they were recorded; what a claim asks that is new since then, nobody has asked that machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.paths import Project
from harness.runs import claims, code
from harness.runs.queries import Queries
from harness.runs.sweeps import tables
from harness.system.files import digest_of

FINISHED: Final = "finished"
REFUSED: Final = "refused"
AS_PAPER: Final = "as_paper"
"""Under this name a record says which variants were judged as the paper's."""


@dataclass(frozen=True)
class Kept:
    """A machine's lines in a sweep's tables, whatever its number there is.

    `values`: claim -> value (NaN: the points that it needs are not in the sweep, or its metric has
    no value); none of one that was refused, for `reason`.
    """

    state: str
    reason: str
    values: Mapping[str, float]


def points_digest(keys: Sequence[str]) -> str:
    """Of a machine's points, by their keys in the journal."""
    return digest_of((), "\n".join(keys))


def claims_digests(project: Project, study: str) -> dict[str, str]:
    """By claim, of what decides its value beside results: the query, what it asks, and the code
    that asks. What is expected of a value is not in it.
    """
    paper = claims.load(project)[study]
    numbers = project.published / f"{study}.csv"
    there = [(numbers.name, numbers)] if numbers.is_file() else []
    asks = code.reached([Queries.__module__]).digest()
    asked = {claim.id: [paper.relation, claim.metric, asks] for claim in paper.claims}
    return {name: digest_of(there, json.dumps(each)) for name, each in asked.items()}


def read(folder: Path, asked: Mapping[str, str], as_paper: Sequence[str]) -> dict[str, Kept]:
    """By `points_digest`, of a folder that a sweep has published to, with the values of claims that
    ask for the same (`asked`: as `claims_digests`), with the same variants taken for the paper's.

    Empty if there is none, or one of an earlier version, with others, or of none of these claims.
    """
    try:
        machines, values, about = tables.read(folder)
    except (OSError, ValueError):
        return {}
    same = tables.unchanged(about, asked)
    if not same or about.get(AS_PAPER, as_paper) != as_paper:  # earlier: not noted
        return {}
    of_machine = {
        int(number): dict(zip(rows.claim, rows.value.astype(float), strict=True))
        for number, rows in values[values.claim.isin(same)].groupby("machine")
    }
    return {
        row.points: Kept(row.state, row.reason, of_machine.get(row.machine, {}))
        for row in machines.itertuples()
        if row.points and row.state in (FINISHED, REFUSED)
    }
