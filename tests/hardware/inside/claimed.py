"""In the guest: a project with all drives claimed, as a lab has it, and commands in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hardware.inside.claims import claim, drive_of
from harness.drives import guard
from harness.paths import Project

REPOSITORY = Path(__file__).resolve().parents[3]
LINKED = ("params.yaml", "dvc.yaml", "pyproject.toml", "hardware/profiles", "data/published")
"""Of the checkout, what `harness run` needs in a project."""


@contextmanager
def claimed(drives: Mapping[str, tuple[str, int]]) -> Iterator[Project]:
    """A new project in which the drives (serial number, which namespace) are claimed by name.

    Servers' users may enter it.
    """
    root = Path(tempfile.mkdtemp(prefix="flashlab-project-", dir="/var/tmp"))
    for folder in (root, root / "hardware", root / "data", root / "data" / "raw"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)
    made = Project(root)
    for name in LINKED:
        (root / name).symlink_to(REPOSITORY / name)
    # A notebook's project is the one that its folder lies in, behind any link.
    made.notebooks.mkdir()
    for notebook in (REPOSITORY / "notebooks").glob("*.ipynb"):
        shutil.copy(notebook, made.notebooks)
    for name, (serial, which) in drives.items():
        claim(drive_of(serial, which), name, made)
    yield made
    for name in drives:
        guard.release(name, made)


def run(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`harness` with these arguments, in the project."""
    return subprocess.run(
        [sys.executable, "-c", "from harness.commands.main import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=project.root,
    )
