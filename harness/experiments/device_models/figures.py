"""The figures: every model beside what is known of it without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness import plots
from harness.experiments.base import Results
from harness.experiments.device_models.grid import LAYOUTS
from harness.experiments.drawing import drawn_by_kind
from harness.units import format_bytes

_COLOURS: Final = ("#2c6fb5", "#b5542c", "#4d7f3c", "#7a4fa3", "#8a6d1f")
_READ, _WRITE = _COLOURS[0], _COLOURS[1]
_LINES: Final = {"mean": "-", "p99": "--", "p999": ":"}
_POINTS_ONLY: Final = {"linestyle": "none", "markersize": 5}


NEEDS: Final = {
    "write_amplification": "points of kind waf (tier simulated)",
    "hot_and_cold": "points of kind hot_cold (tier simulated)",
    "warm_up": "points of kind warm_up (tier simulated)",
    "load": "points of kind load (tier simulated)",
    "trim": "points of kind trim (tier simulated)",
    "seek_distance": "points of kind disk_seek (tier simulated)",
    "queue_order": "points of kind disk_queue (tier simulated)",
}
"""Which points each figure is drawn of, for who has none."""


def draw(results: Results) -> dict[str, Figure]:
    """All figures that the results at hand can fill."""
    makers: dict[str, tuple[str, Callable[[pd.DataFrame, Results], Figure]]] = {
        "write_amplification": ("waf", _write_amplification),
        "hot_and_cold": ("hot_cold", _hot_and_cold),
        "warm_up": ("warm_up", _warm_up),
        "load": ("load", _load),
        "trim": ("trim", _trim),
        "seek_distance": ("disk_seek", _seek_distance),
        "queue_order": ("disk_queue", _queue_order),
    }
    return drawn_by_kind(results, makers)


def _each(table: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame, str]]:
    """Name, rows and colour of every value of a column, in order of appearance."""
    for i, name in enumerate(table[column].unique()):
        yield str(name), table[table[column] == name], _COLOURS[i % len(_COLOURS)]


def _plain_log(axes: Axes, *names: str, ticks: tuple[float, ...] = ()) -> None:
    """Logarithmic axes whose labels are plain numbers."""
    for name in names:
        getattr(axes, f"set_{name}scale")("log")
        axis = getattr(axes, f"{name}axis")
        if ticks:
            axis.set_ticks(ticks)
        axis.set_major_formatter(plots.PLAIN)
        axis.set_minor_formatter(plots.NOTHING)


def _theory_line(axes: Axes, rows: pd.DataFrame, column: str, **style: Any) -> None:
    known = rows.groupby("spare_factor")[column].mean()
    axes.plot(known.index, known, **{"linewidth": 1.3, "zorder": 1, **style})


def _write_amplification(rows: pd.DataFrame, _: Results) -> Figure:
    figure, (left, right) = plots.new(2)
    for policy, mine, colour in _each(rows, "policy"):
        plots.with_spread(left, mine, "spare_factor", "waf", policy, colour, **_POINTS_ONLY)
        if mine.theory_waf.isna().all():
            continue
        _theory_line(left, mine, "theory_waf", color=colour)
        percent = mine.assign(deviation=100 * (mine.waf / mine.theory_waf - 1))
        plots.with_spread(right, percent, "spare_factor", "deviation", policy, colour)
    _plain_log(left, "y", ticks=(1, 2, 3, 5, 10))
    left.set(
        xlabel="spare factor", ylabel="write amplification", title="theory (lines), simulation"
    )
    left.legend(fontsize="small")
    right.axhspan(-2, 2, color="0.92", zorder=0)
    right.set(xlabel="spare factor", ylim=(-3, 3), title="simulation less theory (%)")
    figure.suptitle("Uniform random writes, steady state", fontsize="medium")
    return figure


def _hot_and_cold(rows: pd.DataFrame, _: Results) -> Figure:
    figure, axes = plots.new(height_in=5.2)
    for layout, mine, colour in _each(rows, "layout"):
        plots.with_spread(axes, mine, "spare_factor", "waf", layout, colour, **_POINTS_ONLY)
    one = rows[rows.layout.map(lambda name: not LAYOUTS[name][1])]
    two = rows[rows.layout.map(lambda name: LAYOUTS[name][1])]
    theories = (
        (one, "theory_mixed_waf", "theory: one stream, fifo", "-"),
        (two, "theory_balanced_waf", "theory: two streams, victims equally full", "--"),
        (two, "theory_separated_waf", "theory: two streams, best split of the spare", ":"),
    )
    for some, column, label, line in theories:
        if not some.empty:
            _theory_line(axes, some, column, color="0.35", linestyle=line, label=label)
    _plain_log(axes, "y", ticks=(1, 2, 3, 5, 8))
    first = rows.iloc[0]
    data, writes = 100 * first.hot_data_ratio, 100 * first.hot_access_ratio
    title = f"{data:g} % of the data get {writes:g} % of the writes"
    axes.set(xlabel="spare factor", ylabel="write amplification", title=title)
    axes.legend(fontsize="small")
    return figure


def _warm_up(rows: pd.DataFrame, results: Results) -> Figure:
    figure, axes = plots.new()
    for policy, mine, colour in _each(rows[rows.repetition == 0], "policy"):
        row = mine.iloc[0]
        series = results.series[row.point]
        written = series["written_ratio"]
        axes.plot(written, series["waf"], color=colour, label=policy, linewidth=1.2)
        if not pd.isna(row.get("theory_waf")):
            axes.axhline(row.theory_waf, xmin=0.9, color=colour, linewidth=3, alpha=0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, 1.1 * axes.dataLim.x1)
    axes.set_xlabel("written since the drive was filled in order (capacities)")
    axes.set_ylabel("write amplification")
    axes.set_title("From a full new drive to the steady state (theory: bars at the right)")
    axes.legend()
    return figure


def _load(rows: pd.DataFrame, _: Results) -> Figure:
    mixes = list(_each(rows, "mix"))
    figure, axes = plots.new(len(mixes), height_in=4.6, squeeze=False, sharey=True)
    for ax, (mix, mine, _colour) in zip(axes[0], mixes, strict=True):
        offered = mine.offered_iops / 1e3
        for op, colour in (("read", _READ), ("write", _WRITE)):
            for quantile, line in _LINES.items():
                column = f"{op}_{quantile}_us"
                if column in mine and not mine[column].isna().all():
                    style = {"color": colour, "linestyle": line, "marker": "o", "markersize": 3}
                    ax.plot(offered, mine[column], **style)
        if "theory_read_mean_us" in mine:
            ax.plot(offered, mine.theory_read_mean_us, "x", color="black", markersize=6)
        ax.axvline(mine.saturation_iops.iloc[0] / 1e3, color="0.6", linewidth=1)
        ax.set(title=mix, xlabel="offered load (1000 IOPS)", xlim=(0, None))
        _plain_log(ax, "y")
    axes[0][0].set_ylabel("latency (us)")
    axes[0][0].legend(handles=_load_legend(), fontsize="small", loc="upper left")
    figure.suptitle("4 KiB at random in steady state; vertical line: saturation", fontsize="medium")
    return figure


def _load_legend() -> list[Line2D]:
    ops = [Line2D([], [], color=c, label=n) for n, c in (("read", _READ), ("write", _WRITE))]
    names = {"mean": "mean", "p99": "99 %", "p999": "99.9 %"}
    kinds = [Line2D([], [], color="0.3", linestyle=s, label=names[n]) for n, s in _LINES.items()]
    theory = Line2D([], [], color="black", marker="x", linestyle="none", label="M/D/1, mean")
    return [*ops, *kinds, theory]


def _trim(rows: pd.DataFrame, _: Results) -> Figure:
    figure, (parts, by_size, by_rate) = plots.new(3, height_in=4.6)
    sizes = _sweep(rows, "trim_bytes", "trims_per_s")
    rates = _sweep(rows, "trims_per_s", "trim_bytes")
    _trim_parts(parts, sizes)
    for name, mine, style in _trim_lines(rows):
        for ax, swept, x, y in (
            (by_size, sizes, "trim_bytes", "read_max_us"),
            (by_rate, rates, "trims_per_s", "read_mean_us"),
        ):
            some = swept[swept.point.isin(mine.point)].sort_values(x)
            scale = 1e3 if y == "read_max_us" else 1.0
            ax.plot(some[x], some[y] / scale, label=name, **style)
    plots.size_axis(by_size, sizes.trim_bytes.unique())
    by_size.tick_params(axis="x", rotation=45)
    _plain_log(by_size, "y", ticks=(0.5, 1, 2, 5, 10, 20))
    by_size.set(xlabel="size of a TRIM", ylabel="ms", title="longest read")
    _plain_log(by_rate, "x")
    each = format_bytes(rates.trim_bytes.iloc[0])
    by_rate.set(xlabel=f"TRIMs of {each} per second", ylabel="us", title="mean read latency")
    by_rate.legend(fontsize="small")
    return figure


def _sweep(rows: pd.DataFrame, varied: str, fixed: str) -> pd.DataFrame:
    """The rows at that value of `fixed` under which `varied` has most values."""
    value = rows.groupby(fixed)[varied].nunique().idxmax()
    return rows[rows[fixed] == value]


def _trim_parts(axes: Axes, rows: pd.DataFrame) -> None:
    """Shares of one TRIM's cost, and its sum above the bar."""
    names = {"command": "command, range", "buffer": "write buffer", "map": "map"}
    means = rows.groupby("trim_bytes")[[f"trim_{part}_us" for part in names]].mean()
    total = means.sum(axis=1)
    labels = [format_bytes(float(size)) for size in means.index]
    below = np.zeros(len(means))
    for (part, name), colour in zip(names.items(), ("0.6", _READ, _WRITE), strict=True):
        share = 100 * means[f"trim_{part}_us"] / total
        axes.bar(labels, share, bottom=below, color=colour, label=name)
        below += share.to_numpy()
    for i, cost_us in enumerate(total):
        axes.text(i, 101, f"{cost_us / 1e3:.3g}", ha="center", va="bottom", fontsize=8)
    axes.tick_params(axis="x", rotation=45)
    axes.set(xlabel="size of a TRIM", ylabel="%", title="parts of its cost (above: ms)")
    axes.set_ylim(0, 140)
    axes.set_yticks(range(0, 101, 25))
    axes.legend(fontsize="small", ncols=2, loc="upper center")


def _trim_lines(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    depths = sorted(rows.queue_depth.unique())
    for depth, colour in zip(depths, _COLOURS, strict=False):
        for command, line in (("queued", "-"), ("non-queued", "--")):
            mine = rows[(rows.queue_depth == depth) & (rows.trim_command == command)]
            style = {"color": colour, "linestyle": line, "marker": "o", "markersize": 4}
            yield f"{command}, depth {depth:g}", mine, style


def _seek_distance(rows: pd.DataFrame, results: Results) -> Figure:
    figure, axes = plots.new(len(rows), squeeze=False, sharey=True, height_in=4.6)
    for ax, row in zip(axes[0], rows.itertuples(), strict=True):
        trace = results.trace_of(row.point)
        if trace is not None:
            ms = trace.latency_ns / 1e6
            label = "simulated reads"
            ax.scatter(trace.distance_bytes, ms, s=1.5, color=_READ, label=label, rasterized=True)
        _published_seeks(ax, row)
        ax.set(xscale="log", title=row.device, xlabel="distance from the read before", ylim=(0, 28))
        decades = [10**power for power in (5, 7, 9, 11)]
        ax.set_xticks(decades, ["100 kB", "10 MB", "1 GB", "100 GB"])
        ax.xaxis.set_minor_formatter(plots.NOTHING)
        ax.legend(fontsize="small", loc="upper left", markerscale=3)
    axes[0][0].set_ylabel("latency (ms)")
    return figure


def _published_seeks(axes: Axes, row: Any) -> None:
    """What the profile says: seek and overhead, and up to one revolution more."""
    distances = np.array([row.outer_track_bytes, row.capacity_bytes / 3, row.capacity_bytes])
    seeks = np.array([row.track_to_track_ms, row.average_seek_ms, row.full_stroke_ms])
    least = seeks + row.overhead_ms
    label = "profile: seek + overhead,\nto one revolution more"
    axes.vlines(distances, least, least + row.revolution_ms, color=_WRITE, label=label)
    axes.plot(distances, least, "_", color=_WRITE, markersize=12)


def _queue_order(rows: pd.DataFrame, _: Results) -> Figure:
    figure, (left, right) = plots.new(2)
    lines = dict(zip(rows.device.unique(), ("-", "--", ":", "-."), strict=False))
    for scheduler, mine, colour in _each(rows, "scheduler"):
        for device, line in lines.items():
            some = mine[mine.device == device].sort_values("queue_depth")
            style = {"color": colour, "linestyle": line, "marker": "o", "markersize": 4}
            label = f"{scheduler}, {device}"
            left.plot(some.queue_depth, some.iops, label=label, **style)
            right.plot(some.queue_depth, some.read_p99_ms, **style)
    alone = 1e3 / rows.theory_read_ms.mean()
    left.axhline(alone, color="0.4", linewidth=1, linestyle=":", label="arithmetic, by arrival")
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xticks(sorted(rows.queue_depth.unique()))
        ax.xaxis.set_major_formatter(plots.PLAIN)
        ax.xaxis.set_minor_formatter(plots.NOTHING)
        ax.set_ylim(bottom=0)
        ax.set_xlabel("queue depth")
    left.set_title("random reads per second")
    right.set_title("99 % of the reads answered within (ms)")
    left.legend(fontsize="x-small", loc="upper left")
    return figure
