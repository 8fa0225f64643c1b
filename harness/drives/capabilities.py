"""Which ways of erasing a drive offers, by what it says of itself.

NVM Express Base Specification 2.0c, figure 275 (Identify Controller); ATA8-ACS, IDENTIFY DEVICE,
word 128, as hdparm prints it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.drives import nvme, nvme_pages
from harness.drives.nvme_pages import Sanitize
from harness.errors import DeviceError
from harness.system import block_queue
from harness.system.programs import ask, last_words

_FORMAT: Final = 1 << 1
_NAMESPACES: Final = 1 << 3
"""Bits of OACS."""

_FORMATS_ALL: Final = 0b011
_FORMAT_CRYPTO: Final = 1 << 2
"""Bits of FNA: the format, or its secure erase, is for all namespaces; crypto erase is there."""

_SANITIZE_CRYPTO, _SANITIZE_BLOCK, _SANITIZE_OVERWRITE = 1, 2, 4
"""Bits of SANICAP."""

_STATE: Final = re.compile(r"(?m)^[ \t]*(not)?[ \t]+(supported|enabled|locked|frozen)[ \t]*$")
_ENHANCED: Final = re.compile(r"(?m)^[ \t]*(not)?[ \t]+supported: enhanced erase[ \t]*$")
_MINUTES: Final = re.compile(r"(\d+)min for (ENHANCED )?SECURITY ERASE UNIT")


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a drive can do to itself; times as it estimates them, None: it does not.

    `namespaces`: how many there are in the drive; what erases all of them is not for drives that
    have others. `discard`: the kernel sends discards to it.
    """

    discard: bool = False
    namespaces: int = 1
    format_user_data: bool = False
    format_crypto: bool = False
    formats_all: bool = False
    sanitize_block: bool = False
    sanitize_crypto: bool = False
    sanitize_overwrite: bool = False
    sanitize_block_s: float | None = None
    sanitize_crypto_s: float | None = None
    sanitize_overwrite_s: float | None = None
    security: bool = False
    security_enabled: bool = False
    security_locked: bool = False
    security_frozen: bool = False
    security_enhanced: bool = False
    security_erase_s: float | None = None
    security_enhanced_s: float | None = None


def read(drive: Path, transport: str) -> Capabilities:
    """Of a whole drive; `transport` as of wear.reading.read. Root only.

    Raises MissingTool, DeviceError.
    """
    discard = block_queue.discards(drive)
    if transport == "nvme":
        about = nvme.identify("id-ctrl", drive)
        options = ["--all"] if int(about.get("oacs", 0)) & _NAMESPACES else []
        listed = nvme.identify("list-ns", drive, *options)
        return of_nvme(about, len(listed.get("nsid_list", [])), discard, _sanitize(drive, about))
    if transport == "sata":
        done = ask("hdparm", "-I", str(drive))
        if done.returncode:
            raise DeviceError(f"hdparm -I {drive}: {last_words(done)}")
        return of_sata(done.stdout.decode(errors="replace"), discard)
    return Capabilities(discard=discard)


def of_nvme(
    about: Mapping[str, Any], namespaces: int, discard: bool, sanitize: Sanitize | None = None
) -> Capabilities:
    """From the JSON of `nvme id-ctrl`, and the sanitize status page, if there is one."""
    commands, formats, sanitizes = (int(about.get(n, 0)) for n in ("oacs", "fna", "sanicap"))
    return Capabilities(
        discard=discard,
        namespaces=namespaces,
        format_user_data=bool(commands & _FORMAT),
        format_crypto=bool(commands & _FORMAT) and bool(formats & _FORMAT_CRYPTO),
        formats_all=bool(formats & _FORMATS_ALL),
        sanitize_block=bool(sanitizes & _SANITIZE_BLOCK),
        sanitize_crypto=bool(sanitizes & _SANITIZE_CRYPTO),
        sanitize_overwrite=bool(sanitizes & _SANITIZE_OVERWRITE),
        sanitize_block_s=sanitize.block_erase_s if sanitize else None,
        sanitize_crypto_s=sanitize.crypto_erase_s if sanitize else None,
        sanitize_overwrite_s=sanitize.overwrite_s if sanitize else None,
    )


def of_sata(said: str, discard: bool) -> Capabilities:
    """From the security section of what `hdparm -I` prints. Raises DeviceError."""
    if "ATA device" not in said:  # hdparm says nothing of others, and calls it a success
        raise DeviceError("hdparm -I knows no ATA device there: is it behind a bridge?")
    section = _security_section(said)
    states = {match[2]: match[1] is None for match in _STATE.finditer(section)}
    enhanced = _ENHANCED.search(section)
    times = {bool(match[2]): int(match[1]) * 60.0 for match in _MINUTES.finditer(section)}
    return Capabilities(
        discard=discard,
        security=states.get("supported", False),
        security_enabled=states.get("enabled", False),
        security_locked=states.get("locked", False),
        # A drive of which this cannot be told is treated like one that is frozen.
        security_frozen=states.get("frozen", True),
        security_enhanced=enhanced is not None and enhanced[1] is None,
        security_erase_s=times.get(False),
        security_enhanced_s=times.get(True),
    )


def _security_section(said: str) -> str:
    """From its title to the next line that is not indented."""
    lines = said.partition("\nSecurity:")[2].splitlines()[1:]
    inside = []
    for line in lines:
        if not line.startswith(("\t", " ")):
            break
        inside.append(line)
    return "\n".join(inside)


def _sanitize(drive: Path, about: Mapping[str, Any]) -> Sanitize | None:
    if not int(about.get("sanicap", 0)):
        return None
    page = nvme.page(drive, nvme_pages.SANITIZE)
    return nvme_pages.parse_sanitize(page) if isinstance(page, bytes) else None
