"""What the figures of several experiments have in common: which of them can be drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd
from matplotlib.figure import Figure

from harness import plots
from harness.experiments.base import Results


def drawn(results: Results, makers: Mapping[str, Callable[[], Figure | None]]) -> dict[str, Figure]:
    """Figures by name, each stamped; without those for which the results at hand have nothing."""
    with plots.theme():
        made = {name: make() for name, make in makers.items()}
        return {
            name: plots.stamp(figure, results.stamp)
            for name, figure in made.items()
            if figure is not None
        }


def drawn_by_kind(
    results: Results,
    makers: Mapping[str, tuple[str, Callable[[pd.DataFrame, Results], Figure]]],
) -> dict[str, Figure]:
    """The same, of figures that each show the rows of one kind, if there are some."""

    def one(kind: str, make: Callable[[pd.DataFrame, Results], Figure]) -> Figure | None:
        rows = _of_kind(results.table, kind)
        return None if rows.empty else make(rows, results)

    calls = {
        name: lambda kind=kind, make=make: one(kind, make) for name, (kind, make) in makers.items()
    }
    return drawn(results, calls)


def _of_kind(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    if "kind" not in table:
        return table
    return table[table.kind == kind].dropna(axis="columns", how="all")
