"""The grid: the paper's modes with both sizes of the journal, and what the paper leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from harness.dbms import page_writes
from harness.errors import BadParameter
from harness.experiments import base
from harness.experiments.base import Point, points_of
from harness.experiments.fields import Mode, SizeText, one_of
from harness.experiments.variants import overrides_of
from harness.units import format_bytes, parse_bytes

SCALES: Final = {"smoke": 1 / 100, "small": 1 / 25, "medium": 1 / 12, "paper": 1.0}
"""Database, memory, logs, drive and time over the paper's, by scale name: from `medium` on within a
fifth of what the claims on write amplification allow (docs/validation.md).

The smallest is what the PM953's 32 dies can still be laid out in with little spare area (5 GB).
"""

BASE: Final = "paper"
"""The variant in which nothing is varied."""

LEAST_JOURNAL_BYTES: Final = 4 << 20
"""What mke2fs makes at least: 1,024 blocks of 4 KiB."""

LEAST_REDO_BYTES: Final = 512 << 10
"""A model's: so that a batch of flushed pages finds room."""

LEAST_BUFFER_POOL_BYTES: Final = 8 << 20
"""Pages that 32 connections hold at a time, and as many again; servers of today refuse 5 MiB."""

TABLE_EXTENT_BYTES: Final = 4 << 20
"""By which a table's file grows: InnoDB adds four extents of 1 MiB at a time to one of 32 MiB and
more (FSP_FREE_ADD). Tables that are loaded side by side, as tpcc-mysql's load.sh and ours do, then
alternate on the device, and each erase block has some of all."""

_LEAST_MEASURED_S: Final = 10.0
_WAREHOUSE_BYTES: Final = 128 << 20
_SYSTEM_BYTES: Final = 512 << 20

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
    table_extent: SizeText | None = None
    aged_under_files: bool | None = None


class Parameters(BaseModel):
    """The grid. Sizes and times are those of `size_ratio`; `scale` shrinks them together.

    `size_ratio`: this database over the paper's. `warm_up_s`, `measured_s`: of the device's time.
    `redo_on`, `doublewrite_on`: on the drive under test, or on one that is never in the way.
    `page_cache`: memory besides the server's. `device`: the drive's size, if it is to be a smaller
    one that behaves alike. `ageing`: the region that is overwritten at random first, the whole
    drive if larger. `filled_ratio`: how much of the drive holds other data, which nobody touches,
    before all that. Of the modelled files, as a real file system decides for itself:
    `table_extent`, at the paper's size, see TABLE_EXTENT_BYTES; `aged_under_files`, whether the
    region that was overwritten lies at the drive's begin, below journal, redo log and the first
    tables, or else at its end, where no file gets to.
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
    table_extent: SizeText = format_bytes(TABLE_EXTENT_BYTES)
    aged_under_files: bool = True
    seeds: list[int] = Field(default=[1], min_length=1)
    variants: dict[str, Variant] = {}

    @property
    def ratio(self) -> float:
        """What `scale` stands for."""
        return SCALES[self.scale]

    @property
    def size_said(self) -> str:
        """What `scale` does not say of the size."""
        return f"{self.size_ratio:g} of the database" if self.size_ratio < 1 else ""


@dataclass(frozen=True, kw_only=True)
class Cell(base.Cell):
    """TPC-C in one mode (dbms.page_writes.MODES); sizes and times are already scaled.

    `size_ratio_to_paper`: sizes and rhythms, such as the journal's commits, are the paper's times
    this. `device_bytes`: of the drive, 0: as it is. `filled_ratio`: of the drive, which other data
    fills in order first; `ageing_bytes`: the region that is then overwritten at random. `warm_up_s`
    and `measured_s` are of the device's time. `page_cache_bytes`: of the host, besides the server's
    own memory. Of the modelled files: `table_extent_bytes`, at the paper's size, and
    `aged_under_files`. `repetition`: which of the seeds it is, from 0; a variant has the first.
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
    table_extent_bytes: int
    seed: int
    aged_under_files: bool = True
    repetition: int = 0

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """As of any cell; results of before there were these settings have the defaults."""
        since = {
            "repetition": 0,
            "table_extent_bytes": TABLE_EXTENT_BYTES,
            "aged_under_files": True,
        }
        return super().read({**since, **values})


@dataclass(frozen=True)
class Least:
    """What the software at hand needs, however small the scale."""

    redo_bytes: int
    page_cache_bytes: int


OF_MODELS: Final = Least(LEAST_REDO_BYTES, 0)


def room_bytes(warehouses: int, journal_bytes: int, redo_bytes: int) -> int:
    """What a drive has to hold of a database as it grows, with its logs and the file system's."""
    return 2 * warehouses * _WAREHOUSE_BYTES + journal_bytes + redo_bytes + _SYSTEM_BYTES


def points(parameters: Parameters, devices: Sequence[str], least: Least = OF_MODELS) -> list[Point]:
    """Every cell once, in a fixed order. Raises BadParameter for a variant that varies nothing.

    `least`: below this no scale shrinks anything; a real server needs more than a model.
    """
    cells = _settings(parameters, devices, least)
    return points_of(cells, _label, lambda cell: overrides_of(cell, parameters.variants))


def _settings(p: Parameters, devices: Sequence[str], least: Least) -> Iterator[Cell]:
    setting = partial(_setting, least=least)
    for device in devices:
        for repetition in range(len(p.seeds)):
            # The longest journal first: its points take longest.
            for journal in sorted(p.journals, key=parse_bytes, reverse=True):
                for mode in p.modes:
                    yield setting(p, device, mode, journal, repetition)
    for name, variant in p.variants.items():
        changed = _varied(p, name, variant)
        for device in devices:
            for journal in variant.journals or p.journals[:1]:
                for mode in variant.modes:
                    yield setting(changed, device, mode, journal, 0, name)


def _varied(p: Parameters, name: str, variant: Variant) -> Parameters:
    """The grid with the variant's settings in place of its own."""
    fields = variant.model_dump(
        exclude={"why", "modes", "journals", "overrides"}, exclude_none=True
    )
    if not fields and not variant.overrides:
        raise BadParameter(f"variant {name}: it varies nothing; give overrides, or a setting")
    return p.model_copy(update=fields)


def _setting(
    p: Parameters,
    device: str,
    mode: str,
    journal: str,
    repetition: int,
    variant: str = BASE,
    *,
    least: Least,
) -> Cell:
    def scaled(size: str, least_bytes: int = 0) -> int:
        return max(int(parse_bytes(size) * p.ratio), least_bytes) >> 12 << 12

    warehouses = max(round(p.warehouses * p.ratio), 1)
    journal_bytes = scaled(journal, LEAST_JOURNAL_BYTES)
    least_redo = max(min(parse_bytes(p.redo), least.redo_bytes), LEAST_REDO_BYTES)
    redo_bytes = scaled(p.redo, least_redo)
    least_cache = min(parse_bytes(p.page_cache), least.page_cache_bytes)
    # What cannot shrink any more has to fit, unless it did not fit before, either.
    room = room_bytes(warehouses, journal_bytes, redo_bytes)
    drive_bytes = p.device and scaled(p.device, min(parse_bytes(p.device), room))
    return Cell(
        device=device,
        variant=variant,
        mode=mode,
        journal_bytes=journal_bytes,
        warehouses=warehouses,
        connections=p.connections,
        warm_up_s=p.warm_up_s * p.ratio,
        measured_s=max(p.measured_s * p.ratio, min(p.measured_s, _LEAST_MEASURED_S)),
        buffer_pool_bytes=scaled(p.buffer_pool, LEAST_BUFFER_POOL_BYTES),
        redo_bytes=redo_bytes,
        redo_on=p.redo_on,
        doublewrite_on=p.doublewrite_on,
        page_cache_bytes=scaled(p.page_cache, least_cache),
        device_bytes=drive_bytes or 0,
        ageing_bytes=scaled(p.ageing),
        filled_ratio=p.filled_ratio,
        size_ratio_to_paper=p.size_ratio * p.ratio,
        table_extent_bytes=parse_bytes(p.table_extent),
        seed=p.seeds[repetition],
        aged_under_files=p.aged_under_files,
        repetition=repetition,
    )


def _label(v: Cell) -> str:
    extra = "" if v.variant == BASE else f" [{v.variant}]"
    title = page_writes.find(v.mode).title
    return f"{v.device} {title}, journal {format_bytes(v.journal_bytes)}{extra}"
