"""PostgreSQL's sort-merge join with its temporary files on HDD or SSD: the paper's tables 3 to 8.

On the tiers with a kernel a private PostgreSQL server sorts and joins TPC-H tables; the simulated
tier runs a model of its external sort at the paper's full size.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import pandas as pd

from harness.experiments.base import DriveRole, Point, Results, Study
from harness.experiments.sort_merge_join import grid, model, published, real
from harness.experiments.sort_merge_join.agreement import AGREEMENT
from harness.experiments.sort_merge_join.benchmarks import BENCHMARKS
from harness.experiments.sort_merge_join.calibrate import CALIBRATION
from harness.paths import Project
from harness.tiers.base import Bench


class SortMergeJoin(Study):
    """The experiment."""

    title = "PostgreSQL's sort-merge join, temp tablespace on HDD and SSD"
    runs = MappingProxyType({"simulated": model.run, "emulated": real.run, "hardware": real.run})
    servers = ("postgres",)
    roles = tuple(DriveRole(kind, kind == "hdd", min_bytes=4 << 30) for kind in ("hdd", "ssd"))
    room = staticmethod(real.needed_bytes)
    """For all clients' temporary files."""

    def role(self, device: str, *, rotational: bool | None) -> str:
        """The paper has a disk and a flash drive."""
        return device if rotational is None else "hdd" if rotational else "ssd"

    def points(self, parameters: grid.Parameters, bench: Bench) -> Sequence[Point]:
        """The paper's grid, and the what-ifs of the simulated tier."""
        return grid.points(parameters, bench.devices, what_if=bench.tier == "simulated")

    def published_cells(self, results: Results, project: Project) -> pd.DataFrame:
        """Times in s by device, clients and work_mem, beside tables 3 to 6."""
        seen = published.calibration(project.params)
        cells = published.beside(results.table, project.published, seen)
        return cells.set_index(["device", "clients", "work_mem_mb"])


EXPERIMENT: Final = SortMergeJoin(
    grid, agreement=AGREEMENT, calibration=CALIBRATION, benchmarks=BENCHMARKS
)
