"""The grid: which joins the paper ran, and which ones we add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from harness.experiments import base
from harness.experiments.base import Point, points_of
from harness.experiments.fields import SizeText, checked, one_of
from harness.experiments.variants import overrides_of
from harness.units import format_bytes, parse_bytes
from harness.workloads.tpch import scale_factor

BASE: Final = "paper"
"""The variant in which nothing is varied."""

_ALGORITHMS: Final = ("grace", "hybrid")


ScaleName = Annotated[str, checked(scale_factor)]
AlgorithmName = Annotated[str, one_of("algorithm", _ALGORITHMS)]


class Variant(BaseModel):
    """A what-if: other profile parameters, tried on the points that the claims stand on."""

    model_config = ConfigDict(extra="forbid")

    why: str
    overrides: dict[str, str]


class Parameters(BaseModel):
    """The grid.

    Sizes are texts with units. Read buffers are the paper's, at scale factor 1: at other scales
    they shrink and grow with the data, so that the number of partitions, on which everything
    depends, stays.
    """

    model_config = ConfigDict(extra="forbid")

    scale: ScaleName = "paper"
    repetitions: int = Field(3, ge=1, le=1000)
    algorithms: list[AlgorithmName] = Field(["grace"], min_length=1)
    read_buffers: list[SizeText]
    write_buffer: SizeText
    write_buffers: list[SizeText]
    write_sweep_read_buffer: SizeText
    users: list[Annotated[int, Field(ge=1, le=64)]]
    users_read_buffer: SizeText
    input_io: SizeText = "1 MiB"
    queue_depths: list[Annotated[int, Field(ge=1, le=4096)]] = Field([1], min_length=1)
    variants: dict[str, Variant] = {}
    variant_read_buffers: list[SizeText] = []
    variant_write_buffers: list[SizeText] = []


@dataclass(frozen=True, kw_only=True)
class Cell(base.Cell):
    """A join by `users` at a time; buffers are one user's, `nominal` at scale factor 1."""

    variant: str
    scale: str
    algorithm: str
    nominal_read_buffer_bytes: int
    read_buffer_bytes: int
    write_buffer_bytes: int
    input_io_bytes: int
    users: int
    queue_depth: int
    repetition: int


def points(parameters: Parameters, devices: Sequence[str], *, what_if: bool) -> list[Point]:
    """Every setting once, in a fixed order; `what_if` adds the variants."""
    cells = _settings(parameters, devices, what_if=what_if)
    return points_of(cells, _label, lambda cell: overrides_of(cell, parameters.variants))


def _settings(p: Parameters, devices: Sequence[str], *, what_if: bool) -> Iterator[Cell]:
    for device in devices:
        for repetition in range(p.repetitions):
            for read_buffer in p.read_buffers:
                yield _setting(p, device, repetition, read_buffer)
            sweep = p.write_sweep_read_buffer
            for write_buffer in p.write_buffers:
                yield _setting(p, device, repetition, sweep, write_buffer=write_buffer)
            for users in p.users:
                yield _setting(p, device, repetition, p.users_read_buffer, users=users)
        for algorithm in p.algorithms:
            for read_buffer in p.read_buffers:
                yield _setting(p, device, 0, read_buffer, algorithm=algorithm)
        for queue_depth in p.queue_depths:
            yield _setting(p, device, 0, sweep, queue_depth=queue_depth)
        for variant in p.variants if what_if else ():
            yield from _variant_settings(p, device, variant)


def _variant_settings(p: Parameters, device: str, variant: str) -> Iterator[Cell]:
    """The points that the claims stand on."""
    for read_buffer in p.variant_read_buffers:
        yield _setting(p, device, 0, read_buffer, variant=variant)
    for write_buffer in p.variant_write_buffers:
        sweep = p.write_sweep_read_buffer
        yield _setting(p, device, 0, sweep, write_buffer=write_buffer, variant=variant)
    for users in (n for n in p.users if n <= 2):
        yield _setting(p, device, 0, p.users_read_buffer, users=users, variant=variant)


def _setting(
    p: Parameters,
    device: str,
    repetition: int,
    read_buffer: str,
    *,
    write_buffer: str | None = None,
    users: int = 1,
    algorithm: str = "grace",
    queue_depth: int = 1,
    variant: str = BASE,
) -> Cell:
    write_bytes = parse_bytes(write_buffer or p.write_buffer)
    nominal_bytes = parse_bytes(read_buffer) // users
    scaled_bytes = int(nominal_bytes * scale_factor(p.scale))
    read_bytes = max(scaled_bytes // write_bytes, 1) * write_bytes
    return Cell(
        device=device,
        variant=variant,
        scale=p.scale,
        algorithm=algorithm,
        nominal_read_buffer_bytes=nominal_bytes,
        read_buffer_bytes=read_bytes,
        write_buffer_bytes=write_bytes,
        input_io_bytes=min(parse_bytes(p.input_io), read_bytes),
        users=users,
        queue_depth=queue_depth,
        repetition=repetition,
    )


def _label(v: Cell) -> str:
    read = format_bytes(v.nominal_read_buffer_bytes)
    write = format_bytes(v.write_buffer_bytes)
    extra = "" if v.variant == BASE else f" [{v.variant}]"
    users = "" if v.users == 1 else f", {v.users} users"
    depth = "" if v.queue_depth == 1 else f", depth {v.queue_depth}"
    return f"{v.device} {v.algorithm} read {read} write {write}{users}{depth}{extra}"
