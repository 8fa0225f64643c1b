"""Which pages are written how often: what the real server and the model of it are both asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

TABLES: Final = (
    "warehouse",
    "district",
    "customer",
    "history",
    "new_order",
    "orders",
    "order_line",
    "item",
    "stock",
)
"""The order in which a series has a number for each."""

SHARES: Final = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The most-written pages, as shares of all pages that were written at all."""


def concentration(counts: NDArray[np.float64], shares: Sequence[float]) -> list[float]:
    """The share of all writes that went to the most-written pages, for each share of these."""
    written = np.sort(counts[counts > 0])[::-1]
    if not len(written):
        return []
    sums = np.cumsum(written)
    at = [max(round(share * len(written)), 1) - 1 for share in shares]
    return [float(sums[index] / sums[-1]) for index in at]
