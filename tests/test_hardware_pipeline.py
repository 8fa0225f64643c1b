"""`make hardware`: what DVC notes of it is kept, and is nothing that somebody could commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import REPOSITORY, need


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A repository with the tool, git's list of what it ignores, and a stage that says it ran."""
    need("git")
    for name in ("tools/hardware-pipeline", ".gitignore"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / "hardware").mkdir()
    (tmp_path / "data").mkdir()
    stages = {"code": {"cmd": "true"}}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    drives = {
        "wdir": "..",
        "cmd": "cp data/drives.json data/results; echo ran",
        "deps": ["data/drives.json"],
        "outs": [{"data/results": {"cache": False}}],
    }
    pipeline = {"stages": {"hardware": drives}}
    (tmp_path / "hardware" / "dvc.yaml").write_text(yaml.safe_dump(pipeline))
    (tmp_path / "data" / "drives.json").write_text("mine")
    for command in (("git", "init", "-q"), ("dvc", "init", "-q"), ("git", "add", ".")):
        run(tmp_path, *command)
    run(tmp_path, "git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")
    return tmp_path


def run(folder: Path, *command: str) -> str:
    """What a command that has to work prints, with the programs of this environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "DVC_NO_ANALYTICS": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_lock_is_found_again_and_is_not_in_git_s_way(place: Path) -> None:
    before = run(place, "git", "status", "--porcelain", "--", "hardware")
    assert "\nran\n" in run(place, "tools/hardware-pipeline")
    assert run(place, "git", "status", "--porcelain", "--", "hardware") == before == ""
    assert "\nran\n" not in run(place, "tools/hardware-pipeline"), "nothing has changed"
    (place / "data" / "drives.json").write_text("another")
    assert "\nran\n" in run(place, "tools/hardware-pipeline")
    assert [path.name for path in (place / "hardware").iterdir()] == ["dvc.yaml"]
