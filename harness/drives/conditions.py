"""Under which conditions something is measured: how warm the drive is, how the CPU is clocked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

_SYSFS: Final = Path("/sys")


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
