"""hardware/README.md's table of what a drive is in for: it is of the present parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import experiments
from harness.errors import HarnessError
from harness.experiments.base import Experiment
from harness.paths import Project
from harness.runs import expected_on_drives, parameters, roles
from harness.runs.hardware_plan import _PlanBench


def points(project: Project, study: Experiment, device: str) -> int:
    """How many the study has on a drive of that name; none where it cannot use one."""
    if not any(role.device == device for role in study.roles):
        return 0
    bench = _PlanBench({device: roles.examples()[device]}, {})
    return len(study.points(parameters.default(project, study.name, "hardware"), bench))


def test_every_study_and_drive_has_its_row_and_its_points(project: Project) -> None:
    """Which is known without simulating any."""
    studies = [experiments.find(name) for name in experiments.names()]
    expected = {
        (study.name, device): str(points(project, study, device))
        for study in studies
        if "hardware" in study.tiers
        for device in roles.examples()
        if points(project, study, device)
    }
    lines = expected_on_drives.part(project).read().splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {(study, device): count for study, device, count, *_ in rows} == expected


@pytest.mark.slow
def test_the_table_is_what_the_models_expect(project: Project) -> None:
    found = expected_on_drives.in_markdown(expected_on_drives.rows(project))
    assert expected_on_drives.part(project).read() == found


def test_a_page_without_its_lines_is_refused(tmp_path: Path) -> None:
    part = expected_on_drives.part(Project(tmp_path))
    part.page.parent.mkdir()
    part.page.write_text("nothing\n")
    with pytest.raises(HarnessError, match="the lines around"):
        part.write("new\n")
    part.page.write_text(f"before\n{part.begin}old\n{part.end}after\n")
    part.write("new\n")
    assert part.page.read_text() == f"before\n{part.begin}new\n{part.end}after\n"
