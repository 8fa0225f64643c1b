"""The figures: how often a power cut did damage, with how much certainty, and what was seen."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness import plots
from harness.dbms import page_writes
from harness.experiments.base import Results
from harness.experiments.msdj_crashes import outcomes
from harness.units import format_bytes

_DAMAGED, _TORN = "#b5542c", "#2c6fb5"
_MARKS: Final = (
    ("cuts_with_torn_pages", "torn pages before recovery", _TORN, 0.14),
    ("damaged_cuts", "damage after recovery", _DAMAGED, -0.14),
)


NEEDS: Final = {
    "damage": "power cuts (tier emulated)",
    "table": "power cuts (tier emulated)",
}
"""Which points each figure is drawn of, for who has none."""


def draw(results: Results) -> dict[str, Figure]:
    """All figures that the results at hand can fill."""
    if results.table.empty:
        return {}
    rows = _by_configuration(results.table)
    with plots.theme():
        return {
            name: plots.stamp(make(rows), results.stamp)
            for name, make in (("damage", _damage), ("table", _table))
        }


def _by_configuration(table: pd.DataFrame) -> pd.DataFrame:
    """Sums over the batches of a mode and journal size, in the modes' order; `refused`: a text."""
    numbers = table.select_dtypes("number").columns.difference(["journal_bytes", "repetition"])
    rows = []
    for mode in page_writes.MODES:
        for journal_bytes, mine in table[table["mode"] == mode].groupby("journal_bytes"):
            refused = mine.get("not_run_because", pd.Series(dtype=str)).dropna()
            names = {"mode": mode, "journal_bytes": journal_bytes}
            rows.append({**names, **mine[numbers].sum(), "refused": " ".join(refused[:1])})
    return pd.DataFrame(rows)


def _title(row: Any) -> str:
    return f"{page_writes.find(row.mode).title}\njournal {format_bytes(float(row.journal_bytes))}"


def _interval(count: float, cuts: float) -> str:
    low, high = outcomes.interval(int(count), int(cuts))
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def _split(row: pd.Series) -> str:
    if not row.journaled_pages:
        return "-"
    return f"{row.split_pages:,.0f} of {row.journaled_pages:,.0f}"


_COLUMNS: Final[dict[str, Callable[[pd.Series], str]]] = {
    "cuts": lambda row: f"{row.cuts:,.0f}",
    "with damage": lambda row: f"{row.damaged_cuts:,.0f}",
    "95 % interval": lambda row: _interval(row.damaged_cuts, row.cuts),
    "blocks lost": lambda row: f"{row.lost_blocks:,.0f}",
    "torn pages\n(in cuts)": lambda row: f"{row.torn_pages:,.0f} ({row.cuts_with_torn_pages:,.0f})",
    "no mount": lambda row: f"{row.failed_mounts:,.0f}",
    "e2fsck\nerrors": lambda row: f"{row.file_system_errors:,.0f}",
    "server\nrefused": lambda row: f"{row.failed_starts:,.0f}",
    "died in\nchecks": lambda row: f"{row.failed_checks:,.0f}",
    "corrupt\ntables": lambda row: f"{row.corrupt_tables:,.0f}",
    "bad pages\n(in cuts)": lambda row: f"{row.bad_pages:,.0f} ({row.cuts_with_bad_pages:,.0f})",
    "conditions\nviolated": lambda row: f"{row.violated_conditions:,.0f}",
    "commits\nlost": lambda row: f"{row.lost_commits:,.0f}",
    "pages split\nby commits": _split,
}


def _damage(rows: pd.DataFrame) -> Figure:
    """Shares of cuts with their 95 % intervals, one line per configuration."""
    figure, axes = plots.new(height_in=2.8 + 0.5 * len(rows))
    for place, row in enumerate(rows.itertuples()):
        if row.cuts:
            _mark(axes, place, row)
        else:
            said = f"not run: {row.refused}"
            axes.text(1, place, textwrap.fill(said, 64), va="center", fontsize="x-small")
    axes.set_yticks(range(len(rows)), [_title(row) for row in rows.itertuples()])
    axes.tick_params(axis="y", labelsize="small")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set(xlim=(-2, 110), xlabel="power cuts (%), and Wilson's 95 % interval")
    axes.set_xticks(range(0, 101, 20))
    axes.legend(
        *_handles(axes), fontsize="small", loc="lower center", ncols=2, bbox_to_anchor=(0.4, 1)
    )
    return figure


def _mark(axes: Axes, place: int, row: Any) -> None:
    for column, label, colour, above in _MARKS:
        count, cuts = int(getattr(row, column)), int(row.cuts)
        low, high = outcomes.interval(count, cuts)
        axes.hlines(place - above, 100 * low, 100 * high, color=colour, linewidth=2)
        axes.plot(100 * count / cuts, place - above, "o", color=colour, markersize=5, label=label)
        axes.text(
            100 * high + 1, place - above, f"{count} of {cuts}", va="center", fontsize="x-small"
        )


def _handles(axes: Axes) -> tuple[list[Any], list[str]]:
    """Each mark once."""
    handles, labels = axes.get_legend_handles_labels()
    each = dict(zip(labels, handles, strict=True))
    return list(each.values()), list(each)


def _table(rows: pd.DataFrame) -> Figure:
    """The same in numbers, and where the damage was seen."""
    figure = Figure(figsize=(13.5, 1.2 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.axis("off")
    table = axes.table(
        cellText=list(_cells(rows)),
        rowLabels=[_title(row).replace("\n", ", ") for row in rows.itertuples()],
        colLabels=list(_COLUMNS),
        loc="center",
        cellLoc="center",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    table.scale(1, 1.5)
    for (line, _), cell in table.get_celld().items():
        cell.set_edgecolor("0.8")
        if line == 0:
            cell.set_height(1.7 * cell.get_height())
    refused = rows[rows.cuts == 0]
    for row in refused.itertuples():
        axes.set_title(f"not run: {_title(row)}: {row.refused}", fontsize="small")
    return figure


def _cells(rows: pd.DataFrame) -> Iterator[list[str]]:
    for _, row in rows.iterrows():
        if row.cuts:
            yield [tell(row) for tell in _COLUMNS.values()]
        else:
            yield ["not run", *[""] * (len(_COLUMNS) - 1)]
