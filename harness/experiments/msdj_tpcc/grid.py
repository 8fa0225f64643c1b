"""The grid: the paper's modes with both sizes of the journal, and what the paper leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.dbms import page_writes
from harness.errors import BadParameter
from harness.experiments import base
from harness.experiments.base import Point, points_of
from harness.experiments.fields import Mode, SizeText, one_of
from harness.experiments.variants import overrides_of
from harness.units import format_bytes, parse_bytes

SCALES: Final = {"smoke": 1 / 100, "small": 1 / 25, "paper": 1.0}
"""Database, memory, logs, drive and time over the paper's, by scale name.

The smallest is what the PM953's 32 dies can still be laid out in with little spare area (5 GB).
"""

BASE: Final = "paper"
"""The variant in which nothing is varied."""

LEAST_JOURNAL_BYTES: Final = 4 << 20
"""What mke2fs makes at least: 1,024 blocks of 4 KiB."""

LEAST_REDO_BYTES: Final = 512 << 10
"""So that a batch of flushed pages finds room; a real server says itself what it needs."""

LEAST_BUFFER_POOL_BYTES: Final = 8 << 20
"""Pages that 32 connections hold at a time, and as many again; servers of today refuse 5 MiB."""

_LEAST_MEASURED_S: Final = 10.0


Scale = Annotated[str, one_of("scale", SCALES)]
Place = Literal["device", "elsewhere"]
Connections = Annotated[int, Field(ge=1, le=1024)]


class Variant(BaseModel):
    """A what-if on some modes with some journals: other profile parameters, or other settings.

    What is None is as in the grid. `journals` empty: the grid's first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    why: str
    modes: list[Mode] = Field(min_length=1)
    journals: list[SizeText] = []
    overrides: dict[str, str] = {}
    connections: Connections | None = None
    buffer_pool: SizeText | None = None
    redo: SizeText | None = None
    redo_on: Place | None = None
    doublewrite_on: Place | None = None
    page_cache: SizeText | None = None
    ageing: SizeText | None = None
    filled_ratio: float | None = Field(None, ge=0, le=1)


class Parameters(BaseModel):
    """The grid. Sizes and times are those of `size_ratio`; `scale` shrinks them together.

    `size_ratio`: this database over the paper's. `warm_up_s`, `measured_s`: of the device's time.
    `redo_on`, `doublewrite_on`: on the drive under test, or on one that is never in the way.
    `page_cache`: memory besides the server's. `device`: the drive's size, if it is to be a smaller
    one that behaves alike. `ageing`: the region that is overwritten at random first, the whole
    drive if larger. `filled_ratio`: how much of the drive holds other data, which nobody touches,
    before all that.
    """

    model_config = ConfigDict(extra="forbid")

    scale: Scale = "paper"
    size_ratio: float = Field(1.0, gt=0, le=1)
    modes: list[Mode] = Field(min_length=1)
    journals: list[SizeText] = Field(min_length=1)
    warehouses: int = Field(ge=1, le=1_000_000)
    connections: Connections
    warm_up_s: float = Field(0.0, ge=0, le=864_000)
    measured_s: float = Field(gt=0, le=864_000)
    buffer_pool: SizeText
    redo: SizeText
    redo_on: Place = "device"
    doublewrite_on: Place = "device"
    page_cache: SizeText
    device: SizeText | None = None
    ageing: SizeText
    filled_ratio: float = Field(0.0, ge=0, le=1)
    seeds: list[int] = Field(default=[1], min_length=1)
    variants: dict[str, Variant] = {}

    @property
    def ratio(self) -> float:
        """What `scale` stands for."""
        return SCALES[self.scale]


@dataclass(frozen=True, kw_only=True)
class Cell(base.Cell):
    """TPC-C in one mode (dbms.page_writes.MODES); sizes and times are already scaled.

    `size_ratio_to_paper`: sizes and rhythms, such as the journal's commits, are the paper's times
    this. `device_bytes`: of the drive, 0: as it is. `filled_ratio`: of the drive, which other data
    fills in order first; `ageing_bytes`: the region that is then overwritten at random. `warm_up_s`
    and `measured_s` are of the device's time. `page_cache_bytes`: of the host, besides the server's
    own memory.
    """

    variant: str
    mode: str
    journal_bytes: int
    warehouses: int
    connections: int
    warm_up_s: float
    measured_s: float
    buffer_pool_bytes: int
    redo_bytes: int
    redo_on: str
    doublewrite_on: str
    page_cache_bytes: int
    device_bytes: int
    ageing_bytes: int
    filled_ratio: float
    size_ratio_to_paper: float
    seed: int


def points(parameters: Parameters, devices: Sequence[str]) -> list[Point]:
    """Every cell once, in a fixed order. Raises BadParameter for a variant that varies nothing."""
    cells = _settings(parameters, devices)
    return points_of(cells, _label, lambda cell: overrides_of(cell, parameters.variants))


def _settings(p: Parameters, devices: Sequence[str]) -> Iterator[Cell]:
    for device in devices:
        for seed in p.seeds:
            # The longest journal first: its points take longest.
            for journal in sorted(p.journals, key=parse_bytes, reverse=True):
                for mode in p.modes:
                    yield _setting(p, device, mode, journal, seed)
    for name, variant in p.variants.items():
        changed = _varied(p, name, variant)
        for device in devices:
            for journal in variant.journals or p.journals[:1]:
                for mode in variant.modes:
                    yield _setting(changed, device, mode, journal, p.seeds[0], name)


def _varied(p: Parameters, name: str, variant: Variant) -> Parameters:
    """The grid with the variant's settings in place of its own."""
    fields = variant.model_dump(
        exclude={"why", "modes", "journals", "overrides"}, exclude_none=True
    )
    if not fields and not variant.overrides:
        raise BadParameter(f"variant {name}: it varies nothing; give overrides, or a setting")
    return p.model_copy(update=fields)


def _setting(
    p: Parameters, device: str, mode: str, journal: str, seed: int, variant: str = BASE
) -> Cell:
    def scaled(size: str, least_bytes: int = 0) -> int:
        return max(int(parse_bytes(size) * p.ratio), least_bytes) >> 12 << 12

    return Cell(
        device=device,
        variant=variant,
        mode=mode,
        journal_bytes=scaled(journal, LEAST_JOURNAL_BYTES),
        warehouses=max(round(p.warehouses * p.ratio), 1),
        connections=p.connections,
        warm_up_s=p.warm_up_s * p.ratio,
        measured_s=max(p.measured_s * p.ratio, min(p.measured_s, _LEAST_MEASURED_S)),
        buffer_pool_bytes=scaled(p.buffer_pool, LEAST_BUFFER_POOL_BYTES),
        redo_bytes=scaled(p.redo, LEAST_REDO_BYTES),
        redo_on=p.redo_on,
        doublewrite_on=p.doublewrite_on,
        page_cache_bytes=scaled(p.page_cache),
        device_bytes=scaled(p.device) if p.device else 0,
        ageing_bytes=scaled(p.ageing),
        filled_ratio=p.filled_ratio,
        size_ratio_to_paper=p.size_ratio * p.ratio,
        seed=seed,
    )


def _label(v: Cell) -> str:
    extra = "" if v.variant == BASE else f" [{v.variant}]"
    title = page_writes.find(v.mode).title
    return f"{v.device} {title}, journal {format_bytes(v.journal_bytes)}{extra}"
