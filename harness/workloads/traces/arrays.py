"""Traces as numpy arrays: in memory, as .npz of one array per column, as .npy of records.

Columns are those of `base.COLUMNS`, of exactly these dtypes; `stream` and `fua` may be missing.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.errors import BadParameter, TraceError
from harness.workloads.traces.base import (
    COLUMNS,
    TABLE,
    Chunk,
    Limits,
    Part,
    chunks,
    column,
    missing_column,
    table_part,
)

_PIECE_ROWS: Final = 65_536

Columns = dict[str, NDArray[Any]]


def from_arrays(
    columns: Mapping[str, NDArray[Any]],
    *,
    name: str = "arrays",
    capacity_bytes: int | None = None,
    chunk_requests: int = 262_144,
) -> Iterator[Chunk]:
    """A trace in memory, checked and cut like any other; `name` stands for its path in errors.

    columns: 1-D arrays of the names and dtypes of `base.COLUMNS`.
    Raises BadParameter at once, and TraceError.
    """
    limits = Limits(capacity_bytes, chunk_requests)
    present = _checked_columns(name, dict(columns))
    return chunks(name, _pieces(present), TABLE, limits)


def npz_parts(path: str) -> Iterator[Part]:
    """The rows of an .npz, read piece by piece (numpy.load would read it whole)."""
    try:
        with zipfile.ZipFile(path) as archive, ExitStack() as open_members:
            names = [name for name in COLUMNS if f"{name}.npy" in archive.namelist()]
            _refuse(path, missing_column(names))
            members = {n: open_members.enter_context(archive.open(f"{n}.npy")) for n in names}
            rows = _equal_rows(path, {n: _header(path, n, file) for n, file in members.items()})
            for start in range(0, rows, _PIECE_ROWS):
                count = min(_PIECE_ROWS, rows - start)
                piece = {n: _values(path, n, file, count, start) for n, file in members.items()}
                yield table_part(piece, start + 1)
    except (OSError, zipfile.BadZipFile, EOFError) as error:
        raise TraceError(path, 1, f"cannot be read as .npz: {error}") from None


def npy_parts(path: str) -> Iterator[Part]:
    """The rows of an .npy of records with fields named like the columns."""
    try:
        records = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise TraceError(path, 1, f"cannot be read as .npy: {error}") from None
    if not records.dtype.names:
        raise TraceError(path, 1, f"an array of {records.dtype}; make it one of records")
    yield from _pieces(
        _checked_columns(path, {n: records[n] for n in COLUMNS if n in records.dtype.names})
    )


def _refuse(path: str, problem: str | None, row: int = 1) -> None:
    if problem:
        raise TraceError(path, row, problem)


def _checked_columns(path: str, columns: Columns) -> Columns:
    _refuse(path, missing_column(columns))
    present = {name: columns[name] for name in COLUMNS if name in columns}
    for name, values in present.items():
        try:
            column(values, name)
        except BadParameter as error:
            raise TraceError(path, 1, str(error)) from None
    _equal_rows(path, {name: len(values) for name, values in present.items()})
    return present


def _equal_rows(path: str, rows: dict[str, int]) -> int:
    """The number of rows, of which all columns have the same. The row of the error lacks one."""
    shortest = min(rows, key=lambda name: rows[name])
    if max(rows.values()) != rows[shortest]:
        raise TraceError(path, rows[shortest] + 1, f"column {shortest} ends before the others")
    return rows[shortest]


def _pieces(columns: Columns) -> Iterator[Part]:
    for start in range(0, len(columns["op"]), _PIECE_ROWS):
        piece = {name: np.array(a[start : start + _PIECE_ROWS]) for name, a in columns.items()}
        yield table_part(piece, start + 1)


def _header(path: str, name: str, file: IO[bytes]) -> int:
    """Rows of the .npy that begins here; the file stands at its data then."""
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
    except ValueError as error:
        raise TraceError(path, 1, f"column {name} is not an array: {error}") from None
    if dtype != COLUMNS[name] or len(shape) != 1:
        found, wanted = f"{len(shape)}-D {dtype}", f"1-D {COLUMNS[name]}"
        raise TraceError(path, 1, f"column {name} is {found}; make it {wanted}")
    return int(shape[0])


def _values(path: str, name: str, file: IO[bytes], count: int, start: int) -> NDArray[Any]:
    wanted = count * COLUMNS[name].itemsize
    data = file.read(wanted)
    if len(data) != wanted:
        row = start + len(data) // COLUMNS[name].itemsize + 1
        raise TraceError(path, row, f"column {name} ends before its header says")
    return np.frombuffer(data, COLUMNS[name])
