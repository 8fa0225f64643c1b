"""MS-DJ: TPC-C on ext4's data journal with an SSD stream of its own: table 1, figures 1 and 3 to 5.

On the tiers with a kernel a private MariaDB or MySQL server runs TPC-C on an ext4 whose drive was
aged first; the simulated tier runs a model of InnoDB, ext4, JBD2 and drive at full size.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from harness.dbms import page_writes
from harness.experiments.base import Measurement, Point, Results
from harness.experiments.msdj_tpcc import figures, grid, model, real
from harness.tiers.base import Bench


class MsdjTpcc:
    """The experiment."""

    name = "msdj_tpcc"
    title = "TPC-C on a multi-streamed data journal"
    notebook = "40_msdj_tpcc.ipynb"
    parameters = grid.Parameters
    tiers = ("simulated", "emulated", "hardware")
    code = (
        "dbms/innodb.py",
        "dbms/mysql.py",
        "dbms/page_writes.py",
        "dbms/private.py",
        "dbms/server_memory.py",
        "dbms/watched.py",
        "devices/write_shares.py",
        "probes/places.py",
        "workloads/ageing.py",
        "workloads/tpcc/client.py",
        "workloads/tpcc/driver.py",
        "workloads/tpcc/inputs.py",
        "workloads/tpcc/keys.sql",
        "workloads/tpcc/loading.py",
        "workloads/tpcc/population.py",
        "workloads/tpcc/procedures.sql",
        "workloads/tpcc/scale.py",
        "workloads/tpcc/schema.sql",
    )

    def points(self, parameters: grid.Parameters, bench: Bench) -> Sequence[Point]:
        """The paper's modes with both journals on every drive, and the variants.

        Raises TargetError for a mode that real drives were not given what they need for.
        """
        found = grid.points(parameters, bench.devices)
        for cell in map(grid.Cell.of, found):
            bench.check_placement(cell.device, real.placement(page_writes.find(cell.mode)))
        return found

    def needed_bytes(self, parameters: grid.Parameters, point: Point) -> int:
        """The whole drive, which is aged, or room for the database as it grows."""
        del parameters
        return real.needed_bytes(grid.Cell.of(point))

    def input_digest(self, parameters: grid.Parameters, raw: Path) -> str:
        """The database is made by rules that are in the code."""
        del parameters, raw
        return ""

    def run_point(
        self, point: Point, parameters: grid.Parameters, bench: Bench, raw: Path
    ) -> Measurement:
        """One mode with one journal: ageing, load, warm-up, and the measured interval."""
        cell = grid.Cell.of(point)
        overrides = parameters.overrides_of(cell.variant)
        if bench.models is not None:
            return model.run_point(cell, overrides, bench.models)
        return real.run_point(cell, bench, raw, overrides)

    def figures(self, results: Results) -> dict[str, Figure]:
        """The paper's figures, beside its claims."""
        return figures.draw(results)


EXPERIMENT: Final = MsdjTpcc()
