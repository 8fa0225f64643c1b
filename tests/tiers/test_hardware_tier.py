"""The engine on a real kernel: files and loop devices, past the page cache."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import contents, loop_device, mounted, need
from engine_joins import join, oracle, spec
from lab_world import CLAIM, bound_by_a_killed_device

from harness import _core
from harness.drives import guard
from harness.drives.guard import BudgetSpent
from harness.drives.wear import reading
from harness.drives.wear.counters import COUNTS, Count, Wear
from harness.drives.wear.counters import Drive as WornDrive
from harness.errors import (
    BadParameter,
    DataCorrupted,
    DeviceError,
    DiskFull,
    HarnessError,
    Interrupted,
    TargetError,
)
from harness.experiments.grace_hash_join import EXPERIMENT
from harness.experiments.grace_hash_join.grid import Parameters
from harness.paths import Project
from harness.probes import counters
from harness.runs import hardware_plan, roles
from harness.runs.session import Options
from harness.system import leases
from harness.system.ext4_spec import Ext4Spec
from harness.tiers import hardware
from harness.tiers.base import DATA_OFFSET_BYTES, DeviceRequest
from harness.tiers.hardware import DEVICE, DriveDevice, HardwareBench, RealDevice
from harness.tiers.on_device import write_records
from harness.workloads.ageing import Ageing
from harness.workloads.records import RECORD_BYTES
from harness.workloads.tpch import JoinInputs

MIB = 1 << 20


@pytest.fixture
def direct(tmp_path: Path) -> Path:
    """A file on a file system with O_DIRECT."""
    path = tmp_path / "target"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
    try:
        _core.FileStorage(str(path))
    except TargetError as error:
        pytest.skip(str(error))
    return path


@pytest.mark.parametrize("depth", [1, 4, 32])
@pytest.mark.parametrize("users", [1, 3])
def test_the_same_result_as_everywhere(direct: Path, depth: int, users: int) -> None:
    if depth > 1 and not _core.FileStorage.has_io_uring():
        pytest.skip("no io_uring here")
    storage: Any = _core.FileStorage(str(direct))
    one, other = contents([k % 700 for k in range(3200)]), contents(list(range(6400)))
    wanted = spec(
        read_buffer_bytes=65536, write_buffer_bytes=4096, input_io_bytes=16384, queue_depth=depth
    )
    for user in join(storage, one, other, wanted, users=users):
        assert (user["matches"], user["checksum"]) == oracle(one, other)
        assert user["elapsed_ns"] > 0


def test_an_experiment_runs_and_leaves_no_file(direct: Path, smoke: JoinInputs, raw: Path) -> None:
    direct.unlink()
    parameters = Parameters(
        scale="smoke",
        repetitions=1,
        read_buffers=["4 MiB"],
        write_buffer="4 KiB",
        write_buffers=["16 KiB"],
        write_sweep_read_buffer="16 MiB",
        users=[2],
        users_read_buffer="8 MiB",
        algorithms=["grace", "hybrid"],
    )
    with HardwareBench(direct) as bench:
        for point in EXPERIMENT.points(parameters, bench):
            measured = EXPERIMENT.run_point(point, parameters, bench, raw)
            assert measured.metrics["matches"] == len(smoke.lineitem)
            assert measured.metrics["elapsed_s"] > 0
            assert "theory_join_s" not in measured.metrics
        assert direct.exists()
    assert not direct.exists()


def test_the_fingerprint_names_machine_and_drive(direct: Path) -> None:
    direct.unlink()
    with HardwareBench(direct) as bench:
        identity = bench.identity("file")
        assert {"kernel", "cpu", "model", "file_system"} <= set(identity)
        with pytest.raises(BadParameter):
            bench.identity("hdd")


@pytest.mark.root
def test_what_a_killed_live_device_has_bound_is_freed_before_a_file_is_used(
    direct: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct.unlink()
    cpumask = bound_by_a_killed_device(tmp_path, monkeypatch)
    with (
        HardwareBench(direct) as bench,
        bench.open_device(DeviceRequest(device=DEVICE, needed_bytes=MIB)),
    ):
        assert cpumask.read_text() == "3"


@pytest.mark.root
def test_on_a_loop_device(tmp_path: Path, smoke: JoinInputs, raw: Path) -> None:
    parameters = Parameters(
        scale="smoke",
        repetitions=1,
        read_buffers=["4 MiB"],
        write_buffer="4 KiB",
        write_buffers=[],
        write_sweep_read_buffer="16 MiB",
        users=[1],
        users_read_buffer="8 MiB",
        queue_depths=[1, 8],
    )
    with loop_device(tmp_path, 128 * MIB) as device, HardwareBench(device) as bench:
        for point in EXPERIMENT.points(parameters, bench):
            measured = EXPERIMENT.run_point(point, parameters, bench, raw)
            assert measured.metrics["matches"] == len(smoke.lineitem)


@pytest.mark.root
def test_the_kernel_s_requests_are_recorded(
    tmp_path: Path, checkout: Project, smoke: JoinInputs
) -> None:
    """Of a block device, from `begin` to `counters`; of a file system, on what it lies on."""
    need("bpftrace")
    orders = smoke.orders[:4096]
    asked = DeviceRequest(device=DEVICE, needed_bytes=64 * MIB, trace=True)
    with (
        loop_device(tmp_path, 128 * MIB) as device,
        HardwareBench(device, project=checkout) as bench,
    ):
        with bench.open_device(asked) as target:
            target.begin()
            write_records(target.storage, DATA_OFFSET_BYTES, orders)
            target.counters()
            assert target.block_trace is not None
            table = pq.read_table(target.block_trace).to_pandas()
            written = int(table[table.op == "write"].sectors.sum()) * 512
            assert written == len(orders) * RECORD_BYTES
        with bench.open_device(asked) as target, target.filesystem(Ext4Spec()) as folder:
            target.begin()
            (folder / "file").write_bytes(bytes(5 * MIB))
            target.counters()
            assert target.block_trace is not None
            table = pq.read_table(target.block_trace).to_pandas()
            assert table[table.op == "write"].sectors.sum() * 512 > 5 * MIB
        with bench.open_device(replace(asked, trace=False)) as target:
            target.begin()
            target.counters()
            assert target.block_trace is None


@pytest.mark.root
def test_a_failed_point_ends_its_recording(tmp_path: Path, checkout: Project) -> None:
    """And tells its own error; the next point is recorded again."""
    need("bpftrace")
    asked = DeviceRequest(device=DEVICE, needed_bytes=64 * MIB, trace=True)
    with (
        loop_device(tmp_path, 128 * MIB) as device,
        HardwareBench(device, project=checkout) as bench,
    ):
        with pytest.raises(ZeroDivisionError), bench.open_device(asked) as target:
            _begin_and_fail(target)
        with bench.open_device(asked) as target:
            target.begin()
            target.counters()
            assert target.block_trace is not None


STEPS: dict[str, Callable[[RealDevice], object]] = {
    "age": lambda target: target.age(Ageing(region_bytes=MIB, written_bytes=MIB)),
    "mount": lambda target: target.filesystem(Ext4Spec()).__enter__(),
    "place": lambda target: target.place(DATA_OFFSET_BYTES, contents([1, 2, 3])),
    "block device": lambda target: target.path,
}


@pytest.mark.parametrize("step", STEPS)
def test_a_file_that_is_not_ours_any_more_is_not_overwritten(direct: Path, step: str) -> None:
    """It is looked at again before whatever overwrites it, as a claimed drive is."""
    direct.unlink()
    asked = DeviceRequest(device=DEVICE, needed_bytes=64 * MIB)
    with HardwareBench(direct) as bench, bench.open_device(asked) as target:
        direct.write_bytes(b"somebody's")
        with pytest.raises(TargetError, match="does not carry our marker"):
            STEPS[step](target)
        assert direct.read_bytes() == b"somebody's"


def _begin_and_fail(target: RealDevice) -> None:
    target.begin()
    raise ZeroDivisionError


@pytest.mark.root
def test_the_disk_fills_up_in_the_middle_of_a_join(tmp_path: Path) -> None:
    """A sparse file on a file system that is too small for it: writing runs into ENOSPC."""
    with loop_device(tmp_path, 16 * MIB) as device, mounted(device, tmp_path / "full") as folder:
        path = folder / "sparse"
        with path.open("wb") as file:
            file.truncate(256 * MIB)
        storage: Any = _core.FileStorage(str(path))
        one, other = contents(list(range(40_000))), contents(list(range(60_000)))
        wanted = spec(
            read_buffer_bytes=262144,
            write_buffer_bytes=4096,
            input_io_bytes=16384,
            queue_depth=8,
        )
        with pytest.raises(DiskFull):
            join(storage, one, other, wanted, scratch_bytes=64 * MIB)
        del storage


@pytest.mark.root
def test_data_that_is_lost_between_writing_and_reading_is_found(tmp_path: Path) -> None:
    """The file below a loop device is emptied: what was written there reads as zeros."""
    with loop_device(tmp_path, 64 * MIB) as device:
        storage: Any = _core.FileStorage(str(device))
        one, other = contents(list(range(4000))), contents(list(range(4000)))
        wanted = spec(read_buffer_bytes=65536, write_buffer_bytes=4096, input_io_bytes=16384)
        assert join(storage, one, other, wanted)[0]["matches"] == 4000
        (tmp_path / "loop.img").write_bytes(b"")
        job = _core.UserJob(
            build_offset_bytes=MIB,
            build_records=4000,
            probe_offset_bytes=2 * MIB,
            probe_records=4000,
            scratch_begin_bytes=3 * MIB,
            scratch_end_bytes=8 * MIB,
        )
        with pytest.raises((DataCorrupted, DeviceError)):
            _core.run_joins(storage, wanted, [job], _core.Cancel())
        del storage


@pytest.mark.root
def test_a_block_device_is_held_exclusively(tmp_path: Path) -> None:
    with loop_device(tmp_path, 64 * MIB) as device:
        storage = _core.FileStorage(str(device))
        with pytest.raises(TargetError, match="busy"):
            _core.FileStorage(str(device))
        mount = subprocess.run(
            ["mount", str(device), str(tmp_path)], capture_output=True, check=False
        )
        assert mount.returncode != 0
        del storage


DRIVE = replace(
    roles.examples()["hdd"],
    model=CLAIM.model,
    serial=CLAIM.serial,
    wwn=CLAIM.wwn,
    size_bytes=CLAIM.size_bytes,
)
REQUEST = DeviceRequest(device="hdd")
CLAIMED_ANEW = {
    "another drive": {"serial": "HD7K1CXR9F04", "token": "f" * 32},
    "the same drive": {"token": "f" * 32},
}


@pytest.mark.parametrize("changes", CLAIMED_ANEW.values(), ids=CLAIMED_ANEW)
def test_a_name_that_was_claimed_anew_in_the_middle_of_a_run_is_refused(
    changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its results would stand under the drive that the name was of when the run began."""
    lab = {"mine": (CLAIM, DRIVE)}

    def claimed(name: str, **_: Any) -> AbstractContextManager[SimpleNamespace]:
        claim, drive = lab[name]
        held = {"claim": claim, "drive": drive, "is_overspent": False}
        part = {"path": guard.part_of(drive), "size_bytes": guard.room_bytes(drive)}
        return nullcontext(SimpleNamespace(**held, **part))

    monkeypatch.setattr(guard, "find", lambda name, **_: lab[name])
    monkeypatch.setattr(guard, "claimed", claimed)
    monkeypatch.setattr(counters, "block_device", lambda _: None)
    monkeypatch.setattr(hardware, "queue_settings", lambda *_: nullcontext())
    with HardwareBench(drives={"hdd": "mine"}) as bench:
        begun_as = bench.identity("hdd")
        claim = CLAIM.model_copy(update=changes)
        lab["mine"] = (claim, replace(DRIVE, serial=claim.serial))
        with pytest.raises(TargetError, match="claimed again"), bench.open_device(REQUEST):
            pass
        with pytest.raises(TargetError, match="claimed again"):
            bench.identity("hdd")
    lab["mine"] = (CLAIM, DRIVE)
    with HardwareBench(drives={"hdd": "mine"}) as bench, bench.open_device(REQUEST):
        assert bench.identity("hdd") == begun_as


@pytest.mark.parametrize(
    ("drives", "journals", "told"),
    [
        ({"hdd": "mine", "ssd": "mine"}, {}, "--drive hdd=mine and --drive ssd=mine"),
        ({"ssd": "mine"}, {"ssd": "mine"}, "--drive ssd=mine and --journal ssd=mine"),
        (
            {"ssd": "a", "nvme": "b"},
            {"ssd": "c", "nvme": "c"},
            "--journal ssd=c and --journal nvme=c",
        ),
    ],
    ids=["two drives", "its own journal", "two journals"],
)
def test_one_drive_is_not_two_at_once(
    drives: dict[str, str], journals: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one would be refused as locked by another run, after hours with the first."""
    monkeypatch.setattr(guard, "find", lambda *_, **__: pytest.fail("it was looked for"))
    with pytest.raises(TargetError, match=f"^{told} are one drive"):
        HardwareBench(drives=drives, journals=journals)


def test_the_plan_of_one_drive_that_is_to_be_two_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "check", lambda *_: DRIVE)
    options = Options(drives={"hdd": "mine", "ssd": "mine"})
    with pytest.raises(TargetError, match="are one drive"):
        hardware_plan.plan(project, "grace_hash_join", options)


def test_a_run_s_identity_has_what_the_drive_s_queue_was_set_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is set otherwise when a run is continued gives other results, which are not mixed."""
    there = {"scheduler": "bfq", "nr_requests": "64", "iostats": "1"}
    monkeypatch.setattr(guard, "find", lambda *_, **__: (CLAIM, DRIVE))
    monkeypatch.setattr(counters, "block_device", lambda _: None)
    monkeypatch.setattr(leases, "queue_of", lambda _: dict(there))
    with HardwareBench(drives={"hdd": "mine"}) as bench:
        found = bench.identity("hdd")
        assert (found["queue_scheduler"], found["queue_nr_requests"]) == ("bfq", "64")
        assert "queue_iostats" not in found  # which changes no request
        there["scheduler"] = "none"  # as this run itself may set it, and puts it back
        assert bench.identity("hdd") == found
    with HardwareBench(drives={"hdd": "mine"}) as bench:
        assert bench.identity("hdd")["queue_scheduler"] == "none"
    with HardwareBench(drives={"hdd": "mine"}, queue={"scheduler": "mq-deadline"}) as bench:
        assert bench.identity("hdd")["queue_scheduler"] == "mq-deadline"
    other = replace(DRIVE, logical_block_bytes=4096)
    monkeypatch.setattr(guard, "find", lambda *_, **__: (CLAIM, other))
    with HardwareBench(drives={"hdd": "mine"}) as bench:
        now = bench.identity("hdd")
        assert {name for name in now if now[name] != found.get(name)} >= {"logical_block_bytes"}


@pytest.mark.parametrize(("spent", "said"), [(False, "cancelled"), (True, "more is written")])
def test_a_run_that_its_budget_stops_says_so(
    spent: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers know only that they were cancelled, and would be started again at once."""

    def check_budget() -> None:
        if spent:
            raise BudgetSpent("more is written than was given")

    held = SimpleNamespace(
        claim=CLAIM,
        drive=DRIVE,
        is_overspent=False,
        path=guard.part_of(DRIVE),
        size_bytes=guard.room_bytes(DRIVE),
        check_budget=check_budget,
    )
    monkeypatch.setattr(guard, "find", lambda *_, **__: (CLAIM, DRIVE))
    monkeypatch.setattr(guard, "claimed", lambda *_, **__: nullcontext(held))
    monkeypatch.setattr(counters, "block_device", lambda _: None)
    monkeypatch.setattr(hardware, "queue_settings", lambda *_: nullcontext())
    with (
        HardwareBench(drives={"hdd": "mine"}) as bench,
        pytest.raises(HarnessError, match=said),
        bench.open_device(REQUEST),
    ):
        raise Interrupted("cancelled")


@pytest.mark.parametrize(("step_bytes", "asked"), [(512_000, True), (1 << 30, False)])
def test_a_drive_that_counts_coarsely_is_left_alone_while_it_is_measured(
    step_bytes: int, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SATA drive's queue is emptied for such a question."""
    questions = 0

    def wear(*_: object) -> Wear:
        nonlocal questions
        questions += 1
        names = ("host_written_bytes", "media_written_bytes")
        counts = {name: Count(1 << 40, step_bytes, "smart-log") for name in names}
        unsaid = {name: "x" for name in COUNTS if name not in names}
        return Wear(drive=WornDrive("m", "s", "f"), counts=counts, unsaid=unsaid)

    monkeypatch.setattr(reading, "read", wear)
    held = SimpleNamespace(path=Path("/dev/x"), size_bytes=1 << 30, drive=DRIVE, written_bytes=0)
    device = DriveDevice(held)  # type: ignore[arg-type]
    device._begin_counting()
    before = questions
    assert (device.writes() is not None) == asked
    assert (questions > before) == asked


@pytest.mark.parametrize(("of_others", "refused"), [(0, False), (MIB, False), (50 * MIB, True)])
def test_what_others_write_to_the_drive_is_in_no_result(
    of_others: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An NVMe drive counts what all of its namespaces are written."""
    ours = 1000 * MIB
    written = {"kernel": 0, "drive": 7 * MIB}

    def wear(*_: object) -> Wear:
        names = ("host_written_bytes", "media_written_bytes")
        counts = {name: Count(written["drive"], 512_000, "smart-log") for name in names}
        unsaid = {name: "x" for name in COUNTS if name not in names}
        return Wear(drive=WornDrive("m", "s", "f"), counts=counts, unsaid=unsaid)

    monkeypatch.setattr(reading, "read", wear)
    held = SimpleNamespace(name="mine", path=Path("/dev/x"), size_bytes=1 << 30, drive=DRIVE)
    held.check_budget = lambda: None
    held.written_bytes = 0
    device = DriveDevice(held)  # type: ignore[arg-type]
    device._begin_counting()
    held.written_bytes += ours
    written["drive"] += ours + of_others
    if refused:
        with pytest.raises(TargetError, match="something else writes to it"):
            device.counters()
        monkeypatch.setattr(hardware, "_FINE_BYTES", 0)  # too coarse for anything but the ratio
        assert "waf_ratio" not in device.counters()
        assert "something else writes to it" in device.waf_says
    else:
        assert device.counters()["drive_host_written_bytes"] == ours + of_others
