"""Log pages of NVMe drives that count what was written: bytes in, numbers out.

All numbers are little-endian. NVMe: NVM Express Base Specification 2.0c and technical proposal
4146 (Flexible Data Placement). OCP: Datacenter NVMe SSD Specification 2.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.errors import DeviceError


@dataclass(frozen=True)
class Page:
    """How a page is asked for: its identifier, how many bytes of it there are, what it is."""

    identifier: int
    size_bytes: int
    name: str
    clause: str


SMART: Final = Page(0x02, 512, "SMART / Health Information", "NVMe 2.0c, 5.16.1.3")
ENDURANCE: Final = Page(0x09, 512, "Endurance Group Information", "NVMe 2.0c, 5.16.1.10")
FDP_STATISTICS: Final = Page(0x22, 64, "FDP Statistics", "NVMe TP4146, log page 22h")
OCP_SMART: Final = Page(0xC0, 512, "SMART / Health Information Extended", "OCP 2.0, log page C0h")
SANITIZE: Final = Page(0x81, 512, "Sanitize Status", "NVMe 2.0c, 5.16.1.25")
TRIM: Final = Page(0xC5, 512, "delayed TRIM", "hardware/openssd/README.md")

DATA_UNIT_BYTES: Final = 512_000
"""A data unit is 1,000 units of 512 bytes, rounded up (NVMe 2.0c, 5.16.1.3)."""

ENDURANCE_UNIT_BYTES: Final = 1_000_000_000
"""Of the Endurance Group Information, rounded up (NVMe 2.0c, 5.16.1.10)."""

OCP_GUID: Final = 0xAFD514C97C6F4F9CA4F2BFEA2810AFC5
"""Ends page C0h, little-endian, if it is OCP's; other makers have other pages there."""

_MOST_BYTES: Final = 1 << 80
"""A million exabytes: more was written to no drive, so such a page is garbled."""


@dataclass(frozen=True)
class Smart:
    """data_units_written: of DATA_UNIT_BYTES; 0: not reported."""

    data_units_written: int
    used_ratio: float
    temperature_c: int | None


@dataclass(frozen=True)
class Endurance:
    """Of an endurance group, in units of ENDURANCE_UNIT_BYTES; 0: not reported."""

    data_units_written: int
    media_units_written: int


@dataclass(frozen=True)
class FdpStatistics:
    """Of an endurance group: host bytes with metadata, media bytes written, media bytes erased."""

    host_written_bytes: int
    media_written_bytes: int
    erased_bytes: int


@dataclass(frozen=True)
class OcpSmart:
    """Bytes programmed, of user data, metadata and the drive's own; least and most erases."""

    media_written_bytes: int
    erase_count_max: int
    erase_count_min: int


@dataclass(frozen=True)
class Sanitize:
    """state: bits 2:0 of SSTAT, see the constants. Expected times None: not reported."""

    state: int
    done_ratio: float
    overwrite_s: int | None
    block_erase_s: int | None
    crypto_erase_s: int | None


SANITIZED: Final = (1, 4)
"""The last one succeeded; with 4, blocks were not deallocated afterwards."""
SANITIZING: Final = 2
_NO_ESTIMATE: Final = 0xFFFF_FFFF


def parse_sanitize(page: bytes) -> Sanitize:
    """SPROG 1:0 (of 65,536), SSTAT 3:2, expected seconds 11:8, 15:12, 19:16. Raises DeviceError."""
    _check_size(page, SANITIZE)
    state = page[2] & 0b111
    if state > 4:
        raise _garbled(SANITIZE, f"a state of {state}")
    times = (_number(page, at, 4) for at in (8, 12, 16))
    overwrite, block, crypto = (None if time == _NO_ESTIMATE else time for time in times)
    return Sanitize(state, _number(page, 0, 2) / 65536, overwrite, block, crypto)


def parse_smart(page: bytes) -> Smart:
    """Temperature 2:1 (kelvins), used 5, data units written 63:48. Raises DeviceError.

    The page has no mark of its own; a spare above 100 (byte 3, "0 to 100 %") tells garbled ones.
    """
    _check_size(page, SMART)
    kelvins = _number(page, 1, 2)
    if page[3] > 100:
        raise _garbled(SMART, f"an available spare of {page[3]}")
    units = _units(page, 48, SMART, DATA_UNIT_BYTES)
    return Smart(units, page[5] / 100, kelvins - 273 if kelvins else None)


def parse_endurance(page: bytes) -> Endurance:
    """Data units written 79:64, media units written 95:80. Raises DeviceError."""
    _check_size(page, ENDURANCE)
    if page[3] > 100:
        raise _garbled(ENDURANCE, f"an available spare of {page[3]}")
    written, media = (_units(page, at, ENDURANCE, ENDURANCE_UNIT_BYTES) for at in (64, 80))
    return Endurance(written, media)


def parse_fdp(page: bytes) -> FdpStatistics:
    """HBMW 15:0, MBMW 31:16, MBE 47:32, the rest is reserved. Raises DeviceError."""
    _check_size(page, FDP_STATISTICS)
    if any(page[48:64]):
        raise _garbled(FDP_STATISTICS, "something in its reserved bytes")
    return FdpStatistics(*(_units(page, at, FDP_STATISTICS, 1) for at in (0, 16, 32)))


def is_ocp(page: bytes) -> bool:
    """Whether it has OCP's mark: other makers have pages of their own at C0h, or empty ones."""
    return len(page) == OCP_SMART.size_bytes and _number(page, 496, 16) == OCP_GUID


def parse_ocp(page: bytes) -> OcpSmart:
    """Physical media units written 15:0 (bytes), erases 91:88 and 95:92, version 495:494, GUID.

    Raises DeviceError, also for a page of another maker.
    """
    _check_size(page, OCP_SMART)
    if (guid := _number(page, 496, 16)) != OCP_GUID:
        raise DeviceError(
            f"log page C0h is not that of OCP, its GUID is {guid:032X}: this drive does not say "
            "what it writes to its flash"
        )
    written = _units(page, 0, OCP_SMART, 1)
    return OcpSmart(written, _number(page, 88, 4), _number(page, 92, 4))


def _number(page: bytes, at: int, size: int) -> int:
    return int.from_bytes(page[at : at + size], "little")


def _units(page: bytes, at: int, kind: Page, unit_bytes: int) -> int:
    """A counter of 16 bytes."""
    value = _number(page, at, 16)
    if value * unit_bytes >= _MOST_BYTES:
        raise _garbled(kind, f"{value} units written")
    return value


def _check_size(page: bytes, kind: Page) -> None:
    if len(page) != kind.size_bytes:
        raise DeviceError(
            f"{kind.name} log page: {len(page)} bytes, not {kind.size_bytes}: read it with "
            f"nvme get-log DEVICE --log-id={kind.identifier:#x} --log-len={kind.size_bytes} "
            "--raw-binary"
        )


def _garbled(kind: Page, what: str) -> DeviceError:
    return DeviceError(
        f"{kind.name} log page is garbled: it says {what}; read it again, and see dmesg"
    )
