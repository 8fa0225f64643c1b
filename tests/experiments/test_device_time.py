"""Runs on a slow device: what the clock says is told in the device's time, to the last number."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.dbms import innodb, page_writes
from harness.experiments.msdj_tpcc import real as msdj_tpcc
from harness.experiments.sort_merge_join import real as sort_merge_join
from harness.experiments.sort_merge_join.clients import ClientRun
from harness.experiments.trim_fallocate import real as trim_fallocate
from harness.experiments.trim_fallocate.queries import QueryRun
from harness.probes import scripts
from harness.probes.counters import BlockCounters
from harness.system import filesystems
from harness.system.ext4_spec import Ext4Spec
from harness.tiers.base import DeviceUnderTest
from harness.tiers.emulated import EmulatedDevice
from harness.workloads.tpcc import driver
from harness.workloads.tpcc.client import Log
from harness.workloads.tpcc.driver import Job, Run
from harness.workloads.tpcc.inputs import KINDS

S = 10**9
MS = 10**6
SLOWDOWN = 4
DEVICE = cast(DeviceUnderTest, SimpleNamespace(slowdown=SLOWDOWN, block_trace=None))


# --- sort_merge_join


def client(begin_s: int, sorted_s: int, end_s: int) -> ClientRun:
    rest: Any = {"rows": 0, "inputs": (), "temp_read_bytes": 0, "temp_written_bytes": 0}
    return ClientRun(begin_s * S, sorted_s * S, end_s * S, **rest, temp_file_bytes=0)


CLIENTS = [client(0, 8, 12), client(4, 8, 20)]


def test_a_sort_merge_join_takes_the_device_s_time() -> None:
    assert sort_merge_join._times(CLIENTS, DEVICE) == {
        "elapsed_s": 3.5,
        "elapsed_min_s": 3.0,
        "elapsed_max_s": 4.0,
        "sort_s": 1.5,
        "join_s": 2.0,
    }
    assert sort_merge_join._series(CLIENTS, DEVICE) == {
        "client_sort_s": [2.0, 1.0],
        "client_join_s": [1.0, 3.0],
    }


# --- msdj_tpcc


def test_response_times_are_divided_rates_multiplied_and_counts_left() -> None:
    log = Log()
    for number, kind in enumerate(KINDS, start=1):
        log.ended_ms[kind].extend([500, 700])
        log.took_us[kind].extend([8000 * number, 16_000 * number])
    job = Job(connections=1, processes=1, warm_up_s=0.0, measured_s=2.0)
    run = driver._summary(job, [log])
    told = msdj_tpcc._of_clients(run, SLOWDOWN)
    assert told["tpmc"] == 4 * 60.0
    for number, kind in enumerate(KINDS, start=1):
        assert told[f"{kind}_mean_ms"] == 3.0 * number
        assert told[f"{kind}_max_ms"] == 4.0 * number
        assert told[f"{kind}_transactions"] == 2
    times = {name for name in told if name.endswith("_ms")}
    assert len(times) == 6 * len(KINDS)
    assert all(told[name] == run.metrics[name] / 4 for name in times)
    others = told.keys() - times - {"tpmc"}
    assert all(told[name] == run.metrics[name] for name in others)
    asked = {"measured_s", "warm_up_s", "connections", "processes"}
    assert run.metrics.keys() - told.keys() == asked, "these the cell says"


def test_innodb_s_times_are_the_device_s_and_nothing_else_is() -> None:
    looks: Any = [
        SimpleNamespace(innodb=dict.fromkeys(innodb.COUNTERS, n)) for n in (100, 300, 500)
    ]
    told = msdj_tpcc._of_innodb(looks, SLOWDOWN)
    assert told.pop("innodb_row_lock_time_ms") == 100.0
    assert told.pop("innodb_uptime_s") == 125.0
    assert told.pop("innodb_buffer_pool_dirty_pages") == 500
    assert told.pop("innodb_history_list_length") == 500
    assert len(told) == len(innodb.COUNTERS) - 3  # pages_flushed is one of them again
    assert set(told.values()) == {400}


def test_tpmc_over_time_is_the_device_s() -> None:
    """Of 15 s of the device's time a thirtieth are two seconds of the clock."""
    assert msdj_tpcc._rates(Run({}, [1, 2, 3, 4, 5]), 15.0, SLOWDOWN) == {
        "tpmc_time_s": [0.5, 1.0],
        "tpmc_per_interval": [360.0, 840.0],
    }


def test_clients_run_for_as_long_by_the_clock_as_the_device_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Job] = []
    monkeypatch.setattr(driver, "run", lambda _, job, **__: asked.append(job))
    cell = SimpleNamespace(connections=3, seed=1)
    point: Any = SimpleNamespace(cell=cell, device=DEVICE, _is_cancelled=lambda: False)
    nothing: Any = None
    msdj_tpcc._Point._run_clients(point, nothing, nothing, {}, 2.5, part=1)
    [job] = asked
    assert (job.warm_up_s, job.measured_s) == (0.0, 10.0)


@pytest.mark.parametrize(("slowdown", "pages_per_s"), [(1, 2000), (4, 500), (50, 100)])
def test_innodb_flushes_at_the_device_s_pace(slowdown: int, pages_per_s: int) -> None:
    """But for the least that it takes; and of a small pool it keeps no fifth free."""
    cell: Any = SimpleNamespace(buffer_pool_bytes=64 << 20, redo_bytes=48 << 20)
    device: Any = SimpleNamespace(slowdown=slowdown)
    settings = msdj_tpcc._settings(cell, page_writes.find("oj"), device, None)
    assert settings.io_capacity_pages_per_s == pages_per_s
    assert settings.lru_scan_depth == 100


# --- trim_fallocate


def query(begin_s: int, partitioned_s: int, end_s: int, *runnable_s: int) -> QueryRun:
    partition_ns, join_ns = (n * S for n in runnable_s)
    times = (begin_s * S, partitioned_s * S, end_s * S, partition_ns, join_ns)
    return QueryRun(*times, None, 0, [], 0, None)


NOTHING = BlockCounters(*[0] * 10)
REPETITIONS = [
    trim_fallocate._Repetition(
        [query(0, 8, 12, 4, 2), query(12, 16, 20, 2, 2)],
        30 * S,
        {},
        replace(NOTHING, discard_ios=2, discard_sectors=16),
    ),
    trim_fallocate._Repetition(
        [query(40, 44, 52, 3, 1), query(52, 60, 64, 7, 3)], 80 * S, {}, NOTHING
    ),
]
REQUESTS = [
    ("read", 1000, 4),
    ("discard", 21_000, 8),
    ("read", 21_002, 12),
    ("discard", 27_984, 16),  # settled at 28 s
    ("write", 67_000, 1000),  # and at 68 s
]
"""Operation, begin and length in ms by the clock."""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    rows = [
        {
            "issued_ns": begin * MS,
            "latency_ns": took * MS,
            "completed_ns": (begin + took) * MS,
            "lba": 0,
            "sectors": 8,
            "op": op,
            "flags": "",
            "error": False,
        }
        for op, begin, took in REQUESTS
    ]
    path = tmp_path / "block.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=scripts.find("block_io").schema), path)
    return path


def test_repetitions_take_the_device_s_time(trace: Path) -> None:
    assert trim_fallocate._times(REPETITIONS, trace, DEVICE) == {
        "elapsed_s": 5.5,
        "partition_s": 3.0,
        "join_s": 2.5,
        "settle_s": 1.5,
        "first_elapsed_s": 5.0,
        "last_elapsed_s": 6.0,
        "partition_runnable_s": 2.0,
        "join_runnable_s": 1.0,
    }


def test_trims_and_the_reads_beside_them_take_the_device_s_time(trace: Path) -> None:
    assert trim_fallocate._trims(REPETITIONS, trace, DEVICE) == {
        "trim_commands": 1.0,
        "trim_bytes": 4096.0,
        "trim_latency_mean_us": 3000.0,
        "trim_latency_p50_us": 2000.0,
        "trim_latency_p99_us": 4000.0,
        "trim_latency_max_us": 4000.0,
        "reads_alone": 1,
        "read_alone_mean_us": 1000.0,
        "reads_beside_trim": 1,
        "read_beside_trim_mean_us": 3000.0,
    }


def test_the_times_of_each_repetition_are_the_device_s(trace: Path) -> None:
    series = trim_fallocate._series(REPETITIONS, trace, [], DEVICE)
    assert {name: values for name, values in series.items() if name.endswith("_s")} == {
        "repetition_elapsed_s": [5.0, 6.0],
        "repetition_partition_s": [3.0, 3.0],
        "repetition_join_s": [2.0, 3.0],
        "repetition_first_query_s": [3.0, 3.0],
        "repetition_first_partition_s": [2.0, 1.0],
        "repetition_first_join_s": [1.0, 2.0],
    }
    assert series["repetition_trim_commands"] == [2, 0]


# --- ext4's journal, whose timer is the kernel's


def commit_option(spec: Ext4Spec) -> str:
    [option] = [each for each in spec.mount_options if each.startswith("commit=")]
    return option


@pytest.mark.parametrize(
    ("commit_s", "option"),
    [(0.3, "commit=1"), (1.2, "commit=1"), (1.6, "commit=2"), (5.0, "commit=5"), (20, "commit=20")],
)
def test_ext4_commits_every_whole_seconds_and_at_least_one(commit_s: float, option: str) -> None:
    assert commit_option(Ext4Spec(commit_s=commit_s)) == option


@pytest.mark.parametrize(
    ("commit_s", "option"), [(0.3, "commit=1"), (0.4, "commit=2"), (5.0, "commit=20")]
)
def test_on_a_slow_device_ext4_commits_as_often_by_its_time(
    monkeypatch: pytest.MonkeyPatch, commit_s: float, option: str
) -> None:
    """So what is rounded is the clock's."""
    asked: list[Ext4Spec] = []

    def ext4(_: Path, spec: Ext4Spec) -> AbstractContextManager[Path]:
        asked.append(spec)
        return nullcontext(Path("/nowhere"))

    monkeypatch.setattr(filesystems, "ext4", ext4)
    drive: Any = SimpleNamespace(
        path=Path("/nowhere"),
        stats=lambda: {"slowdown": SLOWDOWN},
        set_speed=lambda *_: None,
        check=lambda _: None,
    )
    with EmulatedDevice(drive, None).filesystem(Ext4Spec(commit_s=commit_s)):
        pass
    [spec] = asked
    assert commit_option(spec) == option
