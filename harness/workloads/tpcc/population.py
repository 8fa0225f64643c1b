"""The initial rows of a table and warehouse (TPC-C 5.11, clause 4.3.3.1), from a seed.

Columns stand in the order of schema.sql. Where the standard picks a tenth of the rows at random,
exactly a tenth is picked. Dates are a parameter, so that the same seed gives the same bytes.

Arrow's arrays are made from buffers here: other ways import pandas, which takes longer than a small
population.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.workloads.tpcc.scale import (
    DISTRICTS,
    LAST_NAME_A,
    LINES,
    NurandConstants,
    Scale,
    last_name,
    load_constants,
)

Ints = NDArray[np.int64]

_LETTERS: Final = np.frombuffer(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", np.uint8
)
_DIGITS: Final = _LETTERS[:10]
_CAPITALS: Final = _LETTERS[-26:]
_ORIGINAL: Final = np.frombuffer(b"ORIGINAL", np.uint8)
_NULL: Final = "\\N"


@dataclass(frozen=True)
class Population:
    """What is loaded: how much, from which seed, populated when ('2025-01-31 12:00:00')."""

    scale: Scale
    seed: int = 1
    populated_at: str = "2025-01-01 00:00:00"

    @property
    def constants(self) -> NurandConstants:
        """C-Load (clause 2.1.6.1)."""
        return load_constants(self.seed)

    def rows(self, table: str, warehouse: int) -> pa.Table:
        """All rows of a warehouse in a table; ITEM has warehouse 0."""
        names = list(TABLES)
        rng = np.random.default_rng([self.seed, names.index(table), warehouse])
        return TABLES[table](self, warehouse, rng)

    def order_lines_of(self, warehouse: int) -> Ints:
        """O_OL_CNT of a warehouse's orders: ORDER and ORDER-LINE have to agree on it."""
        rng = np.random.default_rng([self.seed, len(TABLES), warehouse])
        return rng.integers(*LINES, DISTRICTS * self.scale.customers, endpoint=True)


def nurand(rng: np.random.Generator, a: int, low: int, high: int, c: int, count: int) -> Ints:
    """NURand(A, x, y) of clause 2.1.6, `count` times."""
    both = rng.integers(0, a + 1, count) | rng.integers(low, high + 1, count)
    return (both + c) % (high - low + 1) + low


def strings(
    rng: np.random.Generator,
    count: int,
    low: int,
    high: int,
    characters: NDArray[np.uint8] = _LETTERS,
    original: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Random strings of `low` to `high` characters; those of `original` hold ORIGINAL somewhere."""
    lengths = rng.integers(low, high + 1, count)
    ends = np.cumsum(lengths)
    offsets = np.zeros(count + 1, np.int32)
    offsets[1:] = ends
    text = _characters(rng, int(ends[-1]), characters)
    if original is not None:
        room = lengths[original] - len(_ORIGINAL) + 1
        places = offsets[:-1][original] + (rng.random(len(room)) * room).astype(np.int64)
        text[places[:, None] + np.arange(len(_ORIGINAL))] = _ORIGINAL
    return _string_array(offsets, text)


def _characters(
    rng: np.random.Generator, count: int, known: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Drawn two at a time, which takes a third of the time."""
    pairs = (known[:, None].astype(np.uint16) | known[None, :].astype(np.uint16) << 8).ravel()
    drawn = rng.integers(0, len(pairs), (count + 1) // 2, dtype=np.uint16)
    return pairs.take(drawn, mode="clip").view(np.uint8)[:count]


def a_tenth(rng: np.random.Generator, count: int) -> NDArray[np.bool_]:
    """A mask of exactly a tenth of the rows, at random."""
    mask = np.zeros(count, np.bool_)
    mask[rng.permutation(count)[: count // 10]] = True
    return mask


def _chosen(texts: Sequence[str], numbers: NDArray[np.integer[Any]]) -> pa.Array:
    """One of the texts per row, by its number."""
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    known = _string_array(offsets, np.frombuffer("".join(texts).encode(), np.uint8))
    return known.take(_array(numbers.astype(np.int64)))


def _fixed(text: str, count: int) -> pa.Array:
    return _chosen([text], np.zeros(count, np.int64))


def _string_array(offsets: NDArray[np.int32], text: NDArray[np.uint8]) -> pa.Array:
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text))


def _array(values: NDArray[Any]) -> pa.Array:
    kind = pa.float64() if values.dtype == np.float64 else pa.int64()
    assert values.dtype in (np.float64, np.int64)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _ratio(rng: np.random.Generator, count: int, most: float) -> NDArray[np.float64]:
    """Four decimals, from 0 to `most`."""
    return rng.integers(0, round(most * 10_000) + 1, count) / 10_000


def _address(rng: np.random.Generator, count: int) -> list[pa.Array]:
    """Two streets, city, state, zip (clause 4.3.2.7)."""
    streets = [strings(rng, count, 10, 20) for _ in range(3)]
    state = strings(rng, count, 2, 2, _CAPITALS)
    zips = np.full((count, 9), ord("1"), np.uint8)
    zips[:, :4] = _DIGITS[rng.integers(0, 10, (count, 4))]
    offsets = np.arange(0, 9 * count + 1, 9, dtype=np.int32)
    return [*streets, state, _string_array(offsets, zips.ravel())]


def _item(p: Population, warehouse: int, rng: np.random.Generator) -> pa.Table:
    del warehouse
    n = p.scale.items
    return _table(
        np.arange(1, n + 1),
        rng.integers(1, 10_001, n),
        strings(rng, n, 14, 24),
        rng.integers(100, 10_001, n) / 100,
        strings(rng, n, 26, 50, original=a_tenth(rng, n)),
    )


def _warehouse(p: Population, warehouse: int, rng: np.random.Generator) -> pa.Table:
    ytd = 10.0 * DISTRICTS * p.scale.customers
    name = strings(rng, 1, 6, 10)
    number, total = np.array([warehouse]), np.array([ytd])
    return _table(number, name, *_address(rng, 1), _ratio(rng, 1, 0.2), total)


def _district(p: Population, warehouse: int, rng: np.random.Generator) -> pa.Table:
    n = DISTRICTS
    return _table(
        np.arange(1, n + 1),
        np.full(n, warehouse),
        strings(rng, n, 6, 10),
        *_address(rng, n),
        _ratio(rng, n, 0.2),
        np.full(n, 10.0 * p.scale.customers),
        np.full(n, p.scale.customers + 1),
    )


def _stock(p: Population, warehouse: int, rng: np.random.Generator) -> pa.Table:
    n = p.scale.items
    return _table(
        np.arange(1, n + 1),
        np.full(n, warehouse),
        rng.integers(10, 101, n),
        *(strings(rng, n, 24, 24) for _ in range(DISTRICTS)),
        *(np.zeros(n, np.int64) for _ in range(3)),
        strings(rng, n, 26, 50, original=a_tenth(rng, n)),
    )


def _customer(p: Population, warehouse: int, rng: np.random.Generator) -> pa.Table:
    each = p.scale.customers
    n = DISTRICTS * each
    bad = a_tenth(rng, n)
    names = [last_name(number) for number in range(p.scale.last_names)]
    return _table(
        np.tile(np.arange(1, each + 1), DISTRICTS),
        np.repeat(np.arange(1, DISTRICTS + 1), each),
        np.full(n, warehouse),
        strings(rng, n, 8, 16),
        _fixed("OE", n),
        _chosen(names, _name_numbers(p, rng)),
        *_address(rng, n),
        strings(rng, n, 16, 16, _DIGITS),
        _fixed(p.populated_at, n),
        _chosen(["GC", "BC"], bad.astype(np.int64)),
        np.full(n, 50_000.0),
        _ratio(rng, n, 0.5),
        np.full(n, -10.0),
        np.full(n, 10.0),
        np.full(n, 1),
        np.full(n, 0),
        strings(rng, n, 300, 500),
    )


def _name_numbers(p: Population, rng: np.random.Generator) -> Ints:
    """The first customers of a district have one name each, the others by NURand."""
    names, each = p.scale.last_names, p.scale.customers
    first = np.tile(np.arange(names), (DISTRICTS, 1))
    others = nurand(
        rng, LAST_NAME_A, 0, names - 1, p.constants.last_name, DISTRICTS * (each - names)
    )
    return np.hstack([first, others.reshape(DISTRICTS, each - names)]).ravel()


def _history(p: Population, warehouse: int, rng: np.random.Generator) -> pa.Table:
    each = p.scale.customers
    n = DISTRICTS * each
    district = np.repeat(np.arange(1, DISTRICTS + 1), each)
    return _table(
        np.tile(np.arange(1, each + 1), DISTRICTS),
        district,
        np.full(n, warehouse),
        district,
        np.full(n, warehouse),
        _fixed(p.populated_at, n),
        np.full(n, 10.0),
        strings(rng, n, 12, 24),
    )


def _orders(p: Population, warehouse: int, rng: np.random.Generator) -> pa.Table:
    each = p.scale.customers
    n = DISTRICTS * each
    number = np.tile(np.arange(1, each + 1), DISTRICTS)
    carriers = np.where(number <= p.scale.delivered_orders, rng.integers(1, 11, n), 0)
    return _table(
        number,
        np.repeat(np.arange(1, DISTRICTS + 1), each),
        np.full(n, warehouse),
        np.concatenate([rng.permutation(each) + 1 for _ in range(DISTRICTS)]),
        _fixed(p.populated_at, n),
        _chosen([_NULL, *map(str, range(1, 11))], carriers),
        p.order_lines_of(warehouse),
        np.full(n, 1),
    )


def _new_order(p: Population, warehouse: int, rng: np.random.Generator) -> pa.Table:
    del rng
    each = p.scale.new_orders
    return _table(
        np.tile(np.arange(p.scale.delivered_orders + 1, p.scale.customers + 1), DISTRICTS),
        np.repeat(np.arange(1, DISTRICTS + 1), each),
        np.full(DISTRICTS * each, warehouse),
    )


def _order_line(p: Population, warehouse: int, rng: np.random.Generator) -> pa.Table:
    each = p.scale.customers
    lines = p.order_lines_of(warehouse)
    n = int(lines.sum())
    order = np.repeat(np.tile(np.arange(1, each + 1), DISTRICTS), lines)
    first = np.repeat(np.cumsum(lines) - lines, lines)
    delivered = order <= p.scale.delivered_orders
    return _table(
        order,
        np.repeat(np.repeat(np.arange(1, DISTRICTS + 1), each), lines),
        np.full(n, warehouse),
        np.arange(n) - first + 1,
        rng.integers(1, p.scale.items + 1, n),
        np.full(n, warehouse),
        _chosen([_NULL, p.populated_at], delivered.astype(np.int64)),
        np.full(n, 5),
        np.where(delivered, 0, rng.integers(1, 1_000_000, n)) / 100,
        strings(rng, n, 24, 24),
    )


def _table(*columns: pa.Array | NDArray[Any]) -> pa.Table:
    arrays = [_array(each) if isinstance(each, np.ndarray) else each for each in columns]
    return pa.Table.from_arrays(arrays, names=[str(number) for number in range(len(arrays))])


TABLES: Final[dict[str, Callable[[Population, int, np.random.Generator], pa.Table]]] = {
    "item": _item,
    "warehouse": _warehouse,
    "district": _district,
    "stock": _stock,
    "customer": _customer,
    "history": _history,
    "orders": _orders,
    "new_order": _new_order,
    "order_line": _order_line,
}
"""Each table's rows; a table that is named later is loaded later."""
