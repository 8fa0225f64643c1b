"""What stages took: noted beside the report, the last time of each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.paths import Project
from harness.runs import times

_BUSY = "import time\nwhile time.process_time() < 0.3: pass"


def test_the_last_time_of_each_stage_is_kept(tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert times.read(project) == []
    for name in ("b", "a", "b"):
        with times.noted(project, name):
            pass
    assert [stage.name for stage in times.read(project)] == ["a", "b"]


def test_processes_that_a_stage_starts_count(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with times.noted(project, "notebook"):
        subprocess.run([sys.executable, "-c", _BUSY], check=True)
    (stage,) = times.read(project)
    assert stage.cpu_s >= 0.25
    assert stage.elapsed_s >= 0.25


def test_the_memory_of_the_largest_process_counts(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with times.noted(project, "notebook"):
        subprocess.run([sys.executable, "-c", "b'x' * (1 << 29)"], check=True)
    (stage,) = times.read(project)
    assert stage.memory_bytes >= 1 << 29
    assert "no process more than" in times.in_words([stage])


def test_notes_of_before_say_nothing_of_memory(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with times.noted(project, "stage"):
        pass
    path = project.report / ".times.json"
    path.write_text('[{"name": "stage", "elapsed_s": 1.0, "cpu_s": 1.0}]')
    assert times.read(project) == [times.Stage("stage", 1.0, 1.0)]


def test_a_stage_that_fails_and_a_file_that_is_damaged_say_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with pytest.raises(ZeroDivisionError), times.noted(project, "fails"):
        raise ZeroDivisionError
    assert times.read(project) == []
    with times.noted(project, "stage"):
        pass
    (project.report / ".times.json").write_text('[{"name": "st')
    assert times.read(project) == []
