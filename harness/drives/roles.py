"""What a drive could serve for: by what the experiments need of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.drives.discovery import Drive

_GIB = 1 << 30


def of(drive: Drive, *, fdp: bool) -> list[str]:
    """`experiment: device` for all that the drive could be, by kind, TRIM, size and placement."""
    kind = "hdd" if drive.rotational else "ssd"
    found = []
    if drive.size_bytes >= 4 * _GIB:
        found += [f"grace_hash_join: {kind}", f"sort_merge_join: {kind}"]
    if drive.rotational:
        return found
    if drive.trim and drive.size_bytes >= 5 * _GIB:
        found.append("trim_fallocate: ssd")
    if drive.size_bytes >= 4 * _GIB:
        journal = ", with the journal on a second FDP namespace (hardware/msdj)" if fdp else ""
        found.append(f"msdj_tpcc: ssd{journal}")
    if drive.trim:
        found.append("delayed_trim: ssd")
    return found


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
