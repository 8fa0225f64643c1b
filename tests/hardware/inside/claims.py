"""In the guest: drives by their serial numbers, and claiming them as a user does."""

from __future__ import annotations

from pathlib import Path

from harness.drives import guard
from harness.drives.discovery import Drive, Machine
from harness.drives.lab_file import Claim
from harness.paths import Project


def drive_of(serial: str, which: int = 0) -> Drive:
    """The drive, or one of those, with a serial number."""
    return [drive for drive in Machine().drives if drive.serial == serial][which]


def by_id(drive: Drive) -> Path:
    """Its first persistent name."""
    return drive.by_id[0]


def claim(drive: Drive, name: str, project: Project) -> Claim:
    """Types the end of its serial number."""
    plan = guard.plan_claim(name, by_id(drive), project=project)
    return guard.claim(plan, drive.serial[-guard.TYPED_CHARACTERS :], project)
