"""Asks drives for their wear: NVMe by nvme-cli, all others by smartctl. Root only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

from harness.block_queue import drive_of
from harness.devices.wear import nvme_pages, nvme_wear, smartctl_report
from harness.devices.wear.counters import COUNTS, Drive, Wear
from harness.devices.wear.nvme_pages import Page
from harness.errors import DeviceError
from harness.programs import ask, last_words

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
    about = _identify("id-ctrl", drive)
    attributes = int(about.get("ctratt", 0))
    group = int(_identify("id-ns", drive).get("endgid", 0))
    smart = _page(drive, nvme_pages.SMART)
    if isinstance(smart, str):
        raise DeviceError(f"{drive}: no SMART log page: {smart}")
    answers: dict[Page, bytes | str] = {nvme_pages.SMART: smart}
    for page in (nvme_pages.OCP_SMART, nvme_pages.TRIM):
        answers[page] = _page(drive, page)
    for page, bit in ((nvme_pages.ENDURANCE, _ENDURANCE_GROUPS), (nvme_pages.FDP_STATISTICS, _FDP)):
        answers[page] = "the drive does not have it"
        if attributes & bit:
            answers[page] = _page(drive, page, group)
    return nvme_wear.assemble(_drive(about), answers)


def _identify(what: str, drive: Path) -> dict[str, Any]:
    done = ask("nvme", what, str(drive), "--output-format=json")
    if done.returncode:
        raise DeviceError(f"nvme {what} {drive}: {last_words(done)}")
    try:
        about = json.loads(done.stdout)
    except ValueError as error:
        raise DeviceError(f"nvme {what} {drive} said no JSON: {error}") from error
    if not isinstance(about, dict):
        raise DeviceError(f"nvme {what} {drive} said something else: {last_words(done)}")
    return about


def _drive(about: dict[str, Any]) -> Drive:
    model, serial, firmware = (str(about.get(name, "")).strip() for name in ("mn", "sn", "fr"))
    return Drive(model, serial, firmware)


def _page(drive: Path, page: Page, group: int = 0) -> bytes | str:
    """A log page, or why the drive does not give it. `group`: an endurance group."""
    done = ask(
        "nvme",
        "get-log",
        str(drive),
        f"--log-id={page.identifier:#x}",
        f"--log-len={page.size_bytes}",
        f"--lsi={group}",
        "--raw-binary",
    )
    return last_words(done) if done.returncode else done.stdout
