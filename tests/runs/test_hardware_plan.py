"""Plans of runs on drives: nothing is run for them, and nothing is opened."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import _core, experiments
from harness.drives import guard
from harness.drives.targets import Step
from harness.errors import HarnessError, TargetError
from harness.paths import find_project
from harness.runs import hardware_plan, roles
from harness.runs.hardware_plan import DrivePlan
from harness.runs.parameters import default as default_parameters
from harness.runs.session import Options
from harness.tiers.base import Cancel

PROJECT = find_project()


class NoModel:
    """In the place of the models, which would take their time."""

    tier = "simulated"
    devices = ("ssd",)
    models = None
    cancel = Cancel()

    @contextmanager
    def open_device(self, *_: Any, **__: Any) -> Iterator[None]:
        raise TargetError("none here")
        yield

    def stack(self, *_: Any, **__: Any) -> None:
        raise TargetError("none here")

    new_model = stack


class NoStorage:
    """May be asked what this build can do; is never opened."""

    has_io_uring = staticmethod(_core.FileStorage.has_io_uring)

    def __init__(self, *_: Any) -> None:
        raise AssertionError("a plan opens nothing")


@pytest.fixture(autouse=True)
def _nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def harmless(command: list[Any], *rest: Any, **options: Any) -> subprocess.Popen[Any]:
        """Programs may be asked for their version."""
        assert not any("/dev/sd" in str(word) for word in command), command
        return start(command, *rest, **options)

    @contextmanager
    def no_models(*_: Any) -> Iterator[NoModel]:
        yield NoModel()

    monkeypatch.setattr(subprocess, "Popen", harmless)
    monkeypatch.setattr(_core, "FileStorage", NoStorage)
    monkeypatch.setattr(hardware_plan, "_models", no_models)


def planned(name: str, device: str, journal: bool = False, **settings: Any) -> list[DrivePlan]:
    drive = roles.examples()[device]
    other = replace(drive, name="sdy", node=Path("/dev/sdy"))
    defaults = default_parameters(PROJECT, name, "hardware")
    parameters = type(defaults).model_validate({**defaults.model_dump(), **settings})
    return list(
        hardware_plan._drive_plan(
            PROJECT,
            experiments.find(name),
            parameters,
            device,
            drive,
            Options(),
            {device: other} if journal else None,
        )
    )


def commands(plan: DrivePlan) -> list[str]:
    return [" ".join(step.command) for step in plan.steps]


ON_DRIVES = [
    (name, device)
    for name in experiments.names()
    if "hardware" in experiments.find(name).tiers
    for device in ("hdd", "ssd")
    if (name, device) != ("delayed_trim", "hdd")  # a disk knows no TRIM
]


def fewer(name: str) -> dict[str, Any]:
    """Settings with which a plan has a point of each kind; it simulates what they all write."""
    if name == "grace_hash_join":
        return {"repetitions": 1, "queue_depths": [1], "read_buffers": ["16 MiB"]}
    if name == "trim_fallocate":
        drives = default_parameters(PROJECT, name, "hardware").model_dump()["drives"]
        return {"drives": {key: {**drive, "scale_factor": 0.05} for key, drive in drives.items()}}
    return {}


@pytest.mark.parametrize(("name", "device"), ON_DRIVES)
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_drive_is_touched_by_a_plan(name: str, device: str, whole: bool) -> None:
    try:
        plan, _ = planned(name, device, **({} if whole else fewer(name)))
    except HarnessError:  # no such drive in this experiment
        assert name == "trim_fallocate"
        return
    part = str(guard.part_of(roles.examples()[device]))
    assert not Path(part).exists()
    # Every point overwrites something before its measured part.
    destructive = [text for text in commands(plan) if text]
    assert len(destructive) >= plan.points
    assert all(part in text for text in destructive)
    assert any(text.startswith("blkdiscard") for text in destructive) == (device == "ssd")


def test_a_journal_apart_has_a_plan_of_its_own() -> None:
    data, journal = planned(
        "msdj_tpcc", "ssd", journal=True, modes=["dj", "msdj"], journals=["8 MiB"]
    )
    assert (data.points, journal.points) == (2, 0)  # no model says what is written to it
    made = [text for text in commands(journal) if text.startswith("mke2fs")]
    assert len(made) == 1
    assert "-O journal_dev" in made[0]
    assert made[0].endswith("/dev/sdy2 8196k")
    home = [text for text in commands(data) if text.startswith("mke2fs")]
    assert ["device=/dev/sdy2" in text for text in home] == [False, True]
    assert "sdx" not in " ".join(commands(journal))


def test_without_a_journal_apart_there_is_no_second_plan() -> None:
    assert not planned("msdj_tpcc", "ssd", modes=["dj"])[1].steps


@pytest.mark.parametrize(("budget_bytes", "stopped"), [(0, False), (4096, False), (4095, True)])
def test_a_plan_says_that_the_budget_would_stop_it(budget_bytes: int, stopped: bool) -> None:
    """Before hours are spent on what is thrown away then."""
    options = Options(write_budget_bytes=budget_bytes)
    steps = [Step("measure", (), 4096, 1.0)]
    plan = hardware_plan._titled("ssd", roles.examples()["ssd"], 1, steps, options)
    assert ("--write-budget lets it write more" in plan.title) == stopped


def test_plans_end_with_one_total() -> None:
    hour, half = [
        DrivePlan("", 1, (Step("fill", (), size, time_s), Step("empty", (), 0, 0.0)), name, 2 << 30)
        for name, size, time_s in (("ssd", 4 << 30, 3600.0), ("hdd", 1 << 30, 1800.0))
    ]
    assert hardware_plan.total([hour, half, hour]) == (
        "in all: 9 GiB written, 2 h 30 min; "
        "wear: ssd is written 4 times over, hdd is written 0.5 times over"
    )
    assert hardware_plan.total([]) == "in all: 0 B written, at once; wear: nothing is written"


def test_a_study_s_plan_has_a_total() -> None:
    said = hardware_plan.total(planned("msdj_tpcc", "ssd", modes=["dj"])[:1])
    assert "written, " in said
    assert "wear: ssd is written " in said
