"""What a measured result depends on besides its parameters: this machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from harness.drives.discovery import Drive
from harness.system import block_queue


def machine() -> dict[str, str]:
    """Kernel, CPU model and number of CPUs."""
    return {
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cpus": str(os.cpu_count()),
    }


def storage_of(path: Path) -> dict[str, str]:
    """The block device below a file or device: name, model, rotational, file system."""
    info = path.stat()
    number = info.st_rdev or info.st_dev
    disk = block_queue.folder_of(f"{os.major(number)}:{os.minor(number)}")
    below = _read(disk / "loop" / "backing_file") or ""
    return {
        **_of_backing(Path(below)),
        "block_device": disk.name if disk.exists() else "none",
        "model": _read(disk / "device" / "model") or "unknown",
        "serial_digest": _digest_of_text(_read(disk / "device" / "serial") or ""),
        "rotational": _read(disk / "queue" / "rotational") or "unknown",
        "file_system": _file_system(number),
    }


def _of_backing(file: Path) -> dict[str, str]:
    """Of a loop device what lies below it, which another one of its name has not."""
    if not file.is_absolute() or not file.exists():
        return {}
    info = file.stat()
    facts = {f"below_{name}": value for name, value in storage_of(file).items()}
    return {**facts, "below_digest": _digest_of_text(f"{file} {info.st_dev} {info.st_ino}")}


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
        "rotational": str(int(drive.rotational)),
    }


def digest(facts: Mapping[str, str]) -> str:
    """SHA-256 (hex) of a fingerprint."""
    return _digest_of_text(json.dumps(dict(facts), sort_keys=True))


def _digest_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _cpu_model() -> str:
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(device: int) -> str:
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in (_read(Path("/proc/self/mountinfo")) or "").splitlines():
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "none"


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
