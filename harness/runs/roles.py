"""What a drive could serve for: by the roles that the experiments have for drives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness import experiments
from harness.drives.discovery import Drive
from harness.experiments.base import DriveRole

_GIB = 1 << 30


def of(drive: Drive, *, fdp: bool) -> list[str]:
    """`experiment: device` for all that the drive could be, by kind, TRIM, size and placement."""
    found = []
    for name in experiments.names():
        roles = [role for role in experiments.find(name).roles if _fits(role, drive)]
        found += [f"{name}: {role.device}{role.with_fdp if fdp else ''}" for role in roles]
    return found


def _fits(role: DriveRole, drive: Drive) -> bool:
    is_kind = role.rotational == drive.rotational
    return is_kind and drive.size_bytes >= role.min_bytes and (drive.trim or not role.needs_trim)


def examples() -> dict[str, Drive]:
    """A disk and a flash drive that nobody has, to say what experiments would do to such drives."""
    disk = Drive(
        name="sdx",
        number="8:0",
        node=Path("/dev/sdx"),
        by_id=(),
        model="a disk",
        serial="",
        wwn="",
        firmware="",
        size_bytes=250 * _GIB,
        logical_block_bytes=512,
        rotational=True,
        rpm=7200,
        transport="sata",
        trim=False,
        trim_queued=None,
        read_only=False,
        controller="",
        sequence="",
    )
    flash = replace(disk, model="a flash drive", rotational=False, rpm=None, trim=True)
    return {"hdd": disk, "ssd": flash}
