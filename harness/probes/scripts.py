"""The probe scripts: what each prints, and the columns that its trace has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.errors import UnknownName

FOLDER: Final = Path(__file__).parent / "scripts"

_WORD = pa.dictionary(pa.int8(), pa.string())
Raw = Sequence[pa.Array]
"""The columns of some lines as they were printed: int64, null where nothing stood."""


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in columns])


BLOCK_IO: Final = _schema(
    ("issued_ns", pa.int64()),
    ("latency_ns", pa.int64()),
    ("completed_ns", pa.int64()),
    ("lba", pa.int64()),
    ("sectors", pa.int64()),
    ("op", _WORD),
    ("flags", _WORD),
    ("error", pa.bool_()),
)
DISCARDS: Final = _schema(
    ("issued_ns", pa.int64()),
    ("latency_ns", pa.int64()),
    ("completed_ns", pa.int64()),
    ("lba", pa.int64()),
    ("sectors", pa.int64()),
    ("op", _WORD),
    ("reads_in_flight", pa.int64()),
)
_EXT4_COUNTS: Final = ("time_ns", "inode", "logical_block", "block", "blocks", "goal", "flags")
EXT4: Final = _schema(("event", _WORD), *((name, pa.int64()) for name in _EXT4_COUNTS))
_JBD2_COUNTS: Final = (
    *("time_ns", "transaction", "value", "wait_jiffies", "request_delay_jiffies"),
    *("running_jiffies", "locked_jiffies", "flushing_jiffies", "logging_jiffies"),
    *("handles", "blocks", "blocks_logged"),
)
JBD2: Final = _schema(("event", _WORD), *((name, pa.int64()) for name in _JBD2_COUNTS))
PAGE_COMMITS: Final = _schema(
    *(
        (n, pa.int64())
        for n in ("time_ns", "inode", "page", "first_transaction", "last_transaction")
    )
)
HISTOGRAMS: Final = _schema(
    ("phase", pa.string()),
    ("op", pa.string()),
    ("measure", pa.string()),
    ("from_value", pa.int64()),
    ("to_value", pa.int64()),
    ("count", pa.int64()),
)

OPS: Final = {"R": "read", "W": "write", "D": "discard", "F": "flush", "N": "other"}
"""First letter of the kernel's rwbs, without the leading F of a preflush. `other` is what the
kernel has no letter for, such as writing zeroes; it counts these as writes."""

_EXT4_EVENTS: Final = ("", "allocate", "free", "discard", "mballoc")
_JBD2_EVENTS: Final = (
    "",
    "commit_begin",
    "commit_end",
    "commit_stats",
    "checkpoint",
    "checkpoint_stats",
)
_SECTOR_BITS: Final = 24
_PREFLUSH: Final = 0x100000
_ERROR: Final = 0x200000


@dataclass(frozen=True)
class Script:
    """A probe: its file, the number of columns of a line, the trace's schema, and what decodes it.

    counted: the kernel's counters of the device must agree with the rows. json: no rows are
    printed, the script's maps are the result.
    """

    name: str
    purpose: str
    fields: int
    schema: pa.Schema
    decode: Callable[[Raw], pa.Table]
    counted: bool = False
    json: bool = False

    @property
    def path(self) -> Path:
        """The bpftrace source."""
        return FOLDER / f"{self.name}.bt"


def rwbs(code: int) -> tuple[str, str]:
    """The operation's name and the kernel's letters of a request, of the code of a script."""
    letters = "".join(chr(64 + (code >> 5 * i & 31)) for i in range(4)).rstrip("@")
    return OPS.get(letters[:1], "other"), ("F" if code & _PREFLUSH else "") + letters


def block_io_rows(
    completed: NDArray[np.int64], packed: NDArray[np.int64], place: NDArray[np.int64]
) -> pa.Table:
    """Rows of BLOCK_IO: of the completion time, latency and sectors, LBA and code of each."""
    latency = packed >> _SECTOR_BITS
    unknown = latency == 0
    codes, index = np.unique(place & ((1 << _SECTOR_BITS) - 1), return_inverse=True)
    ops, flags = zip(*(rwbs(int(code)) for code in codes), strict=True) if len(codes) else ((), ())
    failed = (codes & _ERROR) != 0
    return pa.Table.from_arrays(
        [
            pa.array(completed - latency, mask=unknown),
            pa.array(latency, mask=unknown),
            pa.array(completed),
            pa.array(place >> _SECTOR_BITS),
            pa.array(packed & ((1 << _SECTOR_BITS) - 1)),
            words(ops, index),
            words(flags, index),
            pa.array(failed[index]),
        ],
        schema=BLOCK_IO,
    )


def unseen_rows(schema: pa.Schema, entries: Sequence[tuple[int, int, int]]) -> pa.Table:
    """Requests that were issued and whose end nobody saw: (key, time or count, sectors) of each.

    A count instead of a time stands for as many requests with the same end in flight together.
    """
    rows = []
    for key, value, sectors in entries:
        op = OPS.get(chr(key & 0xFF), "other")
        lba = 0 if op == "flush" else (key >> 8) - sectors
        row = {"issued_ns": value, "lba": lba, "sectors": sectors, "op": op}
        rows += [row] if value >= 4096 else [{**row, "issued_ns": None}] * value
    return pa.Table.from_pylist(rows, schema=schema)


def words(names: Sequence[str], index: NDArray[np.int64]) -> pa.Array:
    """A dictionary column: names[index], names may repeat."""
    distinct = sorted(set(names))
    places = np.array([distinct.index(name) for name in names], dtype=np.int8)
    chosen = places[index] if len(places) else np.empty(0, np.int8)
    return pa.DictionaryArray.from_arrays(
        pa.array(chosen, pa.int8()), pa.array(distinct, pa.string())
    )


def _numbers(column: pa.Array) -> NDArray[np.int64]:
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _block_io(raw: Raw) -> pa.Table:
    completed, packed, place = map(_numbers, raw)
    return block_io_rows(completed, packed, place)


def _discards(raw: Raw) -> pa.Table:
    completed, latency, lba, sectors, reads = map(_numbers, raw)
    unknown = latency == 0
    columns = [pa.array(completed - latency, mask=unknown), pa.array(latency, mask=unknown)]
    columns += [pa.array(column) for column in (completed, lba, sectors)]
    op = words(["discard"], np.zeros(len(lba), np.int64))
    return pa.Table.from_arrays([*columns, op, pa.array(reads)], schema=DISCARDS)


def _events(names: Sequence[str], schema: pa.Schema) -> Callable[[Raw], pa.Table]:
    def decode(raw: Raw) -> pa.Table:
        return pa.Table.from_arrays([words(names, _numbers(raw[0])), *raw[1:]], schema=schema)

    return decode


def _plain(schema: pa.Schema) -> Callable[[Raw], pa.Table]:
    return lambda raw: pa.Table.from_arrays(list(raw), schema=schema)


def _histograms(_: Raw) -> pa.Table:
    return HISTOGRAMS.empty_table()


_ALL: Final = (
    Script("block_io", "every request of a device", 3, BLOCK_IO, _block_io, counted=True),
    Script("discards", "discards, and reads beside them", 5, DISCARDS, _discards, counted=True),
    Script(
        "ext4_extents",
        "ext4: blocks allocated, freed, discarded",
        len(EXT4.names),
        EXT4,
        _events(_EXT4_EVENTS, EXT4),
    ),
    Script(
        "jbd2",
        "ext4's journal: commits, checkpoints",
        len(JBD2.names),
        JBD2,
        _events(_JBD2_EVENTS, JBD2),
    ),
    Script(
        "page_commits",
        "pages of a database that two of ext4's transactions share, with data=journal",
        len(PAGE_COMMITS.names),
        PAGE_COMMITS,
        _plain(PAGE_COMMITS),
    ),
    Script(
        "io_histograms",
        "latencies and sizes per phase, counted in the kernel: long runs",
        0,
        HISTOGRAMS,
        _histograms,
        counted=True,
        json=True,
    ),
)
SCRIPTS: Final = {script.name: script for script in _ALL}


def find(name: str) -> Script:
    """The script of that name. Raises UnknownName."""
    if name not in SCRIPTS:
        raise UnknownName("probe", name, SCRIPTS)
    return SCRIPTS[name]
