"""Writes tests/hardware_samples/: what drives answer, made from the specifications.

    python tests/wear_samples.py

No drive was recorded: every byte is placed here by the clause that is named beside it, with numbers
that no other field has, so that a reader that looks elsewhere reads something else. The offsets are
written out, and not taken from the readers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "hardware_samples"

MODEL, SERIAL, FIRMWARE = "Flashlab sample", "S4MPL3-000042", "1.0"
TB = 10**12


def page(size_bytes: int, *fields: tuple[int, int, int]) -> bytes:
    """A page with numbers (first byte, bytes, value), little-endian."""
    content = bytearray(size_bytes)
    for at, size, value in fields:
        assert not any(content[at : at + size]), f"byte {at} is taken"
        content[at : at + size] = value.to_bytes(size, "little")
    return bytes(content)


def nvme_smart(units: int = 0x0123_4567_89AB) -> bytes:
    """NVM Express Base 2.0c, 5.16.1.3 (02h)."""
    return page(
        512,
        (0, 1, 0),  # critical warning
        (1, 2, 273 + 41),  # composite temperature, kelvins
        (3, 1, 98),  # available spare, %
        (4, 1, 10),  # its threshold, %
        (5, 1, 103),  # percentage used: may exceed 100
        (32, 16, 0x0FED_CBA9),  # data units read
        (48, 16, units),  # data units written, thousands of 512 B
        (64, 16, 1_000_001),  # host read commands
        (80, 16, 2_000_002),  # host write commands
        (112, 16, 17),  # power cycles
        (128, 16, 4321),  # power on hours
    )


def nvme_endurance(written: int = 5_500, media: int = 9_900) -> bytes:
    """NVM Express Base 2.0c, 5.16.1.10 (09h): billions of bytes, rounded up."""
    return page(
        512,
        (3, 1, 99),  # available spare, %
        (5, 1, 7),  # percentage used
        (32, 16, 600_000),  # endurance estimate
        (48, 16, 1_100),  # data units read
        (64, 16, written),
        (80, 16, media),
    )


def fdp_statistics(host: int = 3 * TB + 5, media: int = 4 * TB + 7, erased: int = 2 * TB) -> bytes:
    """TP4146, FDP Statistics log page (22h): HBMW 15:0, MBMW 31:16, MBE 47:32."""
    return page(64, (0, 16, host), (16, 16, media), (32, 16, erased))


def ocp_smart(media: int = (1 << 64) + 0x1122_3344_5566_7788) -> bytes:
    """OCP Datacenter NVMe SSD 2.0 (C0h); the default needs more than 64 bits."""
    return page(
        512,
        (0, 16, media),  # physical media units written, bytes
        (16, 16, 0x99AA),  # physical media units read
        (32, 6, 12),  # bad user NAND blocks, raw
        (38, 2, 100),  # and normalized
        (88, 4, 1234),  # user data erase count, greatest
        (92, 4, 1111),  # and least
        (120, 1, 55),  # free blocks, %
        (494, 2, 3),  # version of this page
        (496, 16, int("AFD514C97C6F4F9CA4F2BFEA2810AFC5", 16)),  # its GUID
    )


def trim_statistics() -> bytes:
    """harness/core/flash/trim/delayed_trim.h, dtrim_statistics."""
    return page(
        512,
        (0, 4, 0x4D525444),
        (4, 2, 1),
        (6, 2, 512),
        (8, 4, 21),  # pending ranges
        (56, 8, 37),  # TRIM commands
    )


def smartctl(protocol: str, **more: Any) -> dict[str, Any]:
    """A report of smartctl 7 (--json --xall)."""
    return {
        "json_format_version": [1, 0],
        "smartctl": {"version": [7, 3], "exit_status": 0},
        "device": {"name": "/dev/sdx", "type": protocol.lower(), "protocol": protocol},
        "model_name": MODEL,
        "serial_number": SERIAL,
        "firmware_version": FIRMWARE,
        "user_capacity": {"blocks": 488_397_168, "bytes": 250_059_350_016},
        "logical_block_size": 512,
        "temperature": {"current": 36},
        **more,
    }


def attribute(number: int, name: str, raw: int, text: str = "") -> dict[str, Any]:
    """A row of SMART attributes; the raw value has 48 bits (ATA8-ACS, SMART READ DATA)."""
    return {
        "id": number,
        "name": name,
        "value": 100,
        "worst": 100,
        "thresh": 0,
        "raw": {"value": raw, "string": text or str(raw)},
    }


def statistics(sectors: int, used: int | None = None, *, valid: bool = True) -> dict[str, Any]:
    """ACS-4, Device Statistics: General (page 1) and Solid State Device Statistics (page 7)."""
    flags = {"value": 192 if valid else 128, "valid": valid}
    pages = [
        {
            "number": 1,
            "name": "General Statistics",
            "table": [
                {"offset": 8, "name": "Lifetime Power-On Resets", "value": 5, "flags": flags},
                {"offset": 24, "name": "Logical Sectors Written", "value": sectors, "flags": flags},
                {"offset": 40, "name": "Logical Sectors Read", "value": 77, "flags": flags},
            ],
        }
    ]
    if used is not None:
        entry = {"offset": 8, "name": "Percentage Used Endurance Indicator", "value": used}
        pages.append({"number": 7, "name": "SSD", "table": [{**entry, "flags": flags}]})
    return {"ata_device_statistics": {"pages": pages}}


def crucial(host: int = 3_000_000, background: int = 1_500_000) -> dict[str, Any]:
    """Micron TN-FD-22; the temperature's raw value packs the least and the most beside it."""
    table = [
        attribute(173, "Ave_Block-Erase_Count", 87),
        attribute(194, "Temperature_Celsius", (61 << 32) | (18 << 16) | 36, "36 (Min/Max 18/61)"),
        attribute(246, "Total_LBAs_Written", (5 << 32) + 9),
        attribute(247, "Host_Program_Page_Count", host),
        attribute(248, "FTL_Program_Page_Count", background),
    ]
    return smartctl(
        "ATA",
        model_name="CT250MX500SSD1",
        rotation_rate=0,
        ata_smart_attributes={"table": table},
        **statistics(123, 4),
    )


def samsung(cycles: int = 120, sectors: int = 40_000_000_000) -> dict[str, Any]:
    """The names of smartctl's drive database."""
    table = [
        attribute(177, "Wear_Leveling_Count", cycles),
        attribute(241, "Total_LBAs_Written", sectors),
    ]
    return smartctl(
        "ATA",
        model_name="Samsung SSD 840 PRO Series",
        rotation_rate=0,
        ata_smart_attributes={"table": table},
    )


def other_ssd() -> dict[str, Any]:
    """Device statistics only, of a drive with blocks of 4,096 bytes."""
    table = [attribute(247, "Health_Check_Timer", 5), attribute(248, "Remaining_Life", 97)]
    return smartctl(
        "ATA",
        logical_block_size=4096,
        rotation_rate=0,
        ata_smart_attributes={"table": table},
        **statistics(1_000_003, 12),
    )


def disk() -> dict[str, Any]:
    """A disk with neither."""
    return smartctl("ATA", model_name="Hitachi HDS721010DLE630", rotation_rate=7200)


def sas() -> dict[str, Any]:
    """SPC-4, write error counter log page; smartctl prints 10^9 bytes."""
    log = {
        "read": {"gigabytes_processed": "99.000"},
        "write": {"gigabytes_processed": "12345.678"},
    }
    more = {
        "revision": "A1",
        "scsi_error_counter_log": log,
        "scsi_percentage_used_endurance_indicator": 3,
    }
    report = smartctl("SCSI", **more)
    del report["firmware_version"]
    return report


def bridged() -> dict[str, Any]:
    """NVMe behind a USB bridge."""
    log = {"percentage_used": 2, "data_units_written": 2_000_000, "data_units_read": 7}
    return smartctl("NVMe", nvme_smart_health_information_log=log)


def not_opened() -> dict[str, Any]:
    """What smartctl says of a drive that it cannot open."""
    message = {"string": "/dev/vdx: Unable to detect device type", "severity": "error"}
    return {"smartctl": {"version": [7, 3], "messages": [message], "exit_status": 1}}


def hdparm(*, frozen: bool = False, locked: bool = False, security: bool = True) -> str:
    """`hdparm -I`, as far as it is about security (ATA8-ACS, IDENTIFY DEVICE, word 128).

    What is locked is by a password, which is enabled then; hdparm tells its level, too.
    """
    words = {"enabled": locked, "locked": locked, "frozen": frozen}
    level = "\tSecurity level high\n" if locked else ""
    states = "".join(f"\t{'' if there else 'not'}\t{word}\n" for word, there in words.items())
    section = (
        "Security: \n\tMaster password revision code = 65534\n\t\tsupported\n"
        f"{states}\tnot\texpired: security count\n\t\tsupported: enhanced erase\n"
        f"{level}\t2min for SECURITY ERASE UNIT. 8min for ENHANCED SECURITY ERASE UNIT. \n"
    )
    features = (
        "\n/dev/sdx:\n\nATA device, with non-removable media\n"
        f"\tModel Number:       {MODEL}\nCommands/features:\n\tEnabled\tSupported:\n"
        "\t   *\tSMART feature set\n"
        "\t   *\tData Set Management TRIM supported (limit 8 blocks)\n"
    )
    return features + (section if security else "") + "Checksum: correct\n"


def identify_controller(**changed: int) -> dict[str, Any]:
    """`nvme id-ctrl -o json`, as far as it is read here (NVM Express Base 2.0c, figure 275)."""
    return {
        "sn": f"{SERIAL:<20}",
        "mn": f"{MODEL:<40}",
        "fr": f"{FIRMWARE:<8}",
        "ctratt": 1 << 19 | 1 << 4,
        "oacs": 0b10,  # format NVM
        "fna": 0b100,  # crypto erase by format
        "sanicap": 0b011,  # crypto and block erase
    } | changed


def samples() -> dict[str, bytes]:
    """Name and content of each file."""
    reports = {
        "smartctl_crucial": crucial(),
        "smartctl_samsung": samsung(),
        "smartctl_other_ssd": other_ssd(),
        "smartctl_disk": disk(),
        "smartctl_sas": sas(),
        "smartctl_bridged_nvme": bridged(),
        "smartctl_not_opened": not_opened(),
        "nvme_id_ctrl": identify_controller(),
    }
    texts = {
        f"{name}.json": json.dumps(report, indent=1) + "\n" for name, report in reports.items()
    }
    texts |= {
        "hdparm_ready.txt": hdparm(),
        "hdparm_frozen.txt": hdparm(frozen=True),
        "hdparm_locked.txt": hdparm(locked=True),
        "hdparm_without_security.txt": hdparm(security=False),
    }
    return {
        "nvme_smart_02h.bin": nvme_smart(),
        "nvme_endurance_group_09h.bin": nvme_endurance(),
        "nvme_fdp_statistics_22h.bin": fdp_statistics(),
        "ocp_smart_c0h.bin": ocp_smart(),
        "openssd_trim_c5h.bin": trim_statistics(),
        **{name: text.encode() for name, text in texts.items()},
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in samples().items():
        (FOLDER / name).write_bytes(content)
