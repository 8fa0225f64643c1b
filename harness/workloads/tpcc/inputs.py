"""What the emulated users choose: transactions by a deck of cards, and their inputs.

TPC-C 5.11: clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1 and 5.2.4.2.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from harness.workloads.tpcc.scale import (
    CUSTOMER_A,
    DISTRICTS,
    ITEM_A,
    LAST_NAME_A,
    LINES,
    NurandConstants,
    Scale,
    last_name,
)

NEW_ORDER: Final = "new_order"
PAYMENT: Final = "payment"
ORDER_STATUS: Final = "order_status"
DELIVERY: Final = "delivery"
STOCK_LEVEL: Final = "stock_level"
KINDS: Final = (NEW_ORDER, PAYMENT, ORDER_STATUS, DELIVERY, STOCK_LEVEL)
STANDARD_MIX: Final = (45, 43, 4, 4, 4)
"""Cards per kind (clause 5.2.4.1: at least 43, 4, 4, 4 percent of all but New-Order)."""


@dataclass(frozen=True)
class Call:
    """A transaction to be run: its statement, and what of it is counted.

    `lines` of a New-Order and `remote_lines` of them; `is_remote`: a Payment for another
    warehouse's customer; `by_name`: the customer by last name; `rolls_back`: its last item does not
    exist.
    """

    kind: str
    statement: str
    lines: int = 0
    remote_lines: int = 0
    is_remote: bool = False
    by_name: bool = False
    rolls_back: bool = False


class Deck:
    """Cards, drawn without putting back, shuffled anew when there are none (clause 5.2.4.2)."""

    def __init__(self, mix: tuple[int, ...], draw: random.Random) -> None:
        assert len(mix) == len(KINDS)
        self._cards = [kind for kind, count in zip(KINDS, mix, strict=True) for _ in range(count)]
        assert self._cards
        self._left: list[str] = []
        self._random = draw

    def draw(self) -> str:
        """The next kind of transaction."""
        if not self._left:
            self._left = self._cards.copy()
            self._random.shuffle(self._left)
        return self._left.pop()


class User:
    """One emulated user: an endless sequence of calls, the same for the same seed.

    `home`: his warehouse (clause 2.4.1.1) and district; None: both are drawn for each transaction,
    so that few users without think times come to all of the data.
    """

    def __init__(
        self,
        scale: Scale,
        constants: NurandConstants,
        mix: tuple[int, ...],
        seed: str,
        home: tuple[int, int] | None = None,
    ) -> None:
        self._scale = scale
        self._constants = constants
        self._random = random.Random(seed)  # noqa: S311 - a workload, no secret
        self._deck = Deck(mix, self._random)
        self._home = home
        self._calls = {
            NEW_ORDER: self.new_order,
            PAYMENT: self.payment,
            ORDER_STATUS: self.order_status,
            DELIVERY: self.delivery,
            STOCK_LEVEL: self.stock_level,
        }

    def next(self) -> Call:
        """The next transaction."""
        return self._calls[self._deck.draw()]()

    def new_order(self) -> Call:
        """Clause 2.4.1: 5 to 15 lines, 1 % of them remote, 1 % of orders with an unused item."""
        w, d = self._warehouse(), self._district()
        count = self.between(*LINES)
        rolls_back = self.between(1, 100) == 1
        lines = [self._line(number, w) for number in range(1, count + 1)]
        # Stock is locked in one order by everybody. What does not exist comes last in any case.
        last = lines.pop() if rolls_back else None
        lines.sort()
        if last is not None:
            lines.append((last[0], self._scale.items + 1, *last[2:]))
        packed = "".join(f"{n:02}{i:06}{s:06}{q:02}" for s, i, n, q in lines)
        remote = sum(line[0] != w for line in lines)
        return Call(
            NEW_ORDER,
            f"CALL tpcc_new_order({w},{d},{self._customer()},{count},{int(not remote)},'{packed}')",
            lines=count,
            remote_lines=remote,
            rolls_back=rolls_back,
        )

    def _line(self, number: int, home: int) -> tuple[int, int, int, int]:
        """Supplying warehouse, item, number, quantity."""
        item = self.nurand(ITEM_A, 1, self._scale.items, self._constants.item)
        remote = self._scale.warehouses > 1 and self.between(1, 100) == 1
        supply = self._other(home) if remote else home
        return supply, item, number, self.between(1, 10)

    def payment(self) -> Call:
        """Clause 2.5.1: 15 % for a customer of another warehouse, 60 % by last name."""
        w, d = self._warehouse(), self._district()
        is_remote = self._scale.warehouses > 1 and self.between(1, 100) > 85
        c_w, c_d = (self._other(w), self._district()) if is_remote else (w, d)
        number, name = self._customer_or_name()
        cents = self.between(100, 500_000)
        amount = f"{cents // 100}.{cents % 100:02}"
        return Call(
            PAYMENT,
            f"CALL tpcc_payment({w},{d},{c_w},{c_d},{number},'{name}',{amount})",
            is_remote=is_remote,
            by_name=bool(name),
        )

    def order_status(self) -> Call:
        """Clause 2.6.1: 60 % by last name."""
        number, name = self._customer_or_name()
        w, d = self._warehouse(), self._district()
        statement = f"CALL tpcc_order_status({w},{d},{number},'{name}')"
        return Call(ORDER_STATUS, statement, by_name=bool(name))

    def delivery(self) -> Call:
        """Clause 2.7.1, at once rather than from a queue."""
        return Call(DELIVERY, f"CALL tpcc_delivery({self._warehouse()},{self.between(1, 10)})")

    def stock_level(self) -> Call:
        """Clause 2.8.1."""
        w = self._warehouse()
        d = self._home[1] if self._home else self._district()
        return Call(STOCK_LEVEL, f"CALL tpcc_stock_level({w},{d},{self.between(10, 20)})")

    def wait_s(self, mean_s: float) -> float:
        """A think time: negative exponential, cut at ten times its mean (clause 5.2.5.4)."""
        return min(self._random.expovariate(1 / mean_s), 10 * mean_s)

    def between(self, low: int, high: int) -> int:
        """Uniform, both ends included: random.randint, which takes four times as long."""
        return low + int(self._random.random() * (high - low + 1))

    def nurand(self, a: int, low: int, high: int, c: int) -> int:
        """NURand(A, x, y) (clause 2.1.6)."""
        both = self.between(0, a) | self.between(low, high)
        return (both + c) % (high - low + 1) + low

    def _warehouse(self) -> int:
        return self._home[0] if self._home else self.between(1, self._scale.warehouses)

    def _district(self) -> int:
        return self.between(1, DISTRICTS)

    def _other(self, home: int) -> int:
        """A warehouse that is not `home`."""
        other = self.between(1, self._scale.warehouses - 1)
        return other + (other >= home)

    def _customer(self) -> int:
        return self.nurand(CUSTOMER_A, 1, self._scale.customers, self._constants.customer)

    def _customer_or_name(self) -> tuple[int, str]:
        """A number and no name, or 0 and a name."""
        if self.between(1, 100) > 60:
            return self._customer(), ""
        most = self._scale.last_names - 1
        return 0, last_name(self.nurand(LAST_NAME_A, 0, most, self._constants.last_name))
