"""What an experiment is: a grid of points, the run of one point, figures of all results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from pydantic import BaseModel

    from harness.tiers.base import Bench

Scalar = int | float | str | bool


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One setting of an experiment's parameters: each experiment has a record, or some, of its own.

    Its fields are the first columns of the table, in this order; names carry units, values are
    plain.
    """

    device: str

    @property
    def values(self) -> dict[str, Scalar]:
        """Flat, as in the journal and in tables."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """From a row of the table, whose other columns are left out. Raises KeyError."""
        kinds = get_type_hints(cls)
        return cls(**{each.name: kinds[each.name](values[each.name]) for each in fields(cls)})

    @classmethod
    def of(cls, point: Point) -> Self:
        """A point's, which is one of these."""
        assert isinstance(point.cell, cls)
        return point.cell


C = TypeVar("C", bound=Cell)


@dataclass(frozen=True)
class Point:
    """A cell to be run: two points with equal cells are the same point.

    `label` is for people. `depends` is what else the result depends on, though it does not tell
    points apart.
    """

    cell: Cell
    label: str
    depends: Mapping[str, str] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Scalar]:
        """The cell's."""
        return self.cell.values

    @property
    def id(self) -> str:
        """A short name that is the same on every machine (hex)."""
        text = json.dumps(dict(sorted(self.values.items())))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def points_of(
    cells: Iterable[C],
    label: Callable[[C], str],
    depends: Callable[[C], Mapping[str, str]] = lambda _: {},
) -> list[Point]:
    """A point for every cell, each once, in the order in which they first come."""
    found: dict[str, Point] = {}
    for cell in cells:
        point = Point(cell, label(cell), depends(cell))
        found.setdefault(point.id, point)
    return list(found.values())


@dataclass(frozen=True)
class Measurement:
    """What one point gave.

    `metrics` is flat: names carry units. `series` are lists of numbers (histograms, values over
    time). `trace` holds one row per I/O, as equally long 1-D arrays. `block_trace` is a file of the
    kernel's block requests (harness/probes), kept with the results. `remarks` are columns of text:
    what no number can say, such as why something could not be run.
    """

    metrics: dict[str, int | float]
    series: dict[str, list[int] | list[float]] = field(default_factory=dict)
    trace: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    block_trace: Path | None = None
    remarks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """All finished points of one experiment on one tier.

    `table` has one row per point: its parameters, its metrics, and its id as `point`. `series` maps
    ids to the points' series. `trace_of` gives a point's trace, or None if it was not traced.
    `notes` maps a figure's name to lines to be written below it.
    """

    tier: str
    table: pd.DataFrame
    series: Mapping[str, Mapping[str, Sequence[float]]]
    trace_of: Callable[[str], pd.DataFrame | None]
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Experiment(Protocol):
    """One paper's experiment, or one of our own.

    `code` names the modules that its results pass through besides its own, the tier and the core:
    when they change, it runs again.
    """

    name: str
    title: str
    notebook: str
    parameters: type[BaseModel]
    tiers: tuple[str, ...]
    code: tuple[str, ...]

    def points(self, parameters: Any, bench: Bench) -> Sequence[Point]:
        """The grid, in a fixed order, without duplicates."""
        ...

    def needed_bytes(self, parameters: Any, point: Point) -> int:
        """Room on the device that a point needs, at most; makes no inputs."""
        ...

    def input_digest(self, parameters: Any, raw: Path) -> str:
        """What the results depend on besides parameters and code; makes the inputs if need be."""
        ...

    def run_point(self, point: Point, parameters: Any, bench: Bench, raw: Path) -> Measurement:
        """Runs one point, with inputs cached in the folder `raw`.

        Raises HarnessError; returns nothing that was not measured.
        """
        ...

    def figures(self, results: Results) -> dict[str, Figure]:
        """Figures by name, of as many points as there are."""
        ...
