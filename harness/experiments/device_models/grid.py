"""The grid: points of seven kinds, each an experiment with one of the models.

waf         write amplification of uniform random writes, by spare factor and policy
hot_cold    the same for hot and cold data, with and without streams
warm_up     write amplification over time, from a freshly filled drive on
load        latency against offered load
trim        reads beside TRIMs
disk_seek   reads at random distances
disk_queue  reads by queue depth and order of the queue
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypedDict, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from harness.experiments import base
from harness.experiments.base import Point, points_of
from harness.experiments.fields import SizeText
from harness.units import format_bytes, parse_bytes

FLASH: Final = "ssd"
"""The experiment's name for its flash drive; all its other devices are hard disks."""

LAYOUTS: Final = {
    "one stream, fifo": ("fifo", False),
    "one stream, greedy": ("greedy", False),
    "two streams, greedy": ("greedy", True),
    "two streams, cost_benefit": ("cost_benefit", True),
}
"""How hot and cold data are laid out: victim policy, and whether each has blocks of its own."""

_T = TypeVar("_T")


Share = Annotated[float, Field(gt=0, lt=1)]
Depth = Annotated[int, Field(ge=1, le=4096)]


class Parameters(BaseModel):
    """The grid. Sizes are texts with units; a spare factor is 1 - logical / physical size.

    `scale` thins out the sweeps and shortens each run: `small` takes about every second value and
    half of the requests, `smoke` the first and the last value and an eighth.
    """

    model_config = ConfigDict(extra="forbid")

    scale: Literal["smoke", "small", "paper"] = "paper"
    repetitions: int = Field(3, ge=1, le=1000)
    policies: list[str]
    gc_choices: int = Field(10, ge=1)
    spare_factors: list[Share]
    hot_cold_spare_factors: list[Share]
    hot_data_ratio: Share = 0.1
    hot_access_ratio: Share = 0.9
    warm_up_spare_factor: Share = 0.1
    load_ratios: list[Share]
    trim_sizes: list[SizeText]
    trims_per_s: Annotated[float, Field(gt=0)] = 20
    trim_rates_per_s: list[Annotated[float, Field(gt=0)]]
    trim_size: SizeText = "1 MiB"
    trim_read_depths: list[Depth]
    queue_depths: list[Depth]
    schedulers: list[str]


@dataclass(frozen=True, kw_only=True)
class Cell(base.Cell):
    """What all kinds have; `kind` is the same for all cells of a record."""

    scale: str
    repetition: int
    kind: str


@dataclass(frozen=True, kw_only=True)
class UniformCell(Cell):
    """Kinds `waf` and `warm_up`: uniform random writes."""

    policy: str
    gc_choices: int
    spare_factor: float


@dataclass(frozen=True, kw_only=True)
class HotColdCell(Cell):
    """Hot and cold data in one of LAYOUTS."""

    kind: str = "hot_cold"
    layout: str
    spare_factor: float
    hot_data_ratio: float
    hot_access_ratio: float


@dataclass(frozen=True, kw_only=True)
class LoadCell(Cell):
    """A load, as a share of what the drive sustains."""

    kind: str = "load"
    mix: str
    read_ratio: float
    load_ratio: float


@dataclass(frozen=True, kw_only=True)
class TrimCell(Cell):
    """Reads at a queue depth beside TRIMs at a rate."""

    kind: str = "trim"
    trim_command: str
    trim_bytes: int
    trims_per_s: float
    queue_depth: int


@dataclass(frozen=True, kw_only=True)
class SeekCell(Cell):
    """Reads one after another."""

    kind: str = "disk_seek"


@dataclass(frozen=True, kw_only=True)
class QueueCell(Cell):
    """Reads at a queue depth, in an order."""

    kind: str = "disk_queue"
    scheduler: str
    queue_depth: int


def points(parameters: Parameters, devices: Sequence[str]) -> list[Point]:
    """Every setting once, in a fixed order."""
    return points_of(_settings(parameters, devices), _label)


def effort(scale: str) -> int:
    """By how much the runs of a scale are shorter."""
    return {"smoke": 8, "small": 2}.get(scale, 1)


class _Common(TypedDict):
    """What `Cell` has, but for the kind."""

    device: str
    scale: str
    repetition: int


def _settings(p: Parameters, devices: Sequence[str]) -> Iterator[Cell]:
    repetitions = 1 if p.scale == "smoke" else p.repetitions
    for repetition in range(repetitions if FLASH in devices else 0):
        common = _Common(device=FLASH, scale=p.scale, repetition=repetition)
        yield from _amplification(p, common)
        if repetition == 0:
            yield from _latency(p, common)
    for device in devices:
        if device != FLASH:
            yield from _disk(p, _Common(device=device, scale=p.scale, repetition=0))


def _amplification(p: Parameters, common: _Common) -> Iterator[Cell]:
    for policy in p.policies:
        spares = [("waf", spare) for spare in _thinned(p, p.spare_factors)]
        for kind, spare in (*spares, ("warm_up", p.warm_up_spare_factor)):
            yield UniformCell(
                **common, kind=kind, policy=policy, gc_choices=p.gc_choices, spare_factor=spare
            )
    for layout in LAYOUTS:
        for spare in _thinned(p, p.hot_cold_spare_factors):
            yield HotColdCell(
                **common,
                layout=layout,
                spare_factor=spare,
                hot_data_ratio=p.hot_data_ratio,
                hot_access_ratio=p.hot_access_ratio,
            )


def _latency(p: Parameters, common: _Common) -> Iterator[Cell]:
    for mix, read_ratio in (("reads", 1.0), ("writes", 0.0), ("70/30 mix", 0.7)):
        for load in _thinned(p, p.load_ratios):
            yield LoadCell(**common, mix=mix, read_ratio=read_ratio, load_ratio=load)
    sizes = [(parse_bytes(size), p.trims_per_s) for size in _thinned(p, p.trim_sizes)]
    rates = [(parse_bytes(p.trim_size), rate) for rate in _thinned(p, p.trim_rates_per_s)]
    for depth in p.trim_read_depths:
        for size_bytes, rate in (*sizes, *rates):
            for command in ("queued", "non-queued"):
                yield TrimCell(
                    **common,
                    trim_command=command,
                    trim_bytes=size_bytes,
                    trims_per_s=rate,
                    queue_depth=depth,
                )


def _disk(p: Parameters, common: _Common) -> Iterator[Cell]:
    yield SeekCell(**common)
    for scheduler in p.schedulers:
        for depth in _thinned(p, p.queue_depths):
            yield QueueCell(**common, scheduler=scheduler, queue_depth=depth)


def _thinned(p: Parameters, values: Sequence[_T]) -> list[_T]:
    """All values, or every second one and the last, or the first and the last one."""
    if p.scale == "paper" or len(values) < 3:
        return list(values)
    step = 2 if p.scale == "small" else len(values) - 1
    kept = {*range(0, len(values), step), len(values) - 1}
    return [value for i, value in enumerate(values) if i in kept]


def _label(cell: Cell) -> str:
    v = cell.values
    named = ("policy", "layout", "mix", "trim_command", "scheduler", "spare_factor", "load_ratio")
    said = [str(v[name]) for name in named if name in v]
    said += [format_bytes(cell.trim_bytes)] if isinstance(cell, TrimCell) else []
    said += [f"depth {v['queue_depth']}"] if "queue_depth" in v else []
    return " ".join((cell.device, cell.kind, *said))
