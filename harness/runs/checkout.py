"""What is checked out: for pages that say what they were made of."""

from __future__ import annotations

import subprocess

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
