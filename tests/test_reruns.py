"""CI runs again what fails: its summary says why, also where the second run passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FLAKY = """
import pathlib
def test_flaky():
    again = pathlib.Path(__file__).with_suffix(".again")
    if not again.exists():
        again.touch()
        raise OSError(117, "what went wrong the first time")
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_the_summary_says_why_a_test_was_run_again(tmp_path: Path, workers: int) -> None:
    (tmp_path / "test_flaky.py").write_text(FLAKY)
    ours = ["-p", "conftest", "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    asked = ["--reruns", "1", "-n", str(workers), "-rfER", str(tmp_path)]
    told = subprocess.run(
        [sys.executable, "-m", "pytest", *ours, *asked],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "1 passed, 1 rerun" in told.stdout
    assert "OSError: [Errno 117] what went wrong the first time" in told.stdout
