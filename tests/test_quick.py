"""A reproduction at another scale happens in a copy: the checkout stays as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import REPOSITORY, need

from harness.experiments import names


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone with this tool; stand-ins for `dvc` and `harness` say where they were called."""
    need("git")
    root = tmp_path / "checkout"
    clone = ["git", "clone", "--quiet", "--no-hardlinks", str(REPOSITORY), str(root)]
    subprocess.run(clone, check=True)
    shutil.copy(REPOSITORY / "tools" / "reproduce-copy", root / "tools")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("dvc", "harness"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" in "$PWD"\n')
        (programs / name).chmod(0o755)
    return root


def reproduce(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = f"{root.parent / 'programs'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [str(root / "tools" / "reproduce-copy"), *arguments],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def state(root: Path) -> str:
    """What git says of the checkout, but of this test's tool."""
    return subprocess.run(
        ["git", "status", "--porcelain", "--", ".", ":!tools/reproduce-copy"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.builds
def test_all_papers_run_small_in_the_copy_and_nothing_else_changes(checkout: Path) -> None:
    copy = checkout / "build" / "quick"
    done = reproduce(checkout, "smoke", "build/quick")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"dvc repro in {copy}", f"harness report in {copy}"]
    params = yaml.safe_load((copy / "params.yaml").read_text())
    run = params["pipeline"]["simulated"]
    assert set(run) == {name for name in names() if "simulated" in params[name]}
    assert {params[name]["simulated"]["parameters"]["scale"] for name in run} == {"smoke"}
    assert state(checkout) == ""


@pytest.mark.builds
def test_once_leaves_out_variants_and_repetitions(checkout: Path) -> None:
    assert reproduce(checkout, "smoke", "build/quick", "once").returncode == 0
    params = yaml.safe_load((checkout / "build" / "quick" / "params.yaml").read_text())
    for name in params["pipeline"]["simulated"]:
        parameters = params[name]["simulated"]["parameters"]
        assert not parameters.get("variants")
        assert parameters.get("repetitions", 1) == 1
    whole = yaml.safe_load((checkout / "params.yaml").read_text())
    assert whole["grace_hash_join"]["simulated"]["parameters"]["variants"]


@pytest.mark.builds
def test_a_copy_is_continued_and_another_scale_begins_anew(checkout: Path) -> None:
    for scale, kept in (("smoke", False), ("smoke", True), ("small", False)):
        assert reproduce(checkout, scale, "build/quick").returncode == 0
        finished = checkout / "build" / "quick" / "finished"
        assert finished.exists() == kept
        finished.touch()


@pytest.mark.builds
def test_what_is_somebody_s_is_not_removed(checkout: Path) -> None:
    theirs = checkout.parent / "theirs"
    theirs.mkdir()
    (theirs / "thesis.tex").touch()
    for folder in (str(theirs), "."):
        done = reproduce(checkout, "smoke", folder)
        assert done.returncode == 2
        assert "no copy of ours" in done.stderr
    assert (theirs / "thesis.tex").exists()


@pytest.mark.builds
def test_an_unknown_scale_is_one_line(checkout: Path) -> None:
    done = reproduce(checkout, "huge", "build/quick")
    assert done.returncode == 2
    assert done.stderr == "make: no scale huge: smoke, small or paper\n"
    assert not (checkout / "build" / "quick").exists()


@pytest.mark.builds
def test_of_changed_code_there_is_no_copy(checkout: Path) -> None:
    """What runs is the checkout's package, what it would be called is the commit."""
    changed = checkout / "harness" / "plots.py"
    changed.write_text(changed.read_text() + "\n")
    done = reproduce(checkout, "smoke", "build/quick")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "not as committed" in done.stderr
    assert not (checkout / "build" / "quick").exists()
