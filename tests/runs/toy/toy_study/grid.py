"""The grid: a depth after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from harness.experiments import base
from harness.experiments.base import Point, points_of


class Parameters(BaseModel):
    """`depths`: requests at a time."""

    model_config = ConfigDict(extra="forbid")

    scale: str = "paper"
    depths: list[int] = [1, 8]


@dataclass(frozen=True, kw_only=True)
class Cell(base.Cell):
    """Reads at a depth."""

    variant: str
    queue_depth: int


def points(parameters: Parameters, devices: Sequence[str]) -> list[Point]:
    cells = [
        Cell(device=device, variant="paper", queue_depth=depth)
        for device in devices
        for depth in parameters.depths
    ]
    return points_of(cells, lambda cell: f"{cell.device} depth {cell.queue_depth}")
