"""The figures: the paper's 2 and 4 to 10, why they look so, and what the variants change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from harness import plots
from harness.experiments.base import Results
from harness.experiments.drawing import drawn
from harness.experiments.stands_for import as_roles
from harness.experiments.trim_fallocate import published
from harness.experiments.trim_fallocate.grid import BASE
from harness.paths import find_project
from harness.units import format_bytes

_DEVICES: Final = {"mx500": "MX500", "840pro": "840 Pro", "cosmos": "Cosmos+"}
_FIRST: Final = "mx500"
"""The drive that most variants are of."""

_STYLES: Final = {
    "neither": ("#7f7f7f", "o", "-"),
    "fallocate": ("#56b4e9", "s", "--"),
    "trim": ("#d55e00", "^", "-."),
    "both": ("#009e73", "D", "-"),
}
"""Colour (Okabe and Ito's), marker and line of the matrix's cells, in this order."""

_NAMES: Final = {
    "neither": "neither",
    "fallocate": "fallocate only",
    "trim": "TRIM only",
    "both": "TRIM and fallocate",
}
_BROKEN: Final = {**_NAMES, "fallocate": "fallocate\nonly", "both": "both"}
_OPERATIONS: Final = ((1, "write", "write"), (0, "read", "read"), (2, "discard", "TRIM"))
_WORKLOADS: Final = {
    "hash_join": "hash join",
    "sort": "sort",
    "hash_aggregate": "hash\naggregation",
    "create_index": "CREATE\nINDEX",
}
_BLOCK_BYTES: Final = 4096
_GB_PER_SECTOR: Final = 512 / 1e9
"""What a line below a figure takes of its height."""

_HIGHEST_WAF: Final = 1.1
"""Of the WAF axis, at least: rounding is not to look like a trend."""


NEEDS: Final = {
    "lba_over_time": "a recorded trace of a cell of the matrix",
    "phases": "TRIM on and off, with and without fallocate, of one drive",
    "trim_commands": "TRIM with and without fallocate, and a count of TRIM commands",
    "work_mem": "variant work_mem with two sizes that spill (tier simulated)",
    "matrix_mx500": "the matrix on the first drive, mx500, or on a real flash drive",
    "matrix_840pro": "the matrix on the second drive, 840pro",
    "matrix_cosmos": "the matrix on the board, cosmos",
    "lengths": "TRIM with and without fallocate, with recorded extents",
    "time_lost": "extents, TRIM commands or the time that commits wait for them",
    "reads_beside_trim": "reads that TRIM commands were queued against, in a recorded trace",
    "what_if": "variant preallocation with two sizes, and another variant (tier simulated)",
    "workloads": "another workload than the hash join (tier emulated)",
}
"""Which points each figure is drawn of, for who has none."""


def draw(results: Results) -> dict[str, Figure]:
    """All figures that the results at hand can fill."""
    table = _cells(results.table)
    base = table[table.variant == BASE]
    makers: dict[str, Callable[[], Figure | None]] = {
        "lba_over_time": lambda: _lba_over_time(base, results),
        "phases": lambda: _phases(base, results),
        "trim_commands": lambda: _trim_commands(base, results),
        "work_mem": lambda: _work_mem(table, results),
        **{
            f"matrix_{role}": lambda device=device: _matrix(base, results, device)  # type: ignore[misc]
            for role, device in _roles(base).items()
        },
        "lengths": lambda: _lengths(base, results),
        "time_lost": lambda: _time_lost(base),
        "reads_beside_trim": lambda: _reads_beside_trim(base),
        "what_if": lambda: _what_if(table, results),
        "workloads": lambda: _workloads(_placed(results.table)),
    }
    return drawn(results, makers)


def _cells(table: pd.DataFrame) -> pd.DataFrame:
    """The hash joins, placed."""
    return _placed(table[table.workload == "hash_join"])


def _placed(table: pd.DataFrame) -> pd.DataFrame:
    """With the place of each in the matrix as `cell`."""
    preallocated = table.preallocation_bytes > 0
    with_trim = np.where(preallocated, "both", "trim")
    without = np.where(preallocated, "fallocate", "neither")
    # A copy: a table of more than a hundred columns, each read by itself, is in as many blocks.
    return table.copy().assign(cell=np.where(table.trim != "none", with_trim, without))


def _devices(table: pd.DataFrame) -> list[str]:
    there = set(table.device)
    return [d for d in _DEVICES if d in there] + sorted(there - set(_DEVICES))


def _roles(table: pd.DataFrame) -> dict[str, str]:
    """The paper's drives, and the device here that each is; a real one is as which it is judged,
    but of several the first.
    """
    found: dict[str, str] = {}
    roles = dict(zip(table.device, as_roles(table).device, strict=True))
    for device in _devices(table):
        role = roles[device]
        found[device if role in found else role] = device
    return found


def _name(device: str) -> str:
    return _DEVICES.get(device, device)


def _present(table: pd.DataFrame) -> list[str]:
    return [cell for cell in _STYLES if cell in set(table.cell)]


def _series(results: Results, point: str, name: str) -> Sequence[float]:
    return results.series.get(point, {}).get(f"repetition_{name}", [])


def _by_cell(table: pd.DataFrame, results: Results, name: str) -> dict[str, Sequence[float]]:
    """The series of each cell that has it, in the order of the matrix."""
    points = dict(zip(table.cell, table.point, strict=True))
    found = {cell: _series(results, points[cell], name) for cell in _STYLES if cell in points}
    return {cell: values for cell, values in found.items() if len(values)}


def _side_by_side(cell: str, labels: Sequence[str], of: pd.Series) -> list[float]:
    """Where a cell's bars stand: one at each label of `of`, beside the other cells'."""
    shift = (list(_STYLES).index(cell) - 1.5) * 0.2
    return [labels.index(label) + shift for label in of]


def _colours(cells: Sequence[str]) -> list[str]:
    return [_STYLES[cell][0] for cell in cells]


def _line(axes: Axes, cell: str, values: Sequence[float]) -> None:
    colour, marker, line = _STYLES[cell]
    axes.plot(
        range(1, len(values) + 1),
        values,
        color=colour,
        marker=marker,
        linestyle=line,
        markersize=4,
        linewidth=1.4,
        label=_NAMES[cell],
    )


def _repetition_axis(axes: Axes) -> None:
    axes.set_xlabel("repetition")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def _lba_over_time(base: pd.DataFrame, results: Results) -> Figure | None:
    """The first drive's first repetition, without fallocate: without and with TRIM."""
    for device in _devices(base):
        own = base[base.device == device].set_index("cell").point
        traces = {c: results.trace_of(own[c]) for c in ("neither", "trim") if c in own}
        requests = {cell: trace for cell, trace in traces.items() if trace is not None}
        if len(requests) == 2:
            return _two_traces(device, requests)
    return None


def _two_traces(device: str, requests: Mapping[str, pd.DataFrame]) -> Figure:
    figure, axes = plots.new(2, height_in=4.8, squeeze=False, sharex=True, sharey=True)
    for ax, (cell, title) in zip(
        axes[0], {"neither": "without TRIM", "trim": "with TRIM"}.items(), strict=True
    ):
        trace = requests[cell]
        for code, operation, label in _OPERATIONS:
            rows = trace[trace.op == code]
            ax.plot(
                (rows.time_ns - trace.time_ns.min()) / 1e9,
                rows.lba * _GB_PER_SECTOR,
                linestyle="",
                marker=".",
                markersize=2.5,
                markeredgewidth=0,
                color=plots.OPERATIONS[operation],
                label=label,
                rasterized=True,
            )
        ax.set_title(title)
        ax.set_xlabel("time (s)")
        ax.margins(x=0.02)
    axes[0][0].set_ylim(bottom=0)  # of both, once all is drawn
    axes[0][0].set_ylabel("address (GB)")
    handles, labels = axes[0][1].get_legend_handles_labels()
    figure.legend(
        handles, labels, fontsize="small", ncols=3, markerscale=5, loc="outside upper right"
    )
    figure.suptitle(
        f"{_name(device)}, first repetition, no fallocate (the paper's figures 2a and 2b)",
        fontsize="medium",
        x=0.01,
        ha="left",
    )
    return figure


def _phases(base: pd.DataFrame, results: Results) -> Figure | None:
    """Partition and join of the first query, per drive and cell."""
    phases = ("first_partition_s", "first_join_s")
    devices = [d for d in _devices(base) if _by_cell(base[base.device == d], results, phases[1])]
    if not devices:
        return None
    figure, axes = plots.new(len(devices), squeeze=False)
    for ax, device in zip(axes[0], devices, strict=True):
        mine = base[base.device == device]
        first = {
            name: {c: v[0] for c, v in _by_cell(mine, results, name).items()} for name in phases
        }
        cells = list(first[phases[1]])
        places = np.arange(len(cells))
        for offset, (name, values) in zip((-0.2, 0.2), first.items(), strict=True):
            shade = 0.45 if name == phases[0] else 1.0
            ax.bar(
                places + offset,
                [values[c] for c in cells],
                width=0.38,
                color=_colours(cells),
                alpha=shade,
            )
        if results.tier == "simulated":
            _paper_s(ax, device, cells, mine)
        ax.set_xticks(places, [_BROKEN[c] for c in cells], fontsize="x-small")
        ax.grid(visible=False, axis="x")
        ax.set_title(_name(device))
    axes[0][0].set_ylabel("time (s): partition (pale), join")
    figure.suptitle("The first query's two phases", fontsize="medium")
    return figure


def _paper_s(axes: Axes, device: str, cells: Sequence[str], mine: pd.DataFrame) -> None:
    """Crosses at the paper's join times, as much shorter as the run is smaller."""
    ratio = float(mine.size_ratio_to_paper.max())
    times = published.times(find_project().published)
    for row in times[(times.device == device) & (times.metric == "join_s")].itertuples():
        cell = "trim" if row.trim == "discard" else "neither"
        if cell in cells and not row.preallocated:
            place = cells.index(cell) + 0.2
            axes.plot(place, row.value * ratio, "x", color="black", markersize=8, markeredgewidth=2)
    if device in set(times.device):
        label = "paper, join" if ratio == 1 else f"paper, join, over {1 / ratio:g}"
        axes.plot([], [], "x", color="black", markersize=8, markeredgewidth=2, label=label)
        axes.legend(fontsize="x-small", loc="upper left")


def _trim_commands(base: pd.DataFrame, results: Results) -> Figure | None:
    """Per repetition, with and without fallocate."""
    found = {}
    for device in _devices(base):
        own = base[(base.device == device) & base.cell.isin(("trim", "both"))]
        counts = _by_cell(own, results, "trim_commands")
        if len(counts) == 2:
            found[device] = counts
    if not found:
        return None
    figure, axes = plots.new(len(found), squeeze=False)
    for ax, (device, counts) in zip(axes[0], found.items(), strict=True):
        for cell, values in counts.items():
            _line(ax, cell, values)
        least = np.mean(counts["both"])
        times = f": {np.mean(counts['trim']) / least:.1f}x" if least else ""
        ax.set_title(f"{_name(device)}{times}")
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
        ax.yaxis.set_minor_formatter(plots.NOTHING)
        low, high = min(map(min, counts.values())), max(map(max, counts.values()))
        ax.set_ylim(max(low, 1) / 2, high * 2)
        _repetition_axis(ax)
        ax.tick_params(labelsize="small")
    axes[0][0].set_ylabel("TRIM commands per repetition")
    figure.legend(*axes[0][0].get_legend_handles_labels(), ncols=2, loc="outside upper center")
    return figure


def _work_mem(table: pd.DataFrame, results: Results) -> Figure | None:
    """Time of each of the joins, a line per work_mem: as the paper drew it."""
    rows = table[table.variant == "work_mem"].sort_values("work_mem_bytes")
    runs = [_series(results, point, "elapsed_s") for point in rows.point]
    if len(rows) < 2 or not all(len(run) for run in runs):
        return None
    means = np.array([np.mean(run) for run in runs])
    figure, axes = plots.new()
    shades = np.linspace(0.15, 0.9, len(runs))
    for run, shade, size, batches in zip(
        runs, shades, rows.work_mem_bytes, rows.batches, strict=True
    ):
        axes.plot(
            range(1, len(run) + 1),
            run,
            marker="o",
            markersize=4,
            linewidth=1.4,
            color=colormaps["viridis"](shade),
            label=f"{format_bytes(size)} ({batches:,.0f} batches)",
        )
    axes.set_ylim(0, max(max(run) for run in runs) * 1.4)
    axes.legend(title="work_mem", fontsize="x-small", title_fontsize="x-small", ncols=3)
    _repetition_axis(axes)
    axes.set_ylabel("time of a join (s)")
    [device] = rows.device.unique()
    axes.set_title(
        f"{_name(device)}, {len(runs[0])} joins, no TRIM, no fallocate: longest over shortest "
        f"{means.max() / means.min():.2f}x",
        fontsize="small",
    )
    return figure


def _matrix(base: pd.DataFrame, results: Results, device: str) -> Figure | None:
    """Time and write amplification over the repetitions, a line per cell."""
    mine = base[base.device == device]
    panels = {"elapsed_s": "time of a repetition (s)", "waf_ratio": "write amplification"}
    found = {name: _by_cell(mine, results, name) for name in panels}
    found = {name: lines for name, lines in found.items() if lines}
    if "elapsed_s" not in found:
        return None
    figure, axes = plots.new(len(found), squeeze=False)
    for ax, (name, lines) in zip(axes[0], found.items(), strict=True):
        for cell, values in lines.items():
            _line(ax, cell, values)
        high = max(map(max, lines.values()))
        if name == "waf_ratio":
            low = min(map(min, lines.values()))
            margin = 0.05 * (max(high, _HIGHEST_WAF) - min(low, 1.0))
            ax.set_ylim(min(low, 1.0) - margin, max(high, _HIGHEST_WAF) + margin)
        else:
            ax.set_ylim(0, high * 1.08)
        ax.set_title(f"{_name(device)}: {panels[name]}", fontsize="small")
        _repetition_axis(ax)
    handles = axes[0][0].get_legend_handles_labels()
    figure.legend(*handles, ncols=4, fontsize="small", loc="outside upper center")
    return figure


def _lengths(base: pd.DataFrame, results: Results) -> Figure | None:
    """How long extents and TRIM commands are, all repetitions together, of the first drive."""
    panels = {"extent": "extents of the temporary files", "trim": "TRIM commands"}
    for device in _devices(base):
        points = base[base.device == device].set_index("cell").point
        of_cells = {c: results.series.get(points[c], {}) for c in ("trim", "both") if c in points}
        found = {
            name: {c: s[f"{name}_length_histogram"] for c, s in of_cells.items()}
            for name in panels
            if all(sum(s.get(f"{name}_length_histogram", [])) for s in of_cells.values())
        }
        if len(of_cells) == 2 and found:
            return _histograms(device, {panels[n]: lines for n, lines in found.items()})
    return None


def _histograms(device: str, panels: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    figure, axes = plots.new(len(panels), squeeze=False, sharey=True)
    longest = max(np.flatnonzero(h).max() for p in panels.values() for h in p.values())
    ticks = np.arange(0, longest + 1, 3)
    for ax, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for offset, (cell, counts) in zip((-0.2, 0.2), lines.items(), strict=True):
            share = np.array(counts[: longest + 1], dtype=float) / sum(counts) * 100
            name = f"{_NAMES[cell]} ({sum(counts):,.0f})"
            places = np.arange(len(share)) + offset
            ax.bar(places, share, width=0.4, color=_STYLES[cell][0], label=name)
        ax.set_xticks(ticks, [format_bytes(_BLOCK_BYTES << int(i)) for i in ticks])
        ax.tick_params(axis="x", labelsize="small")
        ax.grid(visible=False, axis="x")
        ax.set_xlabel("length, from ... to twice as much")
        ax.set_ylim(0, 118)
        ax.set_yticks(range(0, 101, 20))
        ax.set_title(f"{_name(device)}: {title}", fontsize="small")
        ax.legend(fontsize="x-small", loc="upper left")
    axes[0][0].set_ylabel("share of their number (%)")
    return figure


_LOST: Final = {
    "extents_per_file": "extents per file",
    "trim_commands": "TRIM commands\nper repetition",
    "trim_wait_s": "time that commits wait\nfor TRIM, per repetition (s)",
}


def _time_lost(base: pd.DataFrame) -> Figure | None:
    """Why: extents become TRIM commands, and these become time."""
    names = [name for name in _LOST if name in base and base[name].notna().any()]
    devices = _devices(base)
    if not names or base[names].to_numpy().max() <= 0:
        return None
    figure, axes = plots.new(len(names), height_in=4.6, squeeze=False)
    width = 0.8 / len(_STYLES)
    for ax, name in zip(axes[0], names, strict=True):
        for index, cell in enumerate(_present(base)):
            rows = base[base.cell == cell].set_index("device")[name].reindex(devices)
            places = np.arange(len(devices)) + (index - 1.5) * width
            bars = ax.bar(places, rows, width=width, color=_STYLES[cell][0], label=_NAMES[cell])
            labels = [f"{v:,.3g}" if v < 1000 else f"{v:,.0f}" if v > 0 else "" for v in rows]
            ax.bar_label(bars, labels, fontsize=6.5, rotation=90, padding=2)
        ax.set_yscale("symlog", linthresh=1)
        ax.set_ylim(0, max(base[name].max(), 1) * 12)
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
        ax.tick_params(labelsize="small")
        ax.set_xticks(np.arange(len(devices)), [_name(d) for d in devices], fontsize="small")
        ax.grid(visible=False, axis="x")
        ax.set_title(_LOST[name], fontsize="small")
    handles = axes[0][0].get_legend_handles_labels()
    figure.legend(*handles, ncols=4, fontsize="small", loc="outside upper center")
    return figure


def _reads_beside_trim(base: pd.DataFrame) -> Figure | None:
    """How long a read takes while a TRIM command is in the drive, and else."""
    names = {"alone": "no TRIM in the drive", "beside_trim": "while there is one"}
    columns = [f"read_{name}_mean_us" for name in names]
    if not set(columns) <= set(base):
        return None
    rows = base[base.cell.isin(("trim", "both"))].dropna(subset=columns[1:])
    if rows.empty:
        return None
    figure, axes = plots.new()
    labels = [f"{_name(row.device)},\n{_NAMES[row.cell]}" for row in rows.itertuples()]
    for offset, shade, (name, label) in zip((-0.2, 0.2), (0.45, 1.0), names.items(), strict=True):
        places = np.arange(len(rows)) + offset
        means, counts = rows[f"read_{name}_mean_us"].fillna(0), rows[f"reads_{name}"].fillna(0)
        bars = axes.bar(
            places, means, width=0.38, color=_colours(list(rows.cell)), alpha=shade, label=label
        )
        texts = [f"{m:,.0f}\n({n:,.0f} reads)" for m, n in zip(means, counts, strict=True)]
        axes.bar_label(bars, texts, fontsize="x-small", padding=2)
    axes.set_xticks(np.arange(len(rows)), labels, fontsize="small")
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.25)
    axes.set_ylabel("mean latency of a read (us)")
    axes.set_title("Reads beside TRIM commands", fontsize="medium")
    axes.legend(fontsize="small")
    return figure


_VARIANTS: Final = {
    "asynchronous": "kernel of today",
    "delayed": "delayed TRIM",
    "fstrim": "fstrim after each",
    "all_files_open": "all files open",
    "full_drive": "45 % full drive",
    "scattered": "45 % full, scattered",
    "gives_back": "gives back",
    "fitting_preallocation": "12 MiB",
    "by_and_by": "1 MiB, by and by",
    "larger_units": "maps 16 KiB",
    "fold_first": "SLC folds first",
    "largest_cache": "SLC: all free space",
}


def _what_if(table: pd.DataFrame, results: Results) -> Figure | None:
    """Preallocation size; and the variants over the paper's cells, as many repetitions of each."""
    sweep = _preallocation_sweep(table)
    bars = _over_base(table, results)
    if len(sweep) < 3 or bars.empty:
        return None
    height_in = 1.5 + 0.55 * bars.label.nunique()  # room for four bars' numbers
    figure = Figure(figsize=(2 * plots.WIDTH_IN * 0.75, max(height_in, 5.0)), layout="constrained")
    grid = figure.add_gridspec(1, 3, width_ratios=(1, 1, 1.5))
    panels = {"trim_commands": "TRIMs per repetition", "first_query_s": "first query (s)"}
    for column, (name, label) in enumerate(panels.items()):
        _sweep_panel(figure.add_subplot(grid[column]), sweep, name, label)
    _bars_panel(figure.add_subplot(grid[2]), bars)
    return figure


def _preallocation_sweep(table: pd.DataFrame) -> pd.DataFrame:
    """With TRIM, by the size, of the drive that has the variant; the paper's own cells among it."""
    if "first_query_s" not in table:
        return table.iloc[:0]
    devices = set(table[table.variant == "preallocation"].device)
    own = table[table.device.isin(devices) & table.variant.isin((BASE, "preallocation"))]
    return own[own.trim == "discard"].sort_values("preallocation_bytes")


def _sweep_panel(axes: Axes, sweep: pd.DataFrame, name: str, label: str) -> None:
    labels = [format_bytes(size) if size else "none" for size in sweep.preallocation_bytes]
    axes.bar(labels, sweep[name], color=_colours(list(sweep.cell)))
    axes.tick_params(axis="x", labelsize="x-small", rotation=45)
    axes.tick_params(axis="y", labelsize="small")
    axes.grid(visible=False, axis="x")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}" if y >= 10 else f"{y:g}")
    axes.set_xlabel("preallocated at creation", fontsize="small")
    axes.set_title(label, fontsize="small")


def _over_base(table: pd.DataFrame, results: Results) -> pd.DataFrame:
    """label, cell, ratio: mean time of a variant over that of the paper's cell."""
    rows = []
    base = table[table.variant == BASE].set_index(["device", "cell"]).point
    for variant, label in _VARIANTS.items():
        for row in table[table.variant == variant].itertuples():
            if (row.device, row.cell) not in base.index:
                continue
            other = _series(results, base[row.device, row.cell], "elapsed_s")
            own = _series(results, row.point, "elapsed_s")
            same = min(len(own), len(other))
            if same:
                ratio = np.mean(own[:same]) / np.mean(other[:same])
                name = label if row.device == _FIRST else f"{label}, {_name(row.device)}"
                rows.append({"label": name, "cell": row.cell, "ratio": ratio})
    return pd.DataFrame(rows, columns=["label", "cell", "ratio"])


def _bars_panel(axes: Axes, bars: pd.DataFrame) -> None:
    labels = list(dict.fromkeys(bars.label))
    for cell in _present(bars):
        rows = bars[bars.cell == cell]
        places = _side_by_side(cell, labels, rows.label)
        bar_row = axes.barh(
            places, rows.ratio, height=0.18, color=_STYLES[cell][0], label=_NAMES[cell]
        )
        axes.bar_label(bar_row, [f"{r:.2f}" for r in rows.ratio], fontsize=7, padding=2)
    axes.axvline(1.0, color="0.3", linewidth=1)
    axes.set_yticks(range(len(labels)), labels, fontsize="small")
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, max(bars.ratio.max(), 1) * 1.2)
    axes.tick_params(axis="x", labelsize="small")
    axes.set_title("mean time over the paper's same cell", fontsize="small")
    axes.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)


def _workloads(table: pd.DataFrame) -> Figure | None:
    """The first query of each workload in the matrix: its time, and the TRIM commands it costs."""
    rows = table[(table.device == _FIRST) & table.variant.isin((BASE, *_WORKLOADS))]
    names = [name for name in _WORKLOADS if name in set(rows.workload)]
    if len(names) < 2:
        return None
    panels = (
        ("time of the first query (s)", rows.first_elapsed_s),
        ("TRIM commands of a query", rows.trim_commands),
        ("extents of a file", rows.extents_per_file),
    )
    figure, axes = plots.new(len(panels), squeeze=False)
    for ax, (label, values) in zip(axes[0], panels, strict=True):
        for cell in _present(rows):
            mine = rows.cell == cell
            places = _side_by_side(cell, names, rows.workload[mine])
            ax.bar(places, values[mine], width=0.2, color=_STYLES[cell][0], label=_NAMES[cell])
        ax.set_xticks(range(len(names)), [_WORKLOADS[name] for name in names], fontsize="x-small")
        ax.tick_params(axis="y", labelsize="small")
        ax.grid(visible=False, axis="x")
        ax.set_title(label, fontsize="small")
    trims = axes[0][1]
    trims.set_yscale("symlog", linthresh=1.0)
    trims.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    figure.legend(*axes[0][0].get_legend_handles_labels(), ncols=4, loc="outside upper center")
    return figure
