"""The guest is the machine that the other tests believe it to be."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from hardware.drives import ROOT, STANDARD, Nvme, Sata

SATA = [drive for drive in STANDARD if isinstance(drive, Sata)]
NVME = [drive for drive in STANDARD if isinstance(drive, Nvme)]


def block_of(link: str) -> Path:
    """The folder in /sys of the disk that a name in /dev/disk/by-id leads to."""
    device = Path("/dev/disk/by-id", link).resolve(strict=True)
    assert device.is_block_device()
    return Path("/sys/block", device.name)


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("drive", [ROOT, *SATA], ids=lambda drive: drive.serial)
def test_sata_drives_are_what_qemu_was_told(drive: Sata) -> None:
    block = block_of(f"ata-{drive.model.replace(' ', '_')}_{drive.serial}")
    assert block == block_of(f"wwn-{drive.wwn:#018x}")
    assert int((block / "size").read_text()) * 512 == drive.size_bytes
    assert (block / "queue" / "rotational").read_text().strip() == str(int(drive.rotation_rate > 1))
    assert (int((block / "queue" / "discard_max_bytes").read_text()) > 0) == drive.discard
    assert (block / "device" / "model").read_text().strip() == drive.model[:16]
    facts = json.loads(said("smartctl", "--json", "--info", f"/dev/{block.name}"))
    assert facts["serial_number"] == drive.serial
    assert facts["firmware_version"] == drive.firmware
    assert facts["rotation_rate"] == (0 if drive.rotation_rate == 1 else drive.rotation_rate)


@pytest.mark.parametrize("drive", NVME, ids=lambda drive: drive.serial)
def test_nvme_drives_are_what_qemu_was_told(drive: Nvme) -> None:
    block = block_of(f"nvme-QEMU_NVMe_Ctrl_{drive.serial}")
    assert (block / "device" / "serial").read_text().strip() == drive.serial
    assert int((block / "size").read_text()) * 512 == drive.size_bytes
    assert (block / "queue" / "rotational").read_text().strip() == "0"
    assert int((block / "queue" / "discard_max_bytes").read_text()) > 0


def test_the_root_disk_is_mounted_and_its_other_partition_is_swap() -> None:
    disk = f"/dev/{block_of(f'wwn-{ROOT.wwn:#018x}').name}"
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text().splitlines()]
    assert [f"{disk}1", "/", "ext4"] in mounts
    assert f"{disk}2 " in Path("/proc/swaps").read_text()


def test_there_are_no_other_disks() -> None:
    disks = [path for path in Path("/sys/block").iterdir() if not path.name.startswith("loop")]
    seen = [path for path in disks if (path / "hidden").read_text() == "0\n"]  # paths to an NVMe
    assert len(seen) == 1 + len(STANDARD)


def test_the_kernel_is_debians_longterm_one() -> None:
    assert re.match(r"6\.12\.\d+.*-amd64$", os.uname().release)


def test_what_is_written_here_stays_here() -> None:
    """The host's folders are below overlays: a test may write into the checkout."""
    path = Path(__file__).with_name("written-in-the-guest")
    path.write_text("x")
    assert path.read_text() == "x"


@pytest.mark.parametrize("link", [f"ata-{d.model.replace(' ', '_')}_{d.serial}" for d in SATA])
def test_what_is_written_to_a_drive_can_be_read_again(link: str) -> None:
    content = os.urandom(4096)
    with Path("/dev/disk/by-id", link).open("r+b", buffering=0) as device:
        device.seek(1 << 20)
        device.write(content)
        os.fsync(device.fileno())
        os.posix_fadvise(device.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        device.seek(1 << 20)
        assert device.read(4096) == content
