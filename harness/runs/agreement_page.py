"""How near simulated and emulated are, in all studies: a part of docs/validation.md.

    harness agreement --document

Made of the tables that are published, so that the page can be made, and checked, without a run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from typing import Any, Final

import pandas as pd

from harness import experiments
from harness.experiments.beside import JudgedAgreement
from harness.paths import Project
from harness.runs import agreement
from harness.runs.made_part import MadePart, row
from harness.units import format_bytes

HEADINGS: Final = (
    *("study", "compared", "cells", "median", "lowest", "highest"),
    *("within 5 %", "within 10 %", "within 20 %"),
)
_WITHIN: Final = (0.05, 0.1, 0.2)
FAR_HEADINGS: Final = ("study", "point", "compared", "emulated", "simulated", "ratio")
_FAR: Final = 0.1


def part(project: Project) -> MadePart:
    """Where it stands."""
    return MadePart(project.validation, "harness agreement --document")


def in_markdown(project: Project) -> str:
    """A table under `HEADINGS`, ratios being emulated over simulated.

    Of each study a line for all of its cells, and one for each number that is compared, in all and
    on each of several devices; at the end one for all studies. All but a number's own without what
    is determined (see `JudgedAgreement`). A study of which no comparison is published has none.
    Below it all cells that are more than 10 % apart, under `FAR_HEADINGS`, the farthest of each
    study first.
    """
    lines = [row(HEADINGS), row(["---"] * len(HEADINGS))]
    far = [row(FAR_HEADINGS), row(["---"] * len(FAR_HEADINGS))]
    everything = []
    for name in experiments.names():
        path = agreement.published_table(project, name)
        if not path.is_file():
            continue
        table = pd.read_csv(path)
        ratios = agreement.ratios(table)
        far += _far(name, table, ratios)
        determined = _determined(name)
        cells = pd.concat([found for what, found in ratios.items() if what not in determined])
        everything.append(cells)
        lines.append(_line(name, "**all**", cells))
        for what, found in ratios.items():
            lines.append(_line("", _named(what, determined), found))
            if what not in determined and "device" in table:
                lines += _each_device(what, found, table.device)
    if len(everything) > 1:
        lines.append(_line("**all studies**", "", pd.concat(everything)))
    return "".join(f"{line}\n" for line in [*lines, "", *far])


def _determined(study: str) -> frozenset[str]:
    compared = experiments.find(study).agreement
    return compared.determined if isinstance(compared, JudgedAgreement) else frozenset()


def _named(what: str, determined: Collection[str]) -> str:
    return f"{what.replace('_', ' ')}{' (determined)' if what in determined else ''}"


def _each_device(what: str, ratios: pd.Series[float], device: pd.Series[str]) -> list[str]:
    of = ratios.groupby(device.loc[ratios.index])
    if of.ngroups < 2:
        return []
    return [_line("", f"{_named(what, ())}, {name}", found) for name, found in of]


def _line(study: str, what: str, ratios: pd.Series[float]) -> str:
    spread = [f"{value:.3f}" for value in (ratios.median(), ratios.min(), ratios.max())]
    far = (ratios - 1.0).abs()
    within = [str(int(far.le(bound).sum())) for bound in _WITHIN]
    return row([study, what, str(len(ratios)), *spread, *within])


def _far(study: str, table: pd.DataFrame, ratios: Mapping[str, pd.Series[float]]) -> list[str]:
    names = list(itertools.takewhile(lambda column: "_emulated" not in column, table))
    told = [n for n in names if table[n].nunique() > 1 and table[n].dtype.kind != "f"]  # measured
    cells = [(ratio, at, what) for what, found in ratios.items() for at, ratio in found.items()]
    far = [cell for cell in cells if abs(cell[0] - 1.0) > _FAR]
    return [
        row(
            [
                study,
                ", ".join(_said(name, table[name][at]) for name in told),
                what.replace("_", " "),
                *(_value(_side(table.loc[at], what, tier)) for tier in ("emulated", "simulated")),
                f"{ratio:.2f}",
            ]
        )
        for ratio, at, what in sorted(far, key=lambda cell: -_distance(cell[0]))
    ]


def _distance(ratio: float) -> float:
    return abs(math.log(ratio)) if ratio else math.inf


def _side(cells: pd.Series[Any], what: str, tier: str) -> Any:
    """What one of the two says; its unit may stand behind the tier."""
    return next(cells[name] for name in cells.index if str(name).startswith(f"{what}_{tier}"))


def _said(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return f"{name.removesuffix('_bytes').replace('_', ' ')} {format_bytes(int(value))}"
    return str(value) if isinstance(value, str) else f"{name.replace('_', ' ')} {value}"


def _value(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
