"""Figures: one look, a stamp that says which tier they show, and files that are byte-identical."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from harness.units import format_bytes

WIDTH_IN: Final = 7.0
COLOURS: Final = {"hdd": "#b5542c", "ssd": "#2c6fb5", "file": "#4d7f3c"}
"""One colour per kind of device, in all figures."""

_OTHER_COLOURS: Final = ("#8a5fa8", "#c08a1e", "#3f9a96", "#a83e6f", "#6b6b6b")
"""Of devices that somebody has named."""

_DEVICES: Final = {"hdd": "HDD", "ssd": "SSD"}
"""Devices that figures call otherwise than tables do."""

PLAIN: Final = FuncFormatter(lambda x, _: f"{x:g}")
"""Tick labels without powers of ten."""

NOTHING: Final = NullFormatter()
"""No tick labels."""

_FILES: Final = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}


@contextmanager
def theme() -> Iterator[None]:
    """The look of all figures, and the settings that make their files reproducible."""
    fixed = {
        "svg.hashsalt": "flashlab",
        "svg.fonttype": "path",
        "figure.dpi": 110,
        "savefig.dpi": 160,
        "axes.titlesize": "medium",
        "legend.frameon": False,
    }
    with sns.axes_style("whitegrid"), sns.plotting_context("notebook"), mpl.rc_context(fixed):
        yield


def new(columns: int = 1, height_in: float = 4.2, **options: Any) -> tuple[Figure, Any]:
    """An empty figure and its axes; not registered with pyplot, so it needs no closing."""
    figure = Figure(figsize=(WIDTH_IN * max(columns, 1) ** 0.5, height_in), layout="constrained")
    axes = figure.subplots(1, columns, **options)
    return figure, axes


def stamp(figure: Figure, origin: str, notes: Sequence[str] = ()) -> Figure:
    """Writes below a figure the paper's claims beside ours, and what run it shows (its tier)."""
    width = round(figure.get_figwidth() * 14)
    said = [*notes, origin]
    lines = [line for note in said for line in textwrap.wrap(note, width, subsequent_indent="   ")]
    text = "\n".join(lines)
    figure.supxlabel(text, x=0.01, ha="left", fontsize=8, color="0.35", linespacing=1.4)
    return figure


def files(figure: Figure, stem: Path) -> dict[Path, bytes]:
    """The contents of stem.svg and stem.png, without dates and versions in them.

    Its parts are placed once, for both: that is half of the work.
    """
    drawn = {}
    with theme():
        place(figure)
        for suffix, metadata in _FILES.items():
            file = io.BytesIO()
            figure.savefig(file, format=suffix, metadata=metadata)
            drawn[stem.with_suffix(f".{suffix}")] = file.getvalue()
    return drawn


def place(figure: Figure) -> None:
    """Gives a figure's parts their places for good: whoever saves it does not ask again."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")


def device_name(device: str) -> str:
    """As figures say it: a real drive may have any name."""
    return _DEVICES.get(device, device)


def device_colours(devices: Iterable[str]) -> dict[str, str]:
    """A colour for each of a figure's devices, whatever they are called."""
    names = sorted(set(devices))
    others = [name for name in names if name not in COLOURS]
    found = {name: _OTHER_COLOURS[i % len(_OTHER_COLOURS)] for i, name in enumerate(others)}
    return {name: COLOURS.get(name) or found[name] for name in names}


def size_name(size_bytes: int, nominal_bytes: int) -> str:
    """'4 MiB', or of what shrank with its data '128 KiB (for 4 MiB)': what was set, and in place of
    what.
    """
    name = format_bytes(size_bytes)
    return name if size_bytes == nominal_bytes else f"{name} (for {format_bytes(nominal_bytes)})"


def size_axis(axes: Axes, sizes_bytes: Sequence[float]) -> None:
    """A base-2 logarithmic x axis of byte sizes, one tick per size that was measured."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(sizes_bytes)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_bytes(x)))
    axes.xaxis.set_minor_formatter(NOTHING)


def with_spread(
    axes: Axes, table: pd.DataFrame, x: str, y: str, label: str, colour: str, **style: Any
) -> None:
    """A line through the means over the repetitions, with bars from the least to the greatest."""
    groups = table.groupby(x)[y].agg(["mean", "min", "max"]).sort_index()
    below = groups["mean"] - groups["min"]
    above = groups["max"] - groups["mean"]
    options = {"marker": "o", "capsize": 3, "color": colour, "label": label, **style}
    axes.errorbar(groups.index, groups["mean"], yerr=[below, above], **options)


OPERATIONS: Final = {"read": "#2c6fb5", "write": "#b5542c", "discard": "#4d7f3c", "other": "0.5"}
"""One colour per operation of a block device, in all figures."""


def lba_over_time(requests: pd.DataFrame, title: str, capacity_bytes: int | None = None) -> Figure:
    """Where a device was accessed and when: a point per request, a bar over what a long one spans.

    requests: time_s, lba, sectors (of 512 bytes), op.
    """
    figure, axes = new()
    gib = 512 / 2**30
    for op, colour in OPERATIONS.items():
        rows = requests[requests.op == op]
        if rows.empty:
            continue
        low, high = rows.lba * gib, (rows.lba + rows.sectors) * gib
        # A bar shows extents that are to scale, the point those that would be thinner than a pixel.
        axes.vlines(rows.time_s, low, high, color=colour, linewidth=0.8, rasterized=True)
        axes.plot(
            rows.time_s,
            low,
            linestyle="",
            marker=".",
            markersize=2.5,
            markeredgewidth=0,
            color=colour,
            label=f"{op} ({len(rows):,})",
            rasterized=True,
        )
    axes.set_xlabel("time (s)")
    axes.set_ylabel("address (GiB)")
    axes.margins(x=0.02)  # what happens first is not under the frame
    axes.set_ylim(0, None if capacity_bytes is None else capacity_bytes / 2**30)
    axes.set_title(title)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(fontsize="small", ncols=4, markerscale=5, loc="outside lower center")
    return figure
