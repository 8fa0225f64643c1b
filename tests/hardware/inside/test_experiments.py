"""In the guest: every experiment, as small as it gets, on drives that were claimed for it.

By the kernel's own AHCI and NVMe drivers, with the real servers, fio and bpftrace. The processor is
emulated, so no time says anything here; what is written where does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from hardware.drives import MIB, FdpNvme, Nvme, Sata
from hardware.inside import claimed
from hardware.inside.claims import drive_of
from harness.drives import guard, placement
from harness.drives.discovery import Drive, Machine
from harness.errors import TargetError
from harness.experiments import grace_hash_join
from harness.experiments.base import Measurement
from harness.experiments.msdj_tpcc import grid as msdj_tpcc_grid
from harness.experiments.msdj_tpcc import real as msdj_tpcc_real
from harness.experiments.sort_merge_join import grid as sort_merge_join_grid
from harness.experiments.sort_merge_join import real as sort_merge_join_real
from harness.experiments.trim_fallocate import grid as trim_fallocate_grid
from harness.experiments.trim_fallocate import real as trim_fallocate_real
from harness.paths import Project
from harness.runs.session import Options, open_session
from harness.tiers.hardware import HardwareBench
from harness.workloads.tpch import join_inputs

SSD, HDD, NVME, FDP = "SS2037E4B7C9", "HD7K1CXR9F04", "NV5C1A7D20E1", "FD5C1A7D20E1"
SIZE_BYTES = 1024 * MIB
DRIVES = (
    Nvme(serial=NVME, size_bytes=SIZE_BYTES),
    Sata(SSD, "FLASHLAB SSD 1024", "M3CR046", 0x500A0751E4B7C901, 1, SIZE_BYTES),
    Sata(HDD, "FLASHLAB HDD 1024", "MX6OA5Q0", 0x5000CCA39BD0F402, 7200, SIZE_BYTES, discard=False),
    FdpNvme(FDP, ("0", "1"), size_bytes=SIZE_BYTES),
)
CLAIMS = {
    "ssd": (SSD, 0),
    "hdd": (HDD, 0),
    "nvme": (NVME, 0),
    "fdp": (FDP, 0),
    "fdp_journal": (FDP, 1),
}


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    with claimed.claimed(CLAIMS) as made:
        yield made


@contextmanager
def bench(project: Project, name: str, journal: str = "") -> Iterator[HardwareBench]:
    """The claimed drive, as the experiments' ssd or hdd; nobody else's drive is written to."""
    device = "hdd" if name == "hdd" else "ssd"
    own = {guard.check(used, project).name for used in (name, journal) if used}
    others = [drive for drive in Machine().drives if drive.name not in own | {root().name}]
    before = [written_sectors(drive) for drive in others]
    with HardwareBench(
        drives={device: name},
        budget_bytes=4 * SIZE_BYTES,
        project=project,
        journals={device: journal} if journal else None,
    ) as made:
        yield made
    assert [written_sectors(drive) for drive in others] == before
    assert all(not Machine().partitions(used) for used in own)


def root() -> Drive:
    return next(d for d in Machine().drives if d.name in Machine().system_drives())


def written_sectors(drive: Drive) -> int:
    return int((Path("/sys/block") / drive.name / "stat").read_text().split()[6])


def moved(serial: str, before: int, which: int = 0) -> int:
    return (written_sectors(drive_of(serial, which)) - before) * 512


@pytest.mark.parametrize("name", ["ssd", "hdd", "nvme"])
def test_grace_hash_join(name: str, project: Project) -> None:
    parameters = grace_hash_join.grid.Parameters(
        scale="smoke",
        repetitions=1,
        algorithms=["grace"],
        read_buffers=["4 MiB"],
        write_buffer="4 KiB",
        write_buffers=[],
        write_sweep_read_buffer="16 MiB",
        users=[1],
        users_read_buffer="8 MiB",
        queue_depths=[1, 8],
    )
    matches = len(join_inputs(project.raw, "smoke").lineitem)
    with bench(project, name) as made:
        for point in grace_hash_join.EXPERIMENT.points(parameters, made):
            run = grace_hash_join.EXPERIMENT.run_point(point, parameters, made, project.raw)
            assert run.metrics["matches"] == matches
            assert run.metrics["elapsed_s"] > 0
        assert "waf_says" in made.remarks


def test_sort_merge_join(project: Project) -> None:
    for name in ("hdd", "ssd"):
        cell = sort_merge_join_grid.Cell(
            device=name,
            variant="paper",
            clients=1,
            nominal_work_mem_bytes=64 << 20,
            work_mem_bytes=64 << 10,
            size_ratio_to_paper=1 / 1024,
            page_cache_bytes=8 << 20,
            dirty_ratio=0.2,
            repetition=0,
        )
        with bench(project, name) as made:
            found = sort_merge_join_real.run_point(cell, made, project.raw).metrics
        assert found["elapsed_s"] == pytest.approx(found["sort_s"] + found["join_s"])


@pytest.mark.parametrize("trim", ["discard", "none"])
def test_trim_fallocate(trim: str, project: Project) -> None:
    cell = trim_fallocate_grid.Cell(
        device="ssd",
        device_bytes=192 * MIB,
        trim=trim,
        preallocation_bytes=MIB,
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
    with bench(project, "ssd") as made:
        found = trim_fallocate_real.run_point(cell, made, project.raw).metrics
    assert (found["trim_commands"] > 0) == (trim == "discard")


def tpcc(project: Project, name: str, journal: str, mode: str) -> Measurement:
    cell = msdj_tpcc_grid.Cell(
        device="ssd",
        variant="paper",
        mode=mode,
        journal_bytes=8 * MIB,
        warehouses=2,
        connections=2,
        warm_up_s=1.0,
        measured_s=10.0,
        buffer_pool_bytes=8 * MIB,
        redo_bytes=8 * MIB,
        redo_on="device",
        page_cache_bytes=64 * MIB,
        device_bytes=256 * MIB,
        ageing_bytes=32 * MIB,
        size_ratio_to_paper=1.0,
        seed=1,
        doublewrite_on="device",
        filled_ratio=0.0,
        table_extent_bytes=msdj_tpcc_grid.TABLE_EXTENT_BYTES,
    )
    with bench(project, name, journal) as made:
        return msdj_tpcc_real.run_point(cell, made, project.raw, small_warehouses=True)


def test_tpcc_with_the_journal_inside(project: Project) -> None:
    found = tpcc(project, "nvme", "", "dj").metrics
    assert found["new_order_transactions"] > 0
    assert found["journal_written_bytes"] > 0
    assert found["journal_commits"] > 0


def test_tpcc_with_the_journal_on_a_handle_of_its_own(project: Project) -> None:
    """MS-DJ, without a change to the kernel: both namespaces through the guard."""
    before = written_sectors(drive_of(FDP, 1))
    handles = [placement.handles(drive_of(FDP, which).node)[0] for which in (0, 1)]
    assert handles[0].reclaim_unit_handle != handles[1].reclaim_unit_handle
    run = tpcc(project, "fdp", "fdp_journal", "msdj")
    found = run.metrics
    assert found["new_order_transactions"] > 0
    assert found["journal_commits"] > 0
    assert 0 < found["journal_written_bytes"] < moved(FDP, before, which=1)
    assert found["journal_size_bytes"] == 8 * MIB
    assert found["host_written_bytes"] > found["journal_written_bytes"]
    assert found["home_written_bytes"] > 0


def test_a_journal_apart_needs_a_namespace_for_it(project: Project) -> None:
    """It is said before the first point is run."""

    def refused(match: str, **journals: str) -> None:
        options = Options(
            drives={"ssd": "fdp"}, journals=journals, settings={"modes": "[dj, msdj]"}
        )
        with (
            pytest.raises(TargetError, match=match),
            open_session(project, "msdj_tpcc", "hardware", options),
        ):
            pass

    refused("second namespace")
    refused("not a namespace of the same drive", ssd="nvme")


def test_the_plan_of_ms_dj_has_both_namespaces(project: Project) -> None:
    settings = ("--set", "modes=[msdj]", "--set", "journals=[8 MiB]", "--set", "warehouses=1")
    drives = ("--drive", "ssd=fdp", "--journal", "ssd=fdp_journal", "--set", "device=512 MiB")
    small = ("--set", "measured_s=10", "--set", "ageing=64 MiB", "--set", "filled_ratio=0")
    rest = (*settings, *drives, *small, "--plan")
    data, journal = (drive_of(FDP, which) for which in (0, 1))
    before = [written_sectors(drive) for drive in (data, journal)]
    said = harness("run", "msdj_tpcc", "--tier", "hardware", *rest, project=project)
    assert "mke2fs -t ext4 -F -q -b 4096 -O journal_dev -U" in said
    assert f"{guard.part_of(journal)} 8196k" in said  # with the block of its header
    assert f"device={guard.part_of(journal)}" in said
    assert [written_sectors(drive) for drive in (data, journal)] == before


@pytest.mark.parametrize("name", ["ssd", "nvme"])
def test_delayed_trim_from_the_command_line(name: str, project: Project) -> None:
    settings = {
        "table1": "{written: 16 MiB, trimmed: 8 MiB, unit: 4 MiB}",
        "file": "8 MiB",
        "units": "[1 MiB]",
        "tails": (
            "{units: [4 MiB], region: 32 MiB, trim_rate: 64 MiB, duration_s: 2, reads_per_s: 50,"
            " read: 4 KiB, writes_per_s: 10, write: 16 KiB}"
        ),
    }
    options = [word for key, text in settings.items() for word in ("--set", f"{key}={text}")]
    run = ("run", "delayed_trim", "--tier", "hardware", "--drive", f"ssd={name}", *options)
    drive = guard.check(name, project)
    before = written_sectors(drive)
    said = harness(*run, "--plan", project=project)
    assert f"blkdiscard {guard.part_of(drive)}" in said
    assert said.splitlines()[-1].startswith("in all: ")
    assert written_sectors(drive) == before
    runs = project.build / "runs"
    known = set(runs.glob("*"))
    harness(*run, "--write-budget", "2 GiB", project=project)
    assert written_sectors(drive) > before
    [folder] = set(runs.glob("*")) - known
    about = json.loads((folder / "results.about.json").read_text())
    facts = about["devices"]["ssd"]
    assert facts["model"] == drive.model
    assert facts["serial_digest"] == hashlib.sha256(drive.serial.encode()).hexdigest()
    table = pd.read_csv(folder / "results.csv")
    assert len(table) == 4
    assert table.waf_says.notna().all()


def harness(*arguments: str, project: Project) -> str:
    done = claimed.run(project, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
