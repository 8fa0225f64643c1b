"""What a sweep has published, with the claims and unknowns that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from harness.errors import BadParameter
from harness.paths import Project
from harness.runs import claims, published
from harness.runs.claims import Claim
from harness.runs.sweeps import at_paper_size, kept, samples, tables, unknowns
from harness.runs.sweeps.machines import TIER, Maker
from harness.runs.sweeps.unknowns import Unknowns

_SIZES: Final = ("smoke", "small", "medium", "paper")
"""Scales' names, as all studies have them, the smallest first."""

ANOTHER_SCALE: Final = "of_another_scale"
"""Under this name a record says which claims its scale decided."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """A sweep's tables, as `Sweep.table` gives them. Each is its own: what is derived is kept.

    `larger`: what the default machine's claims are at the paper's size, or if nobody has recorded
    that at the pipeline's scale, where that is known; `at_larger` says which, in words.
    `is_present`: whether the sweep is by the code of now, with the machine that the pipeline runs
    now. Of an earlier model `larger` is empty: what is known now is of another machine than its
    own, and what differs need not be the scale's doing.
    """

    unknowns: Unknowns
    claims: Mapping[str, Claim]
    machines: pd.DataFrame
    values: pd.DataFrame
    about: Mapping[str, Any]
    larger: Mapping[str, float] = field(default_factory=dict)
    at_larger: str = ""
    is_present: bool = True

    @cached_property
    def finished(self) -> pd.DataFrame:
        """The machines with results, but the default one: it was not drawn."""
        return self.machines[(self.machines.state == "finished") & (self.machines.machine > 0)]

    @cached_property
    def drawn(self) -> NDArray[np.int64]:
        """Numbers of finished machines that were drawn one apart from the other: int64.

        A design for total effects has, in each block, two of them, and mixtures of the two.
        """
        numbers: NDArray[np.int64] = self.finished.machine.to_numpy(dtype=np.int64)
        if self.about["design"] != "totals":
            return numbers
        block = len(self.unknowns.unknowns) + 2
        apart: NDArray[np.int64] = numbers[np.isin((numbers - 1) % block, (0, block - 1))]
        return apart

    @cached_property
    def sample(self) -> pd.DataFrame:
        """The finished machines that were drawn: index their numbers, columns as `machines`."""
        return self.finished.set_index("machine").loc[self.drawn]

    @cached_property
    def by_claim(self) -> pd.DataFrame:
        """Values: a row per finished machine (index: its number), a column per claim, NaN: none."""
        table = self.values.pivot_table(
            index="machine", columns="claim", values="value", dropna=False
        )
        return table.reindex(index=self.finished.machine, columns=list(self.claims)).astype(float)

    @cached_property
    def default(self) -> Mapping[str, float]:
        """The default machine's values by claim, without those that it has none of."""
        return tables.of_default(self.values)

    @cached_property
    def holds(self) -> pd.DataFrame:
        """As `by_claim`: 1.0 where a value is in the claim's range, 0.0 where not, or NaN."""
        return self.by_claim.apply(lambda column: held(self.claims[str(column.name)], column))

    @cached_property
    def shares(self) -> pd.DataFrame:
        """Where finished machines lie in the unknowns' ranges, 0 to 1: index as `by_claim`."""
        names = list(self.unknowns.unknowns)
        rows = self.finished[names].to_dict("records")
        found = samples.shares(self.unknowns, [{str(k): v for k, v in r.items()} for r in rows])
        return pd.DataFrame(found, index=self.finished.machine, columns=names)

    @cached_property
    def of_another_scale(self) -> list[str]:
        """Claims of which the default machine says something else at the larger scale.

        Of these a sweep says what its scale does, not what its machines do. Of a sweep by an
        earlier model those that were such when it was of the present one.
        """
        if not self.is_present:
            return [name for name in self.about.get(ANOTHER_SCALE, ()) if name in self.claims]
        return decided_by_scale(self.claims, self.default, self.larger)

    @property
    def judged(self) -> list[str]:
        """Claims with a finite value on every finished machine, that the scale does not decide."""
        if not len(self.by_claim):
            return []
        there = np.isfinite(self.by_claim).all()
        return [n for n in self.claims if there[n] and n not in self.of_another_scale]


def decided_by_scale(
    known: Mapping[str, Claim], here: Mapping[str, float], larger: Mapping[str, float]
) -> list[str]:
    """Claims of which a machine says something else at a larger scale, by its values at both."""
    both = {name: claim for name, claim in known.items() if name in here and name in larger}
    return [n for n, claim in both.items() if side(claim, here[n]) != side(claim, larger[n])]


def side(claim: Claim, value: float) -> int:
    """Where a value lies of a claim's range: 0 in it, -1 below, 1 above."""
    low, high = claim.expected
    return int(value > high) - int(value < low)


def wilson(count: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share, `count` of `total`; of nothing, all."""
    if not total:
        return 0.0, 1.0
    interval = scipy.stats.binomtest(count, total).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


def with_chance_of_any(frame: pd.DataFrame, looked_at: int, before: str) -> pd.DataFrame:
    """With `chance_of_any` before a column: that any of so many looks as a row does by its `chance`
    (at most; Bonferroni).
    """
    of_any = (frame.chance.astype(float) * looked_at).clip(upper=1.0)
    frame.insert(frame.columns.get_loc(before), "chance_of_any", of_any)
    return frame


def held(claim: Claim, values: pd.Series[float]) -> pd.Series[float]:
    """Whether values are in a claim's range, as numbers; NaN where there is no value."""
    low, high = claim.expected
    return values.between(low, high).astype(float).where(values.notna())


def read(project: Project, study: str, folder: Path) -> Recorded:
    """Of a folder that a sweep has published to. Raises BadParameter where there is none."""
    try:
        machines, values, about = tables.read(folder)
    except (OSError, ValueError) as error:
        raise BadParameter(
            f"{folder}: no sweep to be read there; `harness sweep {study}` makes one"
        ) from error
    known = {claim.id: claim for claim in claims.load(project)[study].claims}
    if "claims" in about:  # else it is of a version that did not note what they ask
        same = tables.unchanged(about, kept.claims_digests(project, study))
        values = values[values.claim.isin(same)]
    mine = unknowns.load(project, study)
    if about["unknowns"] != mine.digest:
        raise BadParameter(
            f"{folder}: was swept over other unknowns than there are now: run it again"
        )
    # A record of before that was noted was judged as now.
    if about.get(kept.AS_PAPER, mine.as_paper) != mine.as_paper:
        raise BadParameter(
            f"{folder}: was judged with other variants taken for the paper's (as_paper) than now: "
            "publish it again"
        )
    is_present = Maker(project, study, mine, _name(about["scale"])).has_made(about)
    larger, at_larger = (
        at_larger_scale(project, study, about["scale"], about["code"]) if is_present else ({}, "")
    )
    return Recorded(mine, known, machines, values, about, larger, at_larger, is_present)


def at_larger_scale(
    project: Project, study: str, scale: str, code: str
) -> tuple[Mapping[str, float], str]:
    """The default machine's values by this code (a digest) at the largest scale that they are known
    at, and which it is; nothing if no scale larger than this one is known.
    """
    if _name(scale) == at_paper_size.SCALE:
        return {}, ""
    whole = at_paper_size.recorded(project, study)
    if whole is not None and whole.is_present:
        return whole.values, "at the paper's size"
    about = published.about(project, study, TIER) or {}
    if about.get("code") != code or _size(scale) >= _size(str(about.get("scale"))):
        return {}, ""
    run = claims.published_verdicts(project, study, TIER)
    values = {name: each["value"] for name, each in run.items() if each["value"] is not None}
    return values, "at the pipeline's scale"


def _name(scale: str) -> str:
    """Of a scale as runs say it: what follows says how large that is."""
    return scale.partition(",")[0]


def _size(scale: str) -> int:
    """Scales in their order; one of no name, a run with sizes of its own, is below all."""
    name = _name(scale)
    return _SIZES.index(name) if name in _SIZES else -1


def found(project: Project) -> list[Path]:
    """Folders of published sweeps, in data/ and in build/, in the order of their names."""
    places = (project.root / "data" / "sweeps", project.build / "sweeps")
    every = [path.parent for place in places for path in place.glob("*/about.json")]
    return sorted(every, key=lambda folder: folder.name)
