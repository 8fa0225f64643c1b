"""The figures: the paper's three, and what they leave open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.markers import CARETDOWN
from matplotlib.ticker import LogLocator

from harness import plots
from harness.experiments.base import Results
from harness.experiments.drawing import drawn
from harness.experiments.grace_hash_join import published
from harness.experiments.grace_hash_join.grid import BASE
from harness.paths import find_project
from harness.units import format_bytes

_MIB: Final = 1 << 20
_READ: Final = "nominal_read_buffer_bytes"
_READ_SET: Final = "read_buffer_bytes"
_WRITE: Final = "write_buffer_bytes"
_MARKERS: Final = {"above": CARETDOWN}


NEEDS: Final = {
    "read_buffer": "one user, the smallest write buffer, several read buffers",
    "write_buffer": "one user, one read buffer, several write buffers",
    "users": "2 or more users who share the read buffer of one alone",
    "phases": "one user, the smallest write buffer",
    "address_over_time": "a traced disk or file: its trace is kept with the point",
    "seek_distance": "one user, the first repetition",
    "theory": "a modelled drive: arithmetic has no numbers for a real one",
    "hybrid": "both algorithms, grace and hybrid",
    "queue_depth": "queue depths above 1 (real files and drives: io_uring, of liburing-dev)",
}
"""Which points each figure is drawn of, for who has none."""


def draw(results: Results) -> dict[str, Figure]:
    """All figures that the results at hand can fill."""
    table = results.table
    base = table[(table.variant == BASE) & (table.queue_depth == 1)]
    paper = published.ratios(find_project().published)
    if results.tier != "simulated":
        paper = paper.iloc[:0]  # other sizes: nothing to be laid beside
    makers: dict[str, Callable[[], Figure | None]] = {
        "read_buffer": lambda: _read_buffer(base, paper),
        "write_buffer": lambda: _write_buffer(base, paper),
        "users": lambda: _users(base, paper),
        "phases": lambda: _phases(base),
        "address_over_time": lambda: _address_over_time(base, results),
        "seek_distance": lambda: _seek_distance(base, results),
        "theory": lambda: _theory(base),
        "hybrid": lambda: _hybrid(base),
        "queue_depth": lambda: _queue_depth(table[table.variant == BASE]),
    }
    return drawn(results, makers)


def _devices(table: pd.DataFrame) -> list[str]:
    return sorted(table.device.unique())


def _grace(table: pd.DataFrame) -> pd.DataFrame:
    return table[table.algorithm == "grace"]


def _smallest_write(table: pd.DataFrame) -> pd.DataFrame:
    return table[table[_WRITE] == table[_WRITE].min()]


def _read_names(table: pd.DataFrame) -> dict[int, str]:
    """Read buffers as they were set, by their nominal size in bytes, from the smallest."""
    sizes = table.groupby(_READ)[_READ_SET].max()
    return {int(nominal): plots.size_name(int(own), int(nominal)) for nominal, own in sizes.items()}


def _in_two_lines(name: str) -> str:
    """Of a size, where there is little room beside it."""
    return name.replace(" (", "\n(")


def _read_axis(axes: Axes, table: pd.DataFrame) -> None:
    """Nominal sizes, each named by what was set in its place."""
    names = _read_names(table)
    plots.size_axis(axes, list(names))
    if any("(" in name for name in names.values()):
        axes.set_xticks(list(names), [_in_two_lines(name) for name in names.values()])
        axes.tick_params(axis="x", labelsize="x-small")
    axes.set_xlabel("read buffer")


def _time_axis(axes: Axes, title: str) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(plots.PLAIN)
    axes.set_ylabel("join time (s)")
    axes.set_title(title)
    axes.margins(y=0.3)
    axes.legend(fontsize="small", ncols=2)


def _marks(
    axes: Axes, paper: pd.DataFrame, times: pd.Series, places: Callable[[Any], float]
) -> None:
    """Where our time would be if it were the paper's ratio away from our other one.

    `times`: by device and buffer. A cross where the text names a ratio, a triangle where it says
    "above": further down would be the paper's, too. What has no time of ours to start from is left
    out.
    """
    for row in paper.itertuples():
        start = times.get((row.over_device, row.over_bytes))
        if start is None:
            continue
        axes.plot(
            places(row),
            start / row.time_ratio,
            marker=_MARKERS.get(str(row.says), "x"),
            color=plots.COLOURS[row.device],
            markeredgecolor="black",
            markeredgewidth=2,
            markersize=9,
            zorder=4,
        )
    if not paper.empty:
        label = "paper's ratio, from our time"
        axes.plot([], [], "x", color="black", markeredgewidth=2, linestyle="none", label=label)


def _means(table: pd.DataFrame, buffer: str) -> pd.Series:
    """Join time in s by device and size of a buffer."""
    return table.groupby(["device", buffer]).elapsed_s.mean()


def _read_buffer(table: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    one = _smallest_write(_grace(table[table.users == 1]))
    figure, axes = plots.new()
    colours = plots.device_colours(table.device)
    for device in _devices(one):
        rows = one[one.device == device]
        plots.with_spread(
            axes, rows, _READ, "elapsed_s", plots.device_name(device), colours[device]
        )
    _marks(axes, paper[paper.figure == 1], _means(one, _READ), lambda row: row.bytes)
    _read_axis(axes, one)
    _time_axis(axes, "Read buffer (the paper's figure 1)")
    return figure


def _write_buffer(table: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    one = _grace(table[table.users == 1])
    sweep = one.groupby(_READ)[_WRITE].nunique().idxmax()
    rows = one[one[_READ] == sweep]
    devices = _devices(rows)
    figure, axes = plots.new(len(devices), squeeze=False)
    colours = plots.device_colours(table.device)
    for ax, device in zip(axes[0], devices, strict=True):
        mine = rows[rows.device == device]
        plots.with_spread(ax, mine, _WRITE, "elapsed_s", plots.device_name(device), colours[device])
        said = paper[(paper.figure == 2) & (paper.device == device)]
        _marks(ax, said, _means(mine, _WRITE), lambda row: row.bytes)
        plots.size_axis(ax, mine[_WRITE].unique())
        ax.tick_params(axis="x", rotation=45)
        ax.set_ylim(bottom=0)
        ax.legend(fontsize="x-small")
        ax.set_xlabel("write buffer")
        ax.set_title(plots.device_name(device))
    axes[0][0].set_ylabel("join time (s)")
    figure.suptitle("Write buffer (the paper's figure 2)", fontsize="medium")
    return figure


def _users(table: pd.DataFrame, paper: pd.DataFrame) -> Figure | None:
    """Beside the users' times: one user alone with as small a buffer, which is what the smaller
    buffer explains.
    """
    smallest = _smallest_write(_grace(table))
    if smallest.users.max() == 1:
        return None
    total = (smallest[_READ] * smallest.users)[smallest.users > 1].max()
    shared = smallest[(smallest[_READ] * smallest.users - total).abs() < smallest.users]
    figure, axes = plots.new()
    colours = plots.device_colours(table.device)
    for device in _devices(shared):
        rows = shared[shared.device == device]
        plots.with_spread(
            axes, rows, "users", "elapsed_s", plots.device_name(device), colours[device]
        )
        alone = smallest[(smallest.device == device) & (smallest.users == 1)]
        times = alone.groupby(_READ).elapsed_s.mean()
        users = [n for n in rows.users.unique() if total // n in times.index]
        axes.plot(
            users,
            [times[total // n] for n in users],
            linestyle=":",
            marker="x",
            color=colours[device],
            label=f"{plots.device_name(device)}, one user with that buffer",
        )
    for users, said in paper[paper.figure == 3].groupby("users"):
        mine = shared[shared.users == users]
        _marks(axes, said, _means(mine, _READ), lambda row: row.users)
    axes.set_xticks(sorted(shared.users.unique()))
    together = int((shared[_READ_SET] * shared.users).max())
    name = plots.size_name(together, int(total))
    axes.set_xlabel(f"users sharing {name} of read buffer")
    _time_axis(axes, "Concurrent users (the paper's figure 3)")
    return figure


def _phases(table: pd.DataFrame) -> Figure:
    one = _smallest_write(_grace(table[table.users == 1]))
    devices = _devices(one)
    figure, axes = plots.new(len(devices), squeeze=False)
    colours = plots.device_colours(table.device)
    for ax, device in zip(axes[0], devices, strict=True):
        means = one[one.device == device].groupby(_READ)[["partition_s", "join_s"]].mean()
        names = _read_names(one)
        labels = [_in_two_lines(names[size]) for size in means.index]
        ax.bar(labels, means.partition_s, color="0.6", label="partition")
        colour = colours[device]
        ax.bar(labels, means.join_s, bottom=means.partition_s, color=colour, label="join")
        ax.tick_params(axis="x", rotation=45)
        ax.set_xlabel("read buffer")
        ax.set_title(plots.device_name(device))
        ax.set_ylim(top=1.25 * (means.partition_s + means.join_s).max())
        ax.legend(ncols=2, fontsize="small")
    axes[0][0].set_ylabel("time (s)")
    figure.suptitle("Where the time goes", fontsize="medium")
    return figure


def _traced(table: pd.DataFrame, results: Results) -> list[tuple[Any, pd.DataFrame]]:
    rows = table[(table.device != "ssd") & (table.users == 1)].sort_values(_READ)
    found = ((row, results.trace_of(row.point)) for row in rows.itertuples())
    return [(row, trace) for row, trace in found if trace is not None]


def _address_over_time(table: pd.DataFrame, results: Results) -> Figure | None:
    traced = _traced(table, results)
    if not traced:
        return None
    figure, axes = plots.new(len(traced), squeeze=False, sharey=True)
    for ax, (row, trace) in zip(axes[0], traced, strict=True):
        shown = trace.iloc[:: max(len(trace) // 15_000, 1)]
        seconds = (shown.submitted_ns - trace.submitted_ns.min()) / 1e9
        for op, name, colour in ((0, "read", "#2c6fb5"), (1, "write", "#b5542c")):
            mine = shown.op == op
            offset = shown.lba[mine] * 512 / 1e6
            ax.scatter(seconds[mine], offset, s=0.6, color=colour, label=name, rasterized=True)
        ax.set_xlabel("time (s)")
        size = plots.size_name(row.read_buffer_bytes, row.nominal_read_buffer_bytes)
        shrank = row.read_buffer_bytes != row.nominal_read_buffer_bytes
        ax.set_title(
            f"{plots.device_name(row.device)}, read buffer {size}",
            fontsize="small" if shrank else None,
        )
        ax.legend(markerscale=8, loc="lower right")
    axes[0][0].set_ylabel("address (MB)")
    return figure


def _seek_distance(table: pd.DataFrame, results: Results) -> Figure:
    """Reads of the join phase by their distance from the user's transfer before."""
    one = _smallest_write(_grace(table[(table.users == 1) & (table.repetition == 0)]))
    one = one[one.device == _devices(one)[0]].sort_values(_READ)
    figure, axes = plots.new()
    shades = np.linspace(0.85, 0.25, len(one))
    for row, shade in zip(one.itertuples(), shades, strict=True):
        counts = np.array(results.series[row.point]["join_read_by_seek_log2"], dtype=float)
        distance_bytes = 512.0 * 2 ** np.arange(-1.0, len(counts) - 1)
        seen = np.flatnonzero(counts)
        axes.plot(
            distance_bytes[seen],
            counts[seen] / counts.sum(),
            drawstyle="steps-mid",
            color=str(1 - shade),
            label=plots.size_name(row.read_buffer_bytes, row.nominal_read_buffer_bytes),
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda x, _: format_bytes(x))
    axes.set_xlabel("distance from the transfer before")
    axes.set_ylabel("share of the join phase's reads")
    axes.set_title("A smaller read buffer scatters a partition further")
    shrank = (one[_READ_SET] != one[_READ]).any()
    axes.legend(title="read buffer", fontsize="small" if shrank else None)
    return figure


def _theory(table: pd.DataFrame) -> Figure | None:
    if "theory_join_s" not in table or table.theory_join_s.isna().all():
        return None
    rows = table.dropna(subset=["theory_join_s"])
    figure, axes = plots.new(2, squeeze=False)
    colours = plots.device_colours(table.device)
    for ax, phase in zip(axes[0], ("partition", "join"), strict=True):
        for device in _devices(rows):
            mine = rows[rows.device == device]
            x, y = mine[f"theory_{phase}_s"], mine[f"{phase}_s"]
            ax.scatter(x, y, s=22, color=colours[device], label=plots.device_name(device))
        ends = [rows[f"theory_{phase}_s"].min() * 0.8, rows[f"theory_{phase}_s"].max() * 1.25]
        ax.plot(ends, ends, color="0.6", linewidth=1)
        ax.set(xscale="log", yscale="log", title=f"{phase} phase", xlabel="arithmetic (s)")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(plots.PLAIN)
            axis.set_minor_formatter(plots.NOTHING)
        ax.legend()
    axes[0][0].set_ylabel("simulation (s)")
    return figure


def _hybrid(table: pd.DataFrame) -> Figure | None:
    if table.algorithm.nunique() < 2:
        return None
    one = _smallest_write(table[table.users == 1])
    times = one.pivot_table(index=["device", _READ], columns="algorithm", values="elapsed_s")
    times = times.dropna().reset_index()
    figure, axes = plots.new()
    colours = plots.device_colours(table.device)
    for device in _devices(times):
        mine = times[times.device == device]
        speedup = mine.grace / mine.hybrid
        axes.plot(
            mine[_READ], speedup, marker="o", color=colours[device], label=plots.device_name(device)
        )
    _read_axis(axes, one[one[_READ].isin(times[_READ])])
    axes.axhline(1, color="0.6", linewidth=1)
    axes.set_ylabel("Grace time / hybrid time")
    axes.set_title("Hybrid hash join (the paper's future work)")
    axes.legend()
    return figure


def _queue_depth(table: pd.DataFrame) -> Figure | None:
    rows = _grace(table[(table.users == 1) & (table.repetition == 0)])
    sweep = rows[rows.queue_depth > 1]
    if sweep.empty:
        return None
    same = sweep.iloc[0]
    rows = rows[(rows[_READ] == same[_READ]) & (rows[_WRITE] == same[_WRITE])]
    figure, axes = plots.new()
    colours = plots.device_colours(table.device)
    for device in _devices(rows):
        mine = rows[rows.device == device].sort_values("queue_depth")
        speedup = mine[mine.queue_depth == 1].elapsed_s.iloc[0] / mine.elapsed_s
        colour = colours[device]
        axes.plot(
            mine.queue_depth, speedup, marker="o", color=colour, label=plots.device_name(device)
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(rows.queue_depth.unique()))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.set_xlabel("transfers in flight per user")
    axes.set_ylabel("speed-up over the synchronous engine")
    axes.set_title("Asynchronous I/O (beyond the paper)")
    axes.legend()
    return figure
