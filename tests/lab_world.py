"""What a lab has before a run: a drive that somebody claimed, and what a killed device has left."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from harness.drives.lab_file import Claim
from harness.system import leases, workqueues

CLAIM: Final = Claim(
    by_id="/dev/disk/by-id/ata-FLASHLAB_SSD_SS2037E4B7C9",
    model="FLASHLAB SSD",
    serial="SS2037E4B7C9",
    wwn="naa.500a0751e4b7c901",
    size_bytes=1 << 30,
    token="0123456789abcdef" * 2,
    claimed_at="2026-11-22T09:00:00+00:00",
)


def bound_by_a_killed_device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The setting of where the kernel's own work runs, "3" before a live device that was killed
    had bound it to one processor.
    """
    cpumask, dead = folder / "cpumask", folder / "devices" / "dead"
    cpumask.write_text("3")
    dead.mkdir(parents=True)
    monkeypatch.setattr(workqueues, "_SETTING", cpumask)
    monkeypatch.setattr(leases, "_DEVICES", dead.parent)
    workqueues.bind(dead / workqueues.NOTE, 1, [])
    return cpumask
