"""What the README has somebody type leaves what is under git or DVC as it is."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable

import pytest
from conftest import REPOSITORY, describe

from harness.paths import Project

Command = Callable[..., subprocess.CompletedProcess[str]]
CHEAP = re.compile(r"harness (list|run|doctor|notebook|probe|data-sheet|fit|calibrate drive|draw)")
"""The others take minutes, and write nothing but with --write."""

NEEDS = re.compile(r"--claimed|probe record|--tier (hardware|auto)|harness draw")
"""A drive, root, or more results than there are here: without them one line says so."""


def commands() -> list[str]:
    """Lines of the README's blocks that call the harness, without their comments."""
    blocks = re.findall(r"```\n(.*?)```", (REPOSITORY / "README.md").read_text(), flags=re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if "bin/harness " in line and not line.startswith("$")]


def data(project: Project) -> dict[str, bytes]:
    """All that git or DVC have, but what a run keeps for itself."""
    own = (project.journal, project.build, project.raw / "tpch")
    return {
        str(path.relative_to(project.root)): path.read_bytes()
        for path in project.root.rglob("*")
        if path.is_file() and not any(folder in path.parents for folder in own)
    }


def test_the_readme_s_commands_are_known() -> None:
    found = commands()
    assert len(found) > 10
    assert any("--scale smoke" in line for line in found)


@pytest.mark.slow
@pytest.mark.parametrize("line", [c for c in commands() if CHEAP.search(c)], ids=lambda c: c[14:60])
def test_a_command_changes_nothing(line: str, harness_command: Command, checkout: Project) -> None:
    """Run as it stands, beside results that are published; those that need root or a drive fail."""
    few = {"scale": "small", "repetitions": 1, "read_buffers": ["4 MiB"], "users": [1]}
    for tier in ("simulated", "hardware"):
        describe(checkout, "grace_hash_join", tier, **few, write_buffers=["4 KiB"])
    describe(checkout, "grace_hash_join", "simulated", variants={}, queue_depths=[1])
    shutil.copytree(REPOSITORY / "data" / "code", checkout.code)
    published = checkout.results / "grace_hash_join.simulated.csv"
    published.parent.mkdir(parents=True)
    published.write_text("as it was\n")
    before = data(checkout)
    arguments = shlex.split(line)[1:]
    if "auto" in arguments:  # which would be emulated here, and take minutes
        arguments += ["--file", str(checkout.build / "scratch")]
        checkout.build.mkdir()
    if "record" in arguments:  # which would last until it is interrupted
        arguments += ["--duration", "1s"]
    places = {"/some/folder": checkout.build, "trace.parquet": checkout.build / "trace.parquet"}
    for name, path in places.items():
        arguments = [word.replace(name, str(path)) for word in arguments]
    checkout.build.mkdir(exist_ok=True)
    found = harness_command(*[word.replace("small", "smoke") for word in arguments])
    allowed = {0, 2} if NEEDS.search(line) and found.stderr.count("\n") == 1 else {0}
    assert found.returncode in allowed, found.stderr
    assert data(checkout) == before
