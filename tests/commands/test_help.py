"""What the command line says of itself: version, completion, the page of all commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY

import harness


def run(program: str, *arguments: str, **more: str) -> str:
    """What a program of this environment prints, from anywhere."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name(program)), *arguments],
        cwd="/",
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version() -> None:
    assert run("harness", "--version") == f"harness {harness.__version__}\n"


def test_the_page_of_commands_is_that_of_the_command_line(tmp_path: Path) -> None:
    page = tmp_path / "commands.md"
    run(
        "typer",
        "harness.commands.main",
        "utils",
        "docs",
        "--name",
        "harness",
        "--output",
        str(page),
    )
    committed = REPOSITORY / "docs" / "commands.md"
    assert page.read_text() == committed.read_text(), "run `make commands`"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    # The shell is named: else typer looks for one among the parents, which a test need not have.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert "_HARNESS_COMPLETE" in run("harness", "--show-completion", shell, **named)
    words = {"bash": "COMP_WORDS", "zsh": "_TYPER_COMPLETE_ARGS", "fish": "_TYPER_COMPLETE_ARGS"}
    asked = {
        "_HARNESS_COMPLETE": f"complete_{shell}",
        words[shell]: "harness dev",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    assert "device" in run("harness", **asked)
