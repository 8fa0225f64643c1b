"""The figures: the paper's 1 and 3 to 5 and its table 1, and what they leave open.

A journal is named by its size; of several seeds bars show the mean, with a line from the least to
the most, and curves the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

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

"""What a line below a figure takes of its height."""

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


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


def _journal_name(table: pd.DataFrame, size: int) -> str:
    """As the paper's numbers on file call it."""
    return "small" if size == min(_journals(table)) else "large"


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


def _point(table: pd.DataFrame, size: int, mode: str) -> str | None:
    rows = table[(table.journal_bytes == size) & (table["mode"] == mode)]
    return None if rows.empty else str(rows.sort_values("seed").point.iloc[0])


def _curve(results: Results, point: str | None, times: str, values: str) -> Curve | None:
    """Times and values of a point's series, without what is NaN."""
    own = results.series.get(point or "", {})
    if not own.get(times) or values not in own:
        return None
    x, y = (np.array(own[name], dtype=np.float64) for name in (times, values))
    return x[np.isfinite(y)], y[np.isfinite(y)]


def _span(longest_s: float) -> tuple[float, str]:
    """What a time axis is divided by, and its unit."""
    return (3600.0, "h") if longest_s >= 7200 else (60.0, "min") if longest_s >= 600 else (1.0, "s")


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


def _line(axes: Axes, mode: str, x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    colour, marker, line = _STYLES[mode]
    axes.plot(
        x,
        y,
        color=colour,
        linestyle=line,
        linewidth=1.5,
        marker=marker,
        markersize=4,
        markevery=max(len(x) // 10, 1),
        label=_name(mode),
    )


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
    if axes[0][0].get_legend_handles_labels()[0]:
        axes[0][0].legend(fontsize="small")
    axes[0][0].set_ylabel("WAF at the end")
    return figure


def _waf_over_time(base: pd.DataFrame, results: Results) -> Figure | None:
    """The paper's figures 3 and 4: since the begin of the measured time."""
    curves = _curves(base, results, "waf_time_s", "waf_ratio")
    if not curves:
        return None
    figure, axes = plots.new(len(curves), height_in=4.0, squeeze=False, sharey=True)
    scale, unit = _span(max(x.max() for lines in curves.values() for x, _ in lines.values()))
    for ax, (size, lines) in zip(axes[0], curves.items(), strict=True):
        for mode, (x, y) in lines.items():
            _line(ax, mode, x / scale, y)
        ax.set_title(_title(size), fontsize="small")
        ax.set_xlabel(f"time ({unit})")
    axes[0][0].set_ylabel("WAF since the begin")
    figure.legend(*axes[0][0].get_legend_handles_labels(), ncols=3, loc="outside upper center")
    return figure


def _curves(
    base: pd.DataFrame, results: Results, times: str, values: str
) -> dict[int, dict[str, Curve]]:
    """By journal and mode, as far as there are any."""
    found: dict[int, dict[str, Curve]] = {}
    for size in _journals(base):
        for mode in _modes(base):
            curve = _curve(results, _point(base, size, mode), times, values)
            if curve is not None and len(curve[0]):
                found.setdefault(size, {})[mode] = curve
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
    paper = published.tpmc(find_project().published) if _is_whole(base) else {}
    for ax, size in zip(axes[0], journals, strict=True):
        values = _of_modes(base, size, "tpmc")
        _bars(ax, values, ",.0f")
        _ends(ax, base, size, "tpmc")
        journal = _journal_name(base, size)
        said = {mode: paper[name, mode] for name, mode in paper if name == journal}
        _crosses(ax, values, said, "paper, from its gains")
        ax.set_title(_title(size), fontsize="small")
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    axes[0][0].set_ylabel("TpmC")
    if axes[0][0].get_legend_handles_labels()[0]:
        axes[0][0].set_ylim(top=axes[0][0].get_ylim()[1] * 1.1)
        axes[0][0].legend(fontsize="x-small", loc="upper left")
    if curves:
        _tpmc_over_time(axes[1], journals, curves)
    return figure


def _tpmc_over_time(
    row: Sequence[Axes], journals: Sequence[int], curves: dict[int, dict[str, Curve]]
) -> None:
    scale, unit = _span(max(x.max() for lines in curves.values() for x, _ in lines.values()))
    for ax, size in zip(row, journals, strict=True):
        for mode, (x, y) in curves.get(size, {}).items():
            _line(ax, mode, x / scale, y)
        ax.set_xlabel(f"time ({unit})")
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    row[0].set_ylim(bottom=0)  # of all of them, once their lines are there
    row[0].set_ylabel("TpmC of each interval")
    row[0].legend(fontsize="x-small", loc="lower left")


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
            for mode, (x, y) in found[name][size].items():
                _line(ax, mode, x, y)
            ax.set_title(f"{title}, {_title(size)}", fontsize="small")
    for ax in axes[-1]:
        ax.set_ylim(bottom=0)  # of its column, once all lines are there
        ax.set_xlabel("time (s)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), ncols=3, loc="outside upper center")
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
    height = 0.8 / len(tables)
    for index, (mode, pages) in enumerate(tables.items()):
        places = np.arange(len(TABLES)) + (index - (len(tables) - 1) / 2) * height
        percent = np.array(pages) / max(sum(pages), 1) * 100
        left.barh(places, percent, height=height, color=_STYLES[mode][0], label=_name(mode))
    left.set_yticks(range(len(TABLES)), [t.replace("_", "-") for t in TABLES], fontsize="small")
    left.invert_yaxis()
    left.grid(visible=False, axis="y")
    left.set_xlabel("share of the pages written home (%)")
    for mode, share in shares.items():
        _line(right, mode, np.array(SHARES) * 100, np.array(share) * 100)
    right.set_xscale("log")
    right.xaxis.set_major_formatter(plots.PLAIN)
    right.xaxis.set_minor_formatter(plots.NOTHING)
    right.set_ylim(0, 105)
    right.set_xlabel("most-written pages (% of those written at all)")
    right.set_ylabel("share of home page writes (%)")
    left.set_title(f"InnoDB's page writes, {_title(size)}", fontsize="small")
    figure.legend(*left.get_legend_handles_labels(), ncols=3, loc="outside upper center")
    return figure


def _series_of(
    base: pd.DataFrame, results: Results, size: int, name: str, length: int
) -> dict[str, Sequence[float]]:
    found = {}
    for mode in _modes(base):
        values = results.series.get(_point(base, size, mode) or "", {}).get(name, [])
        if len(values) == length:
            found[mode] = values
    return found


def _convergence(base: pd.DataFrame, results: Results) -> Figure | None:
    """DJ against MS-DJ: since the begin, and in each interval by itself."""
    grown = {j: found for j in _journals(base) if (found := _grown(base, results, j))}
    if not grown:
        return None
    figure, axes = plots.new(3, height_in=4.0, squeeze=False)
    scale, unit = _span(max(times[-1] for times, _ in grown.values()))
    for index, (size, (times, of_modes)) in enumerate(grown.items()):
        colour = _JOURNAL_COLOURS[index % len(_JOURNAL_COLOURS)]
        so_far = {m: p[1:] / w[1:] for m, (w, p) in of_modes.items()}
        each = {m: np.diff(p) / np.diff(w) for m, (w, p) in of_modes.items()}
        middle = (times[1:] + times[:-1]) / 2 / scale
        for mode in ("dj", "msdj"):
            axes[0][0].plot(
                middle,
                each[mode],
                color=_STYLES[mode][0],
                linestyle=("-", ":")[index % 2],
                label=f"{_short(mode)}, {format_bytes(size)}",
            )
        style = {"color": colour, "marker": "o", "markersize": 3.5, "label": _title(size)}
        axes[0][1].plot(times[1:] / scale, so_far["dj"] - so_far["msdj"], **style)
        axes[0][2].plot(middle, each["dj"] - each["msdj"], **style)
    titles = (
        f"WAF in each {1 / _INTERVALS:.0%} of the time".replace("%", " %"),
        "DJ less MS-DJ, since the begin",
        "DJ less MS-DJ, each interval by itself",
    )
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set_title(title, fontsize="small")
        ax.set_xlabel(f"time ({unit})")
        ax.legend(fontsize="x-small")
    for ax in axes[0][1:]:
        ax.axhline(0.0, color="0.3", linewidth=1)
    return figure


Grown = tuple[NDArray[np.float64], dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]]


def _grown(base: pd.DataFrame, results: Results, size: int) -> Grown | None:
    """Ends of equal intervals, and bytes written and programmed until then, of DJ and MS-DJ.

    None if one of them has no curve, or wrote nothing in one of the intervals.
    """
    own = {}
    for mode in ("dj", "msdj"):
        point = _point(base, size, mode)
        written = _curve(results, point, "waf_time_s", "waf_written_bytes")
        programmed = _curve(results, point, "waf_time_s", "waf_programmed_bytes")
        if written is None or programmed is None or len(written[0]) < 2:
            return None
        own[mode] = (*written, programmed[1])
    times = np.linspace(0.0, min(float(t[-1]) for t, _, _ in own.values()), _INTERVALS + 1)
    at = {mode: (np.interp(times, t, w), np.interp(times, t, p)) for mode, (t, w, p) in own.items()}
    return (times, at) if all((np.diff(w) > 0).all() for w, _ in at.values()) else None


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
