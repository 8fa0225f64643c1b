"""The figures: the paper's, beside its numbers, and what its tables say that its text does not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from harness import plots
from harness.experiments.base import Results
from harness.experiments.drawing import drawn
from harness.experiments.sort_merge_join import published
from harness.experiments.sort_merge_join.grid import BASE
from harness.experiments.stands_for import as_roles
from harness.paths import find_project

_WORK_MEM: Final = "nominal_work_mem_bytes"
_SHADES: Final = (1.0, 0.75, 0.5, 0.3)
"""Of a device's colour, by work_mem from the smallest; more or fewer lie between these."""

_MARKERS: Final = "ovs^D<>p"

_PLANS: Final = ("balanced",)
"""Variants that differ in the merge plan only."""


NEEDS: Final = {
    "execution_time": "any clients and work_mem",
    "against_paper": "the paper's clients and work_mem at its size (tier simulated, scale paper)",
    "sort_and_join": "any clients and work_mem",
    "gap": "a disk and a flash drive, at the same clients and work_mem",
    "utilisation": "the drive's requests, recorded by bpftrace",
    "random_io": "the disk's requests and its arm, counted (tier simulated)",
    "merge_plans": "the model's merge plans (tier simulated)",
    "sorts_for_ssd": "the variants of the sort (tier simulated)",
}
"""Which points each figure is drawn of, for who has none."""


def draw(results: Results) -> dict[str, Figure]:
    """All figures that the results at hand can fill."""
    table = results.table
    base = table[table.variant == BASE]
    paper = published.cells(find_project().published)
    if results.tier != "simulated" or not published.has_paper_size(base).all():
        paper = paper.iloc[:0]  # another size of tables: nothing to be laid beside
    makers: dict[str, Callable[[], Figure | None]] = {
        "execution_time": lambda: _execution_time(base, paper),
        "against_paper": lambda: _against_paper(base, paper),
        "sort_and_join": lambda: _sort_and_join(base, paper),
        "gap": lambda: _gap(as_roles(base), paper),
        "utilisation": lambda: _utilisation(base, paper),
        "random_io": lambda: _random_io(base),
        "merge_plans": lambda: _merge_plans(table),
        "sorts_for_ssd": lambda: _variants(table),
    }
    return drawn(results, makers)


def _devices(table: pd.DataFrame) -> list[str]:
    return sorted(table.device.unique())


def _work_mems(table: pd.DataFrame) -> list[int]:
    return sorted(int(size) for size in table[_WORK_MEM].unique())


def _names(table: pd.DataFrame) -> dict[int, str]:
    """work_mem as it was set, by its nominal size in bytes, from the smallest."""
    sizes = table.groupby(_WORK_MEM).work_mem_bytes.max()
    return {int(nominal): plots.size_name(int(own), int(nominal)) for nominal, own in sizes.items()}


def _lines(table: pd.DataFrame) -> list[tuple[float, int, str]]:
    """Shade, nominal work_mem in bytes and name of a line for each, from the smallest."""
    names = _names(table)
    places = np.linspace(0, len(_SHADES) - 1, len(names))
    shades = np.interp(places, range(len(_SHADES)), _SHADES)
    return [(float(shade), *named) for shade, named in zip(shades, names.items(), strict=True)]


def _legend(axes: Axes, ncols: int = 1) -> None:
    """Of the sizes of work_mem: above the lines, or with long names where it covers the least."""
    is_long = any("(" in name for name in axes.get_legend_handles_labels()[1])
    axes.legend(
        fontsize="x-small",
        title="work_mem",
        title_fontsize="x-small",
        loc="best" if is_long else "upper left",
        ncols=1 if is_long else ncols,
    )


def _clients_axis(axes: Axes, clients: list[int]) -> None:
    axes.set_xticks(clients)
    axes.set_xlabel("clients")


def _clients(count: int) -> str:
    return f"{count} client{'s' if count > 1 else ''}"


def _variant_label(name: str) -> str:
    return name.removeprefix("ssd_").replace("_", " ")


def _log_axis(axis: Axis, set_scale: Callable[[str], None]) -> None:
    """Ticks at 1, 2 and 5 of every decade, as plain numbers."""
    set_scale("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(plots.PLAIN)
    axis.set_minor_formatter(plots.NOTHING)


def _execution_time(base: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """A panel per device: a line per work_mem, crosses where the paper's number is on file."""
    devices = _devices(base)
    figure, axes = plots.new(len(devices), squeeze=False, sharey=True)
    colours = plots.device_colours(base.device)
    for ax, device in zip(axes[0], devices, strict=True):
        mine = base[base.device == device]
        for shade, size, name in _lines(mine):
            rows = mine[mine[_WORK_MEM] == size]
            colour = colours[device]
            plots.with_spread(ax, rows, "clients", "elapsed_s", name, colour, alpha=shade)
            there = paper[(paper.device == device) & (paper.work_mem_mb == size >> 20)]
            ax.plot(there.clients, there.elapsed_s, "x", color="black", markersize=7, zorder=3)
        _log_axis(ax.yaxis, ax.set_yscale)
        ax.set_title(plots.device_name(device))
        _clients_axis(ax, sorted(mine.clients.unique()))
        if not paper.empty:
            ax.plot([], [], "x", color="black", label="paper")
        _legend(ax)
    axes[0][0].set_ylim(top=2 * base.elapsed_s.max())
    axes[0][0].set_ylabel("execution time (s)")
    figure.suptitle("Execution time (the paper's figure 1, tables 3 and 4)", fontsize="medium")
    return figure


def _against_paper(base: pd.DataFrame, paper: pd.DataFrame) -> Figure | None:
    """Ours over the paper's, cell by cell; a cell that the fit has seen is filled, a square was
    held back until it had been predicted.
    """
    if paper.empty:
        return None
    project = find_project()
    both = published.beside(base, project.published, published.calibration(project.params))
    known = both[both.elapsed_s_paper.notna()]
    if known.empty:
        return None
    figure, axes = plots.new(3, squeeze=False, sharey=True)
    colours = plots.device_colours(base.device)
    titles = {"elapsed_s": "total", "sort_s": "sort", "join_s": "join"}
    for ax, (name, title) in zip(axes[0], titles.items(), strict=True):
        for device in _devices(known):
            for use, marker in {"fitted": "o", "held out": "o", "withheld": "s"}.items():
                rows = known[(known.device == device) & (known.use == use)]
                colour = colours[device]
                ax.scatter(
                    rows[f"{name}_paper"],
                    rows[name] / rows[f"{name}_paper"],
                    facecolors=colour if use == "fitted" else "none",
                    edgecolors=colour,
                    marker=marker,
                    s=26,
                    label=f"{plots.device_name(device)}, {use}",
                )
        errors = known[f"{name}_error"].abs()
        held_out, withheld = (errors[known.use == use].median() for use in ("held out", "withheld"))
        ax.axhline(1.0, color="0.4", linewidth=1)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_yticks([0.5, 0.7, 1.0, 1.4, 2.0])
        ax.yaxis.set_major_formatter(plots.PLAIN)
        ax.yaxis.set_minor_formatter(plots.NOTHING)
        ax.set_ylim(0.45, 2.2)
        ax.set_xlabel("paper (s)")
        said = f"{title}, median error: held out {held_out:.0%}, withheld {withheld:.0%}"
        ax.set_title(said, fontsize="small")
    axes[0][0].set_ylabel("simulated / paper")
    axes[0][0].legend(fontsize="x-small")
    return figure


def _sort_and_join(base: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """Sort above, join below: a line per work_mem, crosses where the paper's number is on file."""
    devices = _devices(base)
    width, height = plots.WIDTH_IN * max(len(devices), 1) ** 0.5, 6.2
    figure = Figure(figsize=(width, height), layout="constrained")
    colours = plots.device_colours(base.device)
    grid = figure.subplots(2, len(devices), squeeze=False, sharex=True, sharey=True)
    for line, phase in zip(grid, ("sort", "join"), strict=True):
        for ax, device in zip(line, devices, strict=True):
            mine = base[base.device == device]
            for shade, size, label in _lines(mine):
                rows = mine[mine[_WORK_MEM] == size]
                colour = colours[device]
                plots.with_spread(ax, rows, "clients", f"{phase}_s", label, colour, alpha=shade)
                there = paper[(paper.device == device) & (paper.work_mem_mb == size >> 20)]
                ax.plot(
                    there.clients, there[f"{phase}_s"], "x", color="black", markersize=6, zorder=3
                )
            _log_axis(ax.yaxis, ax.set_yscale)
            ax.set_title(f"{plots.device_name(device)}, {phase}", fontsize="small")
        line[0].set_ylabel(f"{phase} time (s)")
    for ax, device in zip(grid[1], devices, strict=True):
        _clients_axis(ax, sorted(base[base.device == device].clients.unique()))
    for ax in grid[1]:
        if not paper.empty:
            ax.plot([], [], "x", color="black", label="paper")
        _legend(ax, ncols=2)
    figure.suptitle("Sort and join (the paper's tables 5 and 6)", fontsize="medium")
    return figure


def _gap(base: pd.DataFrame, paper: pd.DataFrame) -> Figure | None:
    """Of what the HDD takes longer than the SSD: how much is the sort's."""
    if set(_devices(base)) != {"hdd", "ssd"}:
        return None
    least = min(_work_mems(base))
    ours = _sort_share(base[base[_WORK_MEM] == least])
    figure, axes = plots.new()
    axes.plot(ours.index, ours, marker="o", color="0.2", label="here")
    theirs = _sort_share(paper[paper.work_mem_mb == least >> 20])
    if not theirs.empty:
        axes.plot(theirs.index, theirs, "x", color="black", markersize=8, label="paper's tables")
    axes.set_ylim(0, 1.05)
    axes.yaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    axes.set_ylabel("sort's share of the gap")
    name = _names(base)[least]
    space = "\n" if "(" in name else " "
    axes.set_title(f"HDD time less SSD time, work_mem {name}:{space}what the sort makes up")
    axes.legend(fontsize="small")
    _clients_axis(axes, sorted(base.clients.unique()))
    return figure


def _sort_share(table: pd.DataFrame) -> pd.Series:
    means = table.groupby(["clients", "device"])[["sort_s", "elapsed_s"]].mean().unstack()
    if means.empty:
        return pd.Series(dtype=float)
    gap = means.xs("hdd", axis=1, level=1) - means.xs("ssd", axis=1, level=1)
    return gap.sort_s / gap.elapsed_s


def _utilisation(base: pd.DataFrame, paper: pd.DataFrame) -> Figure | None:
    """Of the device while the clients join."""
    if "join_utilisation_ratio" not in base or base.join_utilisation_ratio.isna().all():
        return None
    devices = _devices(base)
    figure, axes = plots.new(len(devices), squeeze=False, sharey=True)
    colours = plots.device_colours(base.device)
    for ax, device in zip(axes[0], devices, strict=True):
        mine = base[base.device == device]
        for (shade, size, label), marker in zip(_lines(mine), cycle(_MARKERS), strict=False):
            rows = mine[mine[_WORK_MEM] == size].groupby("clients").join_utilisation_ratio.mean()
            colour = colours[device]
            ax.plot(rows.index, rows * 100, marker=marker, color=colour, alpha=shade, label=label)
            there = paper[(paper.device == device) & (paper.work_mem_mb == size >> 20)]
            ax.plot(
                there.clients,
                there.join_utilisation_percent,
                linestyle="",
                marker=marker,
                markerfacecolor="none",
                color="black",
            )
        ax.set_ylim(0, 105)
        beside = "" if paper.empty else " (black: the paper's tables 7 and 8)"
        ax.set_title(f"{plots.device_name(device)}{beside}", fontsize="small")
        ax.legend(fontsize="small", title="work_mem", title_fontsize="small")
        _clients_axis(ax, sorted(mine.clients.unique()))
    axes[0][0].set_ylabel("utilisation during the join (%)")
    return figure


def _random_io(base: pd.DataFrame) -> Figure | None:
    """How much of the reads of joining clients jumps, and of the disk's time is on the way."""
    if "join_read_jump_ratio" not in base or "device_positioning_ns" not in base:
        return None
    disk = base[base.device_positioning_ns > 0].copy()
    if disk.empty:
        return None
    moving = disk.device_positioning_ns
    disk["positioning_ratio"] = moving / (moving + disk.device_transferring_ns)
    figure, axes = plots.new(2, squeeze=False, sharey=True)
    colours = plots.device_colours(base.device)
    panels = {
        "join_read_jump_ratio": "joining clients' reads that jump",
        "positioning_ratio": "arm's time spent on positioning",
    }
    for ax, (name, title) in zip(axes[0], panels.items(), strict=True):
        for device in _devices(disk):
            mine = disk[disk.device == device]
            for shade, size, label in _lines(mine):
                rows = mine[mine[_WORK_MEM] == size].groupby("clients")[name].mean()
                colour = colours[device]
                ax.plot(rows.index, 100 * rows, "o-", color=colour, alpha=shade, label=label)
        ax.set_ylim(0, 105)
        ax.set_title(title, fontsize="small")
        _clients_axis(ax, sorted(disk.clients.unique()))
    axes[0][0].set_ylabel("share (%)")
    axes[0][1].legend(fontsize="x-small", title="work_mem", title_fontsize="x-small")
    figure.suptitle("Random I/O on the disk", fontsize="medium")
    return figure


def _merge_plans(table: pd.DataFrame) -> Figure | None:
    """What the merges read, and what that costs: polyphase beside balanced."""
    plans = table[table.variant.isin(_PLANS)]
    if plans.empty:
        return None
    keys = ["device", "clients", _WORK_MEM]
    both = plans.merge(table[table.variant == BASE], on=keys, suffixes=("_other", ""))
    both = both.sort_values(["clients", _WORK_MEM])
    names = _names(table)
    figure, axes = plots.new(2, squeeze=False)
    colours = plots.device_colours(table.device)
    panels = (("merged_bytes", "read by merges before the last"), ("sort_s", "sort time"))
    for ax, (name, title) in zip(axes[0], panels, strict=True):
        for offset, device in zip((-0.2, 0.2), _devices(both), strict=False):
            rows = both[both.device == device]
            places = np.arange(len(rows)) + offset
            ratio = rows[f"{name}_other"] / rows[name]
            ax.bar(
                places, ratio, width=0.38, color=colours[device], label=plots.device_name(device)
            )
            labels = [
                f"{c}\n{names[m]}".replace(" (", "\n(")
                for c, m in zip(rows.clients, rows[_WORK_MEM], strict=True)
            ]
            ax.set_xticks(np.arange(len(rows)), labels, fontsize="small")
        ax.axhline(1.0, color="0.3", linewidth=1)
        ax.set_title(title)
        ax.set_xlabel("clients, work_mem")
    axes[0][0].set_ylabel("balanced / polyphase")
    axes[0][1].legend(fontsize="small")
    return figure


def _variants(table: pd.DataFrame) -> Figure | None:
    """Sorts made for flash: total time over PostgreSQL's, per device and number of clients."""
    names = [n for n in table.variant.unique() if str(n).startswith("ssd_")]
    if not names:
        return None
    keys = ["device", "clients", _WORK_MEM]
    chosen = table[table.variant.isin(names)]
    both = chosen.merge(table[table.variant == BASE], on=keys, suffixes=("_other", "")).copy()
    both["ratio"] = (both.sort_s_other + both.join_s_other) / both.elapsed_s
    panels = sorted({(c, m) for c, m in zip(both.clients, both[_WORK_MEM], strict=True)})
    sizes = _names(table)
    figure, axes = plots.new(len(panels), squeeze=False, sharex=True, sharey=True)
    colours = plots.device_colours(table.device)
    for ax, (clients, size) in zip(axes[0], panels, strict=True):
        rows = both[(both.clients == clients) & (both[_WORK_MEM] == size)]
        for offset, device in zip((-0.15, 0.15), _devices(rows), strict=False):
            mine = rows[rows.device == device].set_index("variant_other").reindex(names)
            places = np.arange(len(names)) + offset
            colour = colours[device]
            ax.hlines(places, 1.0, mine.ratio, color=colour, linewidth=2)
            ax.plot(mine.ratio, places, "o", color=colour, label=plots.device_name(device))
        ax.set_yticks(np.arange(len(names)), [_variant_label(name) for name in names])
        ax.axvline(1.0, color="0.3", linewidth=1)
        _log_axis(ax.xaxis, ax.set_xscale)
        ax.set_title(f"{_clients(clients)}, {sizes[size]}", fontsize="small")
    axes[0][0].invert_yaxis()
    for ax in axes[0]:
        ax.set_xlabel("time / PostgreSQL's", fontsize="small")
    axes[0][-1].legend(fontsize="x-small")
    return figure
