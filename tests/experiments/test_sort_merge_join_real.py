"""PostgreSQL's sort-merge join, really run: what it measures, and how it ends when it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import leaks
import pytest
from conftest import REPOSITORY, cleaning_alone, on_time, open_folder

from harness.dbms import postgres
from harness.dbms.server_memory import ServerMemory
from harness.errors import (
    DataCorrupted,
    DiskFull,
    HarnessError,
    Interrupted,
    MissingTool,
    ServerError,
    TargetError,
)
from harness.experiments.sort_merge_join import agreement, clients, grid, real
from harness.paths import Project
from harness.runs import cleaning
from harness.system import cgroups
from harness.tiers.emulated import EmulatedBench
from harness.tiers.hardware import HardwareBench
from harness.workloads import tpch_tables

PROFILES = REPOSITORY / "hardware" / "profiles"
TINY = 1 / 1024
CELL = grid.Cell(
    device="file",
    clients=2,
    work_mem_bytes=64 << 10,
    size_ratio_to_paper=TINY,
    page_cache_bytes=8 << 20,
    repetition=0,
    variant="paper",
    nominal_work_mem_bytes=64 << 20,
    dirty_ratio=0.2,
)

pytestmark = [pytest.mark.servers, pytest.mark.root]


@pytest.fixture(scope="module")
def raw() -> Iterator[Path]:
    """Inputs in a folder that the server's user may enter, unlike pytest's own."""
    try:
        postgres.find_binaries()
        cgroups.find_hierarchy()
    except (MissingTool, TargetError) as error:
        pytest.skip(str(error))
    with open_folder() as folder:
        yield folder / "raw"


@pytest.fixture
def bench(raw: Path) -> Iterator[HardwareBench]:
    raw.mkdir(exist_ok=True)
    target = raw / "scratch"
    with HardwareBench(target) as bench:
        bench.reserve({"file": real.needed_bytes(CELL) + (1 << 20)})
        yield bench
    assert not target.exists()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    with leaks.nothing_left():
        yield


@pytest.mark.usefixtures("nothing_left")
def test_a_run_takes_its_time_apart_and_counts_its_bytes(raw: Path, bench: HardwareBench) -> None:
    found = real.run_point(CELL, bench, raw).metrics
    assert found["sort_s"] + found["join_s"] == pytest.approx(found["elapsed_s"])
    assert 0 < found["elapsed_min_s"] <= found["elapsed_s"] <= found["elapsed_max_s"]
    sides = {found["outer_heap_bytes"], found["inner_heap_bytes"]}
    assert max(sides) / min(sides) == pytest.approx(10, rel=0.06)
    assert max(sides) == pytest.approx(tpch_tables.LARGE_BYTES * TINY, rel=0.03)
    # Every row goes to tape at least once: what a minimal tuple has behind its first 10 bytes, and
    # 4 of its length.
    once = sum(
        found[f"{side}_rows"] * (found[f"{side}_sort_width_bytes"] - 10 + 4)
        for side in ("outer", "inner")
    )
    space = found["outer_sort_space_bytes"] + found["inner_sort_space_bytes"]
    assert space == pytest.approx(once, rel=0.05)
    assert found["temp_file_bytes"] == pytest.approx(2 * space, rel=0.15)
    assert found["temp_written_bytes"] >= 2 * space * 0.95
    assert found["temp_read_bytes"] == pytest.approx(found["temp_written_bytes"], rel=0.1)
    assert found["inner_runs"] > found["inner_tapes"] >= found["inner_final_ways"] > 1
    assert found["page_cache_mean_bytes"] <= 1.1 * CELL.page_cache_bytes
    assert found["server_memory_bytes"] > 1 << 20
    assert found["server_version"] // 10_000 in range(12, 19)


@pytest.mark.usefixtures("nothing_left")
def test_the_agreement_measures_the_server_in_memory(raw: Path) -> None:
    raw.mkdir(exist_ok=True)
    project = cast(Project, SimpleNamespace(raw=raw))
    found = agreement._in_memory(project, CELL.values)
    assert found["sort_s"] > 0
    assert found["join_s"] > 0


def test_the_plan_has_to_be_the_one_that_is_studied(raw: Path, bench: HardwareBench) -> None:
    values = replace(CELL, clients=1, work_mem_bytes=64 << 20)
    with pytest.raises(HarnessError, match="needs no temp files"):
        real.run_point(values, bench, raw)
    join = {"Node Type": "Hash Join", "Plans": [{"Node Type": "Seq Scan"}, {"Node Type": "Hash"}]}
    with pytest.raises(DataCorrupted, match=r"Hash Join \(Seq Scan, Hash\)"):
        clients._inputs(join, clients.Heard())


def test_a_wrong_result_refuses_the_run(
    raw: Path, bench: HardwareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = tpch_tables.table_files(raw, TINY)
    wrong = replace(right, matches=right.matches + 1)
    monkeypatch.setattr(tpch_tables, "table_files", lambda *_: wrong)
    with pytest.raises(DataCorrupted, match="the run is worthless"):
        real.run_point(replace(CELL, clients=1), bench, raw)


@pytest.mark.usefixtures("nothing_left")
def test_temp_files_that_do_not_fit_say_so(raw: Path, bench: HardwareBench) -> None:
    cell = replace(CELL, clients=4)
    with pytest.raises(DiskFull, match="do not fit on the device under test"):
        real.run_point(cell, bench, raw, file_system_bytes=24 << 20)
    assert real.run_point(replace(CELL, clients=1), bench, raw).metrics["elapsed_s"] > 0


@pytest.mark.parametrize("victim", ["first process", "client's process"])
@pytest.mark.usefixtures("nothing_left")
def test_a_server_that_is_killed_ends_the_run_and_the_next_one_works(
    raw: Path, bench: HardwareBench, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    look = ServerMemory.look
    killed: list[int] = []

    def kill(memory: ServerMemory) -> None:
        look(memory)
        members = memory.cgroup.members()
        backends = [pid for pid in members if b"EXPLAIN" in _command(pid)]
        if backends and not killed:  # the clients are at work
            killed.append(members[0] if victim == "first process" else backends[0])
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(ServerMemory, "look", kill)
    with pytest.raises(ServerError, match="PostgreSQL ended in the middle"):
        real.run_point(replace(CELL, size_ratio_to_paper=8 * TINY), bench, raw)
    monkeypatch.undo()
    assert killed
    assert real.run_point(replace(CELL, clients=1), bench, raw).metrics["elapsed_s"] > 0


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.usefixtures("nothing_left")
def test_a_cancelled_run_cancels_its_clients(
    raw: Path, bench: HardwareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = ServerMemory.look
    looks: list[int] = []

    def cancel(memory: ServerMemory) -> None:
        look(memory)
        looks.append(1)
        if len(looks) == 2:  # the first look comes before the clients
            bench.cancel.set()

    monkeypatch.setattr(ServerMemory, "look", cancel)
    with pytest.raises(Interrupted):
        real.run_point(replace(CELL, size_ratio_to_paper=8 * TINY), bench, raw)


@pytest.mark.usefixtures("nothing_left")
def test_ctrl_c_in_the_middle_ends_all_clients(
    raw: Path, bench: HardwareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = ServerMemory.look
    looks: list[int] = []

    def interrupt(memory: ServerMemory) -> None:
        look(memory)
        looks.append(1)
        if len(looks) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ServerMemory, "look", interrupt)
    with pytest.raises(KeyboardInterrupt):
        real.run_point(replace(CELL, size_ratio_to_paper=8 * TINY), bench, raw)


def test_too_little_memory_is_told(raw: Path, bench: HardwareBench) -> None:
    with pytest.raises(HarnessError, match=r"more (cache_bytes|memory)"):
        real.run_point(CELL, bench, raw, memory_bytes=5 << 20)


PROGRAM = """
import sys, time
from pathlib import Path
from harness.dbms.server_memory import ServerMemory
from harness.experiments.sort_merge_join import real
from harness.experiments.sort_merge_join.grid import Cell
from harness.tiers.emulated import EmulatedBench
look = ServerMemory.look
def hang(memory):
    look(memory)
    if len(memory.own) == 3:
        print(memory.cgroup.folder, *memory.cgroup.members(), flush=True)
        time.sleep(600)
ServerMemory.look = hang
bench = EmulatedBench(Path(sys.argv[1]), {"hdd": "hitachi_hds721010dle630"}, slowdown=50)
cell = Cell(device="hdd", variant="paper", clients=1, nominal_work_mem_bytes=1 << 20,
            work_mem_bytes=65536, page_cache_bytes=4 << 20, dirty_ratio=0.2,
            size_ratio_to_paper=8 / 1024, repetition=0)
real.run_point(cell, bench, Path(sys.argv[2]))
"""


@cleaning_alone
def test_what_a_killed_run_leaves_is_cleaned(raw: Path) -> None:
    before = leaks.look()
    command = [sys.executable, "-c", PROGRAM, str(PROFILES), str(raw)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder, *members = process.stdout.readline().split()
        come = leaks.look().rows - before.rows
        [mount] = [row for row in come if row.startswith("mount ") and "/flashlab-fs-" in row]
        bound = Path("/sys/class/bdi") / mount.split()[3] / "strict_limit"
        assert bound.read_text().strip() == "1"
        process.kill()
    assert Path(folder).is_dir()
    assert mount in leaks.look().rows
    found = cleaning.clean()
    assert found.failed == []
    assert not Path(folder).exists()
    assert not bound.exists() or bound.read_text().strip() == "0"
    assert all(not _command(int(pid)) for pid in members)
    assert leaks.changes(before) == []
    assert list((raw / "postgres").iterdir()) == []


@pytest.mark.clock
def test_an_emulated_drive_is_watched_in_each_phase(raw: Path) -> None:
    names = {"hdd": "hitachi_hds721010dle630"}
    traces = raw.parent / "traces"
    values = replace(CELL, device="hdd", page_cache_bytes=2 << 20)

    def measured(slowdown: int) -> dict[str, int | float]:
        with EmulatedBench(PROFILES, names, slowdown=slowdown, traces=traces) as bench:
            return dict(real.run_point(values, bench, raw).metrics)

    slowdown, found = on_time(measured, 20, 60)
    assert found["slowdown"] == slowdown
    assert 0 < found["sort_utilisation_ratio"] <= 1
    assert 0 < found["join_utilisation_ratio"] <= 1
    assert found["sort_write_bytes"] <= found["device_write_bytes"]
    assert found["sort_read_bytes"] + found["join_read_bytes"] > 0
