"""The pipeline's machine at a paper's own size, which takes too long for the pipeline.

It is recorded once, as the default machine of a sweep of that scale:

    harness sweep msdj_tpcc --scale paper --machines 0 --publish
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.paths import Project
from harness.runs import claims
from harness.runs.sweeps import kept, tables, unknowns
from harness.runs.sweeps.machines import TIER, Maker

SCALE: Final = "paper"
TITLE: Final = "simulated, the paper's size, one run"
"""What it is called beside tiers; of one run nobody knows an interval, so nothing is undecided."""


@dataclass(frozen=True)
class AtPaperSize:
    """Claims' values, of those that have one; `is_present`: whether by the code of now, of the
    machine that the pipeline runs now.
    """

    values: Mapping[str, float]
    is_present: bool

    @property
    def title(self) -> str:
        """What it is called."""
        return TITLE if self.is_present else f"{TITLE}, by an earlier model"


def recorded(project: Project, study: str) -> AtPaperSize | None:
    """What is recorded of a study's default machine, of claims that ask for the same as then; None:
    nothing.
    """
    folder = project.root / "data" / "sweeps" / f"{study}.{SCALE}.sobol"
    try:
        _, values, about = tables.read(folder)
    except (OSError, ValueError):
        return None
    same = tables.unchanged(about, kept.claims_digests(project, study))
    found = tables.of_default(values[values.claim.isin(same)])
    if not found:
        return None
    maker = Maker(project, study, unknowns.load(project, study), SCALE)
    return AtPaperSize(found, maker.has_made(about))


def verdicts(project: Project, study: str) -> tuple[str, dict[str, Any]]:
    """Its title, and per claim what `claims.published_verdicts` has of a tier."""
    found = recorded(project, study)
    if found is None:
        return "", {}
    unchanged = claims.unchanged(project, study, TIER)
    judged: dict[str, Any] = {}
    for claim in claims.load(project)[study].claims:
        value = found.values.get(claim.id)
        each: dict[Hashable, Any] = {"value": value, "verdict": claim.verdict(value)}
        judged[claim.id] = {
            **each,
            "no_evidence": claims.is_no_evidence(claim, each, unchanged),
        }
    return found.title, judged
