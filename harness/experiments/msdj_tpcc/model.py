"""The run of one point in virtual time: TPC-C on the modelled InnoDB, ext4 journal and drive.

The drive is full before the run: what the database does not take holds other data that nobody
touches (`filled_ratio`), since write amplification is about 1 on a drive with room. A smaller scale
shrinks everything that is a size or a rhythm, and leaves rates as they are; so the drive is written
over as many times as at the paper's. Its blocks get shorter, not fewer: what a collection finds in
them depends on how many there are, and on how many of them the journal fills.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from harness import _core
from harness.dbms import page_writes
from harness.devices import scaling
from harness.devices.profiles import DeviceProfile, Innodb, SsdProfile
from harness.errors import BadParameter, UnknownName
from harness.experiments import kernel
from harness.experiments.base import Measurement, Point
from harness.experiments.kernel import Version
from harness.experiments.msdj_tpcc import pages
from harness.experiments.msdj_tpcc.grid import Cell, Parameters
from harness.experiments.variants import overrides_of
from harness.tiers.base import DeviceRequest
from harness.tiers.simulated import TRACE_ROWS, ModelledStack, SimulatedBench
from harness.workloads.tpcc.inputs import KINDS

_PAGE_BYTES: Final = 16384
_ROWS_PER_PAGE: Final = {
    "warehouse": 150,
    "district": 140,
    "customer": 26,
    "customer_by_name": 400,
    "history": 231,
    "new_order": 450,
    "orders": 377,
    "orders_by_customer": 878,
    "order_line": 220,
    "item": 171,
    "stock": 46,
    "order_line_new": 232,
    "order_line_room": 204,
}
"""Rows over leaf pages of MariaDB 10.11 after our load (mysql.innodb_index_stats); of tables that
are too small there, page size over row size. Of the last three kinds of page: orders by customer,
of 18 B, fill theirs, since that index is made when all rows are there; a page of order lines
without a date takes 15/16 of 16 KiB over 65 B and what a page begins and ends with; the sixteenth
that is left has room for so many dates of 5 B."""


@dataclass(frozen=True)
class Software:
    """Of kernel and server, what a host's profile does not say: by default, the paper's.

    `redo_block_bytes`: through the page cache MySQL's log is written in the file system's blocks.
    `file_pages_age`: whether a file's header is never made young in the buffer pool.
    """

    kernel: Version = (3, 19)
    redo_block_bytes: int = 4096
    file_pages_age: bool = False

    @property
    def spec(self) -> dict[str, Any]:
        """Of `_core.TpccSpec`."""
        return {
            **kernel.data_journal_rules(self.kernel),
            **kernel.journal_rules(self.kernel),
            "redo_block_bytes": self.redo_block_bytes,
            "file_pages_age": self.file_pages_age,
        }


PAPERS: Final = Software()

_PAGES_PER_WAREHOUSE: Final = 6600
_GROWTH_RATIO: Final = 0.25
_LEAST_GROWTH_PAGES: Final = 30_000
_SAMPLES: Final = 60
_FLUSHER_INTERVAL_NS: Final = 1_000_000_000  # a rhythm: it shrinks, too
_AGED_BLOCK_BYTES: Final = 16384
_JOURNAL_STREAM: Final = 1
_ROUNDED: Final = 1e-3  # sizes are whole pages
_LEAST_PAGE_CACHE_BYTES: Final = 1 << 20

_APART: Final = ("journal", "doublewrite", "redo")


def run(point: Point, parameters: Parameters, bench: SimulatedBench, raw: Path) -> Measurement:
    """One mode with one journal: ageing, load, warm-up, and the measured interval."""
    del raw
    return run_point(Cell.of(point), overrides_of(Cell.of(point), parameters.variants), bench)


def run_point(
    v: Cell, overrides: Mapping[str, str], bench: SimulatedBench, software: Software = PAPERS
) -> Measurement:
    """One mode with one journal. Raises BadParameter, DiskFull, Interrupted."""
    stack = bench.stack(DeviceRequest(device=v.device, overrides=overrides))
    result = simulate(stack, v, bench.cancel, software)
    samples = result["samples"]
    return Measurement(metrics(samples, result, v), series(samples, result), trace=result["trace"])


def simulate(
    stack: ModelledStack, v: Cell, cancel: _core.Cancel, software: Software = PAPERS
) -> dict[str, Any]:
    """`_core.run_tpcc` of a point's values on that stack. Raises as `run_point`."""
    host = stack.host
    if host.innodb is None or host.ext4 is None:
        raise BadParameter(f"host profile {host.title}: needs innodb and ext4 for this study")
    mode = page_writes.find(v.mode)
    if mode.file_system_block_bytes != page_writes.PageWrites.file_system_block_bytes:
        raise BadParameter(f"{mode.title}: the simulated tier journals blocks of 4 KiB only")
    drive = _drive(stack, v, journal_stream=mode.journal_stream)
    ratio = v.size_ratio_to_paper
    drive_bytes = drive.parameters.capacity.value
    aged_bytes = min(v.ageing_bytes, drive_bytes)
    return _core.run_tpcc(
        drive.to_core(),
        host.to_core(),
        _core.TpccSpec(
            **_workload(host.innodb, v),
            extent_pages=_extent_pages(stack.device, v),
            **_engine(host.innodb, v),
            **software.spec,
            data_journal=mode.journal_mode == "journal",
            doublewrite=mode.doublewrite,
            journal_bytes=v.journal_bytes,
            journal_stream=_JOURNAL_STREAM if mode.journal_stream else 0,
            commit_ns=int(host.ext4.commit_interval.value * ratio),
            dirty_expire_ns=int(host.innodb.dirty_expire.value * ratio),
            old_blocks_ns=int(host.innodb.old_blocks_time.value * ratio),
            flusher_interval_ns=int(_FLUSHER_INTERVAL_NS * ratio),
            tick_ns=int(kernel.TICK_S * 1e9),
            warm_up_ns=int(v.warm_up_s * 1e9),
            measured_ns=int(v.measured_s * 1e9),
            sample_ns=int(v.measured_s * 1e9) // _SAMPLES,
            aged_bytes=aged_bytes,
            aged_block_bytes=_AGED_BLOCK_BYTES,
            aged_begin_bytes=0 if v.aged_under_files else drive_bytes - aged_bytes,
            trace_rows=TRACE_ROWS,
        ),
        v.filled_ratio,
        cancel,
    )


def _workload(innodb: Innodb, v: Cell) -> dict[str, Any]:
    warehouses, connections = v.warehouses, v.connections
    loaded_pages = warehouses * _PAGES_PER_WAREHOUSE
    return {
        "warehouses": warehouses,
        "connections": connections,
        "rows_per_page": _ROWS_PER_PAGE,
        "page_bytes": _PAGE_BYTES,
        "most_pages": loaded_pages + int(loaded_pages * _GROWTH_RATIO) + _LEAST_GROWTH_PAGES,
        "seed": v.seed,
        "undo_pages": connections * innodb.undo_pages_per_connection.value,
        "undo_bytes_per_update": innodb.undo_per_update.value,
        "undo_bytes_per_insert": innodb.undo_per_insert.value,
        "redo_update_bytes": innodb.redo_update.value,
        "redo_line_bytes": innodb.redo_line.value,
        "redo_insert_bytes": innodb.redo_insert.value,
        "redo_commit_bytes": innodb.redo_commit.value,
        "transaction_cpu_ns": innodb.transaction_cpu.value,
        "touch_cpu_ns": innodb.row_cpu.value,
    }


def _engine(innodb: Innodb, v: Cell) -> dict[str, Any]:
    return {
        "buffer_pool_bytes": v.buffer_pool_bytes,
        "flush_batch_pages": innodb.flush_batch_pages.value,
        "lru_scan_depth": innodb.lru_scan_depth.value,
        "most_dirty_ratio": innodb.most_dirty.value,
        "flush_age_ratio": innodb.flush_age.value,
        "doublewrite_elsewhere": v.doublewrite_on == "elsewhere",
        "doublewrite_bytes": innodb.doublewrite_area.value,
        "redo_elsewhere": v.redo_on == "elsewhere",
        "sync_commits_inode": _commits_inode(innodb.file_sync.value),
        "redo_bytes": v.redo_bytes,
        "page_cache_bytes": max(v.page_cache_bytes, _LEAST_PAGE_CACHE_BYTES),
        "page_copy_cpu_ns": innodb.page_copy_cpu.value,
        "other_drive_rate_bytes_per_s": innodb.other_drive_rate.value,
        "other_drive_latency_ns": innodb.other_drive_latency.value,
    }


def _commits_inode(file_sync: str) -> bool:
    known = {"fsync": True, "fdatasync": False}
    if file_sync not in known:
        raise UnknownName("file_sync", file_sync, known)
    return known[file_sync]


def _drive(stack: ModelledStack, v: Cell, *, journal_stream: bool) -> SsdProfile:
    """The drive, of the point's size; what tells the journal's writes apart is their place."""
    profile = stack.device
    if not isinstance(profile, SsdProfile):
        raise BadParameter(f"{profile.title}: a disk has no streams; choose a flash drive")
    if journal_stream and profile.parameters.streams.value <= _JOURNAL_STREAM:
        raise BadParameter(
            f"{profile.title}: has {profile.parameters.streams.value} stream, MS-DJ needs two"
        )
    if v.device_bytes:
        profile = _sized(profile, v)
    values: dict[str, Any] = {"placement": "range" if journal_stream else "none"}
    placement = profile.parameters.with_values(values)
    return profile.model_copy(update={"parameters": placement})


def _extent_pages(device: DeviceProfile, v: Cell) -> int:
    """An erase block is to have as much of a table as at the paper's size."""
    ratio = v.size_ratio_to_paper if _shrunk_with_the_rest(device, v) else 1.0
    return max(int(v.table_extent_bytes * ratio) // _PAGE_BYTES, 1)


def _shrunk_with_the_rest(device: DeviceProfile, v: Cell) -> bool:
    """Whether the drive is as much smaller as the database is."""
    whole_bytes = device.parameters.capacity.value
    return math.isclose(v.device_bytes / whole_bytes, v.size_ratio_to_paper, rel_tol=_ROUNDED)


def _sized(profile: SsdProfile, v: Cell) -> SsdProfile:
    """Of the point's size; with as many blocks if it has shrunk with all the rest."""
    p = profile.parameters
    pages = round(p.pages_per_block.value * v.device_bytes / p.capacity.value)
    if not _shrunk_with_the_rest(profile, v) or pages < 1:
        return scaling.scaled_to(profile, v.device_bytes)
    values: dict[str, Any] = {
        "capacity": v.device_bytes,
        "pages_per_block": pages,
        "erase_block": p.erase_block.value * pages // p.pages_per_block.value,
    }
    return profile.model_copy(update={"parameters": p.with_values(values)})


def metrics(
    samples: Sequence[Mapping[str, Any]], result: Mapping[str, Any], v: Cell
) -> dict[str, int | float]:
    """The flat record of the measured interval; names as on the tiers with a real server."""
    first, last = samples[0], samples[-1]
    counted = {n: last[n] - first[n] for n in last if n not in ("device", "shares", "time_ns")}
    device = {n: last["device"][n] - first["device"][n] for n in last["device"]}
    elapsed_s = (last["time_ns"] - first["time_ns"]) / 1e9
    by_place = _written_bytes(counted, device)
    return {
        "tpmc": counted["new_orders"] / elapsed_s * 60,
        "measured_s": elapsed_s,
        "waf_ratio": device["nand_write_bytes"] / max(device["write_bytes"], 1),
        "host_written_bytes": device["write_bytes"],
        "nand_written_bytes": device["nand_write_bytes"],
        **by_place,
        **_accesses(counted, device, v),
        **_response_times(result["response_us"]),
        **{name: value for name, value in counted.items() if name not in by_place},
        **{f"device_{name}": value for name, value in device.items()},
    }


def _written_bytes(counted: Mapping[str, int], device: Mapping[str, int]) -> dict[str, int]:
    """By place, as the host has counted them; home is the rest of what the drive was given."""
    apart = {f"{name}_written_bytes": counted[f"{name}_written_bytes"] for name in _APART}
    return {**apart, "home_written_bytes": device["write_bytes"] - sum(apart.values())}


def _accesses(
    counted: Mapping[str, int], device: Mapping[str, int], v: Cell
) -> dict[str, int | float]:
    """How often the journal and the rest of the drive are accessed for their size (figure 1)."""
    sector = 512
    sizes = {"journal": v.journal_bytes}
    sizes["rest"] = v.device_bytes - sizes["journal"]
    requests = {"journal": counted["journal_requests"]}
    requests["rest"] = device["read_ios"] + device["write_ios"] - requests["journal"]
    moved = {"journal": counted["journal_written_bytes"]}
    moved["rest"] = device["read_bytes"] + device["write_bytes"] - moved["journal"]
    return {
        **{f"{place}_size_bytes": size for place, size in sizes.items()},
        **{f"{p}_requests_per_lba": requests[p] / (sizes[p] / sector) for p in sizes},
        **{f"{p}_accesses_per_lba": moved[p] / sizes[p] for p in sizes},
    }


def _response_times(response_us: Sequence[Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for kind, times in zip(KINDS, response_us, strict=True):
        if len(times):
            found[f"{kind}_transactions"] = len(times)
            found[f"{kind}_mean_ms"] = float(np.mean(times)) / 1e3
            found[f"{kind}_p90_ms"] = float(np.percentile(times, 90)) / 1e3
    return found


def series(
    samples: Sequence[Mapping[str, Any]], result: Mapping[str, Any]
) -> dict[str, list[int] | list[float]]:
    """Write amplification and throughput over time; names as on the tiers with a real server."""
    first = samples[0]
    since = [(sample["time_ns"] - first["time_ns"]) / 1e9 for sample in samples]

    def grown(name: str) -> list[int]:
        return [sample["device"][name] - first["device"][name] for sample in samples]

    host, nand = grown("write_bytes"), grown("nand_write_bytes")
    tables = np.asarray(result["table_of_page"])
    writes = np.asarray(result["writes_of_page"])
    return {
        "waf_time_s": since,
        "waf_written_bytes": host,
        "waf_programmed_bytes": nand,
        "waf_ratio": [n / h if h else float("nan") for n, h in zip(nand, host, strict=True)],
        "tpmc_time_s": since[1:],
        "tpmc_per_interval": [
            (b["new_orders"] - a["new_orders"]) / ((b["time_ns"] - a["time_ns"]) / 60e9)
            for a, b in pairwise(samples)
        ],
        "table_written_pages": [
            int(writes[tables == number].sum()) for number in range(len(pages.TABLES))
        ],
        "home_write_concentration": pages.concentration(
            writes[tables < len(pages.TABLES)], pages.SHARES
        ),
    }
