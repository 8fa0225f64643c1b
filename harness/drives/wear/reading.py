"""Asks drives for their wear: NVMe by nvme-cli, all others by smartctl. Root only."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from harness.drives import nvme, nvme_pages
from harness.drives.nvme_pages import Page
from harness.drives.wear import nvme_wear, smartctl_report
from harness.drives.wear.counters import COUNTS, Drive, Wear
from harness.errors import DeviceError
from harness.system.block_queue import drive_of
from harness.system.programs import ask

Transport = Literal["nvme", "sata", "sas", "other"]

_ENDURANCE_GROUPS: Final = 1 << 4
_FDP: Final = 1 << 19
"""Bits of CTRATT, Identify Controller (NVMe 2.0c, figure 275; TP4146)."""


def read(path: Path, transport: Transport) -> Wear:
    """What a drive, or the drive that a partition is on, has counted.

    Of "other" drives nothing is expected: what smartctl cannot open says so in each reason. Raises
    TargetError if it is no block device, MissingTool, DeviceError.
    """
    drive = drive_of(path)
    if transport == "nvme":
        return _read_nvme(drive)
    if transport == "other":
        return _read_unknown(drive)
    return _read_smartctl(drive)


def _read_smartctl(drive: Path) -> Wear:
    # Its exit status also tells of a drive that is ill, which is no reason not to read it.
    return smartctl_report.parse(ask("smartctl", "--json", "--xall", str(drive)).stdout)


def _read_unknown(drive: Path) -> Wear:
    try:
        return _read_smartctl(drive)
    except DeviceError as error:
        unknown = Drive("unknown", "unknown", "unknown")
        return Wear(drive=unknown, unsaid=dict.fromkeys(COUNTS, str(error)))


def _read_nvme(drive: Path) -> Wear:
    about = nvme.identify("id-ctrl", drive)
    attributes = int(about.get("ctratt", 0))
    group = int(nvme.identify("id-ns", drive).get("endgid", 0))
    smart = nvme.page(drive, nvme_pages.SMART)
    if isinstance(smart, str):
        raise DeviceError(f"{drive}: no SMART log page: {smart}")
    answers: dict[Page, bytes | str] = {nvme_pages.SMART: smart}
    for page in (nvme_pages.OCP_SMART, nvme_pages.TRIM):
        answers[page] = nvme.page(drive, page)
    for page, bit in ((nvme_pages.ENDURANCE, _ENDURANCE_GROUPS), (nvme_pages.FDP_STATISTICS, _FDP)):
        answers[page] = "the drive does not have it"
        if attributes & bit:
            answers[page] = nvme.page(drive, page, group)
    return nvme_wear.assemble(_drive(about), answers)


def _drive(about: dict[str, Any]) -> Drive:
    model, serial, firmware = (str(about.get(name, "")).strip() for name in ("mn", "sn", "fr"))
    return Drive(model, serial, firmware)
