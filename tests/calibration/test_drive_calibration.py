"""Calibration of one's own drive: the plan, the fit, the file, and what is never written."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import need

from harness.calibration import measure as calibration
from harness.calibration.fit import Calibrated, fit, generic_profile
from harness.calibration.jobs import KINDS, DriveJob, JobPlan, Phase, plan_for, rates_of
from harness.calibration.measure import Drive, emulated_drive, measure, steps
from harness.calibration.profile_file import Origin, write_profile
from harness.calibration.quantities import quantities
from harness.calibration.simulate import simulated
from harness.devices import live
from harness.devices.live import LiveSpec
from harness.devices.profiles import DeviceProfile, SsdProfile, load_device
from harness.devices.scaling import scaled_to
from harness.errors import BadParameter, InvalidRun, TargetError, UnknownName
from harness.paths import Project
from harness.workloads import fio

Run = Callable[..., subprocess.CompletedProcess[str]]

GIB = 1 << 30
MIB = 1 << 20
ORIGIN = Origin("a drive, firmware 1.0, serial digest 0123456789ab", "6.1", "2026-01-01")


def made_from(project: Project, name: str, size_bytes: int = 0) -> DeviceProfile:
    profile = load_device(project.profiles, name)
    if size_bytes and isinstance(profile, SsdProfile):
        return scaled_to(profile, size_bytes)
    return profile


def calibrated(project: Project, kind: str, true: DeviceProfile) -> tuple[JobPlan, Calibrated]:
    """The jobs run on the model of a drive, and a generic drive fitted to their figures."""
    plan = plan_for(kind, true.parameters.capacity.value)
    figures = simulated(true, plan, plan.jobs)
    return plan, fit(generic_profile(project.profiles, kind), plan, figures)


@pytest.mark.parametrize(
    ("name", "kind", "size_bytes"),
    [
        ("samsung_840pro_256gb", "sata_ssd", 2 * GIB),
        ("hitachi_hds721010dle630", "hdd", 0),
    ],
)
def test_the_fit_finds_what_the_figures_were_made_from(
    project: Project, name: str, kind: str, size_bytes: int
) -> None:
    true = made_from(project, name, size_bytes)
    generic = quantities(generic_profile(project.profiles, kind))
    _, found = calibrated(project, kind, true)
    back = quantities(found.profile)
    far = 0
    for quantity, (value, _unit) in quantities(true).items():
        assert back[quantity][0] == pytest.approx(value, rel=0.1), quantity
        far += abs(generic[quantity][0] / value - 1.0) > 0.1
    assert far >= 4, "the fit began where it was to end"
    assert found.residuals.held_out.sum() >= 2
    assert found.worst_held_out <= 0.15
    fitted = found.residuals[~found.residuals.held_out]
    assert len(fitted) >= 9


def test_what_a_plan_writes_is_what_its_steps_write(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "target"
    file.touch()
    drive = Drive(_Watched(file, 4 * GIB))
    for kind in KINDS:
        plan = plan_for(kind, drive.size_bytes, discards=False)
        found = steps(plan, drive, generic_profile(project.profiles, kind))
        assert sum(step.written_bytes for step in found) == plan.written_bytes
        assert all(step.expected_s > 0.0 for step in found)
        assert all(f"--filename={file}" in step.command for step in found)
        assert len({job.name for job in plan.jobs}) == len(plan.jobs)
        assert sum(job.held_out for job in plan.jobs) >= 2
    assert plan_for("hdd", drive.size_bytes).written_bytes == 0
    fills = plan_for("sata_ssd", drive.size_bytes).jobs
    filled = sum(job.written_bytes for job in fills if job.name.startswith("sequential write"))
    assert filled == drive.size_bytes
    assert file.stat().st_size == 0, "a plan touches nothing"


def test_a_plan_refuses_what_it_cannot_be_for() -> None:
    with pytest.raises(BadParameter, match="needs 960 MiB, the target has 512 MiB"):
        plan_for("hdd", 512 * MIB)
    with pytest.raises(UnknownName, match="sata_ssd"):
        plan_for("sata", 4 * GIB)


def test_a_profile_says_of_each_number_where_it_is_from(project: Project, tmp_path: Path) -> None:
    plan, found = calibrated(project, "hdd", made_from(project, "seagate_250gb"))
    path = write_profile(tmp_path, "my_disk", found, plan, ORIGIN)
    written = load_device(tmp_path, "my_disk")
    assert written.digest() == found.profile.digest()
    parameters = yaml.safe_load(path.read_text())["parameters"]
    for name in ("outer_rate", "average_seek", "rpm"):
        assert str(ORIGIN) in parameters[name]["fitted"]
        assert "read" in parameters[name]["fitted"]
    assert "prior" in parameters["scheduler"]
    with pytest.raises(TargetError, match="exists: choose another name"):
        write_profile(tmp_path, "my_disk", found, plan, ORIGIN)
    with pytest.raises(BadParameter, match="small letters"):
        write_profile(tmp_path, "../my_disk", found, plan, ORIGIN)


@dataclass
class _Watched:
    """A real file as a target, which looks at what is in it whenever it is asked."""

    path: Path
    size_bytes: int
    refused: str = "nothing"
    asked: list[tuple[str, int]] = field(default_factory=list)
    seen: list[bytes] = field(default_factory=list)

    def permit(self, step: str, written_bytes: int) -> None:
        self.asked.append((step, written_bytes))
        self.seen.append(self.path.read_bytes())
        if step.startswith(self.refused):
            raise TargetError(f"{step}: refused")


def _small_plan() -> JobPlan:
    """A read, two writes to different halves, in three phases, of 4 MiB in all."""

    def job(name: str, op: str, begin: float, end: float) -> DriveJob:
        return DriveJob(
            name=name,
            op="read" if op == "read" else "write",
            pattern="sequential",
            block_bytes=64 << 10,
            requests=32,
            figure="rate",
            begin_ratio=begin,
            end_ratio=end,
        )

    jobs = (
        job("look", "read", 0, 1),
        job("first half", "write", 0, 0.5),
        job("second half", "write", 0.5, 1),
    )
    return JobPlan("hdd", 4 * MIB, tuple(Phase(each.name, (each,)) for each in jobs))


PIECES = tuple(
    DriveJob(
        name=name,
        op="write",
        pattern="sequential",
        block_bytes=MIB,
        requests=requests,
        figure="rate",
        queue_depth=8,
        end_ratio=end,
    )
    for name, requests, end in (("first", 3, 0.25), ("second", 2, 0.5), ("third", 4, 1.0))
)
DONE_S = (11, 10, 12, 14, 20, 18, 19, 28, 21)
"""When requests of a fill were done; with a queue not always in their order."""
RATES = {"first": 2 * MIB / 2, "second": 2 * MIB / 6, "third": 4 * MIB / 10}
"""The first piece counts from 10 s on, when its first request was done."""


def test_the_rates_of_pieces_are_those_between_the_ends_of_requests() -> None:
    """The fit's two sides ask the same function: what is wrong with it cancels out."""
    assert rates_of(PIECES, np.array(DONE_S, float)) == pytest.approx(RATES)
    with pytest.raises(AssertionError, match="a request is missing"):
        rates_of(PIECES, np.array(DONE_S[1:], float))


def test_fio_s_log_of_a_slow_drive_is_read_in_its_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: Path, options: dict[str, str | int]) -> fio.FioRun:
        """A line: ms, KiB/s, direction, block size, offset, priority."""
        assert (options["rw"], options["io_size"]) == ("write", 9 * MIB)
        lines = [f"{4000 * done_s}, 77, 1, 1048576, 0, 0\n" for done_s in DONE_S]
        Path(f"{options['write_bw_log']}_bw.1.log").write_text("".join(lines))
        return fio.FioRun({}, 1.0, 0)

    monkeypatch.setattr(fio, "run", run)
    drive = Drive(_Watched(tmp_path / "target", 16 * MIB))
    found = calibration._pieces(Phase("fill", PIECES, joined=True), drive, slowdown=4)
    assert found == pytest.approx(RATES)


@pytest.mark.builds
def test_every_write_is_asked_for_before(tmp_path: Path) -> None:
    need("fio")
    file = tmp_path / "target"
    file.write_bytes(bytes(5 * MIB))
    target = _Watched(file, 5 * MIB)
    figures = measure(_small_plan(), Drive(target, MIB))
    assert target.asked == [("first half", 2 * MIB), ("second half", 2 * MIB)]
    assert not any(target.seen[0])
    assert any(target.seen[1][MIB : 3 * MIB])
    assert not any(target.seen[1][3 * MIB :])
    assert not any(file.read_bytes()[:MIB]), "what lies before the begin is not the drive's"
    assert all(rate > 0 for rate in figures.values())
    assert set(figures) == {"look", "first half", "second half"}


@pytest.mark.builds
def test_a_refusal_stops_before_the_write(tmp_path: Path) -> None:
    need("fio")
    file = tmp_path / "target"
    file.write_bytes(bytes(5 * MIB))
    target = _Watched(file, 5 * MIB, refused="second")
    with pytest.raises(TargetError, match="second half: refused"):
        measure(_small_plan(), Drive(target, MIB))
    assert file.read_bytes() == target.seen[1]
    assert not any(target.seen[1][3 * MIB :])
    assert file.stat().st_size == 5 * MIB


@pytest.mark.builds
def test_fio_runs_jobs_in_turn(tmp_path: Path) -> None:
    need("fio")
    common: dict[str, str | int] = {"bs": "4k", "size": "1m"}
    first, second = fio.run_in_turn(
        tmp_path / "file", [{**common, "rw": "write"}, {**common, "rw": "read", "io_size": "2m"}]
    )
    assert set(first.ops) == {"write"}
    assert set(second.ops) == {"read"}
    assert first.ops["write"].ios == 256
    assert second.ops["read"].bytes == 2 * MIB


def test_the_plan_of_the_command_makes_no_file(harness_here: Run, tmp_path: Path) -> None:
    need("fio")
    target = tmp_path / "target"
    arguments = ("calibrate", "drive", "--kind", "sata_ssd", "--file", str(target), "--size", "1G")
    done = harness_here(*arguments, "--plan")
    assert done.returncode == 0, done.stderr
    assert "in all: " in done.stdout
    assert "random overwrite" in done.stdout
    assert not target.exists()
    assert harness_here("calibrate", "drive", "--kind", "hdd").returncode == 2


@pytest.mark.clock
@pytest.mark.root
@pytest.mark.servers
@pytest.mark.slow
def test_an_emulated_disk_gives_back_its_profile(project: Project) -> None:
    need("fio")
    spec = LiveSpec(profile="seagate_250gb", profiles=project.profiles, thin=True, slowdown=0)
    true = spec.device_profile()
    with live.created(spec) as device:
        plan = plan_for("hdd", device.size_bytes)
        drive = emulated_drive(device, plan, generic_profile(project.profiles, "hdd"))
        try:
            figures = measure(plan, drive)
        except InvalidRun as error:
            pytest.skip(f"this machine is too busy: {error}")
    found = fit(generic_profile(project.profiles, "hdd"), plan, figures)
    back = quantities(found.profile)
    for quantity, (value, _unit) in quantities(true).items():
        assert back[quantity][0] == pytest.approx(value, rel=0.1), quantity
    assert found.worst_held_out <= 0.15
