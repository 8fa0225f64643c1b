"""Data sheets: models have their drives' figures, a wrong one is noticed, fits find their way."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from conftest import REPOSITORY
from hypothesis import given
from hypothesis import strategies as st

from harness.devices import data_sheet, data_sheet_fit
from harness.devices.model import Device, Job
from harness.devices.profiles import (
    DataSheetFigure,
    DeviceProfile,
    SsdProfile,
    list_profiles,
    load_device,
)
from harness.errors import BadParameter, BadProfile
from harness.experiments.device_models.data_sheets import measure_data_sheets
from harness.paths import Project

Command = Callable[..., subprocess.CompletedProcess[str]]

PROFILES = REPOSITORY / "hardware" / "profiles"
WITH_FIGURES = [n for n in list_profiles(PROFILES) if load_device(PROFILES, n).data_sheet]
RANDOM_WRITE = {
    "op": "write",
    "pattern": "random",
    "block": "4 KiB",
    "queue_depth": 31,
    "span": "8 GiB",
    "state": "fresh",
}


def figure(value: str, fits: str = "", **job: Any) -> dict[str, Any]:
    """A row of a data sheet, as in a profile's file."""
    row = {
        "name": f"{value} by {fits}",
        "job": {**RANDOM_WRITE, **job},
        "value": value,
        "source": "this test",
        "use": "fit" if fits else "check",
    }
    return {**row, "fits": fits} if fits else row


def with_figures(name: str, *rows: dict[str, Any], **overrides: str) -> DeviceProfile:
    """A profile with other figures."""
    profile = load_device(PROFILES, name, overrides)
    figures = tuple(DataSheetFigure.model_validate(row) for row in rows)
    return profile.model_copy(update={"data_sheet": figures})


def test_a_write_may_take_the_firmware_longer_than_a_read() -> None:
    longer = {"command_time": "10 us", "write_command_time": "17 us"}
    expected: tuple[tuple[Literal["read", "write", "trim"], int], ...]
    expected = (("write", 7_000), ("read", 0), ("trim", 0))
    for op, expected_ns in expected:
        latency_ns = []
        for overrides in ({"command_time": "10 us", "write_command_time": "10 us"}, longer):
            device = Device.from_profile(PROFILES, "samsung_840pro_256gb", overrides)
            run = device.run(Job(op=op, requests=1))
            latency_ns.append(run.ops[op].latency_mean_ns)
        assert latency_ns[1] - latency_ns[0] == expected_ns


def test_without_a_time_of_its_own_a_write_takes_what_every_command_takes() -> None:
    overrides = {"command_time": "30 us"}
    device = Device.from_profile(PROFILES, "samsung_980_1tb", overrides)
    run = device.run(Job(op="write", end_bytes=1 << 30, queue_depth=8, requests=1000))
    assert run.iops == pytest.approx(1 / 30e-6, rel=0.02)


def test_two_figures_of_one_name_are_refused(tmp_path: Path) -> None:
    data = yaml.safe_load((PROFILES / "samsung_840pro_256gb.yaml").read_text())
    data["data_sheet"] = [figure("80000 IOPS"), figure("80000 IOPS")]
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(BadProfile, match="two figures are called 80000 IOPS"):
        load_device(tmp_path, "mine")


@pytest.mark.parametrize("name", WITH_FIGURES)
def test_a_model_has_the_figures_of_its_data_sheet(project: Project, name: str) -> None:
    profile = load_device(project.profiles, name)
    figures = data_sheet.check(profile)
    assert list(figures.figure) == [f.name for f in profile.data_sheet]
    assert figures.holds.all(), figures[["figure", "expected", "simulated", "error_ratio"]]
    fits = figures[figures.use == "fit"]
    assert (fits.error_ratio.abs() <= data_sheet_fit.FIT_TOLERANCE).all(), "run harness fit --write"


def test_a_wrong_figure_is_noticed() -> None:
    profile = with_figures("samsung_840pro_256gb", figure("90000 IOPS"), figure("84000 IOPS"))
    assert list(data_sheet.check(profile).holds) == [True, False]


def test_a_latency_may_be_off_by_more_than_a_rate() -> None:
    depth_1: dict[str, Any] = {"op": "read", "queue_depth": 1}
    rows = [figure(value, **depth_1) for value in ("101 us", "94 us", "91 us", "9500 IOPS")]
    figures = data_sheet.check(with_figures("samsung_840pro_256gb", *rows))
    assert list(figures.unit) == ["s", "s", "s", "IOPS"]
    assert list(figures.holds) == [True, True, False, True]
    assert figures.simulated[0] == pytest.approx(1.0 / figures.simulated[3], rel=0.01)


def test_a_disk_has_the_rate_of_its_outer_edge_and_the_sum_of_its_parts() -> None:
    read: dict[str, Any] = {"op": "read", "queue_depth": 1, "span": "full", "state": "full"}
    profile = with_figures(
        "hitachi_hds721010dle630",
        figure("185 MB/s", **read | {"pattern": "sequential", "block": "1 MiB"}),
        figure("12.8 ms", **read),  # command 0.1, seek 8.5, half a revolution 4.17, transfer
    )
    figures = data_sheet.check(profile)
    assert figures.error_ratio[0] == pytest.approx(0.0, abs=0.01)
    # A little less: outer tracks hold more, so random sectors are nearer than random tracks.
    assert -0.05 < figures.error_ratio[1] < 0.0


def test_a_new_drive_is_faster_than_one_that_collects() -> None:
    rows = [
        figure("1000 IOPS", span="full", state=state, queue_depth=32)
        for state in ("fresh", "full", "steady")
    ]
    profile = with_figures("samsung_840pro_256gb", *rows, capacity="8 GiB", pages_per_block="64")
    fresh, full, steady = data_sheet.check(profile).simulated
    assert fresh > 1.5 * full
    assert fresh > 1.5 * steady


def test_the_slc_cache_of_a_new_drive_is_empty_for_writes_and_used_up_when_full() -> None:
    sequential = {"pattern": "sequential", "block": "128 KiB", "span": "full"}
    profile = with_figures(
        "crucial_mx500_250gb",
        figure("510 MB/s", **sequential | {"span": "4 GiB"}),
        figure("273 MB/s", **sequential | {"state": "full"}),
    )
    assert data_sheet.check(profile).holds.all()


def test_a_smaller_drive_stands_in_for_a_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    full = figure("1 MB/s", pattern="sequential", block="128 KiB", span="full", state="full")
    overrides = {"capacity": "48 GiB", "slc_cache": "8 GiB", "slc_program_page": "400 us"}
    profile = with_figures("samsung_840pro_256gb", full, **overrides)
    whole = data_sheet.check(profile).simulated[0]
    monkeypatch.setattr(data_sheet, "_LARGE_BYTES", 12 << 30)
    assert data_sheet.check(profile).simulated[0] == pytest.approx(whole, rel=0.005)


@pytest.mark.parametrize(
    ("parameter", "value", "job"),
    [
        ("write_command_time", "13.37 us", {}),
        ("read_latency", "40 us", {"op": "read", "queue_depth": 1}),
        ("link_rate", "300 MB/s", {"op": "read", "pattern": "sequential", "block": "128 KiB"}),
        ("program_page", "2.5 ms", {"pattern": "sequential", "block": "128 KiB"}),
    ],
)
def test_a_fit_recovers_what_a_figure_was_made_with(
    parameter: str, value: str, job: dict[str, Any]
) -> None:
    row = figure("1000 IOPS", parameter, **job)
    made_with = with_figures("samsung_840pro_256gb", row, **{parameter: value})
    iops = data_sheet.check(made_with).simulated[0]
    fitted = data_sheet_fit.fit(
        with_figures("samsung_840pro_256gb", {**row, "value": f"{iops:.2f} IOPS"})
    )
    assert fitted.converged
    known = getattr(made_with.parameters, parameter).value
    assert fitted.fits.after[0] == pytest.approx(known, rel=0.02)
    assert fitted.summary == "1 fitted parameters, 1 figures"


def test_fits_that_interact_hold_at_once() -> None:
    """The time of a command is part of a latency at depth 1: one fit spoils the other."""
    profile = with_figures(
        "samsung_840pro_256gb",
        figure("35000 IOPS", "write_latency", queue_depth=1),
        figure("60000 IOPS", "write_command_time"),
    )
    fitted = data_sheet_fit.fit(profile)
    assert fitted.converged
    assert data_sheet.check(fitted.profile).error_ratio.abs().max() <= data_sheet_fit.FIT_TOLERANCE


def test_an_unreachable_figure_is_no_success() -> None:
    """The link has 540 MB/s: no time per command makes it faster."""
    row = figure("900 MB/s", "write_command_time", pattern="sequential", block="128 KiB")
    fitted = data_sheet_fit.fit(with_figures("samsung_840pro_256gb", row, program_page="100 us"))
    assert not fitted.converged
    assert fitted.fits.error_after[0] < -0.3


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (figure("90000 IOPS", "read_page"), "does not say 'fitted: ...'"),
        (figure("50000 IOPS", "read_latency"), "read_latency does not change it"),
        (figure("90000 IOPS"), "no figure"),
        (figure("90000 IOPS", "write_latency", span="1 TB"), "larger than the drive"),
    ],
)
def test_what_cannot_be_fitted(row: dict[str, Any], says: str) -> None:
    with pytest.raises(BadParameter, match=says) as refusal:
        data_sheet_fit.fit(with_figures("samsung_840pro_256gb", row))
    assert len(str(refusal.value).splitlines()) == 1


@given(
    root=st.floats(-30.0, 30.0),
    slope=st.floats(0.05, 5.0),
    rising=st.booleans(),
    flat=st.floats(0.5, 4.0),
)
def test_the_solver_finds_the_root_of_a_monotone_function(
    root: float, slope: float, rising: bool, flat: float
) -> None:
    """Steep or not, rising or falling, saturated far from the root."""
    sign = slope if rising else -slope

    def error(x: float) -> float:
        return math.tanh(sign * (x - root) / flat) * flat

    begin = root + flat
    assert abs(error(data_sheet_fit.solve(error, begin))) < 0.002


def test_writing_a_fit_changes_the_values_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    original = (PROFILES / "samsung_840pro_256gb.yaml").read_text()
    path.write_text(original.replace('"90000 IOPS"', '"80000 IOPS"') + "# the end\n")
    before = path.read_text().splitlines()
    fitted = data_sheet_fit.fit(load_device(tmp_path, "mine"))
    assert data_sheet_fit.write_fit(tmp_path, "mine", fitted) == [
        "write_command_time",
        "write_latency",
    ]
    after = path.read_text().splitlines()
    changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert len(changed) == 2
    assert all(a.partition(" us,")[2] == b.partition(" us,")[2] for a, b in changed)
    assert data_sheet.check(load_device(tmp_path, "mine")).holds.all()


def test_a_value_that_cannot_be_found_is_not_written(tmp_path: Path) -> None:
    data = yaml.safe_load((PROFILES / "samsung_840pro_256gb.yaml").read_text())
    data["data_sheet"] = [figure("80000 IOPS", "write_command_time")]
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(data))
    fitted = data_sheet_fit.fit(load_device(tmp_path, "mine"))
    before = path.read_bytes()
    with pytest.raises(BadProfile, match="write it as write_command_time"):
        data_sheet_fit.write_fit(tmp_path, "mine", fitted)
    assert path.read_bytes() == before


def test_the_benchmark_says_the_same(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "harness.experiments.device_models.data_sheets.list_profiles", lambda _: ["samsung_980_1tb"]
    )
    figures = list(measure_data_sheets(project))
    profile = load_device(project.profiles, "samsung_980_1tb")
    assert isinstance(profile, SsdProfile)
    assert len(figures) == len(profile.data_sheet)
    assert all(f.holds and f.goal == ">= 0.95 and <= 1.05" for f in figures)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("data-sheet", "floppy"), "unknown profile 'floppy'; known: cosmos"),
        (("data-sheet", "seagate_250gb"), "no figures under data_sheet"),
        (("data-sheet",), "name a profile, or give --all"),
        (("data-sheet", "seagate_250gb", "--all"), "name a profile, or give --all"),
        (("fit", "floppy", "--write"), "unknown profile 'floppy'; known: cosmos"),
        (("fit", "seagate_250gb", "--write"), "no figures under data_sheet"),
    ],
)
def test_bad_input(harness_here: Command, arguments: tuple[str, ...], says: str) -> None:
    done = harness_here(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_the_commands(harness_here: Command, checkout: Project) -> None:
    """A figure that does not hold is exit code 1; after a fit that is written, it holds."""
    name = "samsung_850pro_256gb"
    path = checkout.profiles / f"{name}.yaml"
    path.write_text(path.read_text().replace('"36000 IOPS"', '"30000 IOPS"'))
    checked = harness_here("data-sheet", name)
    assert checked.returncode == 1
    assert "no (within 5%)" in checked.stdout
    fitted = harness_here("fit", name, "--write")
    assert fitted.returncode == 0
    assert "5 fitted parameters, 6 figures" in fitted.stdout
    assert "written: write_latency" in fitted.stdout
    assert harness_here("data-sheet", name).returncode == 0
    assert "nothing, all values stay" in harness_here("fit", name, "--write").stdout
