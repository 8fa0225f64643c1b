"""Small flash drives for tests: round figures, a few thousand pages, requests as tuples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness import _core

READ, WRITE, TRIM, FLUSH = range(4)
UNIT: Final = 4096
PAGE: Final = 16384
UNIT_SECTORS: Final = UNIT // 512
MIB: Final = 1 << 20
MS: Final = 1_000_000

DISK_MECHANICS: dict[str, Any] = {
    "rpm": 7200,
    "heads": 2,
    "zones": 4,
    "outer_rate_bytes_per_s": 100_000_000,
    "inner_rate_bytes_per_s": 50_000_000,
    "head_switch_ns": 800_000,
    "track_to_track_seek_ns": 1_000_000,
    "average_seek_ns": 8_000_000,
    "full_stroke_seek_ns": 16_000_000,
    "write_settle_ns": 200_000,
    "link_rate_bytes_per_s": 250_000_000,
    "command_overhead_ns": 100_000,
    "start_angle_ns": 0,
}
"""What turns and moves in a small disk: without capacity, caches and queue."""

FLASH: Final[dict[str, Any]] = {
    "capacity_bytes": 16 * MIB,
    "overprovision_ratio": 0.3,
    "page_bytes": PAGE,
    "map_unit_bytes": UNIT,
    "planes": 1,
    "pages_per_block": 16,
    "channels": 2,
    "dies_per_channel": 2,
    "allocation": "per_die",
    "read_page_ns": 50_000,
    "program_page_ns": 500_000,
    "erase_block_ns": 3 * MS,
    "slc_program_page_ns": 200_000,
    "channel_rate_bytes_per_s": 409_600_000,  # 10 us a unit, 40 us a page
    "link_rate_bytes_per_s": 1_024_000_000,  # 4 us a unit
    "command_time_ns": 5_000,
    "read_latency_ns": 7_000,
    "write_latency_ns": 3_000,
    "write_buffer_bytes": 16 * PAGE,
    "power_loss_protection": False,
    "slc_cache_bytes": 0,
    "gc_policy": "greedy",
    "gc_placement": "separate",
    "gc_pace": "whole",
    "reserve_blocks": 1,
    "streams": 1,
    "placement": "none",
    "trim": "immediate",
    "trim_command_time_ns": 900,
    "trim_range_time_ns": 600,
    "trim_buffer_time_ns": 40,
    "trim_map_time_ns": 60,
    "trim_slice_bytes": PAGE,
    "trim_queued": True,
    "trim_max_ranges": 1,
    "background_gc": False,
    "background_idle_ns": MS,
    "queue_depth": 32,
}
"""Keyword arguments of _core.SsdParameters; `drive` changes some."""


def flash_parameters(**changes: Any) -> _core.SsdParameters:
    """The parameters of a small drive. Raises BadParameter for a change that no drive can have."""
    return _core.SsdParameters(**{**FLASH, **changes})


def drive(**changes: Any) -> _core.Device:
    """A small drive, new."""
    return _core.Device(flash_parameters(**changes))


@dataclass(frozen=True)
class Io:
    """One request; a unit is 8 sectors."""

    op: int
    lba: int = 0
    sectors: int = UNIT_SECTORS
    time_ns: int = 0
    stream: int = 0
    fua: bool = False


def feed(device: _core.Device, requests: Sequence[Io]) -> None:
    """Hands requests to a trace that has begun."""

    def column(name: str, dtype: type) -> NDArray[Any]:
        return np.array([getattr(io, name) for io in requests], dtype=dtype)

    device.feed_trace(
        time_ns=column("time_ns", np.int64),
        op=column("op", np.uint8),
        lba=column("lba", np.int64),
        sectors=np.array([0 if io.op == FLUSH else io.sectors for io in requests], dtype=np.int64),
        stream=column("stream", np.uint16),
        fua=column("fua", np.bool_),
        cancel=_core.Cancel(),
    )


def replay(device: _core.Device, requests: Sequence[Io], depth: int = 1) -> pd.DataFrame:
    """Runs requests with so many outstanding, or at their times with depth 0.

    One row per request, by completion: submitted_ns, latency_ns, op, lba, sectors.
    """
    device.begin_trace(depth=depth, rows=True, interval_ns=0)
    feed(device, requests)
    return pd.DataFrame(device.end_trace(_core.Cancel())["rows"])


def latency(device: _core.Device, *requests: Io) -> int:
    """How long the last of these requests takes, one after the other."""
    return int(replay(device, requests).latency_ns.iloc[-1])


JOB: Final[dict[str, Any]] = {
    "pattern": "random",
    "read_ratio": 0.0,
    "trim_ratio": 0.0,
    "block_bytes": UNIT,
    "begin_bytes": 0,
    "queue_depth": 1,
    "requests": 0,
    "duration_ns": 0,
    "interval_ns": 0,
    "poisson": False,
    "hot_data_ratio": 0.1,
    "hot_access_ratio": 0.9,
    "zipf_theta": 0.99,
    "stream": 0,
    "fua": False,
    "flush_every": 0,
    "seed": 0,
}


def job(device: _core.Device, **changes: Any) -> _core.JobParameters:
    """4 KiB random writes over the whole device, unless changed."""
    return _core.JobParameters(**{**JOB, "end_bytes": device.capacity_bytes, **changes})


def run(device: _core.Device, *jobs: dict[str, Any]) -> dict[str, Any]:
    """Runs jobs (changes of JOB) side by side; returns the first one's result."""
    specs = [job(device, **changes) for changes in jobs]
    first: dict[str, Any] = device.run(specs, rows=True, interval_ns=0, cancel=_core.Cancel())[0]
    return first


def mapping(device: _core.Device) -> NDArray[np.int64]:
    """The slot of every unit, -1 where it holds nothing."""
    return np.asarray(device.mapping())


def erases(device: _core.Device) -> NDArray[np.int64]:
    """Erase count of every block."""
    return np.asarray(device.block_erases(), dtype=np.int64)


def power_cut(device: _core.Device) -> list[tuple[int, int]]:
    """Cuts the power: the extents in doubt, LBA [begin, end)."""
    bounds = np.asarray(device.power_cut()).reshape(-1, 2)
    return [(int(begin), int(end)) for begin, end in bounds]


def iops(result: dict[str, Any]) -> float:
    """Requests per second of virtual time."""
    elapsed_ns: int = result["end_ns"] - result["begin_ns"]
    return 1e9 * len(result["rows"]["lba"]) / elapsed_ns


def waf(device: _core.Device) -> float:
    """Units programmed per unit that the host wrote."""
    c = device.counters()
    return float(c["nand_write_bytes"] / (c["nand_host_bytes"] + c["coalesced_bytes"]))
