"""Traces as Parquet: the columns of `base.COLUMNS`, read and written row group by row group."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import DataFolderError, DiskFull, TraceError
from harness.workloads.traces.base import COLUMNS, Chunk, Part, missing_column, table_part

_PIECE_ROWS: Final = 65_536
_SCHEMA: Final = pa.schema(
    [pa.field(name, pa.from_numpy_dtype(dtype), nullable=False) for name, dtype in COLUMNS.items()]
)


def parquet_parts(path: str) -> Iterator[Part]:
    """The rows of a file; at most one row group's columns are in memory. Raises TraceError."""
    row = 1
    try:
        # Without pre-buffering: it keeps what was read until the file is closed.
        with pq.ParquetFile(path, pre_buffer=False) as file:
            names = _columns(path, file.schema_arrow)
            for batch in file.iter_batches(batch_size=_PIECE_ROWS, columns=names):
                yield table_part({n: _values(path, n, batch[n], row) for n in names}, row)
                row += len(batch)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise TraceError(path, row, f"cannot be read as Parquet: {reason}") from None


def _columns(path: str, schema: Any) -> list[str]:
    problem = missing_column(schema.names)
    if problem:
        raise TraceError(path, 1, problem)
    names = [name for name in COLUMNS if name in schema.names]
    for name in names:
        wanted, found = _SCHEMA.field(name).type, schema.field(name).type
        if found != wanted:
            raise TraceError(path, 1, f"column {name} is {found}; make it {wanted}")
    return names


def _values(path: str, name: str, values: Any, first_row: int) -> Any:
    if values.null_count:
        row = first_row + values.is_null().to_numpy(zero_copy_only=False).argmax()
        raise TraceError(path, int(row), f"column {name} is null")
    return values.to_numpy(zero_copy_only=False)


def write_parquet(chunks: Iterable[Chunk], path: str | Path) -> int:
    """Writes a trace as Parquet, a row group per chunk, and returns its number of requests.

    The file appears whole or not at all; one that was there is replaced, even the trace that is
    being read. Raises what `chunks` raises, DiskFull, DataFolderError.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    try:
        requests = _write(chunks, partial)
        partial.replace(target)
    except OSError as error:
        raise _unwritable(target, error) from None
    finally:
        partial.unlink(missing_ok=True)
    return requests


def _write(chunks: Iterable[Chunk], path: Path) -> int:
    requests = 0
    with pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
        for chunk in chunks:
            arrays = [pa.array(getattr(chunk, column)) for column in COLUMNS]
            writer.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA))
            requests += len(chunk)
    return requests


def _unwritable(target: Path, error: OSError) -> DiskFull | DataFolderError:
    if error.errno == errno.ENOSPC:
        return DiskFull(f"no space left to write {target}; free some and convert again")
    return DataFolderError(f"cannot write {target}: {error.strerror or error}")
