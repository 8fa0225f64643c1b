"""Hostile command lines: no traceback, no file changed, exit code 0, 1 or 2."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostile
import pytest
from conftest import REPOSITORY, need, sockets
from leaks import PREFIX

_NOBODY = 65534
_SEED = 19


@pytest.fixture
def throw_away() -> Iterator[Path]:
    """A checkout that belongs to whoever runs the command lines, but for its journal and build."""
    with tempfile.TemporaryDirectory(prefix=f"flashlab-test-{PREFIX}", dir="/var/tmp") as made:
        folder = Path(made) / "checkout"
        folder.mkdir()
        for name in ("params.yaml", "dvc.yaml", "pyproject.toml"):
            shutil.copy(REPOSITORY / name, folder / name)
        for name in ("hardware/profiles", "data/published", "notebooks"):
            shutil.copytree(REPOSITORY / name, folder / name, ignore=sockets)
        hostile.make_scratch(folder / hostile.SCRATCH)
        if os.geteuid() == 0:
            for path in (Path(made), folder, *folder.rglob("*")):
                os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)
        for name in ("data/journal", "build"):
            (folder / name).mkdir(mode=0o555)
        yield folder
        (folder / hostile.SCRATCH / "forbidden").chmod(0o700)


def _as_nobody() -> list[str]:
    """Of root: may read all, as Python may lie where only root looks, and change nothing."""
    if os.geteuid() != 0:
        return []
    may_read = [f"--{kind}=-all,+dac_read_search" for kind in ("inh-caps", "ambient-caps")]
    user = [f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
    return [need("setpriv"), *user, *may_read, "--bounding-set=-all,+dac_read_search"]


def outcomes(count: int, folder: Path) -> list[dict[str, Any]]:
    """What these command lines did, as a user who may do nothing."""
    program = [sys.executable, hostile.__file__, str(_SEED), str(count), str(folder)]
    home = {
        "HOME": str(folder.parent),
        "TMPDIR": str(folder.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [*_as_nobody(), *program],
        env={"PATH": os.environ["PATH"], "MPLBACKEND": "agg", "COLUMNS": "120", **home},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def complaints(found: dict[str, Any]) -> list[str]:
    """What is wrong with what a command line did."""
    said = found["said"]
    own = [line for line in said.splitlines() if line.startswith("harness: ")]
    written = ("data/machines/",) if found["arguments"][:1] == ["machine"] else ()
    checks = {
        found["error"]: found["error"] == "",
        "a traceback": "Traceback" not in said,
        f"exit code {found['code']}": found["code"] in (0, 1, 2),
        f"{len(own)} lines, or none": found["code"] != 2 or len(own) == 1 or "Error: " in said,
        f"it says {own}": all(character.isprintable() for line in own for character in line),
        f"changed {found['changed']}": all(
            f"{name}/".startswith(written) for name in found["changed"]
        ),
    }
    return [wrong for wrong, holds in checks.items() if not holds]


def check(count: int, folder: Path) -> None:
    """All of them, and that most were refused."""
    found = outcomes(count, folder)
    assert len(found) == count
    wrong = [(each["arguments"], complaints(each)) for each in found if complaints(each)]
    assert wrong == []
    assert sum(each["code"] == 2 for each in found) > 0.8 * count


def test_the_same_seed_gives_the_same_lines_and_all_commands() -> None:
    every = {typed for typed, _ in hostile.commands()}
    found = hostile.lines(_SEED, len(every))
    assert found == hostile.lines(_SEED, len(every))
    assert {typed for typed in every if [*typed] in [line[: len(typed)] for line in found]} == every


def test_hostile_command_lines(throw_away: Path) -> None:
    check(150, throw_away)


@pytest.mark.slow
def test_1000_hostile_command_lines(throw_away: Path) -> None:
    check(1000, throw_away)
