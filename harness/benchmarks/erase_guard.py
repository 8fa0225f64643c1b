"""The erase guard, tried in the emulated machine: refusals, damaged lab files, the kernel patch."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from rich.console import Console

from harness.goals import Goal
from harness.paths import Project
from harness.system.programs import last_words

_COMMAND: Final = "make bench ONLY=hardware"
_TESTS: Final = "tests/hardware/inside/test_guard.py"
_NO_REFUSALS: Final = ("is_used", "prepared_and_marked", "killed_run", "thousand", "flock")
"""Tests of that file in which something is permitted, besides what is refused."""


def measure(project: Project, console: Console) -> Iterator[Goal]:
    """Runs the tests in the guest: each refusal leaves every byte of its drive as it was."""
    console.print("the erase guard in the emulated machine: half an hour at most")
    outcomes, missing = _outcomes(project)
    refusals = {name: o for name, o in outcomes.items() if not any(n in name for n in _NO_REFUSALS)}
    passed = [name for name, outcome in refusals.items() if outcome == "passed"]
    context = {"not passed": sorted(set(refusals) - set(passed))}
    yield Goal(
        "refusals proved, the drive's content unchanged after each",
        "cases",
        f"== {len(refusals)} and >= 25" if refusals else ">= 25",
        samples=[len(passed)] if refusals else [],
        context=context,
        command=_COMMAND,
        missing=missing,
    )
    fuzz = [outcome for name, outcome in outcomes.items() if "thousand" in name]
    yield Goal(
        "tests of a thousand lab files damaged at random, without a write",
        "tests",
        ">= 1",
        samples=[sum(outcome == "passed" for outcome in fuzz)] if fuzz else [],
        command=_COMMAND,
        missing=missing,
    )


def _outcomes(project: Project) -> tuple[dict[str, str], str]:
    """Test -> outcome; and why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", _TESTS, f"--junitxml={report}"]
        done = subprocess.run(command, cwd=project.root, capture_output=True, check=False)
        if not report.is_file():
            return {}, f"the tests did not run: {last_words(done)}"
        cases = ElementTree.parse(report).iter("testcase")  # noqa: S314
        outcomes = {case.get("name", ""): _outcome(case) for case in cases}
    if all(outcome == "skipped" for outcome in outcomes.values()):
        return {}, "no guest can be started here: run tools/install-guest"
    return outcomes, ""


def _outcome(case: ElementTree.Element) -> str:
    found = [child.tag for child in case]
    return next((tag for tag in ("error", "failure", "skipped") if tag in found), "passed")
