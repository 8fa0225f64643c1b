"""Who a trace's requests belong to, by where they lie: a journal, a file, the rest of the device.

A place is a name and its byte ranges [begin, end) on the device that was traced, such as
`devices.filesystems.journal_extents` and `fiemap.file_extents` give them. Places must not overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from harness.errors import BadParameter
from harness.probes import analysis
from harness.probes.counters import SECTOR_BYTES

REST: Final = "(rest)"
"""What lies in no place that was named."""

_BLOCK_SECTORS: Final = 8

Ranges = Sequence[tuple[int, int]]


def by_place(trace: Path, places: Mapping[str, Ranges]) -> pd.DataFrame:
    """What of a block trace lies where: one row per place, REST last, and operation that it saw.

    Columns: place, op, requests, bytes. A request counts where it begins; its bytes count where
    they lie, so that both sum to the whole trace. Flushes have no place and are left out. Raises
    BadParameter for ranges that overlap, or are not whole sectors, TraceError.
    """
    found = analysis.query(
        trace,
        f"""
        WITH requests AS (
            SELECT op, lba, sectors FROM trace WHERE op <> 'flush'),
        placed AS (
            SELECT place, op, count(*) FILTER (WHERE lba >= begin_lba) AS requests,
                   sum(least(lba + sectors, end_lba) - greatest(lba, begin_lba)) AS sectors
            FROM requests JOIN ranges ON lba < end_lba AND lba + sectors > begin_lba
            GROUP BY ALL),
        whole AS (
            SELECT op, count(*) AS requests, sum(sectors) AS sectors FROM requests GROUP BY op),
        named AS (
            SELECT op, sum(requests) AS requests, sum(sectors) AS sectors FROM placed GROUP BY op),
        parts AS (
            FROM placed UNION ALL
            SELECT '{REST}', w.op, w.requests - coalesce(n.requests, 0),
                   w.sectors - coalesce(n.sectors, 0)
            FROM whole w LEFT JOIN named n USING (op))
        SELECT place, op, requests::BIGINT AS requests,
               (sectors * {SECTOR_BYTES})::BIGINT AS bytes
        FROM parts WHERE requests > 0 OR sectors > 0
        """,
        {"ranges": _table(places)},
    )
    order = {name: number for number, name in enumerate([*places, REST])}
    return found.sort_values(
        ["place", "op"], key=lambda column: column.map(lambda value: order.get(value, value))
    ).reset_index(drop=True)


def accesses_per_lba(
    trace: Path, places: Mapping[str, Ranges], device_bytes: int = 0
) -> pd.DataFrame:
    """How often each place is accessed for its size: MS-DJ paper, figure 1.

    One row per place, and, if the device's size is given, one for all else. Columns: place,
    size_bytes, requests and bytes (reads and writes), requests_per_lba (all requests of the region,
    divided by its range of LBAs, of 512 B), accesses_per_lba (the same with every sector of a
    request as an access), writes_per_lba (of these, the written ones: how often a sector was
    written on average). Raises as `by_place`, and BadParameter for a device that is smaller.
    """
    parts = by_place(trace, places)
    parts = parts[parts.op.isin(["read", "write"])]
    sizes = {name: sum(end - begin for begin, end in ranges) for name, ranges in places.items()}
    if device_bytes:
        sizes[REST] = device_bytes - sum(sizes.values())
        if sizes[REST] < 0:
            raise BadParameter(f"device_bytes {device_bytes}: the places are larger together")
    rows = [_density(name, size, parts[parts.place == name]) for name, size in sizes.items()]
    return pd.DataFrame(rows)


def page_writes(
    trace: Path, places: Mapping[str, Ranges], page_bytes: int
) -> dict[str, NDArray[np.float64]]:
    """How often each page of a file was written: per place, an array by the page's number.

    A place's ranges are a file's, in the file's order (`fiemap.file_extents`), and whole blocks of
    4 KiB. A page of which a part was written was written that part of once. Raises as `by_place`.
    """
    _table(places)
    found = analysis.query(trace, "SELECT lba, sectors FROM trace WHERE op = 'write'")
    blocks = _blocks(found.lba.to_numpy(np.int64), found.sectors.to_numpy(np.int64))
    return {name: _pages(blocks, ranges, page_bytes) for name, ranges in places.items()}


def _blocks(lba: NDArray[np.int64], sectors: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of every block that requests touch, as often as they do, ascending."""
    first = lba // _BLOCK_SECTORS
    count = -(-(lba + sectors) // _BLOCK_SECTORS) - first
    inner = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return np.sort(np.repeat(first, count) + inner)


def _pages(blocks: NDArray[np.int64], ranges: Ranges, page_bytes: int) -> NDArray[np.float64]:
    size = _BLOCK_SECTORS * SECTOR_BYTES
    if any(bound % size for bounds in ranges for bound in bounds) or page_bytes % size:
        raise BadParameter(f"page_bytes {page_bytes}: pages and ranges must be multiples of {size}")
    each = page_bytes // size
    counts = np.zeros(-(-sum(end - begin for begin, end in ranges) // page_bytes))
    before = 0  # blocks of the file that come before the range
    for begin, end in ranges:
        low, high = np.searchsorted(blocks, (begin // size, end // size))
        pages = (blocks[low:high] - begin // size + before) // each
        counts += np.bincount(pages, minlength=len(counts)) / each
        before += (end - begin) // size
    return counts


def _density(name: str, size_bytes: int, parts: pd.DataFrame) -> dict[str, object]:
    lbas = size_bytes / SECTOR_BYTES or float("nan")
    written = int(parts.bytes[parts.op == "write"].sum())
    requests, total = int(parts.requests.sum()), int(parts.bytes.sum())
    return {
        "place": name,
        "size_bytes": size_bytes,
        "requests": requests,
        "bytes": total,
        "requests_per_lba": requests / lbas,
        "accesses_per_lba": total / SECTOR_BYTES / lbas,
        "writes_per_lba": written / SECTOR_BYTES / lbas,
    }


def _table(places: Mapping[str, Ranges]) -> pa.Table:
    """Ranges in sectors, checked."""
    if REST in places:
        raise BadParameter(f"a place may not be called {REST}")
    rows = sorted((*bounds, name) for name, ranges in places.items() for bounds in ranges)
    last_end, last_name = 0, ""
    for begin, end, name in rows:
        if begin % SECTOR_BYTES or end % SECTOR_BYTES or not 0 <= begin < end:
            raise BadParameter(
                f"place {name}: {begin} to {end} B must begin and end at a multiple of "
                f"{SECTOR_BYTES} B and not be empty"
            )
        if begin < last_end:
            raise BadParameter(f"places {last_name} and {name} overlap at {begin} B")
        last_end, last_name = end, name
    return pa.table(
        {
            "begin_lba": pa.array([begin // SECTOR_BYTES for begin, _, _ in rows], pa.int64()),
            "end_lba": pa.array([end // SECTOR_BYTES for _, end, _ in rows], pa.int64()),
            "place": pa.array([name for _, _, name in rows], pa.string()),
        }
    )
