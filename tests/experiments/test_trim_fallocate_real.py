"""A cell of the matrix of TRIM and fallocate, really run: what it measures, and how it fails."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import leaks
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import REPOSITORY, cleaning_alone, on_time, open_folder

from harness.dbms import postgres, temp_files
from harness.dbms.server_memory import ServerMemory
from harness.devices.profiles import load_host
from harness.errors import (
    BadParameter,
    DataCorrupted,
    DiskFull,
    HarnessError,
    Interrupted,
    MissingTool,
    ServerError,
    TargetError,
    UnknownName,
)
from harness.experiments.base import Measurement
from harness.experiments.trim_fallocate import agreement, grid, hash_batches, model, queries, real
from harness.paths import Project
from harness.probes import bpftrace, extents, scripts
from harness.runs import cleaning
from harness.system import cgroups
from harness.tiers.emulated import EmulatedBench
from harness.tiers.hardware import HardwareBench
from harness.workloads import tpch_tables

PROFILES = REPOSITORY / "hardware" / "profiles"
MX500 = "crucial_mx500_250gb"
CELL = grid.Cell(
    device="file",
    device_bytes=192 << 20,
    trim="discard",
    preallocation_bytes=0,
    workload="hash_join",
    work_mem_bytes=64 << 10,
    scale_factor=0.01,
    repetitions=1,
    page_cache_bytes=8 << 20,
    dirty_ratio=0.1,
    max_files=1000,
    commit_s=5.0,
    variant="paper",
    size_ratio_to_paper=1.0,
    shared_buffers_bytes=0,
    occupied_ratio=0.0,
    occupied_piece_bytes=0,
    preallocate_again=False,
    give_back=False,
    queries_per_repetition=1,
)
PREALLOCATED = replace(CELL, preallocation_bytes=1 << 20)
LONGER = replace(CELL, scale_factor=0.05)

pytestmark = [pytest.mark.servers, pytest.mark.root]


@pytest.fixture(scope="module")
def raw() -> Iterator[Path]:
    """Inputs in a folder that the server's user may enter, unlike pytest's own."""
    try:
        postgres.find_binaries()
        cgroups.find_hierarchy()
        bpftrace.program()
    except (MissingTool, TargetError) as error:
        pytest.skip(str(error))
    with open_folder() as folder:
        yield folder / "raw"


@pytest.fixture
def bench(raw: Path) -> Iterator[HardwareBench]:
    raw.mkdir(exist_ok=True)
    target = raw / "scratch"
    with HardwareBench(target) as bench:
        bench.reserve({"file": real.needed_bytes(CELL)})
        yield bench
    assert not target.exists()


def watched(raw: Path) -> tuple[Path, ...]:
    return raw / "trim_fallocate" / "recording-*", raw / "postgres" / "*"


@pytest.fixture
def nothing_left(raw: Path) -> Iterator[None]:
    with leaks.nothing_left(*watched(raw)):
        yield


def check_discards(found: dict[str, Any]) -> None:
    """What the files were at their end was deleted, and so discarded at least once."""
    assert found["trim_bytes"] >= found["temp_file_bytes"] * 0.95
    assert found["trim_commands"] > 0
    assert found["trim_latency_mean_us"] > 0


def repetition(**counted: int) -> real._Repetition:
    return real._Repetition([], 0, counted)


@pytest.mark.parametrize("host", ["write_bytes", "nand_host_bytes"])
def test_write_amplification_is_of_what_a_model_or_a_drive_counts(host: str) -> None:
    both = [repetition(**{host: n, "nand_write_bytes": 2 * n, "trim_ranges": 1}) for n in (10, 30)]
    assert real._amplification(both) == {
        "waf_ratio": 2.0,
        "first_waf_ratio": 2.0,
        "last_waf_ratio": 2.0,
    }


@pytest.mark.parametrize("counted", [{}, {"trim_ranges": 3}, {"nand_write_bytes": 3}])
def test_a_drive_that_does_not_count_both_has_no_write_amplification(
    counted: dict[str, int],
) -> None:
    assert real._amplification([repetition(**counted)]) == {}


def test_the_agreement_names_the_repetition_that_is_farthest_off() -> None:
    orders = [{"repetition_waf_ratio": [1.0, waf]} for waf in (1.8, 2.0, 4.0)]
    assert agreement._worst_waf({"repetition_waf_ratio": [1.1, 1.6]}, orders) == 0.8
    assert agreement._worst_waf({"repetition_waf_ratio": [1.3, 1.6]}, orders) == 1.3


def measured(**changes: Any) -> dict[str, Any]:
    """A point as a run of it is recorded, with the server runnable for 2 and 3 s by the clock."""
    slowdown = 4.0
    times = {"partition_runnable_s": 2 / slowdown, "join_runnable_s": 3 / slowdown}
    return {**CELL.values, **times, "point": "0", "slowdown": slowdown, **changes}


def test_the_model_has_the_server_s_time_from_the_run(tmp_path: Path) -> None:
    project = cast(Project, SimpleNamespace(profiles=PROFILES, build=tmp_path))
    point = measured(queries_per_repetition=2, commit_s=0.3)
    host = load_host(tmp_path, agreement._host(project, MX500, point).stem)
    assert host.hash_join is not None
    assert host.ext4 is not None
    rows = CELL.scale_factor * (hash_batches.ORDERS.rows + hash_batches.LINEITEM.rows)
    for ns, clock_s in (
        (host.hash_join.partition_tuple_cpu.value, 2),
        (host.hash_join.build_tuple_cpu.value, 3),
        (host.hash_join.probe_tuple_cpu.value, 3),
    ):
        assert ns * rows * 2 * 4 == pytest.approx(clock_s * 1e9, rel=0.01)
    # 1.2 s of the clock are 1 s to the kernel.
    assert host.ext4.commit_interval.value == 250_000_000


def test_a_run_that_does_not_say_how_long_its_server_was_runnable_is_refused() -> None:
    assert agreement.runnable_s(measured(), "join") == 0.75
    with pytest.raises(BadParameter, match="run it again"):
        agreement.runnable_s(measured(join_runnable_s=math.nan), "join")
    old = {name: value for name, value in measured().items() if name != "join_runnable_s"}
    with pytest.raises(BadParameter, match="run it again"):
        agreement.runnable_s(old, "join")


@pytest.fixture(scope="module")
def grown(raw: Path) -> Measurement:
    """Two repetitions with discard and without preallocation."""
    raw.mkdir(exist_ok=True)
    with HardwareBench(raw / "scratch") as bench:
        return real.run_point(replace(CELL, repetitions=2), bench, raw)


def test_a_cell_takes_its_time_apart_and_counts(raw: Path, grown: Measurement) -> None:
    measured = grown
    found, series = measured.metrics, measured.series
    assert found["partition_s"] + found["join_s"] == pytest.approx(found["elapsed_s"])
    assert 0 < found["partition_s"] < found["elapsed_s"]
    assert found["settle_s"] >= 0
    # A row takes the server 0.7 us in each phase; how long it sleeps is the machine's affair.
    rows = CELL.scale_factor * (hash_batches.ORDERS.rows + hash_batches.LINEITEM.rows)
    for phase in ("partition", "join"):
        assert rows * 100e-9 < found[f"{phase}_runnable_s"] <= 1.01 * found[f"{phase}_s"]
    assert [found["first_elapsed_s"], found["last_elapsed_s"]] == series["repetition_elapsed_s"]
    each = model.FILE_TUPLE_BYTES.items()
    spilled = sum(table.rows * row for table, row in each) * CELL.scale_factor
    spilled *= (found["batches"] - 1) / found["batches"]
    assert found["temp_file_bytes"] == pytest.approx(spilled, rel=0.01)
    # A pair of files for each batch but the first, which needs none. From PostgreSQL 18 on
    # there are fewer: ExecChooseHashTableSize counts the files' buffers as memory, too.
    assert found["temp_files"] == 2 * (found["batches"] - 1)
    assert found["batches"] >= 16
    assert series["repetition_files"] == [found["temp_files"]] * 2
    assert found["extents_per_file"] == sum(series["repetition_extents"]) / (
        2 * found["temp_files"]
    )
    assert found["extents_per_file"] > 1
    # All columns of both tables go to the files, but for the batch in memory.
    tables = tpch_tables.whole_tables(raw, CELL.scale_factor)
    text = sum(file.stat().st_size for file in tables.files.values())
    assert 0.8 * text < found["temp_written_bytes"] < 2 * text
    assert found["temp_read_bytes"] == found["temp_written_bytes"]
    check_discards(found)
    assert sum(series["trim_length_histogram"]) == sum(series["repetition_trim_commands"])
    assert sum(series["extent_length_histogram"]) == sum(series["repetition_extents"])
    assert found["page_cache_mean_bytes"] <= 1.1 * CELL.page_cache_bytes
    assert "waf_ratio" not in found  # a file has no flash
    assert measured.block_trace is not None
    assert measured.block_trace.is_file()


@pytest.mark.usefixtures("nothing_left")
def test_preallocated_files_have_fewer_extents_and_trims(
    raw: Path, bench: HardwareBench, grown: Measurement
) -> None:
    without = grown.metrics
    measured = real.run_point(PREALLOCATED, bench, raw)
    found = measured.metrics
    assert measured.block_trace != grown.block_trace, "another run's may not be taken yet"
    assert found["extents_per_file"] == pytest.approx(1, abs=0.1)
    assert found["extents_per_file"] < without["extents_per_file"]
    assert found["trim_commands"] < without["trim_commands"]
    assert found["temp_written_bytes"] == pytest.approx(without["temp_written_bytes"], rel=0.01)
    check_discards(found)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("trim", ["none", "fstrim"])
def test_other_policies_discard_never_or_after_the_query(
    raw: Path, bench: HardwareBench, trim: str
) -> None:
    measured = real.run_point(replace(CELL, trim=trim), bench, raw)
    assert measured.block_trace is not None
    rows = pq.read_table(measured.block_trace).to_pandas()
    discards = rows[rows.op == "discard"]
    if trim == "none":
        assert len(discards) == measured.metrics["trim_commands"] == 0
    else:
        assert measured.metrics["trim_bytes"] >= 0.5 * CELL.device_bytes
        others = rows[rows.op != "discard"]
        assert discards.issued_ns.min() > others.issued_ns[others.op == "write"].max()


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("workload", sorted(set(queries.WORKLOADS) - {"hash_join"}))
def test_other_workloads_spill_too(raw: Path, bench: HardwareBench, workload: str) -> None:
    values = replace(CELL, workload=workload, scale_factor=0.05, work_mem_bytes=256 << 10)
    found = real.run_point(values, bench, raw).metrics
    assert found["temp_files"] >= 1
    assert found["temp_written_bytes"] > 1 << 20
    check_discards(found)
    assert ("temp_read_bytes" in found) == (workload != "create_index")


def test_a_plan_that_is_not_the_one_is_refused() -> None:
    heard = queries.Heard()
    heard.note("temporary file: path base/pgsql_tmp/pgsql_tmp1.0, size 8192", os.getpid())
    assert heard.file_bytes == [8192]
    join = queries.find("hash_join")
    with pytest.raises(DataCorrupted, match="is a Merge Join, not a Hash Join"):
        queries._checked({"Node Type": "Merge Join"}, join, heard)
    other = {"Node Type": "Hash", "Plans": [{"Relation Name": "lineitem"}]}
    with pytest.raises(DataCorrupted, match="does not hash the table orders"):
        queries._checked({"Node Type": "Hash Join", "Plans": [other]}, join, heard)
    grouped = queries.find("hash_aggregate")
    for strategy, said in (
        ({"Strategy": "Sorted"}, "is Sorted, not Hashed"),
        ({}, "of no strategy"),
    ):
        with pytest.raises(DataCorrupted, match=said):
            queries._checked({"Node Type": "Aggregate", **strategy}, grouped, heard)
    plan = {"Node Type": "Aggregate", "Strategy": "Hashed"}
    assert queries._checked(plan, grouped, heard) == heard.first
    with pytest.raises(UnknownName, match="hash_join"):
        queries.find("hash_joint")


def test_a_discard_whose_end_was_not_seen_is_of_the_repetition_that_issued_it(
    tmp_path: Path,
) -> None:
    """Else it would be in none, and in no number of TRIMs; of one that is nowhere nobody knows."""
    rows: dict[str, Any] = {
        "op": pa.array(["discard", "discard", "write", "discard"]).dictionary_encode(),
        "issued_ns": pa.array([140, 240, None, 340], pa.int64()),
        "completed_ns": pa.array([150, 250, None, 350], pa.int64()),
        "sectors": pa.array([8, 16, 4, 32], pa.int64()),
    }
    spans = [
        SimpleNamespace(begin_ns=100, quiet_ns=200),
        SimpleNamespace(begin_ns=200, quiet_ns=400),
    ]
    repetitions = cast("list[Any]", spans)
    pq.write_table(pa.table(rows), tmp_path / "whole.parquet")
    assert real._discards(repetitions, tmp_path / "whole.parquet") == [[8], [16, 32]]
    rows["completed_ns"] = pa.array([150, None, 160, 350], pa.int64())
    pq.write_table(pa.table(rows), tmp_path / "endless.parquet")
    assert real._discards(repetitions, tmp_path / "endless.parquet") == [[8], [16, 32]]
    rows["issued_ns"] = pa.array([140, None, 150, 340], pa.int64())
    pq.write_table(pa.table(rows), tmp_path / "nowhere.parquet")
    with pytest.raises(DataCorrupted, match="of 1 discards neither issue nor end"):
        real._discards(repetitions, tmp_path / "nowhere.parquet")


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_a_query_that_needs_no_files_is_refused(raw: Path, bench: HardwareBench) -> None:
    with pytest.raises(HarnessError, match="nothing was spilled"):
        real.run_point(replace(CELL, work_mem_bytes=64 << 20), bench, raw)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_a_wrong_result_refuses_the_run(
    raw: Path, bench: HardwareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = tpch_tables.whole_tables(raw, CELL.scale_factor)
    wrong = replace(right, matches=right.matches + 1)
    monkeypatch.setattr(tpch_tables, "whole_tables", lambda *_: wrong)
    with pytest.raises(DataCorrupted, match="the run is worthless"):
        real.run_point(CELL, bench, raw)


@pytest.mark.usefixtures("nothing_left")
def test_a_full_device_says_what_preallocation_has_to_do_with_it(
    raw: Path, bench: HardwareBench
) -> None:
    """The same files fit when they take what they need."""
    values = replace(CELL, preallocation_bytes=8 << 20)
    with pytest.raises(DiskFull, match="could not create temporary file") as caught:
        real.run_point(values, bench, raw)
    said = str(caught.value)
    assert "preallocation_bytes = 8 MiB" in said
    assert "files were open" in said
    assert "No space left on device" in said


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_a_full_device_says_so(raw: Path) -> None:
    small = replace(CELL, device_bytes=20 << 20, scale_factor=0.02)
    with HardwareBench(raw / "small") as bench, pytest.raises(DiskFull) as caught:
        real.run_point(small, bench, raw)
    assert "do not fit on the device under test" in str(caught.value)
    assert "preallocation" not in str(caught.value)


@pytest.mark.usefixtures("nothing_left")
def test_a_missing_library_is_told(
    raw: Path, bench: HardwareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temp_files, "LIBRARY", raw / "nowhere.so")
    with pytest.raises(MissingTool, match=r"nowhere.so is missing"):
        real.run_point(PREALLOCATED, bench, raw)


@pytest.mark.usefixtures("nothing_left")
def test_a_device_without_discard_is_told(raw: Path) -> None:
    names = {"hdd": "hitachi_hds721010dle630"}
    values = replace(CELL, device="hdd")
    with (
        EmulatedBench(PROFILES, names, slowdown=1) as bench,
        pytest.raises(TargetError, match="knows no discard"),
    ):
        real.run_point(values, bench, raw)


def test_an_unknown_policy_is_told(raw: Path, bench: HardwareBench) -> None:
    with pytest.raises(BadParameter, match="one of none, discard, fstrim"):
        real.run_point(replace(CELL, trim="sometimes"), bench, raw)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    "how",
    ["killed", *(pytest.param(how, marks=pytest.mark.slow) for how in ("cancelled", "Ctrl-C"))],
)
def test_what_ends_a_run_in_the_middle_leaves_nothing(
    raw: Path, bench: HardwareBench, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    look = ServerMemory.look
    done: list[int] = []

    def interfere(memory: ServerMemory) -> None:
        look(memory)
        backends = [pid for pid in memory.cgroup.members() if b"EXPLAIN" in _command(pid)]
        if not backends or done:
            return
        done.append(backends[0])
        if how == "killed":
            os.kill(backends[0], signal.SIGKILL)
        elif how == "cancelled":
            bench.cancel.set()
        else:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ServerMemory, "look", interfere)
    expected = {"killed": ServerError, "cancelled": Interrupted, "Ctrl-C": KeyboardInterrupt}
    with pytest.raises(expected[how]):
        real.run_point(LONGER, bench, raw)
    assert done


PROGRAM = """
import sys, time
from pathlib import Path
from harness.dbms.server_memory import ServerMemory
from harness.experiments.base import Measurement
from harness.experiments.trim_fallocate import real
from harness.experiments.trim_fallocate.grid import Cell
from harness.tiers.emulated import EmulatedBench
look = ServerMemory.look
def hang(memory):
    look(memory)
    if len(memory.own) == 3:
        print(memory.cgroup.folder, *memory.cgroup.members(), flush=True)
        time.sleep(600)
ServerMemory.look = hang
bench = EmulatedBench(Path(sys.argv[1]), {"ssd": "crucial_mx500_250gb"}, slowdown=50)
cell = Cell(device="ssd", variant="paper", device_bytes=1 << 30, trim="discard", scale_factor=0.05,
            preallocation_bytes=1 << 20, workload="hash_join", work_mem_bytes=65536,
            repetitions=1, page_cache_bytes=4 << 20, dirty_ratio=0.2, max_files=1000,
            commit_s=5.0, size_ratio_to_paper=1.0, shared_buffers_bytes=0, occupied_ratio=0.0)
real.run_point(cell, bench, Path(sys.argv[2]))
"""


@cleaning_alone
@pytest.mark.slow
def test_what_a_killed_run_leaves_is_cleaned(raw: Path) -> None:
    raw.mkdir(exist_ok=True)
    before = leaks.look(*watched(raw))
    command = [sys.executable, "-c", PROGRAM, str(PROFILES), str(raw)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder, *members = process.stdout.readline().split()
        process.kill()
    assert Path(folder).is_dir()
    found = cleaning.clean()
    assert found.failed == []
    assert not Path(folder).exists()
    assert all(not _command(int(pid)) for pid in members)
    assert leaks.changes(before) == []


@pytest.mark.clock
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_an_emulated_drive_tells_its_write_amplification(raw: Path) -> None:
    values = replace(CELL, device="ssd", device_bytes=512 << 20, repetitions=2)

    def run(slowdown: int) -> Measurement:
        names = {"ssd": "crucial_mx500_250gb"}
        with EmulatedBench(PROFILES, names, slowdown=slowdown) as bench:
            return real.run_point(values, bench, raw)

    slowdown, measured = on_time(run, 10, 40)
    found = measured.metrics
    assert found["waf_ratio"] >= 1
    each = measured.series["repetition_waf_ratio"]
    assert [found["first_waf_ratio"], found["last_waf_ratio"]] == each
    assert found["device_trim_ios"] == sum(measured.series["repetition_trim_commands"])
    assert found["device_trim_bytes"] == sum(measured.series["repetition_trim_bytes"])
    assert found["slowdown"] == slowdown


def events(folder: Path, *rows: tuple[str, int, int, int, int, int, int]) -> Path:
    """A recording with (event, time_ns, inode, logical_block, block, blocks, flags) of each."""
    names = ("event", "time_ns", "inode", "logical_block", "block", "blocks", "flags")
    table = [{**dict(zip(names, row, strict=True)), "goal": None} for row in rows]
    path = folder / "ext4.parquet"
    pq.write_table(pa.Table.from_pylist(table, schema=scripts.find("ext4_extents").schema), path)
    return path


def test_extents_are_what_is_contiguous_when_a_file_goes(tmp_path: Path) -> None:
    data, tree = 0x20, 0x1
    found = extents.files(
        events(
            tmp_path,
            ("allocate", 1, 12, 0, 100, 8, data),
            ("allocate", 2, 13, 0, 108, 8, data),
            ("allocate", 3, 12, 16, 200, 4, data),
            ("allocate", 4, 12, 0, 999, 1, 0),  # of its tree
            ("free", 5, 12, 0, 999, 1, tree),
            ("allocate", 6, 12, 8, 108, 8, data),
            ("free", 7, 12, 0, 100, 20, 0),
            ("free", 8, 12, 0, 300, 4, 0),
            ("allocate", 9, 12, 0, 500, 2, data),
        )
    )
    assert [(f.inode, f.created_ns, f.freed_ns) for f in found] == [
        (12, 1, 7),
        (13, 2, 0),
        (12, 9, 0),
    ]
    assert found[0].extents() == [extents.Piece(0, 100, 16), extents.Piece(16, 200, 4)]
    assert extents.freed_within(found, 7, 8) == [found[0]]
    assert extents.freed_within(found, 1, 7) == []


def test_lengths_are_counted_by_powers_of_two() -> None:
    assert extents.length_histogram([]) == []
    assert extents.length_histogram([1, 2, 3, 4, 1 << 20]) == [1, 2, 1, *[0] * 17, 1]
