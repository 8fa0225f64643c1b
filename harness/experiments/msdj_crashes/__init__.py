"""Power cuts under TPC-C: is a data journal as good as InnoDB's doublewrite buffer?

The paper turns the doublewrite buffer off where ext4 journals data. Here TPC-C runs on an emulated
drive whose power is cut at random moments; then ext4 and the server recover, and every page and the
twelve consistency conditions of TPC-C are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from matplotlib.figure import Figure

from harness.experiments.base import Point, Results, Study
from harness.experiments.msdj_crashes import figures, grid, real
from harness.tiers.base import Bench


class MsdjCrashes(Study):
    """The experiment."""

    name = "msdj_crashes"
    title = "Power cuts under TPC-C: doublewrite buffer or data journal"
    notebook = "40_msdj_tpcc.ipynb"
    parameters = grid.Parameters
    runs = MappingProxyType({"emulated": real.run})

    def points(self, parameters: grid.Parameters, bench: Bench) -> Sequence[Point]:
        """Batches of cuts for each mode."""
        return grid.points(parameters, bench.devices)

    def needed_bytes(self, parameters: grid.Parameters, point: Point) -> int:
        """The whole drive."""
        del parameters
        return grid.Cell.of(point).device_bytes

    def figures(self, results: Results) -> dict[str, Figure]:
        """What was damaged, and what was seen on the way."""
        return figures.draw(results)


EXPERIMENT: Final = MsdjCrashes()
