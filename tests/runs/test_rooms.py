"""A study is a room: one that nobody knows is run, calibrated, measured and reported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import toy_world

from harness.paths import Project

Harness = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def harness(checkout: Project) -> Harness:
    """Runs `harness ARGUMENTS` in a checkout with the toy's parameters, claim and notebook."""
    toy_world.furnish(checkout)
    for path in checkout.notebooks.glob("*.ipynb"):  # theirs would take minutes
        path.unlink()
    cells = [
        'tier = "simulated"',
        'from harness import lab\nlab.start("toy", tier).run()',
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.cells[0].metadata.tags = ["parameters"]
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
    nbformat.write(notebook, checkout.notebooks / "70_toy.ipynb")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("harness")), *arguments],
            cwd=checkout.root,
            env=toy_world.environment(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


def test_a_study_of_somebody_else(checkout: Project, harness: Harness) -> None:
    assert "toy" in harness("list").stdout
    ran = harness("run", "toy")
    assert ran.returncode == 0, ran.stderr
    assert "1 of 1 claims that could have failed are reproduced" in ran.stdout
    assert (checkout.figures / "toy" / "simulated" / "reads.svg").is_file()

    said = harness("calibrate", "toy", "--write")
    assert said.returncode == 0, said.stderr
    assert "IOPS at depth 1" in said.stdout
    assert "written: toy" in said.stdout
    assert (checkout.profiles / "toy.txt").is_file()
    assert "Fits nothing" in harness("calibrate", "--help").stdout

    measured = harness("bench", "--only", "toy")
    assert measured.returncode == 0, measured.stderr
    [record] = json.loads((checkout.build / "bench.json").read_text())
    assert record["holds"] is True
    assert record["value"] > 2

    executed = harness("notebook", "70_toy")
    assert executed.returncode == 0, executed.stderr
    reported = harness("report")
    assert reported.returncode == 0, reported.stderr
    assert "eight at a time are faster" in (checkout.report / "index.html").read_text()

    assert harness("digests").returncode == 0
    assert (checkout.code / "toy.simulated.json").is_file()


def test_what_it_lacks_is_said(harness: Harness) -> None:
    refused = harness("agreement", "toy")
    assert refused.returncode == 2
    assert "unknown experiment with an agreement 'toy'" in refused.stderr
