"""What a plan says that a point writes: all that it does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness import experiments
from harness.experiments.base import Measurement, Point
from harness.experiments.delayed_trim import grid as delayed_trim
from harness.experiments.msdj_tpcc import grid as msdj_tpcc
from harness.paths import find_project
from harness.runs import parameters

MIB = 1 << 20


def points(name: str, grid: Any, device: str) -> list[Point]:
    found: list[Point] = grid.points(parameters.default(find_project(), name, "hardware"), [device])
    return found


def written(name: str, point: Point, **metrics: float) -> int:
    cost = experiments.find(name).cost
    assert cost is not None
    return int(cost(point, Measurement(metrics)).written_bytes)


def test_what_is_trimmed_beside_writes_was_written_before() -> None:
    """`at_once` fills it; alone, TRIMs come after the writes, and are of these."""
    for point in points("delayed_trim", delayed_trim, "ssd"):
        cell = point.cell
        if type(cell) is delayed_trim.AtOnceCell:
            assert written("delayed_trim", point) == cell.written_bytes + cell.trimmed_bytes
        elif type(cell) is delayed_trim.Table1Cell:
            assert written("delayed_trim", point) == cell.written_bytes


def test_a_warm_up_and_the_load_are_written_too() -> None:
    point = points("msdj_tpcc", msdj_tpcc, "ssd")[0]
    cell = msdj_tpcc.Cell.of(point)
    alone = replace(point, cell=replace(cell, warm_up_s=0.0))
    twice = replace(point, cell=replace(cell, warm_up_s=cell.measured_s))
    least = written("msdj_tpcc", alone, host_written_bytes=100 * MIB) - 100 * MIB
    assert least > cell.warehouses * 64 * MIB  # what TPC-C's tables are of one warehouse
    assert written("msdj_tpcc", twice, host_written_bytes=100 * MIB) == least + 200 * MIB
