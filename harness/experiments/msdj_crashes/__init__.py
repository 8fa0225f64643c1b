"""Power cuts under TPC-C: is a data journal as good as InnoDB's doublewrite buffer?

The paper turns the doublewrite buffer off where ext4 journals data. Here TPC-C runs on an emulated
drive whose power is cut at random moments; then ext4 and the server recover, and every page and the
twelve consistency conditions of TPC-C are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from harness.experiments.base import Measurement, Point, Results
from harness.experiments.msdj_crashes import figures, grid, real
from harness.tiers.base import Bench
from harness.tiers.emulated import EmulatedBench


class MsdjCrashes:
    """The experiment."""

    name = "msdj_crashes"
    title = "Power cuts under TPC-C: doublewrite buffer or data journal"
    notebook = "40_msdj_tpcc.ipynb"
    parameters = grid.Parameters
    tiers = ("emulated",)
    code = (
        "dbms/innodb.py",
        "dbms/mysql.py",
        "dbms/page_writes.py",
        "dbms/private.py",
        "system/filesystems.py",
        "probes/decoding.py",
        "probes/probe.py",
        "probes/recorder.py",
        "probes/scripts/page_commits.bt",
        "probes/scripts/page_commits.py",
        "workloads/tpcc/client.py",
        "workloads/tpcc/consistency.py",
        "workloads/tpcc/driver.py",
        "workloads/tpcc/inputs.py",
        "workloads/tpcc/loading.py",
        "workloads/tpcc/population.py",
        "workloads/tpcc/procedures.sql",
        "workloads/tpcc/scale.py",
        "workloads/tpcc/schema.sql",
    )

    def points(self, parameters: grid.Parameters, bench: Bench) -> Sequence[Point]:
        """Batches of cuts for each mode."""
        return grid.points(parameters, bench.devices)

    def needed_bytes(self, parameters: grid.Parameters, point: Point) -> int:
        """The whole drive."""
        del parameters
        return int(point.values["device_bytes"])

    def input_digest(self, parameters: grid.Parameters, raw: Path) -> str:
        """The database is loaded anew for each batch, from its seed."""
        del parameters, raw
        return ""

    def run_point(
        self, point: Point, parameters: grid.Parameters, bench: Bench, raw: Path
    ) -> Measurement:
        """A batch of cuts of one mode."""
        del parameters
        assert isinstance(bench, EmulatedBench)
        return real.run_point(point.values, bench, raw)

    def figures(self, results: Results) -> dict[str, Figure]:
        """What was damaged, and what was seen on the way."""
        return figures.draw(results)


EXPERIMENT: Final = MsdjCrashes()
