"""The figures: the paper's 1 and 3 to 5 and its table 1, and what they leave open.

A journal is named by its size; of several seeds bars show the mean, with a line from the least to
the most, and curves the mean, with a thin line for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from harness import plots
from harness.dbms import page_writes
from harness.experiments.base import Results
from harness.experiments.drawing import drawn
from harness.experiments.msdj_tpcc import published
from harness.experiments.msdj_tpcc.grid import BASE
from harness.experiments.msdj_tpcc.pages import SHARES, TABLES
from harness.paths import find_project
from harness.units import format_bytes

_STYLES: Final = {
    "oj_dwb": ("#7f7f7f", "o", "-"),
    "oj": ("#56b4e9", "s", "--"),
    "dj": ("#d55e00", "^", "-."),
    "dj_16k": ("#cc79a7", "v", ":"),
    "msdj": ("#009e73", "D", "-"),
}
"""Colour (Okabe and Ito's), marker and line of the modes, in this order."""

_JOURNAL_COLOURS: Final = ("#0072b2", "#e69f00")
_JOURNALS: Final = {"small": 128 << 20, "large": 5 << 30}
"""Sizes of the paper's journals in bytes, by what its numbers on file call them."""

_SAME_SIZE: Final = 0.1
"""So far apart a journal's size and the paper's may be: GB and GiB, and what a scale rounds."""

_OFF: Final = (0.005, -0.005)
"""By which a gain in whole per cent may be off: with the larger share it is of less."""

_PLACES: Final = {
    "journal_written_bytes": ("journal", "#d55e00"),
    "doublewrite_written_bytes": ("doublewrite buffer", "#7f7f7f"),
    "redo_written_bytes": ("redo log", "#56b4e9"),
    "home_written_bytes": ("all the rest", "#009e73"),
}
_INTERVALS: Final = 20
"""The measured time is cut into so many parts."""

_LEAST_SHARE: Final = 0.04
"""Of a bar: what is thinner has no number in it."""

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]
Ends = tuple[float, float]


NEEDS: Final = {
    "accesses_per_lba": "mode dj",
    "table_1": "write amplification, which the drive has to count",
    "waf_over_time": "write amplification over time: a drive that counts it in fine steps",
    "tpmc": "any mode",
    "utilisation": "the processors' time, counted where they are real",
    "commits": "the journal's commits, recorded where the kernel is real",
    "bytes_by_place": "any mode",
    "page_writes": "writes by table: a block trace, or a model",
    "convergence": "modes dj and msdj, with write amplification over time",
    "what_if": "the variants (tier simulated)",
}
"""Which points each figure is drawn of, for who has none."""


def draw(results: Results) -> dict[str, Figure]:
    """All figures that the results at hand can fill."""
    base = results.table[results.table.variant == BASE]
    makers: dict[str, Callable[[], Figure | None]] = {
        "accesses_per_lba": lambda: _accesses_per_lba(base),
        "table_1": lambda: _table_1(base),
        "waf_over_time": lambda: _waf_over_time(base, results),
        "tpmc": lambda: _tpmc(base, results),
        "utilisation": lambda: _utilisation(base),
        "commits": lambda: _commits(base, results),
        "bytes_by_place": lambda: _bytes_by_place(base),
        "page_writes": lambda: _page_writes(base, results),
        "convergence": lambda: _convergence(base, results),
        "what_if": lambda: _what_if(results.table),
    }
    return drawn(results, makers)


def _journals(table: pd.DataFrame) -> list[int]:
    return sorted(int(size) for size in table.journal_bytes.unique())


def _journal_name(table: pd.DataFrame, size: int) -> str | None:
    """As the paper's numbers on file call a journal that was so large before anything shrank it;
    None if the paper has no such journal.
    """
    nominal = size / table[table.journal_bytes == size].size_ratio_to_paper.max()
    near = (name for name, own in _JOURNALS.items() if abs(nominal / own - 1) < _SAME_SIZE)
    return next(near, None)


def _title(size: int) -> str:
    return f"journal {format_bytes(size)}"


def _modes(table: pd.DataFrame) -> list[str]:
    return [mode for mode in _STYLES if mode in set(table["mode"])]


def _name(mode: str) -> str:
    return page_writes.find(mode).title


def _short(mode: str) -> str:
    return _name(mode).replace(" - DWB", "").replace(" + ", "\n+ ")


def _has(table: pd.DataFrame, *names: str) -> bool:
    return all(name in table and table[name].notna().any() for name in names)


def _of_modes(
    table: pd.DataFrame, size: int, name: str, statistic: str = "mean"
) -> dict[str, float]:
    """The metric's mean (or another statistic of pandas') over the seeds, by mode."""
    rows = table[table.journal_bytes == size]
    found = rows.groupby("mode")[name].agg(statistic).dropna()
    return {mode: float(found[mode]) for mode in _STYLES if mode in found}


def _is_whole(table: pd.DataFrame) -> bool:
    """Whether this stands for the paper's whole run: its absolute numbers may stand beside."""
    return bool((table.size_ratio_to_paper > 0.03).all())


def _is_unshrunk(table: pd.DataFrame, scale: str) -> bool:
    """Whether no scale has shrunk blocks below a write buffer that stays: where claims judge
    throughput (data/published/claims.yaml).
    """
    return scale.startswith("paper") or bool((table.size_ratio_to_paper > 0.99).all())


def _points(table: pd.DataFrame, size: int, mode: str) -> dict[int, str]:
    """Ids of a setting's points by their seeds, in order."""
    rows = table[(table.journal_bytes == size) & (table["mode"] == mode)].sort_values("seed")
    return {int(seed): str(point) for seed, point in zip(rows.seed, rows.point, strict=True)}


def _runs_said(base: pd.DataFrame) -> str | None:
    """What a legend says of curves if a setting has several runs."""
    counts = base.groupby(["journal_bytes", "mode"]).seed.nunique()
    least, most = int(counts.min()), int(counts.max())
    if most == 1:
        return None
    return f"mean of {most if least == most else f'{least} to {most}'} runs, thin: each of them"


def _curve(results: Results, point: str, times: str, values: str) -> Curve | None:
    """Times and values of a point's series, without what is NaN; None if nothing is left."""
    own = results.series.get(point, {})
    if not own.get(times) or values not in own:
        return None
    x, y = (np.array(own[name], dtype=np.float64) for name in (times, values))
    there = np.isfinite(y)
    return (x[there], y[there]) if there.any() else None


def _mean(curves: Sequence[Curve]) -> Curve:
    """Moment by moment, as the claims' relation has it: real runs are observed at times that differ
    a little.
    """
    moments = min(len(x) for x, _ in curves)
    x, y = (np.mean([curve[axis][:moments] for curve in curves], axis=0) for axis in (0, 1))
    return x, y


def _span(curves: Iterable[Curve]) -> tuple[float, str]:
    """What their time axis (s) is divided by, and its unit."""
    longest_s = max(x.max() for x, _ in curves)
    return (3600.0, "h") if longest_s >= 7200 else (60.0, "min") if longest_s >= 600 else (1.0, "s")


def _all(curves: Mapping[int, Mapping[str, Sequence[Curve]]]) -> Iterator[Curve]:
    """Of all journals, modes and seeds."""
    return (curve for modes in curves.values() for runs in modes.values() for curve in runs)


def _bars(axes: Axes, values: dict[str, float], text: str) -> None:
    """A bar per mode with its number in the middle, where no cross is in its way."""
    places = np.arange(len(values))
    colours = [_STYLES[mode][0] for mode in values]
    bar_row = axes.bar(places, list(values.values()), width=0.65, color=colours)
    texts = [format(value, text) for value in values.values()]
    axes.bar_label(bar_row, texts, label_type="center", fontsize="small", color="white")
    axes.set_xticks(places, [_short(mode) for mode in values], fontsize="small")
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.18)


def _ends(axes: Axes, table: pd.DataFrame, size: int, name: str) -> None:
    """Over the bars, from the least to the most of several seeds."""
    least, most = (_of_modes(table, size, name, of) for of in ("min", "max"))
    if least != most:
        places = range(len(least))
        axes.vlines(places, list(least.values()), list(most.values()), "black", linewidth=1.5)
        for ends in (least, most):
            axes.plot(places, list(ends.values()), "_", color="black", markersize=9)


def _crosses(axes: Axes, values: dict[str, float], paper: dict[str, float], label: str) -> None:
    """The paper's numbers, where there are any, over the bars."""
    places = [place for place, mode in enumerate(values) if mode in paper]
    if places:
        axes.plot(
            places,
            [paper[mode] for mode in values if mode in paper],
            linestyle="",
            marker="x",
            color="black",
            markersize=8,
            markeredgewidth=2,
            label=label,
        )


def _ranges(axes: Axes, values: dict[str, float], paper: Mapping[str, Ends], label: str) -> None:
    """Frames beside the middle of the bars, from the least to the most that the paper says."""
    found = [(place + 0.2, *paper[mode]) for place, mode in enumerate(values) if mode in paper]
    if found:
        places, least, most = (np.array(column) for column in zip(*found, strict=True))
        axes.bar(
            places,
            most - least,
            bottom=least,
            width=0.16,
            color="none",
            edgecolor="black",
            linewidth=1.5,
            label=label,
        )


def _lines(axes: Axes, mode: str, curves: Sequence[Curve], scale: float = 1.0) -> None:
    """A mode's runs, in `scale` of their unit of time."""
    colour, marker, line = _STYLES[mode]
    style = {
        "linestyle": line,
        "linewidth": 1.5,
        "marker": marker,
        "markersize": 4,
        "markevery": max(len(curves[0][0]) // 10, 1),
    }
    _with_each(axes, [(x / scale, y) for x, y in curves], colour, label=_name(mode), **style)


def _with_each(axes: Axes, curves: Sequence[Curve], colour: str, **style: Any) -> None:
    """The mean of several runs, and each of them below it; of one the run itself."""
    for curve in curves if len(curves) > 1 else ():
        axes.plot(*curve, color=colour, linewidth=0.7, alpha=0.5)
    axes.plot(*_mean(curves), color=colour, **style)


def _accesses_per_lba(base: pd.DataFrame) -> Figure | None:
    """As the paper defines them, and by bytes; and what their ratio must be if bytes are equal."""
    names = ("journal_requests_per_lba", "rest_requests_per_lba", "journal_accesses_per_lba")
    own = base[base["mode"] == "dj"]
    if own.empty or not _has(own, *names, "rest_accesses_per_lba", "rest_size_bytes"):
        return None
    journals = _journals(own)
    figure, axes = plots.new(2, height_in=4.6, squeeze=False)
    _densities(axes[0][0], own, journals)
    _density_ratios(axes[0][1], own, journals)
    figure.suptitle("Figure 1: the journal's addresses and the rest's, DJ", fontsize="medium")
    return figure


def _densities(axes: Axes, own: pd.DataFrame, journals: Sequence[int]) -> None:
    shown = {"journal": "#d55e00", "rest": "#009e73"}
    for offset, (place, colour) in zip((-0.2, 0.2), shown.items(), strict=True):
        values = [own[own.journal_bytes == j][f"{place}_requests_per_lba"].mean() for j in journals]
        bar_row = axes.bar(
            np.arange(len(journals)) + offset, values, width=0.38, color=colour, label=place
        )
        axes.bar_label(bar_row, [f"{v:.3g}" for v in values], fontsize="small", padding=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(plots.PLAIN)
    axes.margins(y=0.25)
    axes.set_xticks(range(len(journals)), [_title(j) for j in journals], fontsize="small")
    axes.grid(visible=False, axis="x")
    axes.set_title("requests over LBAs, of each region", fontsize="small")
    axes.legend(fontsize="small")


def _density_ratios(axes: Axes, own: pd.DataFrame, journals: Sequence[int]) -> None:
    kinds: dict[str, Callable[[pd.Series], float]] = {
        "requests": lambda r: r.journal_requests_per_lba / r.rest_requests_per_lba,
        "sectors": lambda r: r.journal_accesses_per_lba / r.rest_accesses_per_lba,
        "equal bytes\nwould give": lambda r: r.rest_size_bytes / r.journal_size_bytes,
    }
    width = 0.8 / len(journals)
    for index, size in enumerate(journals):
        row = own[own.journal_bytes == size].mean(numeric_only=True)
        values = [float(ratio(row)) for ratio in kinds.values()]
        places = np.arange(len(kinds)) + (index - (len(journals) - 1) / 2) * width
        colour = _JOURNAL_COLOURS[index % len(_JOURNAL_COLOURS)]
        bar_row = axes.bar(places, values, width=width * 0.95, color=colour, label=_title(size))
        axes.bar_label(
            bar_row,
            [f"{v:,.3g}" if v < 1000 else f"{v:,.0f}" for v in values],
            fontsize="x-small",
            padding=2,
        )
    said = published.journal_over_rest(find_project().published)
    axes.axhline(said, color="black", linewidth=1.2, linestyle="--", label=f"paper: {said:g}x")
    axes.set_yscale("log")
    axes.margins(y=0.25)
    axes.set_xticks(range(len(kinds)), list(kinds), fontsize="small")
    axes.yaxis.set_major_formatter(plots.PLAIN)
    axes.grid(visible=False, axis="x")
    axes.set_title("journal over rest, per LBA", fontsize="small")
    axes.legend(fontsize="x-small")


def _table_1(base: pd.DataFrame) -> Figure | None:
    """Write amplification at the end, ours and the paper's."""
    if base.empty or not _has(base, "waf_ratio"):
        return None
    journals = _journals(base)
    figure, axes = plots.new(len(journals), height_in=3.6, squeeze=False, sharey=True)
    paper = published.waf(find_project().published) if _is_whole(base) else {}
    for ax, size in zip(axes[0], journals, strict=True):
        values = _of_modes(base, size, "waf_ratio")
        _bars(ax, values, ".3f")
        _ends(ax, base, size, "waf_ratio")
        journal = _journal_name(base, size)
        _crosses(ax, values, {m: paper[j, m] for j, m in paper if j == journal}, "paper, table 1")
        ax.axhline(1.0, color="0.4", linewidth=0.8)
        ax.set_title(_title(size), fontsize="small")
    _legend_once(axes[0], fontsize="small")
    axes[0][0].set_ylabel("WAF at the end")
    return figure


def _waf_over_time(base: pd.DataFrame, results: Results) -> Figure | None:
    """The paper's figures 3 and 4: since the begin of the measured time."""
    curves = _curves(base, results, "waf_time_s", "waf_ratio")
    if not curves:
        return None
    figure, axes = plots.new(len(curves), height_in=4.0, squeeze=False, sharey=True)
    scale, unit = _span(_all(curves))
    for ax, (size, modes) in zip(axes[0], curves.items(), strict=True):
        for mode, runs in modes.items():
            _lines(ax, mode, runs, scale)
        ax.set_title(_title(size), fontsize="small")
        ax.set_xlabel(f"time ({unit})")
    axes[0][0].set_ylabel("WAF since the begin")
    _legend_above(figure, axes[0][0], _runs_said(base))
    return figure


def _legend_once(row: Iterable[Axes], **style: Any) -> bool:
    """In the first of the panels that has anything to name; whether there is one."""
    named = next((ax for ax in row if ax.get_legend_handles_labels()[0]), None)
    if named is not None:
        named.legend(**style)
    return named is not None


def _legend_above(figure: Figure, axes: Axes, title: str | None) -> None:
    """What all panels have in common, and `title` of it."""
    figure.legend(
        *axes.get_legend_handles_labels(),
        ncols=3,
        loc="outside upper center",
        title=title,
        title_fontsize="small",
    )


def _curves(
    base: pd.DataFrame, results: Results, times: str, values: str
) -> dict[int, dict[str, list[Curve]]]:
    """One for each seed, by journal and mode, as far as there are any."""
    found: dict[int, dict[str, list[Curve]]] = {}
    for size in _journals(base):
        for mode in _modes(base):
            own = (
                _curve(results, point, times, values)
                for point in _points(base, size, mode).values()
            )
            if runs := [curve for curve in own if curve is not None]:
                found.setdefault(size, {})[mode] = runs
    return found


def _tpmc(base: pd.DataFrame, results: Results) -> Figure | None:
    """The paper's figure 5, and throughput over time below it."""
    if base.empty or not _has(base, "tpmc"):
        return None
    journals = _journals(base)
    curves = _curves(base, results, "tpmc_time_s", "tpmc_per_interval")
    figure = Figure(
        figsize=(plots.WIDTH_IN * len(journals) ** 0.5, 6.6 if curves else 4.2),
        layout="constrained",
    )
    axes = figure.subplots(2 if curves else 1, len(journals), squeeze=False, sharey="row")
    comparable = _is_whole(base) and _is_unshrunk(base, results.scale)
    for ax, size in zip(axes[0], journals, strict=True):
        values = _of_modes(base, size, "tpmc")
        _bars(ax, values, ",.0f")
        _ends(ax, base, size, "tpmc")
        said = _tpmc_said(_journal_name(base, size)) if comparable else {}
        _ranges(ax, values, said, "paper, as its rounded gains allow")
        ax.set_title(_title(size), fontsize="small")
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    axes[0][0].set_ylabel("TpmC")
    if _legend_once(axes[0], fontsize="x-small", loc="upper left"):
        axes[0][0].set_ylim(top=axes[0][0].get_ylim()[1] * 1.1)
    if curves:
        _tpmc_over_time(axes[1], journals, curves, _runs_said(base))
    return figure


def _tpmc_said(journal: str | None) -> dict[str, Ends]:
    """The least and the most TpmC with one of the paper's journals, by mode: none is on file by
    itself, and a gain of 2 % is one of 1.5 to 2.5 %.
    """
    paper = published.tpmc(find_project().published)
    said = {mode: tpmc for (name, mode), tpmc in paper.items() if name == journal}
    if "dj" not in said:
        return {}
    gain = said["msdj"] - said["dj"]
    least, most = ({"dj": gain / (gain / said["dj"] + off)} for off in _OFF)
    for ends, off in zip((least, most), _OFF, strict=True):
        ends["msdj"] = ends["dj"] + gain
        if "oj_dwb" in said:
            ends["oj_dwb"] = ends["msdj"] / (said["msdj"] / said["oj_dwb"] + off)
    return {mode: (least[mode], most[mode]) for mode in least}


def _tpmc_over_time(
    row: Sequence[Axes],
    journals: Sequence[int],
    curves: dict[int, dict[str, list[Curve]]],
    runs_said: str | None,
) -> None:
    scale, unit = _span(_all(curves))
    for ax, size in zip(row, journals, strict=True):
        for mode, runs in curves.get(size, {}).items():
            _lines(ax, mode, runs, scale)
        ax.set_xlabel(f"time ({unit})")
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    row[0].set_ylim(bottom=0)  # of all of them, once their lines are there
    row[0].set_ylabel("TpmC of each interval")
    row[0].legend(fontsize="x-small", loc="lower left", title=runs_said, title_fontsize="x-small")


def _utilisation(base: pd.DataFrame) -> Figure | None:
    """Which of the two decides throughput: the drive, or the processors of server and clients."""
    if not _has(base, "device_utilisation_ratio", "processor_utilisation_ratio"):
        return None
    journals = _journals(base)
    figure = Figure(figsize=(plots.WIDTH_IN * len(journals) ** 0.5, 3.6), layout="constrained")
    for ax, size in zip(figure.subplots(1, len(journals), squeeze=False)[0], journals, strict=True):
        drive, processors = (
            {mode: 100 * ratio for mode, ratio in _of_modes(base, size, name).items()}
            for name in ("device_utilisation_ratio", "processor_utilisation_ratio")
        )
        _bars(ax, drive, ".0f")
        _crosses(ax, drive, processors, "processors, all of the machine's")
        ax.set_title(_title(size), fontsize="small")
        ax.set_ylim(0, 125)  # room for the legend
        ax.set_yticks(range(0, 101, 20))
    figure.axes[0].set_ylabel("busy (% of the time)")
    figure.axes[0].legend(fontsize="x-small", loc="upper left")
    return figure


_COMMITS: Final = {
    "commits_per_s": "commits per s",
    "commit_blocks": "blocks logged per commit",
    "commit_ms": "time of a commit (ms)",
}


def _commits(base: pd.DataFrame, results: Results) -> Figure | None:
    """What the journal does meanwhile: a line of panels per journal, a line per mode."""
    found = {name: _curves(base, results, "commit_time_s", name) for name in _COMMITS}
    journals = list(found["commits_per_s"])
    if not journals:
        return None
    figure = Figure(figsize=(2 * plots.WIDTH_IN * 0.9, 3.2 * len(journals)), layout="constrained")
    axes = figure.subplots(len(journals), len(_COMMITS), squeeze=False, sharex=True, sharey="col")
    for row, size in zip(axes, journals, strict=True):
        for ax, (name, title) in zip(row, _COMMITS.items(), strict=True):
            for mode, runs in found[name][size].items():
                _lines(ax, mode, runs)
            ax.set_title(f"{title}, {_title(size)}", fontsize="small")
    for ax in axes[-1]:
        ax.set_ylim(bottom=0)  # of its column, once all lines are there
        ax.set_xlabel("time (s)")
    _legend_above(figure, axes[0][0], _runs_said(base))
    return figure


def _bytes_by_place(base: pd.DataFrame) -> Figure | None:
    """What the host wrote where: in all, and for each transaction."""
    if base.empty or not _has(base, *_PLACES, "transactions"):
        return None
    journals = _journals(base)
    figure, axes = plots.new(2, height_in=4.6, squeeze=False)
    cells = [(size, mode) for size in journals for mode in _of_modes(base, size, "transactions")]
    rows = [
        base[(base.journal_bytes == size) & (base["mode"] == mode)].mean(numeric_only=True)
        for size, mode in cells
    ]
    labels = [f"{_short(mode)}\n{format_bytes(size)}" for size, mode in cells]
    panels = (
        ("written by the host (GB)", [1e9] * len(rows)),
        ("written per transaction (KB)", [1e3 * row.transactions for row in rows]),
    )
    for ax, (title, divisors) in zip(axes[0], panels, strict=True):
        _stack(ax, rows, divisors)
        ax.set_xticks(range(len(rows)), labels, fontsize=7)
        ax.grid(visible=False, axis="x")
        ax.set_title(title, fontsize="small")
    figure.legend(*axes[0][0].get_legend_handles_labels(), ncols=4, loc="outside upper center")
    return figure


def _stack(axes: Axes, rows: Sequence[pd.Series], divisors: Sequence[float]) -> None:
    bottom = np.zeros(len(rows))
    totals = [sum(row[name] for name in _PLACES) / d for row, d in zip(rows, divisors, strict=True)]
    for name, (label, colour) in _PLACES.items():
        values = np.array([row[name] / d for row, d in zip(rows, divisors, strict=True)])
        bar_row = axes.bar(range(len(rows)), values, bottom=bottom, color=colour, label=label)
        texts = [f"{v:.3g}" if v > _LEAST_SHARE * max(totals) else "" for v in values]
        axes.bar_label(bar_row, texts, label_type="center", fontsize="x-small", color="white")
        bottom = bottom + values


def _page_writes(base: pd.DataFrame, results: Results) -> Figure | None:
    """Whose pages are written home, and how much of that goes to the pages written most."""
    size = min(_journals(base), default=0)
    tables = _series_of(base, results, size, "table_written_pages", len(TABLES))
    shares = _series_of(base, results, size, "home_write_concentration", len(SHARES))
    if not tables or not shares:
        return None
    figure, axes = plots.new(2, height_in=4.6, squeeze=False)
    left, right = axes[0]
    _table_bars(left, tables)
    left.set_title(f"InnoDB's page writes, {_title(size)}", fontsize="small")
    for mode, runs in shares.items():
        _lines(right, mode, [(np.array(SHARES) * 100, share * 100) for share in runs])
    right.set_xscale("log")
    right.xaxis.set_major_formatter(plots.PLAIN)
    right.xaxis.set_minor_formatter(plots.NOTHING)
    right.set_ylim(0, 105)
    right.set_xlabel("most-written pages (% of those written at all)")
    right.set_ylabel("share of home page writes (%)")
    _legend_above(figure, left, _runs_said(base))
    return figure


def _table_bars(axes: Axes, tables: Mapping[str, Sequence[NDArray[np.float64]]]) -> None:
    """Each table's share of the pages: a bar per mode for the mean, a mark for each of its runs."""
    height = 0.8 / len(tables)
    for index, (mode, runs) in enumerate(tables.items()):
        places = np.arange(len(TABLES)) + (index - (len(tables) - 1) / 2) * height
        percent = np.array([pages / max(pages.sum(), 1) * 100 for pages in runs])
        colour = _STYLES[mode][0]
        axes.barh(places, percent.mean(axis=0), height=height, color=colour, label=_name(mode))
        for one in percent if len(runs) > 1 else ():
            axes.plot(one, places, "|", color="black", markersize=4, markeredgewidth=0.6)
    axes.set_yticks(range(len(TABLES)), [t.replace("_", "-") for t in TABLES], fontsize="small")
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("share of the pages written home (%)")


def _series_of(
    base: pd.DataFrame, results: Results, size: int, name: str, length: int
) -> dict[str, list[NDArray[np.float64]]]:
    """One for each seed, by mode, as far as there are any of this length."""
    found = {}
    for mode in _modes(base):
        own = (
            results.series.get(point, {}).get(name, [])
            for point in _points(base, size, mode).values()
        )
        if runs := [np.array(values, dtype=np.float64) for values in own if len(values) == length]:
            found[mode] = runs
    return found


def _convergence(base: pd.DataFrame, results: Results) -> Figure | None:
    """DJ against MS-DJ: since the begin, and in each interval by itself."""
    grown = {j: found for j in _journals(base) if (found := _grown(base, results, j))}
    if not grown:
        return None
    figure, axes = plots.new(3, height_in=4.0, squeeze=False)
    each, since, alone = axes[0]
    scale, unit = _span(curve for runs in grown.values() for curve in runs[0].each.values())
    for index, (size, runs) in enumerate(grown.items()):
        for mode in ("dj", "msdj"):
            own = [_in_units(run.each[mode], scale) for run in runs]
            label = f"{_short(mode)}, {format_bytes(size)}"
            _with_each(each, own, _STYLES[mode][0], linestyle=("-", ":")[index % 2], label=label)
        colour = _JOURNAL_COLOURS[index % len(_JOURNAL_COLOURS)]
        style = {"marker": "o", "markersize": 3.5, "label": _title(size)}
        for ax, kind in ((since, "so_far"), (alone, "each")):
            less = [_in_units(_less(getattr(run, kind)), scale) for run in runs]
            _with_each(ax, less, colour, **style)
    titles = (
        f"WAF in each {1 / _INTERVALS:.0%} of the time".replace("%", " %"),
        "DJ less MS-DJ, since the begin",
        "DJ less MS-DJ, each interval by itself",
    )
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title, fontsize="small")
        ax.set_xlabel(f"time ({unit})")
        ax.legend(fontsize="x-small")
    if said := _runs_said(base):
        low, high = each.get_ylim()
        each.set_ylim(bottom=low - 0.35 * (high - low))  # so many lines leave no room
        style = {"title": said, "title_fontsize": "x-small", "loc": "lower center", "ncols": 2}
        each.legend(fontsize="x-small", **style)
    for ax in (since, alone):
        ax.axhline(0.0, color="0.3", linewidth=1)
    return figure


@dataclass(frozen=True)
class _Grown:
    """Write amplification of one seed's DJ and MS-DJ over time (s), by mode: since the begin at the
    end of each of equal intervals, and of each interval at its middle.
    """

    so_far: dict[str, Curve]
    each: dict[str, Curve]


def _less(curves: Mapping[str, Curve]) -> Curve:
    """DJ's less MS-DJ's."""
    (times, dj), (_, msdj) = curves["dj"], curves["msdj"]
    return times, dj - msdj


def _in_units(curve: Curve, scale: float) -> Curve:
    return curve[0] / scale, curve[1]


def _grown(base: pd.DataFrame, results: Results, size: int) -> list[_Grown]:
    """One for each seed of which there are curves of both, with bytes written in all intervals."""
    dj, msdj = (_points(base, size, mode) for mode in ("dj", "msdj"))
    pairs = ({"dj": dj[seed], "msdj": msdj[seed]} for seed in dj if seed in msdj)
    found = (_grown_of(results, pair) for pair in pairs)
    return [one for one in found if one is not None]


def _grown_of(results: Results, pair: Mapping[str, str]) -> _Grown | None:
    """Of a pair of points, by mode."""
    own = {}
    for mode, point in pair.items():
        written = _curve(results, point, "waf_time_s", "waf_written_bytes")
        programmed = _curve(results, point, "waf_time_s", "waf_programmed_bytes")
        if written is None or programmed is None or len(written[0]) < 2:
            return None
        own[mode] = (*written, programmed[1])
    times = np.linspace(0.0, min(float(t[-1]) for t, _, _ in own.values()), _INTERVALS + 1)
    at = {mode: (np.interp(times, t, w), np.interp(times, t, p)) for mode, (t, w, p) in own.items()}
    if not all((np.diff(w) > 0).all() for w, _ in at.values()):
        return None
    middle = (times[1:] + times[:-1]) / 2
    return _Grown(
        so_far={mode: (times[1:], p[1:] / w[1:]) for mode, (w, p) in at.items()},
        each={mode: (middle, np.diff(p) / np.diff(w)) for mode, (w, p) in at.items()},
    )


def _what_if(table: pd.DataFrame) -> Figure | None:
    """Write amplification and TpmC of each variant, beside the paper's setting."""
    varied = [v for v in table.variant.unique() if v != BASE]
    if not varied or not _has(table, "waf_ratio", "tpmc"):
        return None
    rows = table[table.journal_bytes == min(_journals(table))]
    variants = [BASE, *varied]
    figure, axes = plots.new(2, height_in=1.6 + 0.55 * len(variants), squeeze=False, sharey=True)
    panels = {"waf_ratio": ("WAF at the end", ".2f"), "tpmc": ("TpmC", ",.0f")}
    for ax, (name, (title, text)) in zip(axes[0], panels.items(), strict=True):
        _variant_bars(ax, rows, variants, name, text)
        ax.set_title(title, fontsize="small")
    labels = ["as in the grid", *(v.replace("_", " ") for v in varied)]
    axes[0][0].set_yticks(range(len(variants)), labels, fontsize="small")
    axes[0][0].invert_yaxis()
    figure.legend(*axes[0][0].get_legend_handles_labels(), ncols=3, loc="outside upper center")
    return figure


def _variant_bars(
    axes: Axes, rows: pd.DataFrame, variants: Sequence[str], name: str, text: str
) -> None:
    modes = _modes(rows)
    means = rows.groupby(["mode", "variant"])[name].mean()
    height = 0.84 / len(modes)
    for index, mode in enumerate(modes):
        own = [(place, v) for place, v in enumerate(variants) if (mode, v) in means.index]
        places = [place + (index - (len(modes) - 1) / 2) * height for place, _ in own]
        values = [float(means[mode, v]) for _, v in own]
        bar_row = axes.barh(
            places, values, height=height * 0.92, color=_STYLES[mode][0], label=_name(mode)
        )
        axes.bar_label(bar_row, [format(v, text) for v in values], fontsize="x-small", padding=2)
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.15, y=0.02)
    axes.tick_params(axis="x", labelsize="small")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
