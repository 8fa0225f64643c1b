"""Power cuts under TPC-C: is a data journal as good as InnoDB's doublewrite buffer?

The paper turns the doublewrite buffer off where ext4 journals data. Here TPC-C runs on an emulated
drive whose power is cut at random moments; then ext4 and the server recover, and every page and the
twelve consistency conditions of TPC-C are checked.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from harness.experiments.base import Point, Study
from harness.experiments.msdj_crashes import grid, real


class MsdjCrashes(Study):
    """The experiment."""

    title = "Power cuts under TPC-C: doublewrite buffer or data journal"
    runs = MappingProxyType({"emulated": real.run})
    servers = ("mysql",)

    def needed_bytes(self, parameters: grid.Parameters, point: Point) -> int:
        """The whole drive."""
        del parameters
        return grid.Cell.of(point).device_bytes


EXPERIMENT: Final = MsdjCrashes(grid)
