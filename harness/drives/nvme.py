"""Asks an NVMe drive by nvme-cli: what it is, and its log pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.drives.nvme_pages import Page
from harness.errors import DeviceError
from harness.system.programs import ask, last_words


def identify(what: str, drive: Path, *options: str) -> dict[str, Any]:
    """The JSON of one of nvme-cli's identify commands. Raises DeviceError, MissingTool."""
    done = ask("nvme", what, str(drive), *options, "--output-format=json")
    if done.returncode:
        raise DeviceError(f"nvme {what} {drive}: {last_words(done)}")
    try:
        about = json.loads(done.stdout)
    except ValueError as error:
        raise DeviceError(f"nvme {what} {drive} said no JSON: {error}") from error
    if not isinstance(about, dict):
        raise DeviceError(f"nvme {what} {drive} said something else: {last_words(done)}")
    return about


def page(drive: Path, wanted: Page, group: int = 0) -> bytes | str:
    """A log page, or why the drive does not give it. `group`: an endurance group."""
    done = ask(
        "nvme",
        "get-log",
        str(drive),
        f"--log-id={wanted.identifier:#x}",
        f"--log-len={wanted.size_bytes}",
        f"--lsi={group}",
        "--raw-binary",
    )
    return last_words(done) if done.returncode else done.stdout
