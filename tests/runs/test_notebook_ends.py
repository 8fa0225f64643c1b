"""A notebook that is interrupted has time to put back what its cells have changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
from nbformat import v4

CLEANS_UP_S = 7
"""Longer than a kernel has, if nobody says otherwise: five seconds."""

CELL = f"""
import pathlib, time
print("ready", flush=True)
try:
    time.sleep(600)
finally:
    time.sleep({CLEANS_UP_S})
    pathlib.Path("put-back").touch()
"""
PROGRAM = """
import sys
from pathlib import Path
from harness.paths import Project
from harness.runs import notebooks
notebooks.execute(Project(Path(sys.argv[1])), "slow", {})
"""


def test_ctrl_c_lets_a_cell_put_everything_back(tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(
        v4.new_notebook(cells=[v4.new_code_cell(CELL)], metadata=kernel), folder / "slow.ipynb"
    )
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "JUPYTER_DATA_DIR": str(tmp_path / "jupyter")},
    ) as running:
        assert running.stdout is not None
        assert any("ready" in line for line in running.stdout)
        running.send_signal(signal.SIGINT)
        running.wait(60)
    assert (folder / "put-back").exists()
