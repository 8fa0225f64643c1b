"""MS-DJ: TPC-C on ext4's data journal with an SSD stream of its own: table 1, figures 1 and 3 to 5.

On the tiers with a kernel a private MariaDB or MySQL server runs TPC-C on an ext4 whose drive was
aged first; the simulated tier runs a model of InnoDB, ext4, JBD2 and drive at full size.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from harness.dbms import page_writes
from harness.experiments.base import Cost, DriveRole, Measurement, Point, Study
from harness.experiments.msdj_tpcc import grid, model, real
from harness.experiments.msdj_tpcc.agreement import AGREEMENT
from harness.experiments.msdj_tpcc.benchmarks import BENCHMARKS
from harness.experiments.msdj_tpcc.elsewhere import ELSEWHERE
from harness.tiers.base import Bench


class MsdjTpcc(Study):
    """The experiment."""

    title = "TPC-C on a multi-streamed data journal"
    runs = MappingProxyType({"simulated": model.run, "emulated": real.run, "hardware": real.run})
    servers = ("mysql",)
    roles = (
        DriveRole(
            "ssd",
            rotational=False,
            min_bytes=4 << 30,
            with_fdp=", with the journal on a second FDP namespace (hardware/msdj)",
        ),
    )
    elsewhere = ELSEWHERE
    room = staticmethod(real.drive_bytes)
    """The whole drive, which is aged, or room for the database as it grows; of a drive as large as
    the grid's, not a byte more."""

    def points(self, parameters: grid.Parameters, bench: Bench) -> Sequence[Point]:
        """The paper's modes with both journals on every drive, and the variants.

        Raises TargetError for a mode that real drives were not given what they need for.
        """
        least = grid.OF_MODELS if bench.models else real.LEAST
        found = grid.points(parameters, bench.devices, least)
        for cell in map(grid.Cell.of, found):
            bench.check_placement(cell.device, real.placement(page_writes.find(cell.mode)))
        return found

    def cost(self, point: Point, expected: Measurement) -> Cost:
        """What the model's host wrote, in the warm-up as often, and the load before; the intervals
        are given.
        """
        v = point.values
        measured_s, warm_up_s = float(v["measured_s"]), float(v["warm_up_s"])
        written = int(expected.metrics["host_written_bytes"]) * (1 + warm_up_s / measured_s)
        # Pages are loaded twice: into a journal or doublewrite buffer, and home.
        loaded = grid.room_bytes(int(v["warehouses"]), 0, 0)
        return Cost(loaded + round(written), measured_s + warm_up_s)


EXPERIMENT: Final = MsdjTpcc(grid, agreement=AGREEMENT, benchmarks=BENCHMARKS)
