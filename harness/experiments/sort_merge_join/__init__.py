"""PostgreSQL's sort-merge join with its temporary files on HDD or SSD: the paper's tables 3 to 8.

On the tiers with a kernel a private PostgreSQL server sorts and joins TPC-H tables; the simulated
tier runs a model of its external sort at the paper's full size.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from harness.experiments.base import Measurement, Point, Results
from harness.experiments.sort_merge_join import figures, grid, model, real
from harness.tiers.base import Bench


class SortMergeJoin:
    """The experiment."""

    name = "sort_merge_join"
    title = "PostgreSQL's sort-merge join, temp tablespace on HDD and SSD"
    notebook = "20_sort_merge_join.ipynb"
    parameters = grid.Parameters
    tiers = ("simulated", "emulated", "hardware")
    code = (
        "dbms/postgres.py",
        "dbms/private.py",
        "dbms/server_memory.py",
        "dbms/watched.py",
        "workloads/tpch_tables.py",
    )

    def points(self, parameters: grid.Parameters, bench: Bench) -> Sequence[Point]:
        """The paper's grid, and the what-ifs of the simulated tier."""
        return grid.points(parameters, bench.devices, what_if=bench.tier == "simulated")

    def needed_bytes(self, parameters: grid.Parameters, point: Point) -> int:
        """Room for all clients' temporary files."""
        del parameters
        return real.needed_bytes(grid.Cell.of(point))

    def input_digest(self, parameters: grid.Parameters, raw: Path) -> str:
        """The simulated tables are numbers in the parameters; real ones are made from TPC-H."""
        del parameters, raw
        return ""

    def run_point(
        self, point: Point, parameters: grid.Parameters, bench: Bench, raw: Path
    ) -> Measurement:
        """All clients once, side by side."""
        cell = grid.Cell.of(point)
        if bench.models is not None:
            return model.run_point(cell, parameters, bench.models)
        return real.run_point(cell, bench, raw)

    def figures(self, results: Results) -> dict[str, Figure]:
        """The paper's figure, beside its numbers, and what the variants change."""
        return figures.draw(results)


EXPERIMENT: Final = SortMergeJoin()
