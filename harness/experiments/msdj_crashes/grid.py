"""The grid: each mode of keeping pages whole, in batches of power cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from harness.dbms import page_writes
from harness.experiments import base
from harness.experiments.base import Point, points_of
from harness.experiments.fields import Mode, SizeText, one_of
from harness.system.ext4_spec import JOURNAL_BLOCKS
from harness.units import format_bytes, parse_bytes

BASE: Final = "paper"
"""The variant in which nothing is varied."""

LARGER_JOURNAL: Final = "larger_journal"

SCALES: Final = {"smoke": 0.2, "small": 0.5, "paper": 1.0}
"""Batches and cuts of each over those of the grid, by scale name: a cut is what it is."""

Scale = Annotated[str, one_of("scale", SCALES)]


class Parameters(BaseModel):
    """The grid: `batches` of `cuts` for each mode. An interrupted run keeps whole batches.

    The database has `warehouses` of `tpcc.scale.reduced`, a hundredth of the standard's: more than
    the buffer pool holds, so that pages are written all the time. After `orders_before_load` new
    orders the drive begins to take its time, and at a random moment, `shortest_load_s` to
    `longest_load_s` later, its power is cut. Where data is journaled, also with a larger journal.
    `scale`: fewer batches of fewer cuts.
    """

    model_config = ConfigDict(extra="forbid")

    scale: Scale = "paper"
    modes: list[Mode] = list(page_writes.MODES)
    batches: int = Field(5, ge=1, le=1000)
    cuts: int = Field(10, ge=1, le=1000)
    seed: int = 1
    warehouses: int = Field(ge=1, le=1000)
    connections: int = Field(ge=1, le=1000)
    buffer_pool: SizeText
    redo: SizeText
    journal: SizeText
    larger_journal: SizeText
    device_size: SizeText
    orders_before_load: int = Field(100, ge=0)
    shortest_load_s: float = Field(0.3, ge=0, le=600)
    longest_load_s: float = Field(2.0, gt=0, le=600)

    def scaled(self, count: int) -> int:
        """Of batches or cuts; at least one."""
        return max(round(count * SCALES[self.scale]), 1)


@dataclass(frozen=True, kw_only=True)
class Cell(base.Cell):
    """A batch of cuts of one mode (dbms.page_writes.MODES)."""

    variant: str
    mode: str
    repetition: int
    cuts_planned: int
    seed: int
    warehouses: int
    connections: int
    buffer_pool_bytes: int
    redo_bytes: int
    journal_bytes: int
    device_bytes: int
    orders_before_load: int
    shortest_load_s: float
    longest_load_s: float


def points(parameters: Parameters, devices: Sequence[str]) -> list[Point]:
    """Every batch once; all modes have one before any has a second one."""
    modes = list(dict.fromkeys(parameters.modes))
    enlarged = [mode for mode in modes if _has_larger_journal(parameters, mode)]
    settings = [
        _setting(parameters, device, mode, batch, variant)
        for variant, some in ((BASE, modes), (LARGER_JOURNAL, enlarged))
        for device in devices
        for batch in range(parameters.scaled(parameters.batches))
        for mode in some
    ]
    return points_of(settings, _label)


def _has_larger_journal(p: Parameters, mode: str) -> bool:
    sizes = [_journal_bytes(p, mode, variant) for variant in (BASE, LARGER_JOURNAL)]
    return page_writes.find(mode).journal_mode == "journal" and sizes[1] > sizes[0]


def _journal_bytes(p: Parameters, mode: str, variant: str) -> int:
    """A journal has a least number of blocks, and so a least size where these are larger."""
    least_bytes = JOURNAL_BLOCKS[0] * page_writes.find(mode).file_system_block_bytes
    return max(parse_bytes(p.journal if variant == BASE else p.larger_journal), least_bytes)


def _setting(p: Parameters, device: str, mode: str, batch: int, variant: str) -> Cell:
    """All modes of a batch have the same seed, and so the same moments."""
    return Cell(
        device=device,
        variant=variant,
        mode=mode,
        repetition=batch,
        cuts_planned=p.scaled(p.cuts),
        seed=p.seed * 1000 + batch,
        warehouses=p.warehouses,
        connections=p.connections,
        buffer_pool_bytes=parse_bytes(p.buffer_pool),
        redo_bytes=parse_bytes(p.redo),
        journal_bytes=_journal_bytes(p, mode, variant),
        device_bytes=parse_bytes(p.device_size),
        orders_before_load=p.orders_before_load,
        shortest_load_s=p.shortest_load_s,
        longest_load_s=p.longest_load_s,
    )


def _label(v: Cell) -> str:
    title = page_writes.find(v.mode).title
    batch = f"batch {v.repetition + 1} of {v.cuts_planned} cuts"
    return f"{title}, journal {format_bytes(v.journal_bytes)}, {batch}"
