"""What `smartctl --json --xall` says of a drive's wear: text in, counts out.

SATA: attributes of the makers that say what theirs mean, and ATA device statistics (ACS-4).
What a maker's attribute means is told by the name that smartctl's drive database gives it, or by
the model where that is too old. SAS: the error counter log pages (SPC-4). NVMe behind a USB bridge:
its SMART log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from harness.drives.nvme_pages import DATA_UNIT_BYTES
from harness.drives.wear.counters import COUNTS, Count, Drive, Wear
from harness.errors import DeviceError

_SECTOR_BYTES: Final = 512
_RAW_BITS: Final = 48
"""Of an attribute's raw value (6 bytes, ATA8-ACS annex; smartctl's raw48)."""

_NOT_OPENED: Final = 0b11
"""Bits of smartctl's exit status: a bad command line, a device that could not be opened."""

_MICRON: Final = re.compile(r"(?i)^(crucial|micron|CT\d+|MTFD)")
_SAMSUNG: Final = re.compile(r"(?i)^(samsung|MZ)")
_HOST_PAGES: Final = "Host_Program_Page_Count"
_BACKGROUND_PAGES: Final = {"FTL_Program_Page_Count", "Bckgnd_Program_Page_Cnt"}
_UNKNOWN_NAME: Final = "Unknown"
_STATISTICS_WRITTEN: Final = (1, 24)
_STATISTICS_USED: Final = (7, 8)
"""Page and offset of Logical Sectors Written and of Percentage Used Endurance Indicator."""

Attributes = Mapping[int, Mapping[str, Any]]


def parse(text: bytes | str) -> Wear:
    """One reading. Raises DeviceError if smartctl could not open the drive, or for garbled text."""
    report = _report(text)
    _check_opened(report)
    try:
        return _wear(report)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DeviceError(
            f"smartctl's report is garbled ({type(error).__name__}: {error}): run smartctl --json "
            "--xall on the drive and see"
        ) from error


def _report(text: bytes | str) -> dict[str, Any]:
    try:
        report = json.loads(text)
    except ValueError as error:  # and UnicodeDecodeError, which is one
        raise DeviceError(f"smartctl said no JSON ({error}): it must be 7.0 or newer") from error
    except RecursionError as error:
        raise DeviceError("smartctl's report is garbled: too many brackets") from error
    if not isinstance(report, dict) or not isinstance(report.get("smartctl"), dict):
        raise DeviceError("this is no report of smartctl --json --xall")
    return report


def _check_opened(report: Mapping[str, Any]) -> None:
    status = report["smartctl"].get("exit_status", 0)
    if not isinstance(status, int) or status & _NOT_OPENED:
        raise DeviceError(f"smartctl could not open the drive: {_said(report)}")


def _said(report: Mapping[str, Any]) -> str:
    messages = report["smartctl"].get("messages") or []
    texts = [
        str(each["string"]) for each in messages if isinstance(each, dict) and "string" in each
    ]
    return " ".join("; ".join(texts).split()) or "it does not say why"


def _wear(report: Mapping[str, Any]) -> Wear:
    read = _PROTOCOLS.get(report["device"]["protocol"])
    if read is None:
        raise ValueError(f"protocol {report['device']['protocol']!r}")
    counts, reasons, used_ratio = read(report)
    temperature = report.get("temperature", {}).get("current")
    return Wear(
        drive=_drive(report),
        counts=counts,
        unsaid={
            name: reasons.get(name, "the drive counts no such thing that smartctl could read")
            for name in COUNTS
            if name not in counts
        },
        used_ratio=used_ratio,
        temperature_c=None if temperature is None else int(temperature),
    )


def _drive(report: Mapping[str, Any]) -> Drive:
    model = report.get("model_name") or report.get("scsi_model_name") or "unknown"
    serial = report["serial_number"]
    firmware = report.get("firmware_version") or report.get("revision") or "unknown"
    return Drive(str(model), str(serial), str(firmware))


Found = tuple[dict[str, Count], dict[str, str], float | None]
"""Counts, reasons for some that are not there, and the used ratio."""


def _ata(report: Mapping[str, Any]) -> Found:
    model = str(report.get("model_name", ""))
    table = report.get("ata_smart_attributes", {}).get("table", [])
    attributes = {int(each["id"]): each for each in table}
    counts = _statistics_written(report)
    if _are_microns(model, attributes):
        counts |= _micron(attributes)
        reason = "it counts flash pages, and does not say how large they are"
    elif _SAMSUNG.match(model):
        counts |= _samsung(attributes, _natural(report["user_capacity"]["bytes"], "capacity"))
        reason = "it has no attribute 177 (wear leveling count), not even an estimate can be made"
    elif report.get("rotation_rate"):
        reason = f"a disk with {report['rotation_rate']} rpm programs no flash"
    else:
        reason = "this maker does not publish which attribute counts it"
    used = _statistic(report, *_STATISTICS_USED)
    reasons = {"media_written_bytes": reason, "host_written_bytes": _NO_HOST_COUNT}
    return counts, reasons, None if used is None else _used(used)


_NO_HOST_COUNT: Final = (
    "neither ATA device statistics nor a maker's attribute that is known count it"
)


def _are_microns(model: str, attributes: Attributes) -> bool:
    """By the names that the drive database gives; by the model if it does not know the drive."""
    if 247 not in attributes or 248 not in attributes:
        return False
    names = (str(attributes[247].get("name")), str(attributes[248].get("name")))
    if names[0].startswith(_UNKNOWN_NAME):
        return _MICRON.match(model) is not None
    return names[0] == _HOST_PAGES and names[1] in _BACKGROUND_PAGES


def _micron(attributes: Attributes) -> dict[str, Count]:
    """Micron TN-FD-22: 173 average block erase count, 246 host sectors written, 247 flash pages
    programmed for the host, 248 for the drive itself. TN-FD-23: WAF = (247 + 248) / 247.
    """
    host = _raw(attributes[247])
    counts = {
        "host_pages": Count(host, 1, "attribute 247"),
        "media_pages": Count(host + _raw(attributes[248]), 1, "attributes 247 and 248"),
    }
    if 246 in attributes:
        counts["host_written_bytes"] = _sectors(attributes[246])
    if 173 in attributes:
        counts["erase_cycles"] = Count(_raw(attributes[173]), 1, "attribute 173")
    return counts


def _samsung(attributes: Attributes, capacity_bytes: int) -> dict[str, Count]:
    """241 host sectors written; 177 erases of a block, on average.

    What was written to the flash is estimated: each such erase makes room for the drive's capacity
    once. Its flash is larger than that by what it hides, and an erased block is not always filled,
    so the estimate is some percent off, and its step is the whole capacity.
    """
    counts = {}
    if 241 in attributes:
        counts["host_written_bytes"] = _sectors(attributes[241])
    if 177 in attributes:
        cycles = _raw(attributes[177])
        source = "attribute 177 (average erases of a block) x capacity"
        counts["erase_cycles"] = Count(cycles, 1, "attribute 177")
        counts["media_written_bytes"] = Count(
            cycles * capacity_bytes, capacity_bytes, source, estimated=True
        )
    return counts


def _sectors(attribute: Mapping[str, Any]) -> Count:
    """Sectors of 512 bytes, whatever the logical block size is."""
    source = f"attribute {attribute['id']}"
    return Count(_raw(attribute) * _SECTOR_BYTES, _SECTOR_BYTES, source)


def _raw(attribute: Mapping[str, Any]) -> int:
    value = _natural(attribute["raw"]["value"], f"attribute {attribute['id']}", least=0)
    if value >= 1 << _RAW_BITS:
        raise ValueError(f"attribute {attribute['id']} has the raw value {value}")
    return value


def _natural(value: object, what: str, *, least: int = 1) -> int:
    """A whole number; JSON has also others, and Python takes True for one."""
    if type(value) is not int or value < least:
        raise ValueError(f"{what} is {value!r}")
    return value


def _used(value: object) -> float:
    """Of a percentage, which may exceed 100."""
    return _natural(value, "percentage used", least=0) / 100


def _statistics_written(report: Mapping[str, Any]) -> dict[str, Count]:
    """ACS-4, General Statistics page, offset 24: in logical blocks of the drive."""
    sectors = _statistic(report, *_STATISTICS_WRITTEN)
    if sectors is None:
        return {}
    block_bytes = _natural(report["logical_block_size"], "block size")
    source = "ATA device statistics, logical sectors written"
    return {"host_written_bytes": Count(sectors * block_bytes, block_bytes, source)}


def _statistic(report: Mapping[str, Any], page: int, offset: int) -> int | None:
    """A value of the device statistics, if the drive keeps it and says that it is valid."""
    for each in report.get("ata_device_statistics", {}).get("pages", []):
        for entry in each["table"] if each["number"] == page else []:
            if entry["offset"] == offset and entry["flags"]["valid"]:
                return _natural(entry["value"], f"statistic {page}, {offset}", least=0)
    return None


def _scsi(report: Mapping[str, Any]) -> Found:
    """SPC-4, write error counter log page (02h): total bytes processed (parameter 5).

    smartctl gives them in units of 10^9 bytes with three digits behind the point.
    """
    used = report.get("scsi_percentage_used_endurance_indicator")
    reasons = {
        "media_written_bytes": "SAS drives have no page for it",
        "host_written_bytes": "the drive has no write error counter log page",
    }
    written = report.get("scsi_error_counter_log", {}).get("write")
    counts = {}
    if written is not None:
        whole, _, thousandths = str(written["gigabytes_processed"]).partition(".")
        if not re.fullmatch(r"\d+", whole) or not re.fullmatch(r"\d{3}", thousandths):
            raise ValueError(f"{written['gigabytes_processed']!r} gigabytes")
        source = "write error counter log page, total bytes processed"
        counts["host_written_bytes"] = Count(int(whole + thousandths) * 10**6, 10**6, source)
    return counts, reasons, None if used is None else _used(used)


def _nvme(report: Mapping[str, Any]) -> Found:
    """What is behind a USB bridge answers for its SMART log, not for the others."""
    log = report["nvme_smart_health_information_log"]
    units = _natural(log["data_units_written"], "data units written", least=0)
    reasons = {
        "media_written_bytes": "smartctl does not read the log pages that count it",
        "host_written_bytes": "data units written is 0: the drive does not report it (or is new)",
    }
    source = "SMART log page 02h, data units written"
    counts = {"host_written_bytes": Count(units * DATA_UNIT_BYTES, DATA_UNIT_BYTES, source)}
    return counts if units else {}, reasons, _used(log["percentage_used"])


_PROTOCOLS: Final = {"ATA": _ata, "SCSI": _scsi, "NVMe": _nvme}
