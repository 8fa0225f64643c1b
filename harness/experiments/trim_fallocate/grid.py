"""The grid: trim x preallocation on each drive, the paper's work_mem sweep, and what we add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.experiments import base
from harness.experiments.base import Point, points_of
from harness.experiments.fields import SizeText, one_of
from harness.experiments.trim_fallocate import hash_batches
from harness.experiments.variants import overrides_of
from harness.units import format_bytes, parse_bytes

SCALES: Final = {"smoke": 1 / 128, "small": 1 / 32, "medium": 1 / 8, "paper": 1.0}
"""Database, memory, open files, commits and drive over the paper's, by scale name.

A batch's file stays as it is.
"""

FIRST: Final = "mx500"
"""The paper's drive of figures 2 to 7; a real drive of another name takes its part in claims."""

BASE: Final = "paper"
"""The variant in which nothing is varied."""


Scale = Annotated[str, one_of("scale", SCALES)]
Policy = Literal["none", "discard", "fstrim"]
Workload = Literal["hash_join", "sort", "hash_aggregate", "create_index"]


class Drive(BaseModel):
    """What runs on one drive.

    `scale_factor` is TPC-H's; `preallocation` the size in the cells with fallocate;
    `queries_per_repetition` run one after the other, timed together; `shared_buffers` what the
    server takes of the memory; `device` the drive's size, if it is to be a smaller one that behaves
    alike; `least_scale` what the grid's scale is at least taken for, for a drive whose dies do not
    fit into less.
    """

    model_config = ConfigDict(extra="forbid")

    scale_factor: float = Field(gt=0, le=1000)
    work_mem: SizeText
    preallocation: SizeText
    repetitions: int = Field(ge=1, le=1000)
    queries_per_repetition: int = Field(1, ge=1, le=1000)
    shared_buffers: SizeText = "128 MiB"
    device: SizeText | None = None
    least_scale: Scale = "smoke"


class Variant(BaseModel):
    """A what-if on some cells: other profile parameters, policies, sizes or workloads.

    `occupied_ratio`: how much of the file system other files hold, which nobody touches;
    `occupied_piece`: these lie everywhere, in pieces of that size. `max_files`: what the server may
    have open (max_files_per_process). `preallocate_again`: a file that has used up what it was
    given is given as much again. `give_back`: what it did not use is freed when it has been
    written, not when it is deleted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    why: str
    drives: list[str] = []
    trim: list[Policy] = ["none", "discard"]
    preallocation: list[SizeText] | None = None
    work_mems: list[SizeText] | None = None
    repetitions: int | None = Field(None, ge=1, le=1000)
    queries_per_repetition: int | None = Field(None, ge=1, le=1000)
    overrides: dict[str, str] = {}
    workload: Workload = "hash_join"
    occupied_ratio: float = Field(0.0, ge=0, le=0.9)
    occupied_piece: SizeText = "0 B"
    max_files: int | None = Field(None, ge=25)
    preallocate_again: bool = False
    give_back: bool = False


class Parameters(BaseModel):
    """The grid. Sizes are the paper's; `scale` shrinks them.

    `max_files` is the server's max_files_per_process. `page_cache`, `dirty_ratio` and `commit_s`
    (between two commits of the journal, of the device's time) are for tiers with a kernel of their
    own: a modelled host says itself what it has.
    """

    model_config = ConfigDict(extra="forbid")

    scale: Scale = "paper"
    drives: dict[str, Drive]
    page_cache: SizeText = "600 MiB"
    dirty_ratio: float = Field(0.3, gt=0, le=1)
    max_files: int = Field(1000, ge=25)
    commit_s: float = Field(5.0, gt=0, le=300)
    variants: dict[str, Variant] = {}

    @property
    def ratio(self) -> float:
        """Database and drive over the paper's."""
        return SCALES[self.scale]

    def ratio_on(self, drive: Drive) -> float:
        """The same for one of the drives, which may be as small as it can be."""
        return max(self.ratio, SCALES[drive.least_scale])

    @property
    def size_said(self) -> str:
        """TPC-H's scale factors, which `scale` shrinks."""
        sizes = sorted({d.scale_factor * self.ratio_on(d) for d in self.drives.values()})
        return f"TPC-H {' and '.join(f'{size:.3g}' for size in sizes)}"


@dataclass(frozen=True, kw_only=True)
class Cell(base.Cell):
    """A workload that is repeated on one file system; sizes and times are already scaled.

    `preallocation_bytes`: of each temporary file, 0: none. `max_files`: what the server may have
    open. `commit_s`: of the journal, in the device's time.
    `page_cache_bytes`, `dirty_ratio` (of it, what may wait to be written): on a real kernel.
    `device_bytes`: of the drive, 0: as its profile says, scaled.
    """

    variant: str
    workload: str
    trim: str
    preallocation_bytes: int
    work_mem_bytes: int
    scale_factor: float
    size_ratio_to_paper: float
    repetitions: int
    queries_per_repetition: int
    shared_buffers_bytes: int
    page_cache_bytes: int
    dirty_ratio: float
    max_files: int
    commit_s: float
    occupied_ratio: float
    occupied_piece_bytes: int
    preallocate_again: bool
    give_back: bool
    device_bytes: int


def points(parameters: Parameters, devices: Sequence[str]) -> list[Point]:
    """Every cell once, in a fixed order: the longest first.

    A hash join that fits into work_mem has no temporary files, and no cell: at a small scale the
    largest of the paper's sizes do not spill.
    """
    spilling = filter(_spills, _settings(parameters, devices))
    return points_of(spilling, _label, lambda cell: overrides_of(cell, parameters.variants))


def _spills(v: Cell) -> bool:
    if v.workload != "hash_join":
        return True
    return hash_batches.of_orders(v.scale_factor, v.work_mem_bytes) > 1


def _settings(p: Parameters, devices: Sequence[str]) -> Iterator[Cell]:
    known = [device for device in devices if device in p.drives]
    for device in sorted(known, key=lambda d: -p.drives[d].repetitions * p.drives[d].scale_factor):
        for trim in ("none", "discard"):
            for preallocation in ("0 B", p.drives[device].preallocation):
                yield _setting(p, device, trim, preallocation, BASE, Variant(why=""))
    for name, variant in p.variants.items():
        for device in variant.drives or known:
            if device not in known:
                continue
            drive = p.drives[device]
            for trim in variant.trim:
                for size in variant.preallocation or _sizes(drive, variant):
                    for work_mem in variant.work_mems or [drive.work_mem]:
                        yield _setting(p, device, trim, size, name, variant, work_mem)


def _sizes(drive: Drive, variant: Variant) -> tuple[str, ...]:
    about_them = variant.preallocate_again or variant.give_back
    return (drive.preallocation,) if about_them else ("0 B", drive.preallocation)


def _setting(
    p: Parameters,
    device: str,
    trim: str,
    preallocation: str,
    name: str,
    variant: Variant,
    work_mem: str = "",
) -> Cell:
    drive = p.drives[device]
    ratio = p.ratio_on(drive)
    return Cell(
        device=device,
        variant=name,
        workload=variant.workload,
        trim=trim,
        preallocation_bytes=parse_bytes(preallocation),
        work_mem_bytes=parse_bytes(work_mem or drive.work_mem),
        scale_factor=drive.scale_factor * ratio,
        size_ratio_to_paper=ratio,
        repetitions=variant.repetitions or drive.repetitions,
        queries_per_repetition=variant.queries_per_repetition or drive.queries_per_repetition,
        shared_buffers_bytes=int(parse_bytes(drive.shared_buffers) * ratio),
        page_cache_bytes=int(parse_bytes(p.page_cache) * ratio),
        dirty_ratio=p.dirty_ratio,
        max_files=variant.max_files or p.max_files,
        commit_s=p.commit_s,
        occupied_ratio=variant.occupied_ratio,
        occupied_piece_bytes=parse_bytes(variant.occupied_piece),
        preallocate_again=variant.preallocate_again,
        give_back=variant.give_back,
        device_bytes=parse_bytes(drive.device) if drive.device else 0,
    )


def _label(v: Cell) -> str:
    extra = "" if v.variant == BASE else f" [{v.variant}]"
    size = v.preallocation_bytes
    fallocate = f"fallocate {format_bytes(size)}" if size else "no fallocate"
    return (
        f"{v.device} trim {v.trim}, {fallocate}, work_mem {format_bytes(v.work_mem_bytes)}{extra}"
    )
