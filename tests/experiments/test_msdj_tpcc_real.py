"""TPC-C in the modes of MS-DJ, really run: what is measured, what was written where, how it fails.

On warehouses of a hundredth of the standard's size.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import leaks
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import REPOSITORY, on_time, open_folder

from harness.dbms import innodb, mysql, page_writes
from harness.dbms.innodb import PageCheck
from harness.dbms.server_memory import ServerMemory
from harness.devices.profiles import NamedRange
from harness.errors import (
    BadParameter,
    DataCorrupted,
    DiskFull,
    HarnessError,
    Interrupted,
    InvalidRun,
    MissingTool,
    ServerError,
    TargetError,
    UnknownName,
)
from harness.experiments.base import Measurement
from harness.experiments.msdj_tpcc import grid, real
from harness.experiments.msdj_tpcc.pages import SHARES, TABLES, concentration
from harness.probes import bpftrace, proof, scripts
from harness.probes.counters import BlockCounters
from harness.system import cgroups, filesystems
from harness.tiers.base import Bench, DeviceRequest
from harness.tiers.emulated import EmulatedBench, EmulatedDevice
from harness.tiers.hardware import HardwareBench
from harness.workloads.ageing import Ageing
from harness.workloads.tpcc import consistency
from harness.workloads.tpcc.consistency import Condition
from harness.workloads.tpcc.inputs import KINDS

PROFILES = REPOSITORY / "hardware" / "profiles"
MIB = 1 << 20
CELL = grid.Cell(
    device="file",
    variant="paper",
    mode="oj_dwb",
    journal_bytes=8 * MIB,
    warehouses=12,
    connections=4,
    warm_up_s=0.5,
    measured_s=2.0,
    buffer_pool_bytes=8 * MIB,
    redo_bytes=8 * MIB,
    redo_on="device",
    page_cache_bytes=64 * MIB,
    device_bytes=256 * MIB,
    ageing_bytes=0,
    size_ratio_to_paper=1.0,
    table_extent_bytes=4 * MIB,
    seed=1,
    doublewrite_on="device",
    filled_ratio=0.0,
)
AGED = replace(CELL, device="ssd", ageing_bytes=1 << 40)
SSD = {"ssd": "crucial_mx500_250gb"}
STREAMS = {"streams": "2", "gc_placement": "by_stream"}

pytestmark = [pytest.mark.servers, pytest.mark.root]


def on_small_warehouses(cell: grid.Cell, bench: Bench, raw: Path) -> Measurement:
    return real.run_point(cell, bench, raw, small_warehouses=True)


@pytest.fixture(scope="module")
def raw() -> Iterator[Path]:
    """A folder that the server's user may enter, unlike pytest's own."""
    try:
        mysql.find_programs()
        cgroups.find_hierarchy()
        bpftrace.program()
    except (MissingTool, TargetError) as error:
        pytest.skip(str(error))
    with open_folder() as folder:
        (folder / "raw").mkdir()
        yield folder / "raw"


@pytest.fixture
def bench(raw: Path) -> Iterator[HardwareBench]:
    target = raw / "scratch"
    with HardwareBench(target) as bench:
        bench.reserve({"file": real.needed_bytes(CELL)})
        yield bench
    assert not target.exists()


@pytest.fixture
def nothing_left(raw: Path) -> Iterator[None]:
    with leaks.nothing_left(raw / "msdj_tpcc" / "recording-*", raw / "mysql" / "*"):
        yield


# --- on a file


@pytest.fixture(scope="module")
def by_mode(raw: Path) -> dict[str, Measurement]:
    """A run of each mode that a real target can have."""
    found = {}
    with HardwareBench(raw / "scratch") as bench:
        bench.reserve({"file": real.needed_bytes(CELL)})
        for mode in ("oj_dwb", "oj", "dj"):
            found[mode] = on_small_warehouses(replace(CELL, mode=mode), bench, raw)
    return found


def test_a_point_says_what_was_done(by_mode: dict[str, Measurement]) -> None:
    for measured in by_mode.values():
        found, series = measured.metrics, measured.series
        assert found["transactions"] > 20
        new_orders = found["new_order_transactions"]
        assert found["tpmc"] == pytest.approx(new_orders / CELL.measured_s * 60)
        for kind in KINDS:
            if found[f"{kind}_transactions"]:
                assert 0 < found[f"{kind}_mean_ms"] <= found[f"{kind}_max_ms"]
        assert len(series["tpmc_time_s"]) == len(series["tpmc_per_interval"]) > 0
        assert found["innodb_data_written_bytes"] > 0
        assert found["pages_flushed"] == found["innodb_pages_written"] > 0
        assert found["journal_commits"] > 0
        assert 0 < found["device_utilisation_ratio"] <= 1
        assert 0 < found["processor_utilisation_ratio"] <= 1
        assert "waf_ratio" not in found  # a file has no flash
        assert measured.block_trace is not None
        assert measured.block_trace.is_file()
    traces = {measured.block_trace for measured in by_mode.values()}
    assert len(traces) == len(by_mode), "another run's may not be taken yet"


def test_bytes_lie_where_the_mode_wants_them(by_mode: dict[str, Measurement]) -> None:
    """A mode that is mounted, started or attributed as another one is found out here."""
    oj_dwb, oj, dj = (by_mode[mode].metrics for mode in ("oj_dwb", "oj", "dj"))
    page = 16384
    # Each page that was flushed went through the doublewrite buffer, or through nothing else.
    assert oj_dwb["innodb_doublewrite_pages"] > 0
    assert oj_dwb["doublewrite_written_bytes"] >= 0.9 * oj_dwb["innodb_doublewrite_pages"] * page
    assert oj["innodb_doublewrite_pages"] == dj["innodb_doublewrite_pages"] == 0
    assert oj["doublewrite_written_bytes"] == dj["doublewrite_written_bytes"] == 0
    # In ordered mode the journal holds metadata alone; else all that InnoDB writes is in it.
    for ordered in (oj_dwb, oj):
        assert ordered["journal_written_bytes"] < 0.2 * ordered["host_written_bytes"]
    assert dj["journal_written_bytes"] > dj["home_written_bytes"] + dj["redo_written_bytes"]
    assert dj["journal_written_bytes"] >= dj["pages_flushed"] * page
    for found in (oj_dwb, oj, dj):
        parts = ("journal", "doublewrite", "redo", "home")
        written_bytes = sum(found[f"{part}_written_bytes"] for part in parts)
        assert found["host_written_bytes"] == written_bytes
        assert found["redo_written_bytes"] > 0
        assert found["home_written_bytes"] > 0


def test_figure_1_is_of_the_journal_and_of_all_else(by_mode: dict[str, Measurement]) -> None:
    found = by_mode["dj"].metrics
    assert found["journal_size_bytes"] == CELL.journal_bytes
    whole = found["journal_size_bytes"] + found["rest_size_bytes"]
    assert CELL.device_bytes * 0.95 < whole <= CELL.device_bytes
    sectors = found["journal_size_bytes"] / 512
    assert found["journal_accesses_per_lba"] >= found["journal_writes_per_lba"]
    written_bytes = found["journal_writes_per_lba"] * sectors * 512
    assert written_bytes == pytest.approx(found["journal_written_bytes"])
    assert found["journal_accesses_per_lba"] > 10 * found["rest_accesses_per_lba"]


def test_tables_have_the_pages_that_were_written_home(by_mode: dict[str, Measurement]) -> None:
    found, series = by_mode["oj_dwb"].metrics, by_mode["oj_dwb"].series
    pages = dict(zip(TABLES, series["table_written_pages"], strict=True))
    assert pages["item"] == 0  # nobody changes it
    assert all(pages[name] > 0 for name in ("stock", "customer", "order_line", "district"))
    home = found["home_written_bytes"]
    assert 0.3 * home < sum(pages.values()) * 16384 <= home
    shares = series["home_write_concentration"]
    assert len(shares) == len(SHARES)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_concentration_is_of_what_was_written_at_all() -> None:
    counts = np.array([0.0, 0, 6, 1, 1, 0, 1, 1])
    assert concentration(counts, (0.001, 0.2, 0.4, 1.0)) == [0.6, 0.6, 0.7, 1.0]
    assert concentration(np.zeros(3), (0.5,)) == []


@pytest.mark.usefixtures("nothing_left")
def test_redo_elsewhere_is_not_on_the_device(raw: Path, bench: HardwareBench) -> None:
    found = on_small_warehouses(replace(CELL, redo_on="elsewhere", mode="oj"), bench, raw).metrics
    assert found["redo_written_bytes"] == 0
    assert found["innodb_redo_written_bytes"] > 0


@pytest.mark.usefixtures("nothing_left")
def test_what_cannot_be_is_told_before_anything_runs(raw: Path, bench: HardwareBench) -> None:
    for change, error, said in (
        ({"mode": "msdj2"}, UnknownName, "unknown mode 'msdj2'; known: .*; did you mean msdj"),
        ({"redo_on": "moon"}, BadParameter, "redo_on 'moon': one of device, elsewhere"),
        ({"doublewrite_on": "elsewhere"}, TargetError, "for the tier simulated"),
        ({"mode": "dj_16k"}, TargetError, "blocks of 16384 B"),
        ({"mode": "msdj"}, TargetError, r"hardware/msdj/ .* JBD2"),
        ({"journal_bytes": 12345}, BadParameter, "must be whole MiB"),
        ({"journal_bytes": 200 * MIB}, TargetError, "does not fit"),
        ({"device": "ssd"}, BadParameter, "has one device"),
    ):
        with pytest.raises(error, match=said):
            on_small_warehouses(replace(CELL, **change), bench, raw)


@pytest.mark.usefixtures("nothing_left")
def test_no_server_and_a_too_old_one_are_told(
    raw: Path, bench: HardwareBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql, "_FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(mysql, "chosen_folders", list)  # PATH may have one, see test_server_series
    with pytest.raises(MissingTool, match="no MariaDB or MySQL server is installed: apt-get"):
        on_small_warehouses(CELL, bench, raw)
    old = tmp_path / "mysqld"
    old.write_text("#!/bin/sh\necho 'mysqld  Ver 5.6.51 for Linux on x86_64 (MySQL)'\n")
    old.chmod(0o755)
    with pytest.raises(HarnessError, match=r"found was MySQL 5.6.51 .* install one of them"):
        on_small_warehouses(CELL, bench, raw)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("device_mib", [40, 120])
def test_a_full_device_is_told(raw: Path, device_mib: int) -> None:
    """Already by the server's own files, or by the tables."""
    small = replace(CELL, device_bytes=device_mib * MIB, warehouses=40)
    with HardwareBench(raw / "small") as bench, pytest.raises(DiskFull) as caught:
        on_small_warehouses(small, bench, raw)
    assert "use a larger" in str(caught.value)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("how", ["killed", "cancelled", "Ctrl-C"])
def test_what_ends_a_run_in_the_middle_leaves_nothing(
    raw: Path, bench: HardwareBench, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    look = ServerMemory.look

    def interfere(memory: ServerMemory) -> None:
        look(memory)
        if len(memory.own) != 5:
            return
        if how == "killed":
            [server] = memory.cgroup.members()
            os.kill(server, signal.SIGKILL)
        elif how == "cancelled":
            bench.cancel.set()
        else:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ServerMemory, "look", interfere)
    expected = {"killed": ServerError, "cancelled": Interrupted, "Ctrl-C": KeyboardInterrupt}
    with pytest.raises(expected[how]):
        on_small_warehouses(replace(CELL, measured_s=60.0), bench, raw)


@pytest.mark.usefixtures("nothing_left")
def test_a_violated_condition_refuses_the_run(
    raw: Path, bench: HardwareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = consistency.check

    def broken(address: Any) -> list[Condition]:
        found = check(address)
        return [*found[:2], replace(found[2], violations=7), *found[3:]]

    monkeypatch.setattr(consistency, "check", broken)
    with pytest.raises(DataCorrupted, match=r"3 \(new orders of a district have no gap\): 7 rows"):
        on_small_warehouses(replace(CELL, warm_up_s=0.0, measured_s=0.5), bench, raw)


@pytest.mark.usefixtures("nothing_left")
def test_a_damaged_page_refuses_the_run(
    raw: Path, bench: HardwareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file of the server that has just stopped: the checker finds it by itself."""
    check = innodb.check_pages

    def damage(data: Path, *others: Any) -> PageCheck:
        with (data / "tpcc" / "stock.ibd").open("r+b") as file:
            file.seek(4 * 16384 + 5000)
            file.write(b"damaged")
        return check(data, *others)

    monkeypatch.setattr(innodb, "check_pages", damage)
    with pytest.raises(DataCorrupted, match=r"1 of \d+ InnoDB pages .* page 4 of stock.ibd"):
        on_small_warehouses(replace(CELL, warm_up_s=0.0, measured_s=0.5), bench, raw)


# --- on a modelled drive


def emulated(raw: Path, slowdown: int, **changes: Any) -> Measurement:
    with EmulatedBench(PROFILES, SSD, STREAMS, slowdown=slowdown) as bench:
        return on_small_warehouses(replace(AGED, **changes), bench, raw)


@pytest.mark.clock
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("mode", ["msdj", "dj"])
def test_the_drive_tells_its_write_amplification_and_knows_the_journal(
    mode: str, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every mode; whether the journal has its stream for itself, a parameter decides."""
    streams = EmulatedDevice.streams
    told: list[NamedRange] = []

    def listen(device: EmulatedDevice, ranges: list[NamedRange]) -> None:
        streams(device, ranges)
        told[:] = ranges

    monkeypatch.setattr(EmulatedDevice, "streams", listen)
    changes: dict[str, Any] = {"mode": mode, "warm_up_s": 0.1, "measured_s": 0.5}
    slowdown, measured = on_time(partial(emulated, raw, **changes), 16, 48)
    found, series = measured.metrics, measured.series
    assert {(each.name, each.stream) for each in told} == {("journal", 1)}
    assert sum(each.end_bytes - each.begin_bytes for each in told) == CELL.journal_bytes
    # What goes home was journaled before, at most a journal's length ago.
    assert found["journal_written_bytes"] > 0
    ahead_bytes = found["journal_written_bytes"] + CELL.journal_bytes
    assert 0 < found["home_written_bytes"] <= ahead_bytes
    assert found["waf_ratio"] > 1.1, "the drive is full"
    assert found["nand_written_bytes"] == pytest.approx(
        found["waf_ratio"] * found["host_written_bytes"], rel=0.01
    )
    assert series["waf_ratio"][-1] == pytest.approx(found["waf_ratio"])
    assert series["waf_written_bytes"][-1] == found["host_written_bytes"]
    assert series["waf_programmed_bytes"][-1] == found["nand_written_bytes"]
    assert series["waf_time_s"] == sorted(series["waf_time_s"])
    assert series["waf_journal_written_bytes"][-1] == found["journal_written_bytes"]
    assert found["slowdown"] == slowdown
    # Of the device's time, of which there was less than of the clock's.
    new_orders = found["new_order_transactions"]
    assert found["tpmc"] == pytest.approx(new_orders / changes["measured_s"] * 60)
    assert 0.5 <= series["waf_time_s"][-1] < 0.5 * slowdown
    assert series["tpmc_time_s"][-1] <= 0.5


@pytest.mark.clock
@pytest.mark.usefixtures("nothing_left")
def test_a_journal_that_the_drive_looks_for_elsewhere_is_found_out(
    raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extents = filesystems.journal_extents
    asked = []

    def elsewhere(*target: Any) -> list[tuple[int, int]]:
        """The drive is told first."""
        asked.append(target)
        moved = 16 * MIB if len(asked) == 1 else 0
        return [(begin + moved, end + moved) for begin, end in extents(*target)]

    monkeypatch.setattr(filesystems, "journal_extents", elsewhere)
    changes = {"mode": "msdj", "ageing_bytes": 0, "warm_up_s": 0.0, "measured_s": 0.3}

    def run(slowdown: int) -> str:
        asked.clear()
        with pytest.raises(InvalidRun) as caught:
            emulated(raw, slowdown, **changes)
        if "replies left late" in str(caught.value):
            raise caught.value
        return str(caught.value)

    _, said = on_time(run, 16, 48)
    assert "the journal was written" in said
    assert "by the block trace" in said


def trace_of(writes: int, folder: Path) -> Path:
    """A block trace of so many writes of 8 sectors."""
    rows = [
        {
            **dict.fromkeys(("issued_ns", "completed_ns", "lba"), n),
            "latency_ns": 1,
            "sectors": 8,
            "op": "write",
            "flags": "W",
            "error": False,
        }
        for n in range(writes)
    ]
    trace = folder / "block.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=scripts.find("block_io").schema), trace)
    return trace


def counted_writes(sectors: int) -> BlockCounters:
    zeros = dict.fromkeys((field.name for field in fields(BlockCounters)), 0)
    return BlockCounters(**{**zeros, "write_sectors": sectors})


@pytest.mark.parametrize(("missing", "is_valid"), [(0, True), (15, True), (25, False)])
def test_a_trace_may_lack_a_request_in_a_hundred(
    tmp_path: Path, missing: int, is_valid: bool
) -> None:
    trace = trace_of(2000 - missing, tmp_path)
    moved = counted_writes(16_000)
    if is_valid:
        assert real._missed_ratio(trace, moved) == pytest.approx(missing / 2000)
        return
    with pytest.raises(InvalidRun, match=r"differ by 1.25%"):
        real._missed_ratio(trace, moved)


def test_a_drive_is_filled_in_order_and_then_aged_at_random(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[Ageing] = []
    monkeypatch.setattr(EmulatedDevice, "age", lambda _, ageing: done.append(ageing))
    with (
        EmulatedBench(PROFILES, SSD, STREAMS, slowdown=1) as bench,
        bench.open_device(DeviceRequest(device="ssd", size_bytes=256 * MIB)) as device,
    ):
        for filled, aged in ((0.5, 64 * MIB), (0.0, 1 << 40), (0.0, 0)):
            real._use(device, replace(CELL, filled_ratio=filled, ageing_bytes=aged))
    assert [(a.pattern, a.region_bytes, a.written_bytes) for a in done] == [
        ("sequential", 128 * MIB, 128 * MIB),
        ("random", 64 * MIB, 128 * MIB),
        ("random", 256 * MIB, 512 * MIB),
    ]


def test_modes_differ_in_what_they_are_named_for() -> None:
    """The drive of all modes is the same but for the placement."""
    chosen = {name: real.placement(mode) for name, mode in page_writes.MODES.items()}
    assert chosen.pop("msdj") == {"placement": "range"}
    assert all(placement == {"placement": "none"} for placement in chosen.values())


def test_room_is_that_of_the_drive_or_of_the_database() -> None:
    assert real.needed_bytes(CELL) >= CELL.device_bytes
    whole = replace(CELL, device_bytes=0, warehouses=100, journal_bytes=5 << 30)
    assert real.needed_bytes(whole) > 5 * (1 << 30) + 100 * 100_000_000


def test_a_trace_that_has_lost_events_is_no_result(
    bench: HardwareBench, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is lost may be all of one place's, whatever little of all bytes it is."""
    monkeypatch.setattr(proof, "of_output", lambda *_: ["bpftrace lost 7 events"])
    with pytest.raises(InvalidRun, match="lost 7 events"):
        on_small_warehouses(CELL, bench, raw)


@pytest.mark.parametrize(("missing", "is_valid"), [(0, True), (1, True), (20, False)])
def test_what_a_drive_s_host_has_written_is_what_the_kernel_counts(
    missing: int, is_valid: bool, tmp_path: Path
) -> None:
    """And what the trace lacks of it is little beside the least that is told of any place."""
    looks = [SimpleNamespace(kernel=counted_writes(sectors)) for sectors in (100, 16_100)]
    point: Any = SimpleNamespace(looks=looks, _journal_moved=lambda: None)
    measured: Any = SimpleNamespace(trace=trace_of(2000 - missing, tmp_path))
    places = {"journal_written_bytes": 500_000, "home_written_bytes": 7_500_000}
    ask = partial(real._Point._host_written, point, measured, places)
    if is_valid:
        assert ask() == 16_000 * 512
        return
    with pytest.raises(InvalidRun, match="the least of places"):
        ask()
