"""The grid: clients and work_mem of the paper, and what we add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from harness.experiments import base
from harness.experiments.base import Point, points_of
from harness.experiments.fields import SizeText, checked, one_of
from harness.experiments.sort_merge_join import postgres_sort
from harness.units import format_bytes, parse_bytes

SCALES: Final = {"smoke": 1 / 64, "small": 1 / 16, "paper": 1.0}
"""The tables' size over the paper's, by scale name."""

BASE: Final = "paper"
"""The variant in which nothing is varied."""


Scale = Annotated[str, one_of("scale", SCALES)]
Version = Annotated[str, checked(lambda name: postgres_sort.rules(str(name)))]
Clients = Annotated[int, Field(ge=1, le=256)]
Repetitions = Annotated[int, Field(ge=1, le=1000)]


class Tables(BaseModel):
    """The pair that each client joins, at the paper's size. Sizes are of heaps."""

    model_config = ConfigDict(extra="forbid")

    small: SizeText
    large: SizeText
    data_width_bytes: float = Field(gt=0, le=1600)
    wide_ratio: float = Field(ge=0, le=1)


class Variant(BaseModel):
    """A what-if on some points: other profile parameters, or another sort.

    `merge` replaces the version's merge plan; `merge_order` its order; `ahead`: the sort has its
    tapes' next blocks read ahead; `piece_blocks`: free blocks are reused in pieces of at least so
    many.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    why: str
    overrides: dict[str, str] = {}
    version: Version | None = None
    merge: str | None = None
    merge_order: int | None = Field(None, ge=2, le=100_000)
    ahead: bool = False
    piece_blocks: int = Field(1, ge=1, le=1024)


class Calibration(BaseModel):
    """The published cells that a fit may see: all drives, these clients and work_mems."""

    model_config = ConfigDict(extra="forbid")

    clients: list[Clients] = []
    work_mems: list[SizeText] = []


class Parameters(BaseModel):
    """The grid. work_mem is given as at the paper's size and shrinks with the tables.

    `size_ratio`: the tables' size over the paper's; by default what `scale` stands for.

    `repetitions_of`: by how many clients, in place of `repetitions`: where few clients take a tenth
    of a second, a single run says little.

    `version` and `tables` are the model's; a real server has its own version and TPC-H's tables.
    Where the kernel is real (a modelled host says so itself) `page_cache` is what the server may
    keep of its files in memory, at the paper's size, and `dirty_ratio` how much of that may wait to
    be written.
    """

    model_config = ConfigDict(extra="forbid")

    version: Version = "9.4"
    tables: Tables | None = None
    scale: Scale = "paper"
    size_ratio: float | None = Field(None, gt=0, le=1)
    clients: list[Clients] = Field(min_length=1)
    work_mems: list[SizeText] = Field(min_length=1)
    repetitions: Repetitions = 1
    repetitions_of: dict[Clients, Repetitions] = {}
    page_cache: SizeText = "3 GiB"
    dirty_ratio: float = Field(0.2, gt=0, le=1)
    calibration: Calibration = Calibration()
    variants: dict[str, Variant] = {}
    variant_clients: list[Clients] = []
    variant_work_mems: list[SizeText] = []

    @property
    def ratio(self) -> float:
        """The tables' size over the paper's."""
        return (self.size_ratio or 1.0) * SCALES[self.scale]

    @property
    def size_said(self) -> str:
        """What `scale` does not say of the size."""
        return f"{self.size_ratio:g} of the tables" if self.size_ratio else ""


@dataclass(frozen=True, kw_only=True)
class Cell(base.Cell):
    """A join by `clients` at a time; `nominal` work_mem is the paper's, memory is scaled."""

    variant: str
    clients: int
    nominal_work_mem_bytes: int
    work_mem_bytes: int
    size_ratio_to_paper: float
    page_cache_bytes: int
    dirty_ratio: float
    repetition: int


def points(parameters: Parameters, devices: Sequence[str], *, what_if: bool) -> list[Point]:
    """Every setting once, in a fixed order; `what_if` adds the variants."""

    def depends(cell: Cell) -> dict[str, str]:
        variant = parameters.variants.get(cell.variant)
        changed = variant.model_dump(mode="json", exclude={"why"}) if variant else {}
        whole = parameters.model_dump(mode="json", include={"tables"})
        facts = {**changed, **whole, "paper_version": parameters.version}
        return {key: str(value) for key, value in facts.items()}

    return points_of(_settings(parameters, devices, what_if=what_if), _label, depends)


def _settings(p: Parameters, devices: Sequence[str], *, what_if: bool) -> Iterator[Cell]:
    most = max(p.repetitions, *p.repetitions_of.values(), 1)
    for repetition in range(most):
        # The longest first: two of them at the end would leave a core idle.
        for clients in sorted(p.clients, reverse=True):
            if repetition >= p.repetitions_of.get(clients, p.repetitions):
                continue
            for work_mem in sorted(p.work_mems, key=parse_bytes):
                for device in devices:
                    yield _setting(p, device, clients, work_mem, repetition, BASE)
    for variant in p.variants if what_if else ():
        for clients in p.variant_clients:
            for work_mem in p.variant_work_mems:
                for device in devices:
                    yield _setting(p, device, clients, work_mem, 0, variant)


def _setting(
    p: Parameters, device: str, clients: int, work_mem: str, repetition: int, variant: str
) -> Cell:
    nominal_bytes = parse_bytes(work_mem)
    return Cell(
        device=device,
        variant=variant,
        clients=clients,
        nominal_work_mem_bytes=nominal_bytes,
        work_mem_bytes=max(int(nominal_bytes * p.ratio), 64 << 10),
        size_ratio_to_paper=p.ratio,
        page_cache_bytes=int(parse_bytes(p.page_cache) * p.ratio),
        dirty_ratio=p.dirty_ratio,
        repetition=repetition,
    )


def _label(v: Cell) -> str:
    extra = "" if v.variant == BASE else f" [{v.variant}]"
    clients = f"{v.clients} client{'s' if v.clients > 1 else ''}"
    return f"{v.device} {clients} work_mem {format_bytes(v.nominal_work_mem_bytes)}{extra}"
