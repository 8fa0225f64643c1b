"""MSR Cambridge block I/O traces (SNIA IOTTA repository, the trace set's README).

    Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime

Timestamp and ResponseTime are Windows file times, in ticks of 100 ns; Offset and Size are bytes;
Type is Read or Write. The traces themselves have no line of column names; one is skipped. The
response time is what the traced system took, and is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from harness.workloads.traces import text
from harness.workloads.traces.base import Op, Part, Units, plain_part

COLUMNS: Final = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime"
_FIELDS = 7
_TYPES: Final = {"read": Op.READ, "write": Op.WRITE}
_LOWER_CASE = text.word(" " * 8)  # the bit by which ASCII's cases differ
_UNKNOWN = 9


class Msr(text.TextFormat):
    """The reader of one trace. A disk is named HOSTNAME_DISKNUMBER in `offsets`."""

    separator = ","
    units = Units(tick_ns=100, offset_bytes=1)

    def __init__(self, offsets: Mapping[str, int] | None) -> None:
        named = None if offsets is None else {_as_written(k): v for k, v in offsets.items()}
        self._names = text.Names("disk", named, unit_bytes=1)

    def parse(self, block: text.Block) -> tuple[Part, text.Mask]:
        """See TextFormat."""
        shaped = _has_seven_fields(block)
        malformed = ~shaped & ~_is_blank(block)
        if block.first_line == 1 and block.line(0).lower().startswith("timestamp,"):
            malformed[0] = shaped[0] = False
        rows = np.flatnonzero(shaped)
        first = block.first[rows]
        kind = block.words(first + 3) | _LOWER_CASE
        op = np.full(len(rows), _UNKNOWN, np.uint8)
        for name, code in _TYPES.items():
            op[kind == text.word(name.ljust(8))] = code
        ticks, good = block.integers(first)
        offset, fine = block.integers(first + 4)
        size, also = block.integers(first + 5)
        _, response = block.integers(first + 6)
        _, disk = block.integers(first + 2)
        base, known = self._names.bases(block, block.starts[first + 1], block.ends[first + 2])
        malformed[rows] |= ~(good & fine & also & response & disk & known & (op != _UNKNOWN))
        line = rows + block.first_line
        return plain_part(line, ticks, op, text.shifted(offset, base), size), malformed

    def problem(self, line: str) -> str:
        """See TextFormat."""
        fields = line.split(",")
        if len(fields) != _FIELDS or not all(fields):
            return f"malformed line {text.shown(line)}; wanted: {COLUMNS}"
        found = None
        for name, field in zip(COLUMNS.split(","), fields, strict=True):
            if name == "Type" and field.lower() not in _TYPES:
                found = found or f"Type is {text.shown(field)}; known: Read, Write"
            elif name not in ("Hostname", "Type"):
                found = found or text.number_problem(name, field)
        return (
            found or self._names.problem(",".join(fields[1:3])) or f"malformed {text.shown(line)}"
        )


def _as_written(disk: str) -> str:
    host, _, number = disk.rpartition("_")
    return f"{host},{number}"


def _is_blank(block: text.Block) -> text.Mask:
    line_ends = np.flatnonzero(block.text == ord("\n"))
    length = np.diff(line_ends, prepend=-1) - 1
    bare: text.Mask = (length == 0) | ((length == 1) & (block.at(line_ends - 1) == ord("\r")))
    return bare


def _has_seven_fields(block: text.Block) -> text.Mask:
    """Lines of seven fields, none of them empty: one comma between each two, none around."""
    shaped: text.Mask = block.counts == _FIELDS
    rows = np.flatnonzero(shaped)
    first: text.Rows = block.first[rows]
    line_ends = np.flatnonzero(block.text == ord("\n"))
    line_starts = np.concatenate([np.zeros(1, np.int64), line_ends[:-1] + 1])
    end = block.ends[first + _FIELDS - 1]
    good = block.starts[first] == line_starts[rows]
    good &= block.at(end) != ord(",")
    for field in range(_FIELDS - 1):
        good &= block.starts[first + field + 1] - block.ends[first + field] == 1
    shaped[rows] = good
    return shaped
