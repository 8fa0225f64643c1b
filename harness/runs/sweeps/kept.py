"""Machines that a recorded sweep has already: those a longer one need not run again.

A machine is the same if all of its points have the same keys in the journal, which say code,
profiles, inputs and parameters; and its claims' values are taken if the claims ask for the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.runs import code
from harness.runs.claims import Claim
from harness.runs.sweeps import tables
from harness.system.files import digest_of

FINISHED: Final = "finished"
REFUSED: Final = "refused"


@dataclass(frozen=True)
class Kept:
    """A machine's lines in a sweep's tables, whatever its number there is.

    `values`: claim -> value (NaN: the points that it needs are not in the sweep); none of one that
    was refused, for `reason`.
    """

    state: str
    reason: str
    values: Mapping[str, float]


def points_digest(keys: Sequence[str]) -> str:
    """Of a machine's points, by their keys in the journal."""
    return digest_of((), "\n".join(keys))


def claims_digest(claims: Sequence[Claim]) -> str:
    """Of what decides claims' values, beside results: what they ask for, and the code that asks."""
    asked = {claim.id: claim.metric for claim in claims}
    judges = code.reached([Claim.__module__]).digest()
    return digest_of((), json.dumps([asked, judges], sort_keys=True))


def read(folder: Path, claims: str) -> dict[str, Kept]:
    """By `points_digest`, of a folder that a sweep has published to with the same claims.

    Empty if there is none, or one of other claims or an earlier version.
    """
    try:
        machines, values, about = tables.read(folder)
    except (OSError, ValueError):
        return {}
    if about.get("claims") != claims:
        return {}
    of_machine = {
        int(number): dict(zip(rows.claim, rows.value.astype(float), strict=True))
        for number, rows in values.groupby("machine")
    }
    return {
        row.points: Kept(row.state, row.reason, of_machine.get(row.machine, {}))
        for row in machines.itertuples()
        if row.points and row.state in (FINISHED, REFUSED)
    }
