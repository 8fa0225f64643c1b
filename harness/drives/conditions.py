"""Under which conditions something is measured: how warm the drive is, how the CPU is clocked."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

from harness.errors import HarnessError
from harness.system.programs import ask

_SYSFS: Final = Path("/sys")
_ATA: Final = re.compile(r"ata\d+")
_SATA_SPEED: Final = "link*/ata_link/link*/sata_spd"
_PCI_SPEED: Final = "current_link_speed"
_PCI_WIDTH: Final = "current_link_width"
_CURRENT: Final = re.compile(r"current value:\s*(?:0x)?([0-9a-f]+)", re.IGNORECASE)
"""Of nvme-cli 1 and 2."""


def cpu(sysfs: Path = _SYSFS) -> dict[str, str]:
    """How the CPU is clocked: for the fingerprint, since it stays as it is set.

    `cpu_governor` and `cpu_frequency_khz` (least and most allowed): each with the number of CPUs
    that have it, if they differ; `cpu_boost`: on or off. 'unknown': the kernel does not say.
    """
    policies = sorted(sysfs.glob("devices/system/cpu/cpu[0-9]*/cpufreq"))
    governors = [_read(policy / "scaling_governor") for policy in policies]
    ranges = [
        f"{_read(policy / 'scaling_min_freq')}-{_read(policy / 'scaling_max_freq')}"
        for policy in policies
    ]
    return {
        "cpu_governor": _summary(governors),
        "cpu_frequency_khz": _summary(ranges),
        "cpu_boost": _boost(sysfs),
    }


def way(drive: Path, sysfs: Path = _SYSFS) -> dict[str, str]:
    """How a whole drive is reached: for the fingerprint. 'unknown': the kernel does not say.

    `drive_queue_depth`: how many commands it is given at a time (SCSI, SATA: of NCQ).
    `link_speed`: that of its own link, of SATA (sata_spd) or of PCI; `link_width`: lanes of that.
    """
    device = sysfs / "block" / drive.name / "device"
    place = device.resolve()
    ata = next((parent for parent in place.parents if _ATA.fullmatch(parent.name)), None)
    # An NVMe drive of several controllers has a subsystem for its device.
    above = [place, *(folder.resolve() for folder in device.glob("nvme[0-9]*"))]
    pci = [p for each in above for p in (each, *each.parents) if (p / _PCI_SPEED).exists()]
    speed = width = "unknown"
    if ata is not None:
        speed = _summary([_read(link) for link in sorted(ata.glob(_SATA_SPEED))])
    elif pci:
        speed, width = (_read(pci[0] / name) for name in (_PCI_SPEED, _PCI_WIDTH))
    return {
        "drive_queue_depth": _read(device / "queue_depth"),
        "link_speed": speed,
        "link_width": width,
    }


def of_drive(drive: Path) -> dict[str, str]:
    """What of a drive and this machine tells results apart, beside who they are: `cpu`, `way`, and
    `volatile_cache` by its name.
    """
    return {**cpu(), **way(drive), "volatile_cache": volatile_cache(drive)}


def volatile_cache(drive: Path) -> str:
    """Whether an NVMe drive's cache is on, 0 or 1, as it says itself; 'unknown' of any other.

    NVMe Base 2.1, Set Features, Volatile Write Cache (06h): the kernel only asks whether there is
    one. 'unknown', too, without nvme-cli.
    """
    if not drive.name.startswith("nvme"):
        return "unknown"
    try:
        done = ask("nvme", "get-feature", str(drive), "--feature-id=6")
    except HarnessError:
        return "unknown"
    said = _CURRENT.search(done.stdout.decode(errors="replace"))
    return str(int(said[1], 16) & 1) if done.returncode == 0 and said else "unknown"


def temperature_c(drive: Path, sysfs: Path = _SYSFS) -> float | None:
    """How warm a whole drive is: for a result, as it changes. None: no sensor is known.

    From the kernel's sensor of the drive: NVMe has one, SATA with the module drivetemp (Linux,
    Documentation/hwmon: temp1_input, thousandths of a degree).
    """
    device = sysfs / "block" / drive.name / "device"
    if not device.exists():
        return None
    # Of a namespace that several controllers may have, the device is their subsystem.
    devices = {folder.resolve() for folder in (device, *device.glob("nvme[0-9]*"))}
    for sensor in sorted(sysfs.glob("class/hwmon/hwmon*")):
        if (sensor / "device").resolve() in devices:
            value = _read(sensor / "temp1_input")
            return int(value) / 1000 if value.lstrip("-").isdigit() else None
    return None


def _boost(sysfs: Path) -> str:
    folder = sysfs / "devices" / "system" / "cpu"
    for name, on in (("cpufreq/boost", "1"), ("intel_pstate/no_turbo", "0")):
        if (value := _read(folder / name)) != "unknown":
            return "on" if value == on else "off"
    return "unknown"


def _summary(values: list[str]) -> str:
    counted = Counter(values)
    if len(counted) <= 1:
        return next(iter(counted), "unknown")
    return ", ".join(f"{count} x {value}" for value, count in sorted(counted.items()))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return "unknown"
