"""How much data there is, and the constants that belong to it (TPC-C 5.11, clauses 1.2 and 2.1.6).

The standard has one parameter, the number of warehouses. `reduced` makes warehouses that are
smaller than the standard's, for tests: what runs on them is no TPC-C.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from harness.errors import BadParameter

DISTRICTS: Final = 10
CUSTOMERS: Final = 3000
ITEMS: Final = 100_000
LINES: Final = (5, 15)
"""Of an order: at least, and at most."""

MOST_WAREHOUSES: Final = 99_999
"""What the stored procedures have room for."""

LAST_NAME_A: Final = 255
CUSTOMER_A: Final = 1023
ITEM_A: Final = 8191
_SYLLABLES: Final = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")
_FORBIDDEN_DELTAS: Final = (96, 112)


@dataclass(frozen=True)
class Scale:
    """Rows: `customers` per district, as many orders, 3 of 10 of them not delivered; `items`.

    Raises BadParameter.
    """

    warehouses: int
    customers: int = CUSTOMERS
    items: int = ITEMS

    def __post_init__(self) -> None:
        if not 1 <= self.warehouses <= MOST_WAREHOUSES:
            raise BadParameter(f"warehouses {self.warehouses}: 1 to {MOST_WAREHOUSES}")
        if not (10 <= self.customers <= CUSTOMERS and self.customers % 10 == 0):
            raise BadParameter(f"customers {self.customers}: a multiple of 10, up to {CUSTOMERS}")
        if not (100 <= self.items <= ITEMS and self.items % 10 == 0):
            raise BadParameter(f"items {self.items}: a multiple of 10, 100 to {ITEMS}")

    @property
    def is_standard(self) -> bool:
        """Whether the warehouses are as large as the standard wants them."""
        return (self.customers, self.items) == (CUSTOMERS, ITEMS)

    @property
    def new_orders(self) -> int:
        """Orders of a district that are not delivered when it is loaded."""
        return self.customers * 3 // 10

    @property
    def delivered_orders(self) -> int:
        """Orders of a district that are delivered when it is loaded: the first ones."""
        return self.customers - self.new_orders

    @property
    def last_names(self) -> int:
        """How many names there are: the first customers have one each (clause 4.3.3.1)."""
        return min(self.customers, 1000)


def reduced(warehouses: int) -> Scale:
    """Warehouses of a hundredth of the standard's size: for tests."""
    return Scale(warehouses, customers=CUSTOMERS // 100, items=ITEMS // 100)


def last_name(number: int) -> str:
    """C_LAST of a number from 0 to 999: a syllable per digit (clause 4.3.2.3)."""
    return "".join(_SYLLABLES[number // unit % 10] for unit in (100, 10, 1))


@dataclass(frozen=True)
class NurandConstants:
    """C of NURand for last names, customers and items (clause 2.1.6)."""

    last_name: int
    customer: int
    item: int


def load_constants(seed: int) -> NurandConstants:
    """For the population; only last names are drawn by NURand there."""
    draw = random.Random(f"tpcc load {seed}")  # noqa: S311 - data, no secret
    return NurandConstants(draw.randint(0, LAST_NAME_A), 0, 0)


def run_constants(seed: int, load: NurandConstants) -> NurandConstants:
    """For a run: the last names' differs from the population's as clause 2.1.6.1 wants it."""
    draw = random.Random(f"tpcc run {seed}")  # noqa: S311
    return NurandConstants(
        draw.choice([c for c in range(LAST_NAME_A + 1) if is_valid_delta(c, load.last_name)]),
        draw.randint(0, CUSTOMER_A),
        draw.randint(0, ITEM_A),
    )


def is_valid_delta(run: int, load: int) -> bool:
    """Whether C-Run may be used after C-Load (clause 2.1.6.1)."""
    delta = abs(run - load)
    return 65 <= delta <= 119 and delta not in _FORBIDDEN_DELTAS
