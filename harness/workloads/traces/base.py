"""What a trace is, whatever its format: chunks of requests, and the checks that all of them pass.

A format's reader yields `Part`s, pieces of any length in the format's own units, each request with
the line that it came from. `chunks` checks them, converts them, and cuts them into equal pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.errors import BadParameter, TraceError

SECTOR_BYTES: Final = 512
"""Unit of `lba` and `sectors`, whatever the device's logical block is."""

COLUMNS: Final[dict[str, np.dtype[Any]]] = {
    "time_ns": np.dtype(np.int64),
    "op": np.dtype(np.uint8),
    "lba": np.dtype(np.int64),
    "sectors": np.dtype(np.int64),
    "stream": np.dtype(np.uint16),
    "fua": np.dtype(np.bool_),
}
"""Name and dtype of each array of a chunk, and of each column of a table."""

OPTIONAL: Final = ("stream", "fua")
"""Columns that a table may lack: 0 and false then."""

_MAX: Final = np.iinfo(np.int64).max


class Op(IntEnum):
    """The operations, numbered as `enum class Op` of core/base/device.hpp."""

    READ = 0
    WRITE = 1
    TRIM = 2
    FLUSH = 3


@dataclass(frozen=True)
class Chunk:
    """Consecutive requests of a trace: equally long 1-D arrays.

    time_ns: int64. Text formats: since the trace's first request. Tables: as they say.
    op: uint8, an `Op`. lba, sectors: int64, in 512-byte sectors; bytes that are not whole sectors
    are rounded outwards, to all sectors that they touch. A flush has neither (0, 0) in text formats
    and no sectors in tables. stream: uint16, 0 where the format has none. fua: bool.
    first_line: 1-based line of the text, or row of the table, of the first request.
    """

    time_ns: NDArray[np.int64]
    op: NDArray[np.uint8]
    lba: NDArray[np.int64]
    sectors: NDArray[np.int64]
    stream: NDArray[np.uint16]
    fua: NDArray[np.bool_]
    first_line: int

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True)
class Part:
    """Some requests in a format's own units: equally long 1-D arrays, see `Units`."""

    line: NDArray[np.int64]
    ticks: NDArray[np.int64]
    op: NDArray[np.uint8]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    stream: NDArray[np.uint16]
    fua: NDArray[np.bool_]

    def __getitem__(self, rows: Any) -> Part:
        """The requests that a slice, a mask or an array of indices selects."""
        return Part(*(getattr(self, field.name)[rows] for field in fields(self)))


def plain_part(
    line: NDArray[np.int64],
    ticks: NDArray[np.int64],
    op: NDArray[np.uint8],
    offset: NDArray[np.int64],
    size: NDArray[np.int64],
) -> Part:
    """Requests of a format that knows neither streams nor FUA."""
    stream = np.zeros(len(line), np.uint16)
    return Part(line, ticks, op, offset, size, stream, np.zeros(len(line), np.bool_))


@dataclass(frozen=True)
class Units:
    """A format's units: the tick of its time, the bytes of an offset and a size.

    `from_first`: count time from the first request.
    """

    tick_ns: int
    offset_bytes: int
    from_first: bool = True


TABLE: Final = Units(tick_ns=1, offset_bytes=SECTOR_BYTES, from_first=False)
"""The units of tables: a chunk's own."""


@dataclass(frozen=True)
class Limits:
    """What the caller of a reader asks for."""

    capacity_bytes: int | None
    chunk_requests: int

    def __post_init__(self) -> None:
        if self.chunk_requests < 1:
            raise BadParameter(f"chunk_requests is {self.chunk_requests}; give at least 1")
        if self.capacity_bytes is not None and self.capacity_bytes < SECTOR_BYTES:
            raise BadParameter(f"capacity_bytes is {self.capacity_bytes}; give at least a sector")

    @property
    def capacity_sectors(self) -> int:
        """Whole sectors of the device; more than any LBA where no capacity is given."""
        return _MAX if self.capacity_bytes is None else self.capacity_bytes // SECTOR_BYTES


def chunks(path: str, parts: Iterable[Part], units: Units, limits: Limits) -> Iterator[Chunk]:
    """Checks, converts and cuts `parts` into chunks of `limits.chunk_requests` (the last: less).

    Raises TraceError at the first request that is wrong, after the chunks that end before it.
    """
    waiting: list[Part] = []
    have, seen = 0, False
    for part in _checked(path, parts, units, limits):
        waiting.append(part)
        have, seen = have + len(part.op), True
        if have >= limits.chunk_requests:
            joined, start = _joined(waiting), 0
            while have - start >= limits.chunk_requests:
                yield _chunk(joined[start : start + limits.chunk_requests])
                start += limits.chunk_requests
            waiting, have = [joined[start:]], have - start
    if have:
        yield _chunk(_joined(waiting))
    elif not seen:
        raise TraceError(path, 1, "no requests in this trace")


def _joined(parts: list[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    return Part(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Part)))


def _chunk(part: Part) -> Chunk:
    # Copies: a slice would keep the whole of the joined parts alive.
    return Chunk(
        time_ns=part.ticks.copy(),
        op=part.op.copy(),
        lba=part.offset.copy(),
        sectors=part.size.copy(),
        stream=part.stream.copy(),
        fua=part.fua.copy(),
        first_line=int(part.line[0]),
    )


def _checked(path: str, parts: Iterable[Part], units: Units, limits: Limits) -> Iterator[Part]:
    """The same requests in nanoseconds and sectors. Raises TraceError."""
    origin: int | None = None if units.from_first else 0
    last = np.zeros(1, np.int64)
    for part in parts:
        if not len(part.op):
            continue
        if origin is None:
            origin = int(part.ticks[0])
            last[0] = origin
        _refuse_first(path, part, _wrong(part, units, limits, origin, last))
        lba, sectors = _in_sectors(part, units)
        time_ns = (part.ticks - origin) * units.tick_ns
        yield Part(part.line, time_ns, part.op, lba, sectors, part.stream, part.fua)
        last = part.ticks[-1:]


def _in_sectors(part: Part, units: Units) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First sector and count, rounded outwards. Wraps where _wrong() says overflow."""
    per_sector = SECTOR_BYTES // units.offset_bytes
    if per_sector == 1:
        return part.offset, part.size
    lba = part.offset // per_sector
    return lba, (part.offset + part.size + (per_sector - 1)) // per_sector - lba


_Wrong: TypeAlias = tuple[NDArray[np.bool_], Callable[[int], str]]
"""Which requests are wrong, and what to say about the one of an index."""


def _wrong(
    part: Part, units: Units, limits: Limits, origin: int, last: NDArray[np.int64]
) -> Iterator[_Wrong]:
    yield from _wrong_times(part, units, origin, last)
    data = part.op != Op.FLUSH
    yield part.op > Op.FLUSH, lambda i: f"op is {part.op[i]}; known: 0 (read) to 3 (flush)"
    yield part.offset < 0, lambda i: f"negative LBA {part.offset[i]}"
    yield data & (part.size == 0), lambda i: f"a {Op(part.op[i]).name.lower()} of size zero"
    yield part.size < 0, lambda i: f"negative size {part.size[i]}"
    yield ~data & (part.size > 0), lambda _: "a flush with sectors; a flush has none"
    beyond = part.offset > _MAX - part.size.clip(min=0) - SECTOR_BYTES
    yield beyond, lambda _: "the request's end does not fit 64 bits"
    lba, sectors = _in_sectors(part, units)
    end, capacity = lba + sectors, limits.capacity_sectors
    yield (
        data & (end > capacity),
        lambda i: f"LBA {end[i] - 1} is past the end of a device of {capacity} sectors",
    )


def _wrong_times(
    part: Part, units: Units, origin: int, last: NDArray[np.int64]
) -> Iterator[_Wrong]:
    before = np.concatenate([last, part.ticks[:-1]])
    yield part.ticks < 0, lambda i: f"negative time {part.ticks[i]}"
    yield (
        part.ticks < before,
        lambda i: f"time runs backwards, from {before[i]} to {part.ticks[i]}; sort the trace",
    )
    longest = _MAX // units.tick_ns
    yield (
        part.ticks - origin > longest,
        lambda i: f"time {part.ticks[i]} does not fit 64 bits in nanoseconds",
    )


def _refuse_first(path: str, part: Part, wrong: Iterable[_Wrong]) -> None:
    """Raises TraceError for the first request that is wrong; the first reason counts."""
    found = [(int(np.argmax(mask)), say) for mask, say in wrong if mask.any()]
    if found:
        row, say = min(found, key=lambda each: each[0])
        raise TraceError(path, int(part.line[row]), say(row))


def column(values: Any, name: str) -> Any:
    """`values` as they are. Raises BadParameter unless they are a 1-D array of the right dtype."""
    wanted = COLUMNS[name]
    if values.dtype != wanted or values.ndim != 1:
        raise BadParameter(f"column {name} is {values.ndim}-D {values.dtype}; make it 1-D {wanted}")
    return values


def table_part(columns: dict[str, NDArray[Any]], first_row: int) -> Part:
    """Rows of a table, with its optional columns filled in; `first_row` is 1-based."""
    rows = len(columns["op"])
    line = np.arange(first_row, first_row + rows, dtype=np.int64)
    zeros = {name: np.zeros(rows, COLUMNS[name]) for name in OPTIONAL}
    full: dict[str, NDArray[Any]] = zeros | columns
    return Part(line, *(full[name] for name in COLUMNS))


def missing_column(present: Iterable[str]) -> str | None:
    """What to say of a table that lacks a column, if it does."""
    missing = [name for name in COLUMNS if name not in set(present) and name not in OPTIONAL]
    return f"column {missing[0]} is missing; a trace has {', '.join(COLUMNS)}" if missing else None
