"""TRIM and fallocate under PostgreSQL's hash join: the paper's figures 2 and 4 to 10.

On the tiers with a kernel a private PostgreSQL server joins TPC-H tables on an ext4 that ages, its
temporary files preallocated or not; the simulated tier runs a model of server, ext4 and drive at
the paper's full size.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from harness.experiments.base import Measurement, Point, Results
from harness.experiments.trim_fallocate import figures, grid, model, real
from harness.tiers.base import Bench


class TrimFallocate:
    """The experiment."""

    name = "trim_fallocate"
    title = "TRIM x fallocate under PostgreSQL's hash join"
    notebook = "30_trim_fallocate_matrix.ipynb"
    parameters = grid.Parameters
    tiers = ("simulated", "emulated", "hardware")
    code = (
        "dbms/postgres.py",
        "dbms/private.py",
        "dbms/server_memory.py",
        "dbms/temp_files.py",
        "dbms/watched.py",
        "probes/extents.py",
        "workloads/tpch_tables.py",
    )

    def points(self, parameters: grid.Parameters, bench: Bench) -> Sequence[Point]:
        """The matrix on every drive, and the variants."""
        return grid.points(parameters, bench.devices)

    def needed_bytes(self, parameters: grid.Parameters, point: Point) -> int:
        """Room for all temporary files of one repetition."""
        del parameters
        return real.needed_bytes(grid.Cell.of(point))

    def input_digest(self, parameters: grid.Parameters, raw: Path) -> str:
        """The simulated tables are numbers in the code; real ones are made from TPC-H."""
        del parameters, raw
        return ""

    def run_point(
        self, point: Point, parameters: grid.Parameters, bench: Bench, raw: Path
    ) -> Measurement:
        """All repetitions of one cell, on one drive and one file system."""
        cell = grid.Cell.of(point)
        if bench.models is not None:
            return model.run_point(cell, parameters.overrides_of(cell.variant), bench.models)
        return real.run_point(cell, bench, raw)

    def figures(self, results: Results) -> dict[str, Figure]:
        """The paper's figures, beside its claims."""
        return figures.draw(results)


EXPERIMENT: Final = TrimFallocate()
