"""Text traces: blocks of lines, split into tokens and read as numbers by array operations.

No line is looked at by Python code of its own, except one that is wrong, to say what is wrong.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.errors import BadParameter, TraceError
from harness.workloads.traces.base import SECTOR_BYTES, Part, Units

BLOCK_BYTES: Final = 1 << 20
"""Text read at once. Also the longest line: what has none shorter is no text trace."""

_FRONT, _BACK = 40, 8  # bytes around a block's text, so that no word is read past its ends
_MAX: Final = np.iinfo(np.int64).max
_SHOWN_CHARACTERS = 80

_MAGIC: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}

_U64 = np.uint64
# Of an 8-byte little-endian word: the first n bytes, and the last n.
_FIRST = np.array([(1 << 8 * n) - 1 for n in range(9)], _U64)
_LAST = np.array([((1 << 8 * n) - 1) << 8 * (8 - n) for n in range(9)], _U64)
_ZEROS = _U64(0x3030303030303030)

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


def word(text: str) -> np.uint64:
    """A token of at most 8 characters as `Block.words` has it."""
    return _U64(int.from_bytes(text.encode(), "little"))


@dataclass(frozen=True)
class Block:
    """Whole lines of a text, split into tokens.

    starts, ends: int64, half-open range of each token in `text`. first: int64, index of each line's
    first token; one more than there are lines. first_line: 1-based number of the first line.
    """

    text: NDArray[np.uint8]
    starts: Rows
    ends: Rows
    first: Rows
    first_line: int
    _words: NDArray[np.uint64]

    @property
    def counts(self) -> Rows:
        """Tokens of each line."""
        return np.diff(self.first)

    @property
    def lines(self) -> int:
        """Number of lines."""
        return len(self.first) - 1

    def token(self, rows: Rows, index: int) -> Rows:
        """The token at `index` of each line in `rows`, which all have so many."""
        return self.first[rows] + index

    def words(self, tokens: Rows, skip: int = 0) -> NDArray[np.uint64]:
        """uint64: each token's bytes in file order from `skip` on; 0 if these are more than 8."""
        start = self.starts[tokens] + skip
        length = self.ends[tokens] - start
        found: NDArray[np.uint64] = self._words[start + _FRONT] & _FIRST[length.clip(0, 8)]
        found[length > 8] = 0
        return found

    def at(self, positions: Rows) -> NDArray[np.uint8]:
        """The bytes at positions of the text, possibly some before its start."""
        return (self._words[positions + _FRONT] & _U64(0xFF)).astype(np.uint8)

    def integers(self, tokens: Rows) -> tuple[NDArray[np.int64], Mask]:
        """Tokens of decimal digits as int64, and which of them are that and fit."""
        return self.integers_between(self.starts[tokens], self.ends[tokens])

    def integers_between(self, starts: Rows, ends: Rows) -> tuple[NDArray[np.int64], Mask]:
        """The same of ranges of the text."""
        length = ends - starts
        longest = int(length.max(initial=0))
        value, good = self._eight_digits(ends, length)
        scale = 1
        for done in (8, 16):
            scale *= 10**8
            if longest > done:
                more, fine = self._eight_digits(ends - done, length - done)
                value = value + more * _U64(scale)
                good = good & fine
        # At most 19 digits: the sum has not wrapped.
        good = good & (length > 0) & (length <= 19) & (value <= _U64(_MAX))
        return value.astype(np.int64), good

    def _eight_digits(self, ends: Rows, length: Rows) -> tuple[NDArray[np.uint64], Mask]:
        """The number in the last 8 digits (or fewer) before `ends`: pairs, fours, then all."""
        keep = _LAST[length.clip(0, 8)]
        digits = (self._words[ends - 8 + _FRONT] & keep) ^ (_ZEROS & keep)
        not_digit = ((digits + _U64(0x7676767676767676)) | digits) & _U64(0x8080808080808080)
        pairs = digits * _U64(10) + (digits >> _U64(8))
        low = (pairs & _U64(0x000000FF000000FF)) * _U64(0x000F424000000064)
        high = ((pairs >> _U64(16)) & _U64(0x000000FF000000FF)) * _U64(0x0000271000000001)
        return (low + high) >> _U64(32), not_digit == 0

    def equal(self, starts: Rows, ends: Rows, name: bytes) -> Mask:
        """Which ranges of the text read `name`."""
        same: Mask = ends - starts == len(name)
        rows = np.flatnonzero(same)
        for skip in range(0, len(name), 8):
            piece = name[skip : skip + 8]
            found = self._words[starts[rows] + (_FRONT + skip)] & _FIRST[len(piece)]
            same[rows] &= found == _U64(int.from_bytes(piece, "little"))
        return same

    def line(self, row: int) -> str:
        """A line as text, without its end."""
        ends = np.flatnonzero(self.text == ord("\n"))
        start = int(ends[row - 1]) + 1 if row else 0
        return bytes(self.text[start : int(ends[row])]).decode(errors="replace").rstrip("\r")

    def part_of(self, start: int, end: int) -> str:
        """A range of the text."""
        return bytes(self.text[start:end]).decode(errors="replace")


def lex(data: bytes, first_line: int, separator: str) -> Block:
    """Splits whole lines at `separator`: a space (any white space, however much) or a comma."""
    buffer = np.zeros(_FRONT + len(data) + _BACK, np.uint8)
    text = buffer[_FRONT : _FRONT + len(data)]
    text[:] = np.frombuffer(data, np.uint8)
    inside = np.zeros(len(data) + 1, np.bool_)
    if separator == " ":
        np.greater(text, ord(" "), out=inside[1:])
    else:
        np.not_equal(text, ord(separator), out=inside[1:])
        inside[1:] &= (text != ord("\n")) & (text != ord("\r"))
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    starts, ends = edges[0::2], edges[1::2]
    line_ends = np.flatnonzero(text == ord("\n"))
    first = np.concatenate([np.zeros(1, np.int64), np.searchsorted(starts, line_ends)])
    words = np.ndarray((len(buffer) - 7,), "<u8", buffer, strides=(1,))
    return Block(text, starts, ends, first, first_line, words)


def open_text(path: str) -> Any:
    """A readable stream of a text's bytes, decompressed if it is gzip or zstd (pyarrow)."""
    try:
        with pa.OSFile(path) as file:
            start = file.read(4)
        for magic, codec in _MAGIC.items():
            if start.startswith(magic):
                return pa.CompressedInputStream(pa.OSFile(path), codec)
        return pa.OSFile(path)
    except OSError as error:
        raise TraceError(path, 1, f"cannot be read: {reason(error)}") from None


def reason(error: OSError) -> str:
    """Why the operating system, or a decompressor, refused: one line."""
    return os.strerror(error.errno) if error.errno else str(error).splitlines()[0]


def head(path: str, size: int) -> bytes:
    """The first bytes of a file, decompressed. Raises TraceError."""
    with open_text(path) as stream:
        return _read(stream, size, path, 1)


def _read(stream: Any, size: int, path: str, line: int) -> bytes:
    try:
        return bytes(stream.read(size))
    except OSError as error:  # a damaged or cut compressed file, too
        raise TraceError(path, line, f"cannot be read on: {reason(error)}") from None


def blocks(path: str, separator: str) -> Iterator[Block]:
    """A text in blocks of whole lines. Raises TraceError."""
    rest, line = b"", 1
    with open_text(path) as stream:
        while data := _read(stream, BLOCK_BYTES, path, line):
            whole, newline, tail = data.rpartition(b"\n")
            if newline:
                block = lex(rest + whole + newline, line, separator)
                yield block
                rest, line = tail, line + block.lines
            else:
                rest += tail
            if len(rest) > BLOCK_BYTES:
                raise TraceError(path, line, f"a line of more than {BLOCK_BYTES} bytes: no trace")
    if rest:
        yield lex(rest + b"\n", line, separator)


class Names:
    """The files or devices that a trace names, and where each begins in the address space.

    Without a mapping a trace may name one only, which begins at 0.
    """

    def __init__(self, kind: str, offsets: Mapping[str, int] | None, unit_bytes: int) -> None:
        for name, offset in (offsets or {}).items():
            if offset < 0 or offset % SECTOR_BYTES or offset > _MAX:
                raise BadParameter(f"offset of {name} is {offset}; give a multiple of 512 bytes")
        self._kind, self._given = kind, offsets is not None
        named = (offsets or {}).items()
        self._units = {name.encode(): offset // unit_bytes for name, offset in named}

    def bases(self, block: Block, starts: Rows, ends: Rows) -> tuple[NDArray[np.int64], Mask]:
        """Where the files of these names begin, in units, and which names are known."""
        if not self._given and not self._units and len(starts):
            self._units[bytes(block.text[int(starts[0]) : int(ends[0])])] = 0
        base = np.zeros(len(starts), np.int64)
        known = np.zeros(len(starts), np.bool_)
        for name, units in self._units.items():
            same = block.equal(starts, ends, name)
            known |= same
            if units:
                base[same] = units
            if known.all():
                break
        return base, known

    def problem(self, name: str) -> str | None:
        """What to say about a name, if it is not known."""
        if name.encode() in self._units:
            return None
        known = ", ".join(each.decode(errors="replace") for each in self._units)
        if self._given:
            return f"{self._kind} {shown(name)} is not in offsets, which has {known or 'none'}"
        return f"a second {self._kind}, {shown(name)} after {known}; say where each begins: offsets"


def shifted(offset: NDArray[np.int64], base: NDArray[np.int64]) -> NDArray[np.int64]:
    """Their sum, or the largest number where it does not fit, which is then refused."""
    return np.where(offset > _MAX - base, _MAX, offset + base)


def shown(text: str) -> str:
    """A piece of a trace for a message: one line, quoted, of bounded length."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "...")


def number_problem(what: str, token: str) -> str | None:
    """What to say about a token that should be a number of 64 bits, not negative."""
    if re.fullmatch(r"-[0-9]+", token):
        return f"{what} is negative: {shown(token)}"
    if not re.fullmatch(r"[0-9]+", token):
        return f"{what} is not a whole number: {shown(token)}"
    return None if len(token) <= 19 and int(token) <= _MAX else f"{what} does not fit 64 bits"


class TextFormat(ABC):
    """A text format: how a block becomes requests, and what a line's mistake is. Has state."""

    separator: str = " "
    units: Units

    @abstractmethod
    def parse(self, block: Block) -> tuple[Part, Mask]:
        """The requests of a block, and which of its lines are malformed.

        Requests from malformed lines on may be anything.
        """

    @abstractmethod
    def problem(self, line: str) -> str:
        """What is wrong with a malformed line."""

    def parts(self, path: str) -> Iterator[Part]:
        """The requests of a file. Raises TraceError at its first malformed line."""
        for block in blocks(path, self.separator):
            part, malformed = self.parse(block)
            if not malformed.any():
                yield part
                continue
            row = int(np.argmax(malformed))
            yield part[part.line < block.first_line + row]
            raise TraceError(path, block.first_line + row, self.problem(block.line(row)))
