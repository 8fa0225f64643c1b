"""Block I/O traces: any of the known formats as chunks of arrays, in bounded memory.

    for chunk in traces.read("usr_0.csv.gz", capacity_bytes=250 * 10**9):
        chunk.time_ns, chunk.op, chunk.lba, chunk.sectors   # see base.Chunk

| format | what |
| --- | --- |
| npz, npy | numpy arrays, one per column, or records (`arrays`; in memory: `from_arrays`) |
| parquet | the same columns; `write_parquet` makes them of any trace |
| fio2, fio3 | fio's iolog, version 2 and 3 (`fio_iolog`) |
| blkparse | blkparse's default text (`blkparse`) |
| msr | MSR Cambridge CSV (`msr`) |

Text may be compressed with gzip or zstd. Each module says what its format leaves open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from harness.errors import BadParameter, TraceError, UnknownName
from harness.workloads.traces.arrays import from_arrays, npy_parts, npz_parts
from harness.workloads.traces.base import TABLE, Chunk, Limits, Op, Part, chunks
from harness.workloads.traces.blkparse import LINE, Blkparse
from harness.workloads.traces.fio_iolog import HEADER, FioIolog
from harness.workloads.traces.msr import Msr
from harness.workloads.traces.parquet import parquet_parts, write_parquet
from harness.workloads.traces.text import TextFormat, head

__all__ = ["FORMATS", "Chunk", "Op", "detect", "from_arrays", "read", "write_parquet"]

FORMATS: Final = ("blkparse", "fio2", "fio3", "msr", "npy", "npz", "parquet")
"""Names for `format`."""

_TABLES: Final[Mapping[str, Callable[[str], Iterator[Part]]]] = {
    "npy": npy_parts,
    "npz": npz_parts,
    "parquet": parquet_parts,
}
_HEAD_BYTES = 65_536
_FIRST_BYTES: Final = {b"PAR1": "parquet", b"PK\x03\x04": "npz", b"\x93NUMPY": "npy"}


def read(
    path: str | Path,
    format: str | None = None,  # noqa: A002
    *,
    capacity_bytes: int | None = None,
    chunk_requests: int = 262_144,
    offsets: Mapping[str, int] | None = None,
    event: str | None = None,
    wait: str | None = None,
) -> Iterator[Chunk]:
    """The trace in `path`, in chunks of `chunk_requests` requests (the last may have fewer).

    format: one of FORMATS, or None to look at the content. capacity_bytes: of the device that the
    trace is for; no request may go past it. offsets: for text formats that name several files or
    devices, the byte (a multiple of 512) at which each begins: {file}, {"8,0"} or {"usr_0"}.
    event: blkparse's, see `blkparse`. wait: how fio2's wait lines count, see `fio_iolog`.

    Raises at once UnknownName, BadParameter, or TraceError if the file cannot be read or
    recognised; while iterating TraceError, for the first request that is wrong in the file's order.
    """
    limits, name = Limits(capacity_bytes, chunk_requests), str(path)
    if format is not None and format not in FORMATS:
        raise UnknownName("trace format", format, FORMATS)
    found = format or detect(name)
    _refuse_options(found, {"offsets": offsets, "event": event, "wait": wait})
    if found in _TABLES:
        return chunks(name, _TABLES[found](name), TABLE, limits)
    reader = _text_format(found, offsets, event, wait)
    return chunks(name, reader.parts(name), reader.units, limits)


def detect(path: str | Path) -> str:
    """The format that a file's content has, one of FORMATS. Raises TraceError."""
    start = head(str(path), _HEAD_BYTES)
    for magic, name in _FIRST_BYTES.items():
        if start.startswith(magic):
            return name
    for number, line in enumerate(start.split(b"\n"), start=1):
        if line.strip():
            found = _format_of(line.decode(errors="replace").rstrip("\r"))
            if found:
                return found
            known = ", ".join(FORMATS)
            raise TraceError(str(path), number, f"format not recognised; known: {known}")
    raise TraceError(str(path), 1, "no requests in this trace")


def _format_of(line: str) -> str | None:
    for version, header in HEADER.items():
        if line.rstrip() == header:
            return f"fio{version}"
    if LINE.match(line):
        return "blkparse"
    return "msr" if re.fullmatch(r"[^,]+(,[^,]+){6}", line) else None


def _text_format(
    name: str, offsets: Mapping[str, int] | None, event: str | None, wait: str | None
) -> TextFormat:
    if name == "blkparse":
        return Blkparse(offsets, event)
    if name == "msr":
        return Msr(offsets)
    return FioIolog(2 if name == "fio2" else 3, offsets, wait)


def _refuse_options(name: str, given: Mapping[str, object]) -> None:
    """An option that would be ignored is a mistake."""
    of = {"offsets": ("blkparse", "fio2", "fio3", "msr"), "event": ("blkparse",), "wait": ("fio2",)}
    for option, value in given.items():
        if value is not None and name not in of[option]:
            raise BadParameter(f"{option} means nothing for a {name} trace; leave it out")
