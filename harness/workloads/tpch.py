"""TPC-H orders and lineitem as fixed-width records, from a real generator.

The rows come from tpchgen-cli, a port of the TPC's dbgen whose output is dbgen's. Of a record
(`harness/workloads/records.py`) its padding is not stored here.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from harness import _core
from harness.errors import DataCorrupted, DataFolderError, DiskFull, MissingTool, UnknownName
from harness.system.files import alone, write_atomically
from harness.workloads.records import CONTENT

SCALES: Final = {"smoke": 0.01, "small": 0.1, "paper": 1.0}
"""TPC-H scale factor of each scale name. `paper` is the paper's."""

_COLUMNS: Final = {
    "orders": ("o_orderkey", "o_custkey", "o_orderdate"),
    "lineitem": ("l_orderkey", "l_partkey", "l_suppkey"),
}
_MAKING: Final = ".making-"
_READY: Final = ".ready-"
_FORMAT: Final = 2  # of the cached files: raise it when their content changes


@dataclass(frozen=True)
class JoinInputs:
    """Both inputs of the join.

    `orders` and `lineitem` are 1-D arrays of dtype CONTENT, read-only and backed by files; `digest`
    is the SHA-256 (hex) of both files' digests.
    """

    scale: str
    orders: NDArray[np.void]
    lineitem: NDArray[np.void]
    digest: str


def scale_factor(scale: str) -> float:
    """TPC-H scale factor of a scale name. Raises UnknownName."""
    if scale not in SCALES:
        raise UnknownName("scale", scale, SCALES)
    return SCALES[scale]


def join_inputs(raw: Path, scale: str) -> JoinInputs:
    """The inputs at a scale, made on first use and then read from `raw`/tpch/`scale`.

    A process reads and checks a file once, unless it changes. Raises UnknownName, MissingTool,
    DiskFull, DataFolderError, or DataCorrupted if a cached file does not match its recorded digest.
    """
    folder = raw / "tpch" / scale
    factor = scale_factor(scale)
    if _manifest(folder).get("format") != _FORMAT:
        _make(folder, factor)
    digests: dict[str, str] = _manifest(folder)["sha256"]
    arrays = {table: _load(folder / f"{table}.records", digests[table]) for table in _COLUMNS}
    whole = hashlib.sha256("".join(digests[t] for t in sorted(digests)).encode()).hexdigest()
    return JoinInputs(scale, arrays["orders"], arrays["lineitem"], whole)


def expected_join(raw: Path, inputs: JoinInputs) -> tuple[int, int]:
    """Matches and checksum of orders joined with lineitem, by DuckDB from the same records.

    The checksum is the engine's (`match_checksum` of join/record.hpp), computed in SQL. The answer
    is kept beside the inputs; each process computes or reads it once.
    """
    return _expected_join(raw / "tpch" / inputs.scale / "expected.json", inputs.scale, raw)


@lru_cache(maxsize=8)
def _expected_join(kept: Path, scale: str, raw: Path) -> tuple[int, int]:
    inputs = join_inputs(raw, scale)
    if kept.is_file():
        known = json.loads(kept.read_text())
        if known["digest"] == inputs.digest:
            return int(known["matches"]), int(known["checksum"])
    matches, checksum = join_by_duckdb(inputs.orders, inputs.lineitem)
    text = json.dumps({"digest": inputs.digest, "matches": matches, "checksum": checksum})
    write_atomically(kept, f"{text}\n".encode())
    return matches, checksum


def join_by_duckdb(build: NDArray[np.void], probe: NDArray[np.void]) -> tuple[int, int]:
    """Matches and checksum of two arrays of dtype CONTENT, joined on `key` by DuckDB."""
    tables = {
        name: pa.table(
            {column: np.ascontiguousarray(rows[column]) for column in ("key", "signature")}
        )
        for name, rows in (("build", build), ("probe", probe))
    }
    with duckdb.connect() as db:
        for name, table in tables.items():
            db.register(name, table)
        found = db.execute(
            """
            SELECT count(*),
                   sum((b.signature % 4294967296)::HUGEINT * (p.signature % 4294967296)::HUGEINT)
                       % 18446744073709551616
            FROM build b JOIN probe p ON b.key = p.key
            """
        ).fetchone()
    assert found is not None
    return int(found[0]), int(found[1] or 0)


def record_bounds(scale: str) -> tuple[int, int]:
    """Orders and, at most, lineitems of a scale, without making them.

    TPC-H clause 4.2.5.2: 1,500,000 orders per scale factor, and about four lineitems per order.
    Raises UnknownName.
    """
    orders = round(1_500_000 * scale_factor(scale))
    return orders, orders * 405 // 100


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def _load(path: Path, digest: str) -> NDArray[np.void]:
    now = path.stat()
    return _checked(path, digest, (now.st_ino, now.st_size, now.st_mtime_ns))


@lru_cache(maxsize=8)
def _checked(path: Path, digest: str, state: tuple[int, int, int]) -> NDArray[np.void]:
    """Hashing the paper's records takes a fifth as long as joining them: once, not per point."""
    del state  # another one is another file
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest:
        raise DataCorrupted(
            f"{path} has changed since it was made: delete {path.parent} and run again"
        )
    array: NDArray[np.void] = np.memmap(path, dtype=CONTENT, mode="r")
    return array


def _make(folder: Path, factor: float) -> None:
    try:
        with making(folder) as made:
            if _manifest(folder).get("format") == _FORMAT:  # somebody else was quicker
                return
            generate(made, factor)
            digests = {table: _convert(made, table) for table in _COLUMNS}
            manifest = {"format": _FORMAT, "scale_factor": factor, "sha256": digests}
            (made / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
            put_in_place(made, folder, [f"{table}.records" for table in _COLUMNS])
    except OSError as error:
        if error.errno == 28:  # ENOSPC
            raise DiskFull(f"no space left for the inputs in {folder}: free some") from error
        raise DataFolderError(f"cannot write the inputs to {folder}: {error.strerror}") from error


@contextmanager
def making(folder: Path) -> Iterator[Path]:
    """Where the files of a folder are made: a new one beside it, of one maker at a time.

    What makers that were killed have left there goes, since nobody else makes anything now. (They
    are in no lease: what simulated results pass through would then be all that a lease can hold.)
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder.parent):
        for kind in (_MAKING, _READY):
            for left in folder.parent.glob(f"{kind}*"):
                shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_MAKING) as made:
            yield Path(made)


def put_in_place(made: Path, folder: Path, names: Iterable[str]) -> None:
    """These files and the manifest at once: a reader sees the whole set or none of it."""
    ready = folder.with_name(f"{_READY}{made.name}")
    ready.mkdir()
    for name in (*names, "manifest.json"):
        (made / name).rename(ready / name)
    if folder.exists():
        shutil.rmtree(folder)
    ready.rename(folder)


def generate(folder: Path, factor: float) -> None:
    """Orders and lineitem of a scale factor, as Parquet files in a folder.

    Raises MissingTool or DataFolderError.
    """
    tool = Path(sys.executable).with_name("tpchgen-cli")
    if not tool.is_file():
        raise MissingTool("tpchgen-cli is not in this environment: run `make env`")
    tables = ",".join(_COLUMNS)
    # The kernel ends it if we are killed, who would have deleted what it goes on to write.
    dying = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    command = [str(tool), "parquet", "-q", "-s", str(factor), "-T", tables, "-o", str(folder)]
    done = subprocess.run([*dying, *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        reason = last[0] if last else f"exit code {done.returncode}"
        raise DataFolderError(f"tpchgen-cli could not write to {folder}: {reason}")


def _convert(folder: Path, table: str) -> str:
    """Parquet to records, a batch at a time; returns the file's SHA-256 (hex)."""
    source = folder / f"{table}.parquet"
    digest = hashlib.sha256()
    next_row = 0
    with (folder / f"{table}.records").open("wb") as out, pq.ParquetFile(source) as parquet:
        for batch in parquet.iter_batches(batch_size=1 << 18, columns=list(_COLUMNS[table])):
            columns = [
                batch.column(name).to_numpy(zero_copy_only=False) for name in _COLUMNS[table]
            ]
            content = _contents(columns, next_row).tobytes()
            next_row += batch.num_rows
            digest.update(content)
            out.write(content)
    source.unlink()
    return digest.hexdigest()


def _contents(columns: list[NDArray[np.generic]], first_row: int) -> NDArray[np.void]:
    key, first, second = columns
    if second.dtype.kind == "M":  # a date: days since 1970
        second = second.astype("datetime64[D]").astype(np.int64)
    contents = np.zeros(len(key), dtype=CONTENT)
    contents["key"] = key
    contents["row"] = np.arange(first_row, first_row + len(key), dtype=np.uint64)
    contents["first"] = first
    contents["second"] = second
    contents["signature"] = _core.record_signatures(
        *(np.ascontiguousarray(contents[name]) for name in ("key", "row", "first", "second"))
    )
    return contents
