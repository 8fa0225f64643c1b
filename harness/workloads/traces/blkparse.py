"""blkparse's text in its default format (blkparse(1), "DEFAULT OUTPUT" and "RWBS DESCRIPTION").

    MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS SECTOR + SECTORS [COMMAND]

Requests are the events of one ACTION: "Q" (default), what reached the block layer and when, before
it merged and queued; "D", what was issued to the drive; "C", what the drive completed, at that
time. Others are skipped, and so are packet commands, messages, and the summary at the end.

In RWBS an F before the operation is a flush that goes before it, an F behind it is FUA. A write
with both is two requests here, as it is to the drive: the flush, then the write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import UnknownName
from harness.workloads.traces import text
from harness.workloads.traces.base import SECTOR_BYTES, Op, Part, Units

EVENTS: Final = ("Q", "D", "C")
LINE: Final = re.compile(r"\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d{9}\s+\d+\s+[A-Za-z]{1,2}\s")
"""How a line of the default format begins."""

_SHAPE = "device cpu sequence seconds.nanoseconds pid action rwbs [sector + sectors] [command]"
_ACTIONS: Final = (*"ABCDFGIMPQRSTUXm", "UT")
_LEAD = 7  # tokens up to RWBS
_LONGEST_S = np.iinfo(np.int64).max // 10**9 - 1
_OPERATIONS: Final = {"R": Op.READ, "W": Op.WRITE, "D": Op.TRIM}
_NONE = 9


class Blkparse(text.TextFormat):
    """The reader of one text. A device is named MAJOR,MINOR in `offsets`."""

    units = Units(tick_ns=1, offset_bytes=SECTOR_BYTES)

    def __init__(self, offsets: Mapping[str, int] | None, event: str | None) -> None:
        self._event = event or "Q"
        if self._event not in EVENTS:
            raise UnknownName("event", self._event, EVENTS)
        self._names = text.Names("device", offsets, unit_bytes=SECTOR_BYTES)
        self._in_summary = False

    def parse(self, block: text.Block) -> tuple[Part, text.Mask]:
        """See TextFormat."""
        counts = block.counts
        rows = np.flatnonzero(counts >= _LEAD)
        action = block.words(block.token(rows, 5))
        known = [text.word(each) for each in _ACTIONS]
        good = np.isin(action, known) & self._has_time(block, rows)
        malformed = counts > 0
        malformed[rows] = ~good
        summary = self._summary(block, malformed)
        # An event there is of a second text: nothing may vanish silently.
        malformed[summary:] = False
        malformed[rows[good & (rows >= summary)]] = True
        rows = rows[good & (rows < summary) & (action == text.word(self._event))]
        part, wrong = self._requests(block, rows, counts)
        malformed[rows] |= wrong
        return part, malformed

    def _summary(self, block: text.Block, malformed: text.Mask) -> int:
        """The line at which the summary begins, or the number of lines."""
        if self._in_summary:
            return 0
        if malformed.any():
            row = int(np.argmax(malformed))
            self._in_summary = block.line(row).startswith(("CPU", "Total ("))
            if self._in_summary:
                return row
        return block.lines

    def _has_time(self, block: text.Block, rows: text.Rows) -> text.Mask:
        time = block.token(rows, 3)
        dot = block.ends[time] - 10
        good: text.Mask = (dot > block.starts[time]) & (block.at(dot) == ord("."))
        return good

    def _requests(
        self, block: text.Block, rows: text.Rows, counts: text.Rows
    ) -> tuple[Part, text.Mask]:
        """The requests that the given events are, and which of the events are malformed."""
        code, flushes, fua = _operations(block.words(block.token(rows, 6)))
        ticks, wrong = self._times(block, rows)
        extent = counts[rows] > _LEAD + 2
        extent[extent] = block.words(block.token(rows[extent], 8)) == text.word("+")
        packet = ~extent & (counts[rows] > _LEAD + 1)
        packet[packet] = block.at(block.starts[block.token(rows[packet], 8)]) == ord("(")
        code[packet | (flushes & ~extent)] = _NONE
        flushes &= ~packet
        offset, size = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        has = np.flatnonzero(extent)
        offset[has], good = block.integers(block.token(rows[has], 7))
        size[has], fine = block.integers(block.token(rows[has], 9))
        wrong[has] |= ~(good & fine)
        wrong |= ~extent & (code != _NONE)
        device = block.token(rows, 0)
        base, known = self._names.bases(block, block.starts[device], block.ends[device])
        wrong |= ~known
        offset = text.shifted(offset, base)
        stream = np.zeros(len(rows), np.uint16)
        part = Part(rows + block.first_line, ticks, code, offset, size, stream, fua)
        return _with_flushes(part, flushes), wrong

    def _times(self, block: text.Block, rows: text.Rows) -> tuple[NDArray[np.int64], text.Mask]:
        """Nanoseconds, and which of them are none."""
        time = block.token(rows, 3)
        starts, ends = block.starts[time], block.ends[time]
        seconds, good = block.integers_between(starts, ends - 10)
        fraction, fine = block.integers_between(ends - 9, ends)
        return seconds * 10**9 + fraction, ~(good & fine & (seconds <= _LONGEST_S))

    def problem(self, line: str) -> str:
        """See TextFormat."""
        tokens = line.split()
        if self._in_summary and LINE.match(line):
            return "an event after blkparse's summary; give each text a file of its own"
        if len(tokens) < _LEAD or not re.fullmatch(r"[^.]+\.[^.]{9}", tokens[3]):
            return f"malformed line {text.shown(line)}; wanted: {_SHAPE}"
        if tokens[5] not in _ACTIONS:
            return f"unknown action {text.shown(tokens[5])}; known: {', '.join(_ACTIONS)}"
        seconds, _, fraction = tokens[3].partition(".")
        found = text.number_problem("time", seconds) or text.number_problem("time", fraction)
        if not found and int(seconds) > _LONGEST_S:
            found = f"time {seconds} s does not fit 64 bits in nanoseconds"
        found = found or self._names.problem(tokens[0])
        if not found and tokens[8:9] == ["+"]:
            found = text.number_problem("sector", tokens[7])
            found = found or text.number_problem("sectors", (*tokens, "")[9])
        return found or f"malformed line {text.shown(line)}; wanted: {_SHAPE}"


def _with_flushes(part: Part, flushes: text.Mask) -> Part:
    """A flush of its own before each request that asks for one; requests of no operation go."""
    data = part.op != _NONE
    if not flushes.any():
        return part if data.all() else part[data]
    copies = flushes.astype(np.int64) + data
    both = part[np.repeat(np.arange(len(copies)), copies)]
    flush_at = (np.cumsum(copies) - copies)[flushes]
    for array in (both.offset, both.size):
        array[flush_at] = 0
    both.op[flush_at] = Op.FLUSH
    both.fua[flush_at] = False
    return both


def _operations(rwbs: NDArray[np.uint64]) -> tuple[NDArray[np.uint8], text.Mask, text.Mask]:
    """Op (or _NONE) of each RWBS word, whether a flush goes before it, whether it is FUA."""
    op = np.full(len(rwbs), _NONE, np.uint8)
    flushes, fua = np.zeros(len(rwbs), np.bool_), np.zeros(len(rwbs), np.bool_)
    left = np.arange(len(rwbs))
    while len(left):  # once per distinct word, of which there are a few
        code = rwbs[left[0]]
        same = rwbs[left] == code
        letters = int(code).to_bytes(8, "little").rstrip(b"\0").decode("latin-1")
        rest = letters.removeprefix("F")
        where, left = left[same], left[~same]
        op[where] = _OPERATIONS.get(rest[:1], _NONE)
        flushes[where] = rest != letters
        fua[where] = "F" in rest[1:]
    return op, flushes, fua
