"""The journal: every finished point, durably, so that nothing that has finished runs again.

One line of JSON per point, appended and synced; a line that was cut short by a crash is recognised
by its checksum and dropped. Traces are written beside the journal before the line that names them,
under its key: the same point under other code, another profile or drive has others.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from harness.system.files import told, write_atomically

_PLAIN: Final = ("key", "point", "values", "metrics", "series", "trace", "block_trace", "about")


@dataclass(frozen=True)
class Entry:
    """A finished point. `about` says when, where and in how many seconds it was run.

    `trace`, `block_trace`: whether its own requests, and the kernel's block requests, are recorded.
    """

    key: str
    point: str
    values: Mapping[str, Any]
    metrics: Mapping[str, Any]
    series: Mapping[str, list[float]]
    trace: bool
    about: Mapping[str, Any]
    block_trace: bool = False

    def is_sound(self) -> bool:
        """Whether every field is of its kind: what was read from a file may be anything."""
        mappings = (self.values, self.metrics, self.series, self.about)
        return (
            isinstance(self.key, str)
            and isinstance(self.point, str)
            and isinstance(self.trace, bool)
            and isinstance(self.block_trace, bool)
            and all(isinstance(each, dict) for each in mappings)
        )


class Journal:
    """The finished points of one experiment on one tier, kept in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "journal.jsonl"

    def check_writable(self) -> None:
        """Raises DataFolderError if nothing could be recorded here. Makes the folder."""
        with told(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            probe = self._folder / f".writable-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()

    @contextlib.contextmanager
    def alone(self, wait: Callable[[str], None]) -> Iterator[None]:
        """Nobody else works on this journal while the block runs; makes the folder.

        `wait` is told who does now (such as "process 7"), if one has to wait for it. Whoever is
        killed is in nobody's way. Raises DiskFull, DataFolderError.
        """
        self.check_writable()
        with contextlib.ExitStack() as stack:
            with told(self._folder):
                lock = stack.enter_context((self._folder / "lock").open("a+b", buffering=0))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    lock.seek(0)
                    wait(lock.read().decode(errors="replace") or "another process")
                    fcntl.flock(lock, fcntl.LOCK_EX)
                lock.truncate(0)
                lock.write(f"process {os.getpid()}".encode())
            yield

    def entries(self) -> dict[str, Entry]:
        """Finished points by key. A damaged line, one of another version, or one of whose traces
        one is gone, does not count.
        """
        if not self._file.is_file():
            return {}
        lines = self._file.read_text(encoding="utf-8", errors="replace").splitlines()
        found = (_parse(line) for line in lines)
        return {e.key: e for e in found if e and all(p.is_file() for p in self.traces(e).values())}

    def append(self, entry: Entry, trace: Mapping[str, NDArray[np.generic]]) -> None:
        """Records a point: its trace first, then the line that makes it count."""
        with told(self._folder):
            if trace:
                _write_trace(self.trace_path(entry.key), trace)
            self._append_line(_format(entry))

    def trace_path(self, key: str) -> Path:
        """Where a finished point's trace lies."""
        return self._folder / f"{key}.parquet"

    def block_trace_path(self, key: str) -> Path:
        """Where the kernel's block requests of a finished point lie."""
        return self._folder / f"{key}.block.parquet"

    def traces(self, entry: Entry) -> dict[str, Path]:
        """Those that a finished point has, by what they are called where it is published."""
        found = {}
        if entry.trace:
            found[f"{entry.point}.parquet"] = self.trace_path(entry.key)
        if entry.block_trace:
            found[f"{entry.point}.block.parquet"] = self.block_trace_path(entry.key)
        return found

    def keep_block_trace(self, key: str, recorded: Path) -> None:
        """Takes a recorded file over, before the line that makes the point count.

        It may lie on another file system.
        """
        part = self._folder / f".{key}.block.part"
        with told(self._folder):
            shutil.move(recorded, part)
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.replace(self.block_trace_path(key))

    def _append_line(self, line: str) -> None:
        with self._file.open("a+b") as file:
            # A line that a crash has cut short must not swallow this one.
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _write_trace(path: Path, trace: Mapping[str, NDArray[np.generic]]) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({name: pa.array(column) for name, column in trace.items()})
    encodings = {name: "DELTA_BINARY_PACKED" for name in trace if trace[name].dtype.itemsize >= 4}
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, column_encoding=encodings)
    write_atomically(path, sink.getvalue().to_pybytes())


def _format(entry: Entry) -> str:
    body = json.dumps({name: getattr(entry, name) for name in _PLAIN}, sort_keys=True)
    return f"{zlib.crc32(body.encode()):08x} {body}"


def _parse(line: str) -> Entry | None:
    checksum, _, body = line.partition(" ")
    if checksum != f"{zlib.crc32(body.encode()):08x}":
        return None
    try:
        entry = Entry(**json.loads(body))
    except (ValueError, TypeError, RecursionError):  # another version's, or nobody's
        return None
    return entry if entry.is_sound() else None
