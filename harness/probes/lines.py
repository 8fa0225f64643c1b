"""What bpftrace prints, taken apart: rows, totals, losses. Pure functions of bytes, in chunks."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv

_ROW_BYTES: Final = b"0123456789,-\n"
_LOST: Final = re.compile(rb"[Ll]ost (?:event count: )?(\d+)")
_MAP: Final = re.compile(r"@(\w+)(?:\[([^\]]*)\])?: (.*)")
_NUMBER: Final = re.compile(r"-?\d+")
_BLOCK_BYTES: Final = 1 << 20

Entry = tuple[list[int], list[int]]
"""Of a map: the numbers of the key, and those of the value."""


class Output(ABC):
    """What a script prints, taken as it comes: gives back the rows, remembers everything else.

    lost: events that bpftrace said it lost. totals: the script's scalar maps. notes: lines that are
    none of what is known. bad: lines that look like rows and are not. ready, ended: the script's
    first and last line were seen.
    """

    def __init__(self) -> None:
        self._rest = b""
        self.lost = 0
        self.bad = 0
        self.ready = False
        self.ended = False
        self.totals: dict[str, int] = {}
        self.notes: list[str] = []

    @abstractmethod
    def feed(self, data: bytes) -> Iterator[list[pa.Array]]:
        """The rows of all lines that are whole now: a list of int64 columns per piece."""

    @abstractmethod
    def close(self) -> Iterator[list[pa.Array]]:
        """What was left without an end of line."""

    @abstractmethod
    def per_key(self, name: str) -> Sequence[Entry]:
        """A map with keys: (key numbers, value numbers) of each entry."""

    @abstractmethod
    def rows_printed(self) -> int | None:
        """How many rows the script says it printed; None if it prints none."""


class Lines(Output):
    """Rows as lines of numbers with commas, maps as bpftrace prints them.

    entries: the script's maps with keys, as `per_key` gives them.
    """

    def __init__(self, fields: int) -> None:
        super().__init__()
        self._names = [f"f{i}" for i in range(fields)]
        self.entries: dict[str, list[Entry]] = {}

    def feed(self, data: bytes) -> Iterator[list[pa.Array]]:
        """In pieces of at most some size."""
        text = self._rest + data
        end = text.rfind(b"\n") + 1
        self._rest = text[end:]
        for first in range(0, end, _BLOCK_BYTES):
            # A line may cross the cut: it is moved to the piece in which it ends.
            start = text.rfind(b"\n", 0, first) + 1 if first else 0
            last = text.rfind(b"\n", 0, min(first + _BLOCK_BYTES, end)) + 1
            if last > start:
                yield from self._piece(text[start:last])

    def close(self) -> Iterator[list[pa.Array]]:
        """A last line."""
        rest, self._rest = self._rest, b""
        if rest:
            yield from self._piece(rest + b"\n")

    def per_key(self, name: str) -> Sequence[Entry]:
        """In the order in which they were printed."""
        return self.entries.get(name, [])

    def rows_printed(self) -> int | None:
        """A map that nobody added to is not printed."""
        return self.totals.get("rows", 0)

    def _piece(self, text: bytes) -> Iterator[list[pa.Array]]:
        if text.translate(None, _ROW_BYTES):
            text = self._rows_only(text)
        if not text.strip(b"\n"):
            return
        try:
            yield self._columns(text)
        except pa.ArrowInvalid:
            whole = b"".join(line + b"\n" for line in text.split(b"\n") if self._is_row(line))
            if whole:
                yield self._columns(whole)

    def _columns(self, text: bytes) -> list[pa.Array]:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text),
            read_options=pyarrow.csv.ReadOptions(column_names=self._names, use_threads=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(self._names, pa.int64())
            ),
        )
        return [table[name].combine_chunks() for name in self._names]

    def _is_row(self, line: bytes) -> bool:
        if not line:
            return False
        shape = rb"(-?\d*,){%d}-?\d*" % (len(self._names) - 1)
        good = re.fullmatch(shape, line) is not None and all(map(_is_held, line.split(b",")))
        self.bad += not good
        return good

    def _rows_only(self, text: bytes) -> bytes:
        rows = []
        for line in text.split(b"\n"):
            if not line.translate(None, _ROW_BYTES):
                rows.append(line)
            elif lost := _LOST.search(line):
                self.lost += int(lost[1])
                self.bad += lost.start() > 0 and b"," in line[: lost.start()]
            else:
                self._note(line.decode(errors="replace"))
        return b"\n".join(rows)

    def _note(self, line: str) -> None:
        if line == "ready":
            self.ready = True
        elif line == "end":
            self.ended = True
        elif (found := _MAP.fullmatch(line)) and (values := _NUMBER.findall(found[3])):
            numbers = [int(n) for n in values]
            if found[2] is None:
                self.totals[found[1]] = numbers[0]
            else:
                keys = [int(n) for n in _NUMBER.findall(found[2])]
                self.entries.setdefault(found[1], []).append((keys, numbers))
        else:
            self.notes.append(line)


class JsonMaps(Output):
    """The same of a script that prints its maps as JSON at its end, and no rows.

    histograms: name to key text to a list of (from, to, count). maps: name to key text to number,
    or numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.maps: dict[str, dict[str, Any]] = {}
        self.histograms: dict[str, dict[str, list[tuple[int, int, int]]]] = {}

    def feed(self, data: bytes) -> Iterator[list[pa.Array]]:
        """There are never rows in it."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in filter(None, whole):
            self._line(line)
        yield from ()

    def close(self) -> Iterator[list[pa.Array]]:
        """A last line."""
        yield from self.feed(b"\n")

    def per_key(self, name: str) -> Sequence[Entry]:
        """In the order in which they were printed."""
        return [
            ([int(n) for n in key.split(",")], [int(n) for n in _listed(value)])
            for key, value in self.maps.get(name, {}).items()
        ]

    def rows_printed(self) -> int | None:
        """None."""
        return None

    def _line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            kind, data = message["type"], message.get("data")
        except (ValueError, KeyError, TypeError, AttributeError):
            lost = _LOST.search(line)
            self.lost += int(lost[1]) if lost else 0
            self.notes.append(line.decode(errors="replace"))
            return
        if kind == "lost_events":
            # Newer ones (seen: 0.27) say it without `data`.
            self.lost += int(data["events"] if data else message["count"])
        elif kind == "value":
            self.ready = self.ready or data == "ready"
        elif kind == "printf":
            self.ended = self.ended or data == "end\n"
        elif kind == "hist":
            for name, values in data.items():
                self.histograms[name.removeprefix("@")] = {
                    key: [(int(b.get("min", 0)), int(b.get("max", 0)), int(b["count"])) for b in of]
                    for key, of in values.items()
                }
        elif kind == "map":
            self._map(data)

    def _map(self, data: dict[str, Any]) -> None:
        for name, value in data.items():
            if isinstance(value, dict):
                self.maps[name.removeprefix("@")] = value
            else:
                self.totals[name.removeprefix("@")] = int(value)


def _is_held(field: bytes) -> bool:
    """Whether a row's field is nothing or fits into 64 bits with a sign, as times and places do."""
    return not field.strip(b"-") or -(1 << 63) <= int(field) < 1 << 63


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
