"""What is checked out: for pages that say what they were made of."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime

from harness.drives import fingerprint
from harness.errors import MissingTool
from harness.paths import Project
from harness.system.programs import find_program


def commit(project: Project) -> str:
    """Its digest, and whether files were changed since; nothing outside of git."""
    try:
        command = [find_program("git"), "describe", "--always", "--dirty"]
    except MissingTool:
        return ""
    asked = subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def made_here(project: Project) -> dict[str, str]:
    """When, of which commit, on which machine: `date`, `commit`, `machine`, for people."""
    machine = fingerprint.machine()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(project),
        "machine": f"{machine['cpu']}, {machine['cpus']} CPUs, Linux {machine['kernel']}",
    }
