"""What the pages say of speed is what was measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import REPOSITORY

from harness.benchmarks import documented
from harness.errors import BadParameter
from harness.goals import Goal
from harness.paths import Project, find_project


@pytest.mark.parametrize("page", ["README.md", "docs/validation.md"])
def test_the_pages_are_of_what_is_recorded(page: str) -> None:
    project = find_project(REPOSITORY)
    path = project.root / page
    assert documented.written(path) == documented.parts(project)[path], f"{documented.COMMAND}"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "docs/validation.md"):
        shutil.copy(REPOSITORY / page, tmp_path / page)
    return Project(tmp_path)


def measured(project: Project, *figures: Goal, group: str = "reviewer", commit: str = "0a") -> None:
    made = {"date": "2026-01-01", "commit": commit, "machine": "a machine"}
    records = [{"group": group, "made": made, **figure.record()} for figure in figures]
    project.build.mkdir(exist_ok=True)
    (project.build / "bench.json").write_text(json.dumps(records))


def test_what_was_measured_replaces_its_group_alone(project: Project) -> None:
    command = "make bench"
    measured(project, Goal("probe", "1/s", ">= 3", command, [1.0, 2.0, 9.0]), group="msdj_tpcc")
    documented.update(project)
    measured(
        project,
        Goal("make quick from an empty clone", "s", "<= 360", command, [196.0]),
        Goal("x: figure 1 (paper: 2)", "ratio", "", command, [2.0], is_claim=True),
        Goal("beside another", "ratio", ">= 1", command, missing="it is not here"),
    )
    documented.update(project)
    assert set(documented.recorded(project)) == {"msdj_tpcc", "reviewer"}
    page, readme = (documented.written(p) for p in (project.validation, project.readme))
    assert "| probe | 2 1/s | 1 to 9 | >= 3 | **no** |" in page
    assert "| make quick from an empty clone | 3:16 min |  | <= 360 | yes |" in page
    assert "| beside another | not measured: it is not here |  | >= 1 |  |" in page
    assert "figure 1" not in page
    assert "| make quick from an empty clone | 3:16 min |" in readme
    assert "probe" not in readme


def test_a_file_that_is_missing_is_named_by_its_place_in_the_checkout(project: Project) -> None:
    missing = f"{project.raw / 'a.parquet'}: cannot be read"
    measured(project, Goal("probe", "s", "<= 3", "make bench", missing=missing))
    documented.update(project)
    assert "not measured: data/raw/a.parquet: cannot be read" in documented.written(
        project.validation
    )


def test_a_figure_is_of_the_commit_that_it_was_measured_of(project: Project) -> None:
    """However many commits later it is written down."""
    speed = Goal("probe", "1/s", ">= 3", "make bench", [1.0])
    measured(project, speed, group="probes", commit="0a1b")
    documented.update(project)
    measured(project, speed, group="sweeps", commit="2c3d")
    documented.update(project)
    found = {name: of["commit"] for name, of in documented.recorded(project).items()}
    assert found == {"probes": "0a1b", "sweeps": "2c3d"}
    assert "a machine, 2026-01-01, commit 0a1b:" in documented.written(project.validation)


def test_what_an_earlier_version_measured_is_not_taken_for_todays(project: Project) -> None:
    project.build.mkdir()
    records = [{"group": "probes", **Goal("probe", "1/s", "", "make bench", [1.0]).record()}]
    (project.build / "bench.json").write_text(json.dumps(records))
    with pytest.raises(BadParameter, match="make bench"):
        documented.update(project)


def test_a_group_of_claims_alone_replaces_nothing(project: Project) -> None:
    measured(project, Goal("probe", "1/s", "", "make bench", [1.0]), group="probes")
    documented.update(project)
    claim = Goal("x: figure 1", "ratio", "", "make bench", [2.0], is_claim=True)
    other = Goal("speed", "1/s", "", "make bench", [3.0])
    measured(project, claim, group="probes")
    with pytest.raises(BadParameter):
        documented.update(project)
    measured(project, other, group="sweeps")
    documented.update(project)
    assert [f["name"] for f in documented.recorded(project)["probes"]["figures"]] == ["probe"]


def test_nothing_was_measured(project: Project) -> None:
    with pytest.raises(BadParameter, match="make bench"):
        documented.update(project)
