"""In the guest: drives are asked for their wear and prepared, through the kernel's own drivers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hardware.drives import STANDARD, FdpNvme
from harness.drives import capabilities, conditions, preparation
from harness.drives.capabilities import Capabilities
from harness.drives.preparation import choose, precondition, ways
from harness.drives.queue_settings import queue_settings
from harness.drives.wear import reading
from harness.drives.wear.counters import between
from harness.errors import DeviceError, TargetError
from harness.system import block_queue

MIB = 1 << 20
SSD, HDD, NVME = "SS2037E4B7C9", "HD7K1CXR9F04", "NV5C1A7D20E1"
SPACES = "FD9A77C3E610"
DRIVES = (*STANDARD, FdpNvme(SPACES, ("0;1", "2;3")))


def node_of(serial: str) -> Path:
    """Of an NVMe drive, its first namespace."""
    names = Path("/dev/disk/by-id")
    return next(iter([*names.glob(f"nvme-*_{serial}_1"), *names.glob(f"*_{serial}")])).resolve()


@dataclass
class Whole:
    """A drive whose content nobody needs: all of it may be overwritten."""

    path: Path
    size_bytes: int = 64 * MIB

    def permit(self, step: str, written_bytes: int) -> None:
        """See targets.Target."""


@contextmanager
def held(drive: Path) -> Iterator[None]:
    """As the guard holds a drive while steps run that reach all of it."""
    fd = os.open(drive, os.O_RDWR | os.O_EXCL)
    try:
        yield
    finally:
        os.close(fd)


def fill(drive: Path, pattern: bytes = b"\x5a") -> None:
    """64 MiB past the page cache, as far as a reader can tell."""
    fd = os.open(drive, os.O_RDWR)
    try:
        os.pwrite(fd, pattern * (64 * MIB), 0)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def holds_only(drive: Path, value: int) -> bool:
    """In its first 64 MiB."""
    fd = os.open(drive, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(fd, 64 * MIB, 0) == bytes([value]) * (64 * MIB)
    finally:
        os.close(fd)


# --- wear


def test_an_nvme_drive_with_ocps_page() -> None:
    """QEMU has no flash: what the host writes is what it counts as written to the media."""
    drive = node_of(NVME)
    fill(drive)
    before = reading.read(drive, "nvme")
    assert before.drive.serial == NVME
    fill(drive)
    after = reading.read(drive, "nvme")
    assert "C0h" in after.counts["media_written_bytes"].source
    change = between(before, after)
    assert change.counts["media_written_bytes"] == 64 * MIB
    assert abs(change.counts["host_written_bytes"] - 64 * MIB) <= 512_000
    assert change.waf_low is not None
    assert change.waf_high is not None
    assert change.waf_low <= 1 <= change.waf_high
    assert after.trim is None
    assert after.temperature_c is not None
    if (sensed := conditions.temperature_c(drive)) is not None:  # as the kernel was built
        assert sensed == pytest.approx(after.temperature_c, abs=0.2)  # 273 or 273.15


def test_an_nvme_drive_with_placement() -> None:
    """Host and media bytes are those of the endurance group; QEMU fills up units that it leaves."""
    drive = node_of(SPACES)
    before = reading.read(drive, "nvme")
    fill(drive)
    after = reading.read(drive, "nvme")
    assert "22h" in after.counts["host_written_bytes"].source
    change = between(before, after)
    assert change.counts["host_written_bytes"] == 64 * MIB
    assert change.waf is not None
    assert 1 <= change.waf < 2
    assert change.waf == change.counts["media_written_bytes"] / (64 * MIB)


@pytest.mark.parametrize(("serial", "why"), [(SSD, "does not publish"), (HDD, "7200 rpm")])
def test_a_sata_drive_that_cannot_say(serial: str, why: str) -> None:
    wear = reading.read(node_of(serial), "sata")
    assert wear.drive.serial == serial
    assert wear.media_written_bytes is None
    assert why in wear.unsaid["media_written_bytes"]
    assert wear.host_written_bytes is None


def test_a_partition_is_read_as_its_drive() -> None:
    root = next(Path("/dev/disk/by-id").glob("*RT0B00TD15K7-part1"))
    assert reading.read(root, "sata").drive.serial == "RT0B00TD15K7"


def test_another_transport_than_it_has() -> None:
    with pytest.raises(DeviceError, match="nvme id-ctrl"):
        reading.read(node_of(SSD), "nvme")


# --- preparation


def test_what_an_nvme_drive_offers() -> None:
    capable = capabilities.read(node_of(NVME), "nvme")
    assert capable.format_user_data
    assert capable.discard
    assert capable.namespaces == 1
    assert not capable.security


@pytest.mark.parametrize("name", ["format", "discard", "overwrite"])
def test_an_nvme_drive_is_erased(name: str) -> None:
    drive = node_of(NVME)
    fill(drive)
    assert holds_only(drive, 0x5A)
    offered = ways(drive, Whole(drive), capabilities.read(drive, "nvme"))
    # A discard is of what the guard does not hold, and wants it for itself.
    with nullcontext() if name == "discard" else held(drive):
        preparation.erase(Whole(drive), choose(offered, name))
    assert not holds_only(drive, 0x5A)
    assert holds_only(drive, 0) == (name != "overwrite")


def test_namespaces_beside_each_other_are_counted() -> None:
    drive = node_of(SPACES)
    capable = capabilities.read(drive, "nvme")
    assert capable.namespaces == 2
    there = replace(capable, sanitize_block=True)
    refused = {way.name: way.refused for way in ways(drive, Whole(drive), there)}
    assert "all 2 namespaces" in refused["sanitize_block"]


def test_an_nvme_drive_refuses_what_it_does_not_offer() -> None:
    drive = node_of(NVME)
    offered = ways(drive, Whole(drive), capabilities.read(drive, "nvme"))
    with pytest.raises(DeviceError, match="does not offer it"):
        choose(offered, "sanitize_block")


def test_the_drives_own_words_when_a_command_is_refused() -> None:
    """A sanitize that the drive does not know, asked for all the same."""
    drive = node_of(NVME)
    fill(drive)
    wished = ways(drive, Whole(drive), Capabilities(sanitize_block=True))
    with pytest.raises(DeviceError, match=r"sanitize by block erase failed: nvme says: .+"):
        preparation.erase(Whole(drive), choose(wished, "sanitize_block"))
    assert holds_only(drive, 0x5A)


def test_a_sata_drive_is_discarded() -> None:
    """QEMU's SATA drives have no security feature set."""
    drive = node_of(SSD)
    capable = capabilities.read(drive, "sata")
    assert capable.discard
    assert not capable.security
    fill(drive)
    offered = ways(drive, Whole(drive), capable)
    assert "hdparm -I" in {way.name: way.refused for way in offered}["secure_erase"]
    way = choose(offered)
    assert way.name == "discard"
    with held(drive), pytest.raises(DeviceError, match="Device or resource busy"):
        preparation.erase(Whole(drive), way)
    assert holds_only(drive, 0x5A)
    preparation.erase(Whole(drive), way)
    assert holds_only(drive, 0)


def test_a_disk_can_only_be_overwritten() -> None:
    drive = node_of(HDD)
    offered = ways(drive, Whole(drive), capabilities.read(drive, "sata"))
    assert [way.name for way in offered if not way.refused] == ["overwrite"]


@pytest.mark.parametrize("serial", [SSD, NVME])
def test_preconditioning(serial: str) -> None:
    target = Whole(node_of(serial), 8 * MIB)
    for step in precondition(target, most_times=1):
        preparation.run(target, step)
    assert not holds_only(target.path, 0)


@pytest.mark.parametrize("serial", [SSD, HDD, NVME])
def test_queue_settings_are_put_back(serial: str) -> None:
    drive = node_of(serial)
    was = block_queue.noted(drive.name)
    other = "none" if was.get("scheduler") != "none" else "mq-deadline"
    wished: dict[str, str | int] = {
        "scheduler": other,
        "nr_requests": 8,
        "read_ahead_kb": 64,
        "add_random": 1,
    }
    # What a namespace of several controllers passes on has neither scheduler nor requests.
    settings = {name: value for name, value in wished.items() if name in was}
    assert "read_ahead_kb" in settings
    with queue_settings(drive, settings):
        now = block_queue.noted(drive.name)
        assert {name: now[name] for name in settings} == {k: str(v) for k, v in settings.items()}
    assert block_queue.noted(drive.name) == was


@pytest.mark.parametrize("serial", [SSD, NVME])
def test_limits_of_discards_are_put_back_or_left_alone(serial: str) -> None:
    drive = node_of(serial)
    was = block_queue.noted(drive.name)
    try:
        with queue_settings(drive, {"discard_max_bytes": MIB}):
            assert block_queue.noted(drive.name)["discard_max_bytes"] == str(MIB)
    except TargetError as error:
        assert "could not be put back" in str(error)  # noqa: PT017 - the other outcome is as good
    assert block_queue.noted(drive.name) == was
