"""fio's iolog, versions 2 and 3 (fio's HOWTO, "Trace file format v2" and "v3").

    fio version 2 iolog               fio version 3 iolog
    FILE add|open|close               TIME FILE add|open|close
    FILE ACTION OFFSET LENGTH         TIME FILE ACTION OFFSET LENGTH

Bytes; ACTION is read, write, trim, sync, datasync, and in version 2 wait. `sync` and `datasync`
are flushes; their offset and length mean nothing.

Version 3's TIME is in microseconds since the job's start: the manual names no unit, fio 3.33
writes these, and it replays them so.

Version 2 has no time but `wait`, and the manual and fio differ on it. fio's manual says that OFFSET
is microseconds since the previous wait. fio itself waits until OFFSET milliseconds after its start,
and no longer at all if that is past (fio 3.33, and its maintainers in fio's issues 247 and 756).
Traces are made for what fio does, so that is the default; `wait="previous-us"` is the manual's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import UnknownName
from harness.workloads.traces import text
from harness.workloads.traces.base import Op, Part, Units, plain_part

HEADER: Final = {2: "fio version 2 iolog", 3: "fio version 3 iolog"}
WAITS: Final = {"start-ms": 1_000_000, "previous-us": 1_000}
"""Ways to read version 2's wait lines, and the tick of each in nanoseconds."""

_WAIT, _FILE, _UNKNOWN = 10, 11, 12
_REQUESTS: Final = {
    "read": Op.READ,
    "write": Op.WRITE,
    "trim": Op.TRIM,
    "sync": Op.FLUSH,
    "datasync": Op.FLUSH,
}
_FILES: Final = ("add", "open", "close")


class FioIolog(text.TextFormat):
    """The reader of one iolog."""

    def __init__(self, version: int, offsets: Mapping[str, int] | None, wait: str | None) -> None:
        wait = wait or "start-ms"
        if wait not in WAITS:
            raise UnknownName("wait", wait, WAITS)
        self._timed = version == 3
        self._header = HEADER[version]
        self._lead = 1 if self._timed else 0  # tokens before the file's name
        self._names = text.Names("file", offsets, unit_bytes=1)
        self._relative = wait == "previous-us"
        self._now = 0
        self.units = Units(tick_ns=1_000 if self._timed else WAITS[wait], offset_bytes=1)

    def parse(self, block: text.Block) -> tuple[Part, text.Mask]:
        """See TextFormat."""
        counts = block.counts
        malformed = (counts != 0) & (counts != self._lead + 2) & (counts != self._lead + 4)
        if block.first_line == 1:
            malformed[0] = block.line(0).rstrip() != self._header
            counts[0] = 0
        rows = np.flatnonzero((counts == self._lead + 2) | (counts == self._lead + 4))
        action = self._actions(block, rows, counts)
        malformed[rows] |= action == _UNKNOWN
        base, known = self._bases(block, rows)
        malformed[rows] |= ~known & (action != _WAIT)
        offset, size, good = self._numbers(block, rows, action)
        ticks, in_time = self._ticks(block, rows, action, offset)
        malformed[rows] |= ~(good & in_time)
        is_request = action <= Op.FLUSH
        data = action < Op.FLUSH
        offset = np.where(data, text.shifted(offset, base), 0)
        line, op = rows + block.first_line, action.astype(np.uint8)
        return plain_part(line, ticks, op, offset, size * data)[is_request], malformed

    def _actions(self, block: text.Block, rows: text.Rows, counts: text.Rows) -> NDArray[np.int64]:
        """What each line does: an Op, _WAIT, _FILE or _UNKNOWN."""
        words = block.words(block.token(rows, self._lead + 1))
        action = np.full(len(rows), _UNKNOWN)
        long = counts[rows] == self._lead + 4
        for name, op in _REQUESTS.items():
            action[long & (words == text.word(name))] = op
        if not self._timed:
            action[long & (words == text.word("wait"))] = _WAIT
        if not long.all():
            for name in _FILES:
                action[~long & (words == text.word(name))] = _FILE
        return action

    def _bases(self, block: text.Block, rows: text.Rows) -> tuple[NDArray[np.int64], text.Mask]:
        names = block.token(rows, self._lead)
        return self._names.bases(block, block.starts[names], block.ends[names])

    def _numbers(
        self, block: text.Block, rows: text.Rows, action: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], text.Mask]:
        """Offset and length where the line has them."""
        has = action <= _WAIT
        if has.all():
            where: slice | text.Rows = slice(None)
        else:
            where = np.flatnonzero(has)
        offset, size = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        good = np.ones(len(rows), np.bool_)
        offset[where], fine = block.integers(block.token(rows[where], self._lead + 2))
        size[where], also = block.integers(block.token(rows[where], self._lead + 3))
        good[where] = fine & also
        return offset, size, good

    def _ticks(
        self,
        block: text.Block,
        rows: text.Rows,
        action: NDArray[np.int64],
        offset: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], text.Mask]:
        """Time of each line, and which of the times fit."""
        if self._timed:
            return block.integers(block.token(rows, 0))
        waits = np.concatenate([np.full(1, self._now), np.where(action == _WAIT, offset, 0)])
        ticks = (np.cumsum if self._relative else np.maximum.accumulate)(waits)
        if len(rows):
            self._now = int(ticks[-1])
        return ticks[1:], ticks[1:] >= ticks[:-1]

    def problem(self, line: str) -> str:
        """See TextFormat."""
        tokens = line.split()
        if line.startswith("fio version") or len(tokens) not in (self._lead + 2, self._lead + 4):
            return self._shape(line)
        found = text.number_problem("timestamp", tokens[0]) if self._timed else None
        name, action, *numbers = tokens[self._lead :]
        allowed = self._allowed() if numbers else _FILES
        if action not in allowed:
            found = (
                found or f"unknown action {text.shown(action)}; known here: {', '.join(allowed)}"
            )
        elif action != "wait":
            found = found or self._names.problem(name)
        for what, number in zip(("offset", "length"), numbers, strict=False):
            found = found or text.number_problem(what, number)
        return found or "the waits add up to a time that does not fit 64 bits"

    def _allowed(self) -> tuple[str, ...]:
        return (*_REQUESTS,) if self._timed else (*_REQUESTS, "wait")

    def _shape(self, line: str) -> str:
        time = "timestamp " if self._timed else ""
        wanted = f"{time}file action [offset length] below {self._header!r}"
        return f"malformed line {text.shown(line)}; wanted: {wanted}"
