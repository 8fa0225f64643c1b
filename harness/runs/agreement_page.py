"""How near simulated and emulated are, in all studies: a part of docs/validation.md.

    harness agreement --document

Made of the tables that are published, so that the page can be made, and checked, without a run.
"""

from __future__ import annotations

from typing import Final

import pandas as pd

from harness import experiments
from harness.paths import Project
from harness.runs import agreement
from harness.runs.made_part import MadePart, row

HEADINGS: Final = (
    *("study", "compared", "cells", "median", "lowest", "highest"),
    *("within 5 %", "within 10 %", "within 20 %"),
)
_WITHIN: Final = (0.05, 0.1, 0.2)


def part(project: Project) -> MadePart:
    """Where it stands."""
    return MadePart(project.validation, "harness agreement --document")


def in_markdown(project: Project) -> str:
    """A table under `HEADINGS`, ratios being emulated over simulated.

    Of each study a line for all of its cells, and one for each number that is compared; at the end
    one for all studies. A study of which no comparison is published has none.
    """
    lines = [row(HEADINGS), row(["---"] * len(HEADINGS))]
    everything = []
    for name in experiments.names():
        path = agreement.published_table(project, name)
        if not path.is_file():
            continue
        ratios = agreement.ratios(pd.read_csv(path))
        cells = pd.concat(list(ratios.values()))
        everything.append(cells)
        lines.append(_line(name, "**all**", cells))
        lines += [_line("", what.replace("_", " "), found) for what, found in ratios.items()]
    if len(everything) > 1:
        lines.append(_line("**all studies**", "", pd.concat(everything)))
    return "".join(f"{line}\n" for line in lines)


def _line(study: str, what: str, ratios: pd.Series[float]) -> str:
    spread = [f"{value:.3f}" for value in (ratios.median(), ratios.min(), ratios.max())]
    far = (ratios - 1.0).abs()
    within = [str(int(far.le(bound).sum())) for bound in _WITHIN]
    return row([study, what, str(len(ratios)), *spread, *within])
