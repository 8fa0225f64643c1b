"""Grace hash join on HDD and SSD with limited buffers: the paper's figures 1, 2 and 3.

The engine is real (harness/core/join) and joins real TPC-H records on every tier; the tier decides
whether its I/O goes to a device model in virtual time or to a file or drive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness import _core
from harness.experiments.base import DriveRole, Measurement, Point, Study
from harness.experiments.grace_hash_join import grid, run
from harness.experiments.grace_hash_join.agreement import AGREEMENT
from harness.experiments.grace_hash_join.benchmarks import BENCHMARKS
from harness.tiers.base import Bench
from harness.workloads.tpch import expected_join, join_inputs


class GraceHashJoin(Study):
    """The experiment."""

    title = "Grace hash join on HDD and SSD"
    runs = MappingProxyType(dict.fromkeys(("simulated", "emulated", "hardware"), run.run))
    roles = tuple(DriveRole(kind, kind == "hdd", min_bytes=4 << 30) for kind in ("hdd", "ssd"))
    room = staticmethod(run.needed_bytes)
    """For both inputs and every user's partitions."""

    def role(self, device: str, *, rotational: bool | None) -> str:
        """The paper has a disk and a flash drive."""
        return device if rotational is None else "hdd" if rotational else "ssd"

    def points(self, parameters: grid.Parameters, bench: Bench) -> Sequence[Point]:
        """Every combination that a figure, a claim or a variant needs, each once.

        Without those that this machine cannot run: on a real kernel depths above 1 take io_uring.
        """
        all_of_them = grid.points(parameters, bench.devices, what_if=bench.tier == "simulated")
        if bench.tier == "simulated" or _core.FileStorage.has_io_uring():
            return all_of_them
        return [point for point in all_of_them if grid.Cell.of(point).queue_depth == 1]

    def batches(self, points: Sequence[Point], tier: str) -> Sequence[Sequence[Point]]:
        """Simulated, those together whose joins do the same. Users are what takes long."""
        if tier != "simulated":
            return super().batches(points, tier)
        return sorted(run.together(points), key=_users, reverse=True)

    def run_batch(
        self, points: Sequence[Point], parameters: grid.Parameters, bench: Bench, raw: Path
    ) -> Iterator[Measurement]:
        """One joins, the others repeat what it did."""
        return run.run_together(points, parameters, bench, raw)

    def input_digest(self, parameters: grid.Parameters, raw: Path) -> str:
        """Digest of the TPC-H records. Joins them, too, once and before any point needs it."""
        inputs = join_inputs(raw, parameters.scale)
        expected_join(raw, inputs)
        return inputs.digest


def _users(points: Sequence[Point]) -> int:
    return sum(grid.Cell.of(point).users for point in points)


EXPERIMENT: Final = GraceHashJoin(grid, agreement=AGREEMENT, benchmarks=BENCHMARKS)
