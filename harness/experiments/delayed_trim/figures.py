"""The figures: the paper's tables and figures beside its numbers, and what it does not show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from harness import plots
from harness.experiments.base import Results
from harness.experiments.delayed_trim import published
from harness.experiments.delayed_trim.grid import KINDS, OWN, UNCHECKED
from harness.experiments.drawing import drawn_by_kind
from harness.paths import find_project
from harness.units import format_bytes

_POLICIES: Final = {
    "none": "0.45",
    "immediate": "#b5542c",
    "delayed": "#2c6fb5",
    OWN: "#2c6fb5",
}
_PARTS: Final = {"command": "#8a6d1f", "buffer": "#b5542c", "map": "#e0a070", "list": "#7a4fa3"}
_QUANTILES: Final = {"p50": "50 %", "p90": "90 %", "p99": "99 %", "p999": "99.9 %", "max": "all"}
_WRITE, _TRIM, _LATER = "#2c6fb5", "#b5542c", "#d9d9d9"
_CROSS: Final = {"marker": "x", "color": "black", "markersize": 8, "markeredgewidth": 2}
_STATES: Final = {"nothing": "#f2f2f2", "data": "#2c6fb5", "trimmed, pending": "#e0a070"}
_LOST: Final = "#c0143c"


NEEDS: Final = {
    "table1": "points of kind table1 (any tier, a drive with TRIM)",
    "at_once": "points of kinds at_once and table1 (a drive with TRIM)",
    "shares": "points of kind shares (tier simulated: a kernel's TRIM has one range)",
    "units": "points of kind units (a board, or a drive with TRIM)",
    "scenarios": "points of kind scenario (tier simulated: delayed work is stopped in the middle)",
    "tails": "points of kind tails (a drive with TRIM)",
    "write_list": "points of kind write_list (tier simulated: tables are the firmware's)",
    "idle": "points of kind idle (tier simulated: the drive's idle work is its own)",
    "idle_phase": "points of kind idle_phase (tier simulated: the steps are the firmware's)",
}
"""Which points each figure is drawn of, for who has none."""


def draw(results: Results) -> dict[str, Figure]:
    """All figures that the results at hand can fill, of medians over repetitions."""
    results = replace(results, table=over_repetitions(_with_sums(results.table)))
    makers: dict[str, tuple[str, Callable[[pd.DataFrame, Results], Figure]]] = {
        "table1": ("table1", _table1),
        "at_once": ("at_once", _at_once),
        "shares": ("shares", _shares),
        "units": ("units", _units),
        "scenarios": ("scenario", _scenarios),
        "tails": ("tails", _tails),
        "write_list": ("write_list", _write_list),
        "idle": ("idle", _idle),
        "idle_phase": ("idle_phase", _idle_phase),
    }
    return drawn_by_kind(results, makers)


def _with_sums(table: pd.DataFrame) -> pd.DataFrame:
    """Writing and trimming added, of each run: the ends of a sum are not the sums of ends."""
    if not {"write_ms", "trim_ms"} <= set(table):
        return table
    added = (table.write_ms + table.trim_ms).rename("added_ms")
    return pd.concat([table, added], axis="columns")


def over_repetitions(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each setting of a table of results: medians over its repetitions, the least and
    the most as NAME_low and NAME_high (unless these are names of something else), and of what is no
    number the first one's, `point` among them. A table without repetitions as it is.
    """
    if "repetition" not in table or table.repetition.nunique() < 2:
        return table
    measured = [name for name in table if pd.api.types.is_float_dtype(table[name])]
    rest = [name for name in table if name not in measured]
    groups = table.groupby(_settings(table), dropna=False, sort=False)
    values = groups[measured]
    made = [groups.head(1)[rest], values.median()]
    for end, most in (("_low", values.min()), ("_high", values.max())):
        names = [name for name in measured if name + end not in table]
        made.append(most[names].add_suffix(end))
    return pd.concat([each.reset_index(drop=True) for each in made], axis="columns")


def _settings(table: pd.DataFrame) -> list[pd.Series[Any]]:
    """What a point was told, by column: what one kind is told may be measured of another."""
    told = {kind: {each.name for each in fields(cell)} for kind, cell in KINDS.items()}
    names = dict.fromkeys(name for of_kind in told.values() for name in of_kind)
    return [
        table[name].where(table.kind.map(lambda kind, name=name: name in told[kind]))
        for name in names
        if name in table and name != "repetition"
    ]


def _paper() -> pd.DataFrame:
    return published.cells(find_project().published)


def _table1(rows: pd.DataFrame, results: Results) -> Figure:
    """Writing, and trimming after it; the paper's two columns beside ours."""
    figure, axes = plots.new(height_in=3.8)
    bars: dict[str, Any] = {
        row.policy if row.trimmed_bytes else "no TRIM": row for row in rows.itertuples()
    }
    if results.tier == "simulated" and len(bars) > 1:
        bars = _with_paper(bars)
    write, trim = (
        [getattr(row, name) for row in bars.values()] for name in ("write_ms", "trim_ms")
    )
    places = range(len(bars))
    axes.barh(places, write, color=_WRITE, label="writing", height=0.6)
    axes.barh(places, trim, left=write, color=_TRIM, label="trimming", height=0.6)
    ends = []
    for place, row in enumerate(bars.values()):
        w, t = row.write_ms, row.trim_ms
        until = _spread(axes, row, "write_ms", place - 0.12)
        ends.append(max(until, _spread(axes, row, "trim_ms", place + 0.12, begin_ms=w)))
        said = f"{w:,.0f} + {t:,.3g} ms" if t else f"{w:,.0f} ms"
        _beside_bar(axes, ends[-1], place, said, padding=3)
    axes.set_yticks(places, list(bars))
    axes.invert_yaxis()
    axes.set_xlim(0, max(ends) * 1.28)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(_time_label(rows))
    unit = format_bytes(rows.unit_bytes.max())
    written, trimmed = (
        format_bytes(rows[name].max()) for name in ("written_bytes", "trimmed_bytes")
    )
    axes.set_title(
        f"{written} written, {trimmed} of it trimmed, in units of {unit}",
        fontsize="medium",
    )
    figure.legend(fontsize="small", ncols=2, loc="outside upper right")
    return figure


def _with_paper(bars: Mapping[str, Any]) -> dict[str, Any]:
    """The paper's two columns, each above the bars that it is to be compared with."""
    paper = _paper()
    write, trim, only = (published.value(paper, f"{name}_ms") for name in _TABLE1)
    *trimmed, untouched = bars.items()
    return {
        "paper, TRIM": SimpleNamespace(write_ms=write, trim_ms=trim),
        **dict(trimmed),
        "paper, no TRIM": SimpleNamespace(write_ms=only, trim_ms=0.0),
        **dict([untouched]),
    }


_TABLE1: Final = ("write_with_trim", "trim", "write_only")


def _spread(axes: Axes, row: Any, name: str, place: float, begin_ms: float = 0.0) -> float:
    """Over the end of a bar that begins there: from the least to the most of several runs.

    Returns where that ends, or else the bar.
    """
    middle = getattr(row, name)
    low, high = (getattr(row, f"{name}_{end}", middle) for end in ("low", "high"))
    if low < high:
        around = [[middle - low], [high - middle]]
        axes.errorbar(
            begin_ms + middle,
            place,
            xerr=around,
            fmt="none",
            ecolor="black",
            elinewidth=1.2,
            capsize=2.5,
        )
    return float(begin_ms + high)


def _beside_bar(axes: Axes, end: float, place: float, text: str, padding: float) -> None:
    axes.annotate(
        text,
        (end, place),
        xytext=(padding, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
    )


def _time_label(rows: pd.DataFrame) -> str:
    several = "write_ms_low" in rows and bool((rows.write_ms_low < rows.write_ms_high).any())
    return "time (ms)" + ("; lines: from the least to the most of several runs" if several else "")


def _at_once(rows: pd.DataFrame, results: Results) -> Figure:
    """Writing and trimming side by side: each user's time, and both added as the paper's table has
    it; crosses: the table.
    """
    figure, axes = plots.new(height_in=3.8)
    names = ("writing", "trimming", "both added")
    height = 0.8 / len(rows)
    ends = []
    for number, row in enumerate(rows.itertuples()):
        places = np.arange(len(names)) + (number - (len(rows) - 1) / 2) * height
        times = [getattr(row, name) for name in _ADDED]
        colour = _POLICIES[str(row.policy)]
        axes.barh(places, times, height=0.9 * height, color=colour, label=str(row.policy))
        for place, name, time in zip(places, _ADDED, times, strict=True):
            ends.append(_spread(axes, row, name, place))
            _beside_bar(axes, ends[-1], place, f"{time:,.4g} ms", padding=8)
    if results.tier == "simulated":
        paper = _paper()
        said = [
            published.value(paper, f"{name}_ms")
            for name in ("write_with_trim", "trim", "total_with_trim")
        ]
        axes.plot(said, range(len(said)), linestyle="none", label="paper", **_CROSS)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max(ends))
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(_time_label(rows))
    written, trimmed = (
        format_bytes(rows[name].max()) for name in ("written_bytes", "trimmed_bytes")
    )
    unit = format_bytes(rows.unit_bytes.max())
    axes.set_title(
        f"{written} written while {trimmed} are trimmed, in units of {unit}", fontsize="small"
    )
    figure.legend(fontsize="small", ncols=3, loc="outside upper right")
    return figure


_ADDED: Final = ("write_ms", "trim_ms", "added_ms")


def _shares(rows: pd.DataFrame, _: Results) -> Figure:
    """The parts of one command's cost; what is done before its answer is framed."""
    figure, axes = plots.new(height_in=3.4)
    paper = _paper()
    columns: dict[str, Mapping[str, float]] = {
        "paper": {p: published.value(paper, f"{p}_share_ratio") for p in ("command", *_BODY)}
    }
    for row in rows.itertuples():
        whole = row.command_us + row.buffer_us + row.map_us
        columns[str(row.policy)] = {
            part: float(getattr(row, f"{part}_us")) / float(whole) for part in _PARTS
        }
    for y, (name, parts) in enumerate(columns.items()):
        left = 0.0
        for part, share in parts.items():
            axes.barh(y, 100 * share, left=left, color=_PARTS[part], height=0.6)
            if share > 0.01:
                middle = left + 50 * share
                axes.text(middle, y, f"{100 * share:.1f}", ha="center", va="center", color="white")
            left += 100 * share
        now = 100 * parts["command"] if name == "delayed" else left
        axes.barh(y, now, color="none", edgecolor="black", linewidth=2, height=0.66)
    axes.set_yticks(range(len(columns)), list(columns))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("share of the command's cost (%); framed: done before the answer")
    first = rows.iloc[0]
    axes.set_title(
        f"One command, {first.ranges:.0f} ranges of {format_bytes(first.unit_bytes)}",
        fontsize="medium",
    )
    names = {"command": "command handling", "buffer": "write buffer", "map": "mapping table"}
    handles = [Patch(color=_PARTS[part], label=label) for part, label in names.items()]
    figure.legend(handles=handles, fontsize="small", ncols=3, loc="outside upper right")
    return figure


_BODY: Final = ("buffer", "map")


def _units(rows: pd.DataFrame, _: Results) -> Figure:
    """The paper's figure 2 for more units: time per file, over the immediate one's.

    The lower part is what both policies do before all else: fetching and handling the command, as
    in the paper's bars; the upper one is what immediate TRIM does to write buffer and map.
    """
    if set(rows.policy) == {OWN}:
        return _own_units(rows)
    sizes = sorted(rows.unit_bytes.unique())
    figure, axes = plots.new(height_in=4.6)
    base = rows[rows.policy == "immediate"].set_index("unit_bytes").trim_us
    for offset, policy in ((-0.2, "immediate"), (0.2, "delayed")):
        mine = rows[rows.policy == policy].set_index("unit_bytes").reindex(sizes)
        places = np.arange(len(sizes)) + offset
        handling = 100 * mine.handling_us / base.reindex(sizes)
        rest = 100 * mine.rest_us / base.reindex(sizes)
        colour = _POLICIES[policy]
        axes.bar(places, handling, width=0.38, color=colour, label=f"{policy}: fetch, handle")
        drawn = axes.bar(
            places,
            rest,
            width=0.38,
            bottom=handling,
            color=colour,
            alpha=0.45,
            label=f"{policy}: buffer and map",
        )
        if policy == "delayed":
            labels = [f"-{100 - t:.2f} %" for t in handling + rest]
            axes.bar_label(drawn, labels, fontsize=7, padding=2)
    paper = _paper()
    known = paper[paper.metric == "reduction_ratio"].set_index("unit_bytes").value
    marks = [sizes.index(u) + 0.2 for u in known.index if u in sizes]
    values = [100 * (1 - known[u]) for u in known.index if u in sizes]
    axes.plot(marks, values, linestyle="none", label="paper", **_CROSS)
    axes.set_xticks(np.arange(len(sizes)), [format_bytes(size) for size in sizes])
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, 112)
    axes.set_xlabel("unit of one TRIM")
    axes.set_ylabel("time until answered (%)")
    file = format_bytes(rows.file_bytes.max())
    axes.set_title(f"A file of {file}, TRIMs' time over that of immediate ones", fontsize="small")
    figure.legend(fontsize="x-small", ncols=3, loc="outside upper center")
    return figure


def _own_units(rows: pd.DataFrame) -> Figure:
    """A real drive has one policy and tells no parts: its times alone."""
    mine = rows.sort_values("unit_bytes")
    figure, axes = plots.new()
    drawn = axes.bar(np.arange(len(mine)), mine.trim_us, width=0.5, color=_POLICIES[OWN])
    axes.bar_label(drawn, [f"{time:,.0f}" for time in mine.trim_us], fontsize=8, padding=2)
    axes.set_xticks(np.arange(len(mine)), [format_bytes(size) for size in mine.unit_bytes])
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, mine.trim_us.max() * 1.15)
    axes.set_xlabel("unit of one TRIM")
    axes.set_ylabel("time of all TRIMs (us)")
    file = format_bytes(rows.file_bytes.max())
    axes.set_title(f"A file of {file}, TRIMs as the drive handles them", fontsize="small")
    return figure


_STORIES: Final = {
    "after": "a write after a TRIM",
    "during": "a write while the TRIM is applied",
    "between": "a write between two TRIMs",
}


def _scenarios(rows: pd.DataFrame, results: Results) -> Figure:
    """What the drive holds after each step, with the Check Write List and without."""
    names = [name for name in _STORIES if name in set(rows.scenario)]
    size = (2 * plots.WIDTH_IN * 0.72, 1.1 + 1.9 * len(names))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(names), 2, squeeze=False, sharex=True)
    for line, scenario in zip(grid, names, strict=True):
        for ax, policy in zip(line, ("delayed", UNCHECKED), strict=True):
            [row] = rows[(rows.scenario == scenario) & (rows.policy == policy)].itertuples()
            _story(ax, results.series[row.point])
            lost = f": {row.lost_blocks:.0f} blocks lost" if row.lost_blocks else ""
            without = "without the list" if policy == UNCHECKED else "Delayed TRIM"
            ax.set_title(
                f"{_STORIES[scenario]}, {without}{lost}",
                fontsize="x-small",
                color=_LOST if lost else "black",
            )
    for ax in grid[-1]:
        ax.set_xlabel("logical block of 4 KiB")
    handles = [Patch(color=colour, label=name) for name, colour in _STATES.items()]
    handles.append(Patch(color=_LOST, label="written, and lost"))
    figure.legend(handles=handles, fontsize="small", ncols=4, loc="outside upper center")
    return figure


def _story(axes: Axes, series: Mapping[str, Sequence[float]]) -> None:
    """A row per step: what is there, and what of it the host has trimmed or written last."""
    names = sorted((name for name in series if name[0].isdigit()), key=lambda n: int(n.split()[0]))
    steps = [name.partition(" ")[2] for name in names]
    wanted = np.ones(400, dtype=bool)
    picture = []
    for name, step in zip(names, steps, strict=True):
        word, _, span = step.partition(" ")
        if "-" in span:
            begin, last = map(int, span.split("-"))
            wanted[begin : last + 1] = word == "write"
        held = np.array(series[name], dtype=bool)
        picture.append(np.select([~held & wanted, held & ~wanted, held], [3, 2, 1], 0))
    colours = ListedColormap([*_STATES.values(), _LOST])
    shown = np.array(picture)[:, 80:320]
    extent = (80, 320, len(steps) - 0.5, -0.5)
    axes.imshow(
        shown, aspect="auto", cmap=colours, vmin=0, vmax=3, extent=extent, interpolation="nearest"
    )
    axes.set_yticks(range(len(steps)), steps, fontsize="x-small")
    axes.set_yticks(np.arange(len(steps) - 1) + 0.5, minor=True)
    axes.grid(visible=False)
    axes.grid(visible=True, which="minor", axis="y", color="white", linewidth=3)
    axes.tick_params(which="minor", length=0)
    axes.tick_params(axis="x", labelsize="small")


def _plain_log(axes: Axes) -> None:
    """A logarithmic y axis whose labels are plain numbers, not only at powers of ten."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.9g}")
    axes.yaxis.set_minor_formatter(plots.NOTHING)


def _tails(rows: pd.DataFrame, _: Results) -> Figure:
    """Latency quantiles of reads and writes, one column per size of a TRIM. Shaded: from the least
    to the most of several repetitions.
    """
    sizes = sorted(rows.unit_bytes.unique())
    width = plots.WIDTH_IN * max(len(sizes), 1) ** 0.5
    figure = Figure(figsize=(width, 6.4), layout="constrained")
    grid = figure.subplots(2, len(sizes), squeeze=False, sharey="row")
    for op, line in zip(("read", "write"), grid, strict=True):
        for ax, size in zip(line, sizes, strict=True):
            mine = rows[rows.unit_bytes == size].set_index("policy")
            for policy in (p for p in _POLICIES if p in mine.index):
                values, *ends = (
                    [mine.loc[policy, f"{op}_{q}_us{end}"] for q in _QUANTILES]
                    for end in ("", "_low", "_high")
                    if f"{op}_p50_us{end}" in mine
                )
                style = "--" if policy == "none" else "-"
                ax.plot(
                    list(_QUANTILES.values()),
                    values,
                    style,
                    marker="o",
                    markersize=4,
                    color=_POLICIES[policy],
                    label=policy,
                )
                if ends:
                    shade = {"color": _POLICIES[policy], "alpha": 0.25, "linewidth": 0}
                    ax.fill_between(list(_QUANTILES.values()), *ends, **shade)
            _plain_log(ax)
            ax.tick_params(labelsize="small")
        line[0].set_ylabel(f"{op} latency (us)")
    for ax, size in zip(grid[0], sizes, strict=True):
        ax.set_title(f"TRIMs of {format_bytes(size)}", fontsize="medium")
    for ax in grid[1]:
        ax.set_xlabel("share of the requests", fontsize="small")
    rate = format_bytes(rows.trim_rate_bytes_per_s.max())
    handles = grid[0][0].get_legend_handles_labels()
    figure.legend(
        *handles,
        ncols=3,
        loc="outside upper center",
        title=f"{rate} trimmed per s, by policy",
        title_fontsize="small",
        fontsize="small",
    )
    return figure


def _write_list(rows: pd.DataFrame, _: Results) -> Figure:
    """What a write pays while TRIMs are pending, with tables that suffice and that do not."""
    figure, (left, right) = plots.new(2, height_in=4.4, sharey=True)
    none = rows[rows.policy == "none"].iloc[0]
    mine = rows[rows.policy == "delayed"]
    names = [
        f"{row.pending_ranges:,.0f} ranges,\n{row.list_entries:,.0f} writes"
        for row in mine.itertuples()
    ]
    drawn = left.barh(names, mine.per_write_us, color=_PARTS["list"], height=0.6)
    left.bar_label(drawn, [f"{v:.2f}" for v in mine.per_write_us], fontsize=8, padding=3)
    left.set_xscale("log")
    left.set_xlim(mine.per_write_us.min() / 3, mine.per_write_us.max() * 4)
    left.xaxis.set_major_formatter(plots.PLAIN)
    left.set_title("firmware's time per write for what is pending (us)", fontsize="small")
    extra = (mine.write_max_us - none.write_max_us).clip(lower=0)
    drawn = right.barh(names, extra, color=_POLICIES["delayed"], height=0.6)
    labels = [
        f"{v:,.0f} ({full:.0f} times full)" for v, full in zip(extra, mine.full_tables, strict=True)
    ]
    right.bar_label(drawn, labels, fontsize=8, padding=3)
    right.set_xlim(0, max(extra.max(), 1) * 1.5)
    right.set_title("longest write, above that of a drive without TRIM (us)", fontsize="small")
    for ax in (left, right):
        ax.grid(visible=False, axis="y")
        ax.tick_params(labelsize="small")
    left.invert_yaxis()
    left.set_ylabel("tables")
    return figure


def _idle(rows: pd.DataFrame, _: Results) -> Figure:
    """How much of the work a collection still had to wait for, and what a round took for it."""
    figure, (left, right) = plots.new(2)
    delayed = rows[rows.policy == "delayed"].sort_values("pause_ratio")
    first = {policy: mine.iloc[0] for policy, mine in rows.groupby("policy")}
    style = {"marker": "o", "color": _POLICIES["delayed"]}
    left.plot(delayed.pause_ratio, delayed.drain_ms, **style)
    left.set_ylabel("collections wait, per file (ms)")
    longer_ms = delayed.write_ms - first["immediate"].write_ms
    right.plot(delayed.pause_ratio, longer_ms, **style)
    right.set_ylabel("a round takes longer by (ms)")
    for ax in (left, right):
        ax.set_xlabel("pause over the time that the work takes")
    gib = delayed.file_bytes.max() / 2**30
    needed = delayed.needed_ms.max() / gib
    left.set_title(f"idle time that suffices: {needed:.0f} ms per GiB trimmed", fontsize="small")
    wafs = [f"{first[name].waf_ratio:.2f}" for name in ("delayed", "immediate", "none")]
    right.set_title(f"than with immediate TRIM; WAF {wafs[0]}, {wafs[1]}", fontsize="small")
    right.annotate(
        f"without TRIM: {first['none'].write_ms - first['immediate'].write_ms:,.0f} ms, "
        f"WAF {wafs[2]}",
        (0.98, 0.93),
        xycoords="axes fraction",
        ha="right",
        fontsize="small",
    )
    return figure


def _idle_phase(rows: pd.DataFrame, _: Results) -> Figure:
    """Where a file's TRIMs cost time, by pattern; and what longer steps save and cost."""
    figure, (left, right) = plots.new(2, height_in=4.6)
    plain = rows[rows.step == 1].drop_duplicates(["policy", "pattern", "merged"])
    names, now, later = [], [], []
    for row in plain.sort_values(["pattern", "policy"], ascending=False).itertuples():
        merged = ", merged" if row.merged else ""
        names.append(f"{_PATTERNS[row.pattern]}\n{row.policy}{merged}")
        before = row.command_us + row.buffer_us + row.map_us + row.list_us - row.later_us
        now.append(before / 1e3)
        later.append(row.later_us / 1e3)
    left.barh(names, now, color=_TRIM, height=0.6, label="in requests' way")
    drawn = left.barh(names, later, left=now, color=_LATER, height=0.6, label="when idle")
    labels = [f"{a:.1f} + {b:.1f}" if b else f"{a:,.1f}" for a, b in zip(now, later, strict=True)]
    left.bar_label(drawn, labels, fontsize=8, padding=3)
    left.set_xscale("log")
    left.set_xlim(0.3, max(a + b for a, b in zip(now, later, strict=True)) * 12)
    left.xaxis.set_major_formatter(lambda x, _: f"{x:,.9g}")
    left.invert_yaxis()
    left.grid(visible=False, axis="y")
    left.tick_params(labelsize="x-small")
    left.set_xlabel("time per file (ms)")
    left.legend(fontsize="x-small", loc="lower right")
    _steps(right, rows)
    return figure


_PATTERNS: Final = {"units": "one after another", "again": "each repeats those before"}


def _steps(axes: Axes, rows: pd.DataFrame) -> None:
    mine = rows[(rows.policy == "delayed") & (rows.pattern == "units") & rows.merged.astype(bool)]
    mine = mine.drop_duplicates("step").sort_values("step")
    first = mine.iloc[0]
    axes.plot(
        mine.step,
        100 * mine.later_us / first.later_us,
        marker="o",
        color=_POLICIES["delayed"],
        label="idle time (% of steps of one slice)",
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(mine.step, [f"{n:.0f}" for n in mine.step])
    axes.xaxis.set_minor_formatter(plots.NOTHING)
    axes.set_ylim(0, 110)
    axes.set_xlabel("slices per step")
    axes.set_ylabel("idle time (%)", color=_POLICIES["delayed"])
    waits = axes.twinx()
    waits.plot(mine.step, mine.read_p999_us, marker="s", color=_TRIM)
    waits.set_ylim(0, mine.read_p999_us.max() * 1.15)
    waits.set_ylabel("99.9 % of the reads meanwhile within (us)", color=_TRIM)
    waits.grid(visible=False)
