"""What comparisons of the two modelled tiers have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd

from harness.drives import fingerprint
from harness.errors import BadParameter
from harness.experiments.base import Agreement, Cell, Measurement, Results, Runs
from harness.experiments.obtaining import no_results


@dataclass(frozen=True)
class Beside:
    """An emulated run beside the model of the same run: its size, server and pace.

    `table` is what `Agreement.compare` gives. `emulated`: the run's results. `modelled`: what the
    model has of the same points, by which the same claims can be judged: where the two say the
    same, and the simulated tier something else, the run's size decides and not the real stack.
    """

    table: pd.DataFrame
    emulated: Results
    modelled: Results


@dataclass(frozen=True)
class JudgedAgreement(Agreement):
    """An agreement that gives the model's results, too. `beside` raises as `compare` does.

    `determined`: what follows on both sides from the same input, or is counted by the same model:
    that it agrees is a check, and no finding.
    """

    beside: Callable[..., Beside]
    determined: frozenset[str] = frozenset()


def ratio_of(emulated: float, simulated: float) -> float | None:
    """Emulated over simulated: infinite where the model has nothing of what is there; None where
    there is nothing on either side, which is no agreement that anybody has looked for.
    """
    if simulated:
        return emulated / simulated
    return math.inf if emulated else None


def modelled(emulated: Results, found: Mapping[str, tuple[Cell, Measurement]]) -> Results:
    """What the model says of a run's points: by a point's id its cell and what the model measured.

    See `in_its_place`.
    """
    rows = [
        {**cell.values, **measured.metrics, "point": id_} for id_, (cell, measured) in found.items()
    ]
    series = {id_: measured.series for id_, (_, measured) in found.items()}
    return in_its_place(emulated, pd.DataFrame(rows), series)


def in_its_place(
    emulated: Results, table: pd.DataFrame, series: Mapping[str, Mapping[str, Sequence[float]]]
) -> Results:
    """A model's results as if they were the run's: what only a kernel can measure is missing."""
    names = [*emulated.table.columns, *(n for n in table.columns if n not in emulated.table)]
    found = table.reindex(columns=names)
    if _SCALE in emulated.table:  # no parameter of a point, and nothing that is measured
        found[_SCALE] = found.point.map(emulated.table.set_index("point")[_SCALE])
    return replace(emulated, table=found, series=series, trace_of=lambda _: None)


_SCALE: Final = "scale"


def here_or_published(runs: Runs, here: Results, alike: Collection[str] = ()) -> Results:
    """What was run on tier emulated here, or else what is published of it.

    What that tier measures does not depend on the model beside it, so what was published may be
    laid beside a model that has changed since. It is, too, where only some of its points were run
    here. `alike`: of this machine the facts (`fingerprint.machine`) that the model is given: what
    was measured on a machine with others cannot be laid beside it here. Raises BadParameter then,
    and if there is neither.
    """
    published = runs.published("emulated")
    if _points(here) < _points(published):
        _check_alike(runs, alike)
        return published
    if here.table.empty:
        raise not_run(runs)
    return here


def _check_alike(runs: Runs, names: Collection[str]) -> None:
    """Raises BadParameter if what is published was measured where one of these facts was another,
    or if nobody can say.
    """
    if not names:
        return
    machine = fingerprint.machine()
    there = {
        (name, str(facts.get(name)))
        for facts in runs.recorded("emulated").get("devices", {}).values()
        for name in names
    }
    other = sorted(f"{name} {value!r}" for name, value in there if value != machine[name])
    if other:
        here = ", ".join(f"{name} {machine[name]!r}" for name in sorted(names))
        raise BadParameter(
            f"{runs.name}: what is published was measured on another machine ({', '.join(other)}) "
            f"than this one ({here}), which the model beside it would be given: run the study here "
            "first (make emulated)"
        )


def _points(results: Results) -> set[str]:
    """Their ids: the same for the same parameters."""
    return set() if results.table.empty else set(results.table.point)


def not_run(runs: Runs) -> BadParameter:
    """The error that says so."""
    return BadParameter(no_results(runs.name, "emulated"))
