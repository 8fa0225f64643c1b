"""What the log pages of one NVMe drive say together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.drives import nvme_pages
from harness.drives.nvme_pages import Page
from harness.drives.trim_log import TrimLog, is_trim_log, read_trim_log
from harness.drives.wear.counters import COUNTS, Count, Drive, Wear

Answers = Mapping[Page, bytes | str]
"""What a drive answered to the request for each page: its bytes, or why there are none."""

_NOT_REPORTED: Final = "counts 0, which means that the drive does not report it (or is new)"


def assemble(drive: Drive, answers: Answers) -> Wear:
    """One reading; `answers` must have the SMART page, which every drive has.

    Media and host bytes are taken from where they are counted alike: FDP statistics, else OCP's
    page beside SMART, else Endurance Group Information. Raises DeviceError for a garbled page.
    """
    page = answers[nvme_pages.SMART]
    assert isinstance(page, bytes)
    smart = nvme_pages.parse_smart(page)
    counts, reasons = _written(answers, smart)
    return Wear(
        drive=drive,
        counts=counts,
        unsaid={name: _why(name, reasons) for name in COUNTS if name not in counts},
        used_ratio=smart.used_ratio,
        temperature_c=smart.temperature_c,
        trim=_trim(answers),
    )


def _written(answers: Answers, smart: nvme_pages.Smart) -> tuple[dict[str, Count], list[str]]:
    """What is counted, and why the better places say nothing."""
    reasons = []
    for page, read in _MEDIA.items():
        answer = answers.get(page, "not asked for")
        found = read(answer) if isinstance(answer, bytes) else answer
        if not isinstance(found, str):
            return {**_smart_counts(smart), **found}, []
        reasons.append(f"log page {page.identifier:02X}h: {found}")
    return _smart_counts(smart), reasons


def _smart_counts(smart: nvme_pages.Smart) -> dict[str, Count]:
    if not smart.data_units_written:
        return {}
    unit = nvme_pages.DATA_UNIT_BYTES
    source = "SMART log page 02h, data units written"
    return {"host_written_bytes": Count(smart.data_units_written * unit, unit, source)}


def _fdp_counts(page: bytes) -> dict[str, Count] | str:
    said = nvme_pages.parse_fdp(page)
    source = "FDP statistics, log page 22h"
    return {
        "host_written_bytes": Count(said.host_written_bytes, 1, f"{source}, HBMW"),
        "media_written_bytes": Count(said.media_written_bytes, 1, f"{source}, MBMW"),
        "erased_bytes": Count(said.erased_bytes, 1, f"{source}, MBE"),
    }


def _ocp_counts(page: bytes) -> dict[str, Count] | str:
    if not nvme_pages.is_ocp(page):
        return "has not OCP's mark"
    said = nvme_pages.parse_ocp(page)
    source = "OCP log page C0h, physical media units written"
    return {"media_written_bytes": Count(said.media_written_bytes, 1, source)}


def _endurance_counts(page: bytes) -> dict[str, Count] | str:
    said = nvme_pages.parse_endurance(page)
    if not said.media_units_written or not said.data_units_written:
        return f"media or data units written {_NOT_REPORTED}"
    unit = nvme_pages.ENDURANCE_UNIT_BYTES
    source = "Endurance Group log page 09h"
    return {
        "host_written_bytes": Count(
            said.data_units_written * unit, unit, f"{source}, data units written"
        ),
        "media_written_bytes": Count(
            said.media_units_written * unit, unit, f"{source}, media units written"
        ),
    }


def _trim(answers: Answers) -> TrimLog | None:
    page = answers.get(nvme_pages.TRIM, "")
    return read_trim_log(page) if isinstance(page, bytes) and is_trim_log(page) else None


def _why(name: str, reasons: list[str]) -> str:
    if name == "host_written_bytes":
        return f"SMART log page 02h: data units written {_NOT_REPORTED}"
    if name == "media_written_bytes":
        return "; ".join(reasons)
    return "NVMe drives count it in no page that is read here"


_MEDIA: Final = {
    nvme_pages.FDP_STATISTICS: _fdp_counts,
    nvme_pages.OCP_SMART: _ocp_counts,
    nvme_pages.ENDURANCE: _endurance_counts,
}
"""Where media writes are counted; the finest and best matched first."""
