"""What a measured result depends on besides its parameters: this machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from harness.drives.discovery import Drive, rotation_told
from harness.system import block_queue, cgroups, kernel_tables


def machine() -> dict[str, str]:
    """Kernel, CPU and number of CPUs, memory (whole GiB), version of memory's control groups.

    A name that is new here is one that results from before do not have: see `is_from_here` of
    runs/published.
    """
    return {
        "kernel": platform.release(),
        "cpu": _cpu("model name") or platform.machine(),
        "cpu_stepping": "/".join(_cpu(name) for name in ("cpu family", "model", "stepping")),
        "cpus": str(os.cpu_count()),
        "memory_gib": str(round(_memory_kib() / (1 << 20))),
        "cgroups": str(cgroups.version()),
    }


def storage_of(path: Path) -> dict[str, str]:
    """The block device below a file or device: name, model, rotational, file system.

    `rotational`: 1 or 0, if the drives below say so themselves; or unknown.
    """
    info = path.stat()
    number = info.st_rdev or info.st_dev
    disk = block_queue.folder_of(f"{os.major(number)}:{os.minor(number)}")
    below = _read(disk / "loop" / "backing_file") or ""
    return {
        **_of_backing(Path(below)),
        "block_device": disk.name if disk.exists() else "none",
        "model": _read(disk / "device" / "model") or "unknown",
        "serial_digest": _digest_of_text(_read(disk / "device" / "serial") or ""),
        "rotational": _rotation(disk),
        "file_system": _file_system(number),
    }


def _of_backing(file: Path) -> dict[str, str]:
    """Of a loop device what lies below it, which another one of its name has not."""
    if not file.is_absolute() or not file.exists():
        return {}
    info = file.stat()
    facts = {f"below_{name}": value for name, value in storage_of(file).items()}
    return {**facts, "below_digest": _digest_of_text(f"{file} {info.st_dev} {info.st_ino}")}


def _rotation(disk: Path) -> str:
    """Of a loop device that of what lies below it, and so of what is made of several drives."""
    backing = Path(_read(disk / "loop" / "backing_file") or "")
    if backing.is_absolute() and backing.exists():
        return storage_of(backing)["rotational"]
    if parts := list((disk / "slaves").glob("*")):
        kinds = {_rotation(block_queue.folder_of(_read(part / "dev") or "")) for part in parts}
        return kinds.pop() if len(kinds) == 1 else "unknown"
    said = _read(disk / "queue" / "rotational")
    return said if said and rotation_told(disk) else "unknown"


def of_drive(drive: Drive) -> dict[str, str]:
    """A drive as discovery found it. Serial number and WWN only as digests: results are shown."""
    return {
        "model": drive.model,
        "firmware": drive.firmware,
        "serial_digest": _digest_of_text(drive.serial),
        "wwn_digest": _digest_of_text(drive.wwn),
        "size_bytes": str(drive.size_bytes),
        "logical_block_bytes": str(drive.logical_block_bytes),
        "transport": drive.transport,
        "rotational": str(int(drive.rotational)) if drive.rotation_told else "unknown",
    }


def digest(facts: Mapping[str, str]) -> str:
    """SHA-256 (hex) of a fingerprint."""
    return _digest_of_text(json.dumps(dict(facts), sort_keys=True))


def _digest_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _cpu(name: str) -> str:
    """What the kernel says of the first processor; empty: it does not."""
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        said, _, value = line.partition(":")
        if said.strip() == name:
            return value.strip()
    return ""


def _memory_kib() -> int:
    for line in (_read(Path("/proc/meminfo")) or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1])
    return 0


def _file_system(device: int) -> str:
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in kernel_tables.lines(Path("/proc/self/mountinfo")):
        fields = kernel_tables.fields(line)
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "none"


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
