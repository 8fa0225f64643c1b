"""What an experiment is: a grid of points, the run of one point, figures of all results.

And what else is known of a study: how its tiers agree, what is fitted, what drives are for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from harness.goals import Goal

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from pydantic import BaseModel
    from rich.console import Console

    from harness.paths import Project
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
    what no number can say, such as why something could not be run. `about` says how it was
    obtained: kept in the journal beside when and where, not among the results.
    """

    metrics: dict[str, int | float]
    series: dict[str, list[int] | list[float]] = field(default_factory=dict)
    trace: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    block_trace: Path | None = None
    remarks: dict[str, str] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """All finished points of one experiment on one tier.

    `table` has one row per point: its parameters, its metrics, and its id as `point`. `series` maps
    ids to the points' series. `trace_of` gives a point's trace, or None if it was not traced.
    `scale` is what figures and verdicts say of the run's size, `why_tier` why this tier was chosen,
    if nobody named it.
    """

    tier: str
    table: pd.DataFrame
    series: Mapping[str, Mapping[str, Sequence[float]]]
    trace_of: Callable[[str], pd.DataFrame | None]
    scale: str = ""
    why_tier: str = ""

    @property
    def stamp(self) -> str:
        """What stands below each figure: tier and scale, and why this tier."""
        scale = f", scale: {self.scale}" if self.scale else ""
        why = f" ({self.why_tier})" if self.why_tier else ""
        return f"tier: {self.tier}{why}{scale}"


RunPoint = Callable[[Point, Any, Any, Path], Measurement]
"""(point, parameters, bench, folder of inputs) -> what it gave.

Raises HarnessError; returns nothing that was not measured."""


class Session(Protocol):
    """One of the study's own sessions on a tier: what it would run, and what it has."""

    bench: Any
    parameters: Any
    points: Sequence[Point]

    def run(self) -> Results:
        """Runs what the journal does not have."""
        ...

    @property
    def results(self) -> Results:
        """What the journal has."""
        ...


class Runs(Protocol):
    """What a study's own tools are given: the checkout, its sessions, its claims' verdicts."""

    @property
    def project(self) -> Project:
        """The checkout."""
        ...

    @property
    def name(self) -> str:
        """The study's."""
        ...

    @property
    def beside(self) -> Mapping[str, Path]:
        """Checkouts of other people's programs that a user has at hand, by their names."""
        ...

    def open(self, tier: str, **options: Any) -> AbstractContextManager[Session]:
        """A session of the study on a tier; options as a user gives them. Raises HarnessError."""
        ...

    def published(self, tier: str) -> Results:
        """What was published of it last on a tier, by whomever; empty if there is nothing."""
        ...

    def recorded(self, tier: str) -> Mapping[str, Any]:
        """What those results depend on (see `session.Session.publish`); empty if there are none."""
        ...

    def judge(self, results: Results) -> pd.DataFrame:
        """Its claims and what these results say of them."""
        ...

    def compare(self, **options: Any) -> pd.DataFrame:
        """Its agreement, of what was run on tier emulated. Raises BadParameter without one."""
        ...

    def host_name(self) -> str:
        """The profile of the simulated tier's host in params.yaml."""
        ...

    def device_name(self, device: str) -> str:
        """The profile that params.yaml names for a device of the simulated tier."""
        ...


@dataclass(frozen=True)
class Agreement:
    """The study's simulation beside its emulated run.

    `compare` gives one row per emulated point: a column `device`, and NAME_emulated, NAME_simulated
    and NAME_ratio for all that is compared. Raises BadParameter if nothing has been run.
    `goal_ratio`: how near the tiers must be; 0.1 is ten percent.
    """

    compare: Callable[..., pd.DataFrame]
    goal_ratio: float


@dataclass(frozen=True)
class Shown:
    """A table of texts for a page, in the order of its columns."""

    title: str
    table: pd.DataFrame


@dataclass(frozen=True)
class Calibrated:
    """What a calibration found: lines and tables for a page, results to be judged with a title, and
    the step that puts the values into the profiles (given their folder) and says what changed.
    """

    says: Sequence[str | Shown]
    write: Callable[[Path], list[str]]
    judged: tuple[Results, str] | None = None


@dataclass(frozen=True)
class Calibration:
    """What no document says of the paper's machine, fitted to a declared part of its numbers."""

    summary: str
    run: Callable[[Runs], Calibrated]


Benchmark = Callable[[Runs, "Console"], Iterator[Goal]]
"""A group of figures, measured one after the other; what takes long is said on the console."""


@dataclass(frozen=True)
class DriveRole:
    """What a claimed drive could be in the study: `device` is the study's name for it.

    `rotational`: a disk, or a flash drive. `with_fdp`: what a drive with flexible data placement
    can do in addition, as words.
    """

    device: str
    rotational: bool
    min_bytes: int = 0
    needs_trim: bool = False
    with_fdp: str = ""


@dataclass(frozen=True)
class Cost:
    """What a point is expected to write to its drive, and how long its measured part takes."""

    written_bytes: int
    time_s: float


class Experiment(Protocol):
    """One paper's experiment, or one of our own: all that is known of it lies in its package.

    `runs` has the function that runs a point on each tier; what its results depend on follows from
    that function's imports (runs/code). What a study has not is empty or None.
    """

    title: str
    runs: Mapping[str, RunPoint]

    agreement: Agreement | None
    calibration: Calibration | None
    benchmarks: Mapping[str, Sequence[Benchmark]]
    """By the name of their group in `make bench`, which is the study's unless it is about more."""
    beside: Sequence[str]
    """Other people's programs that these can be measured beside, from checkouts (Runs.beside)."""
    roles: Sequence[DriveRole]
    servers: Sequence[str]
    """Which database servers it starts where the kernel is real: postgres, mysql."""

    @property
    def name(self) -> str:
        """By which the table of experiments knows it."""
        ...

    @property
    def parameters(self) -> type[BaseModel]:
        """What params.yaml says of it, and a user may set."""
        ...

    @property
    def tiers(self) -> tuple[str, ...]:
        """On which it runs."""
        ...

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
        """Runs one point on the bench's tier, with inputs cached in the folder `raw`.

        Raises HarnessError; returns nothing that was not measured.
        """
        ...

    def batches(self, points: Sequence[Point], tier: str) -> Sequence[Sequence[Point]]:
        """All these points, those together that share work; the batches that take longest first.

        Batches run side by side, the points of one in turn.
        """
        ...

    def run_batch(
        self, points: Sequence[Point], parameters: Any, bench: Bench, raw: Path
    ) -> Iterator[Measurement]:
        """Runs a batch, or what is left of one: what `run_point` gives of each, one by one.

        Raises as `run_point`, for the point that would be next.
        """
        ...

    @property
    def figure_needs(self) -> Mapping[str, str]:
        """All figures by name, and of which points each is drawn, in words."""
        ...

    def figures(self, results: Results) -> dict[str, Figure]:
        """Figures by name, of as many points as there are."""
        ...

    def role(self, device: str, *, rotational: bool | None) -> str:
        """Which of the paper's drives a real one stands for in claims: its name in the study.

        `rotational`: a disk or a flash drive, as the kernel says; None: it does not.
        """
        ...

    def modelled(self, point: Point) -> Point:
        """The point of the hardware tier as the simulated one can run it, for a plan."""
        ...

    def cost(self, point: Point, expected: Measurement) -> Cost:
        """What the point will do to a real drive, where a model of it gave `expected`."""
        ...

    def published_cells(self, results: Results, project: Project) -> pd.DataFrame | None:
        """Our cells beside the paper's, with errors; None where the paper has no such table."""
        ...


class Grid(Protocol):
    """The module of a study that has its parameters and its points."""

    @property
    def Parameters(self) -> type[BaseModel]:  # noqa: N802 - a class of the module
        """See `Experiment.parameters`."""
        ...

    @property
    def points(self) -> Callable[..., Sequence[Point]]:
        """Of parameters and the names of devices: see `Experiment.points`."""
        ...


class Study:
    """What most experiments have in common; a room need not say it again.

    A study is made from its grid and the tools that it has. Its module `figures` has NEEDS and
    `draw`; it is imported when a figure is asked for, since drawing takes libraries that most
    commands do without.
    """

    runs: Mapping[str, RunPoint] = {}
    roles: Sequence[DriveRole] = ()
    servers: Sequence[str] = ()

    def __init__(
        self,
        grid: Grid,
        *,
        agreement: Agreement | None = None,
        calibration: Calibration | None = None,
        benchmarks: Mapping[str, Sequence[Benchmark]] = MappingProxyType({}),
        beside: Sequence[str] = (),
    ) -> None:
        self._grid = grid
        self.agreement = agreement
        self.calibration = calibration
        self.benchmarks = benchmarks
        self.beside = beside

    @staticmethod
    def room(cell: Any, /) -> int:
        """Bytes that a cell stores at most on its device: none, of a model that stores nothing."""
        del cell
        return 0

    @property
    def name(self) -> str:
        """That of its package, where a room does not say another."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def parameters(self) -> type[BaseModel]:
        """The grid's."""
        return self._grid.Parameters

    def points(self, parameters: Any, bench: Bench) -> Sequence[Point]:
        """Every setting that a figure or a claim needs, each once."""
        return self._grid.points(parameters, bench.devices)

    def needed_bytes(self, parameters: Any, point: Point) -> int:
        """Room for all that the point's cell stores."""
        del parameters
        return self.room(point.cell)

    @property
    def figure_needs(self) -> Mapping[str, str]:
        """Those of the room's figures."""
        needs: Mapping[str, str] = self._figures().NEEDS
        return needs

    def figures(self, results: Results) -> dict[str, Figure]:
        """All that the results at hand can fill."""
        drawn: dict[str, Figure] = self._figures().draw(results)
        return drawn

    def _figures(self) -> ModuleType:
        return import_module(f"{type(self).__module__}.figures")

    @property
    def tiers(self) -> tuple[str, ...]:
        """On which there is a way to run it."""
        return tuple(self.runs)

    def run_point(self, point: Point, parameters: Any, bench: Bench, raw: Path) -> Measurement:
        """By the tier's way."""
        return self.runs[bench.tier](point, parameters, bench, raw)

    def batches(self, points: Sequence[Point], tier: str) -> Sequence[Sequence[Point]]:
        """Each alone."""
        del tier
        return [[point] for point in points]

    def run_batch(
        self, points: Sequence[Point], parameters: Any, bench: Bench, raw: Path
    ) -> Iterator[Measurement]:
        """Each by itself."""
        for point in points:
            yield self.run_point(point, parameters, bench, raw)

    def input_digest(self, parameters: Any, raw: Path) -> str:
        """Nothing besides parameters and code."""
        del parameters, raw
        return ""

    def role(self, device: str, *, rotational: bool | None) -> str:
        """That of its own name."""
        del rotational
        return device

    def modelled(self, point: Point) -> Point:
        """As it is."""
        return point

    def cost(self, point: Point, expected: Measurement) -> Cost:
        """What the model's device was written, or its temporary files; the time that it took."""
        del point
        found = expected.metrics
        written = found.get("device_write_bytes", found.get("temp_written_bytes", 0))
        return Cost(int(written), float(found["elapsed_s"]))

    def published_cells(self, results: Results, project: Project) -> pd.DataFrame | None:
        """None."""
        del results, project
        return None
