"""MS-DJ with an unpatched kernel: a journal on a second namespace, with a handle of its own.

QEMU has no namespace management: the namespaces are there from the start, with their handles.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hardware.drives import FdpNvme
from harness.drives import external_journal, placement
from harness.errors import BadParameter, DeviceError, TargetError
from harness.paths import find_project
from harness.system import filesystems
from harness.system.ext4_spec import PLAIN, Ext4Spec

MIB = 1 << 20
APART = FdpNvme("FD5C1A7D20E1", ("0", "1"))
SHARED = FdpNvme("FD5C1A7D20E2", ("2;3", "3"), size_bytes=64 * MIB)
DRIVES = (APART, SHARED)
BLOCK_BYTES = 512
UNIT_BLOCKS = APART.reclaim_unit_bytes // BLOCK_BYTES


def node(drive: FdpNvme, number: int) -> Path:
    return Path(f"/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{drive.serial}_{number}")


@dataclass
class Namespace:
    """A target whose permissions are kept: the guard is tested elsewhere."""

    path: Path
    asked: list[tuple[str, int]] = field(default_factory=list)
    allowed: bool = True

    @property
    def size_bytes(self) -> int:
        return int((Path("/sys/class/block") / self.path.resolve().name / "size").read_text()) * 512

    def permit(self, step: str, written_bytes: int) -> None:
        self.asked.append((step, written_bytes))
        if not self.allowed:
            raise TargetError("not today")


@pytest.fixture
def pair() -> tuple[Namespace, Namespace]:
    return Namespace(node(APART, 1)), Namespace(node(APART, 2))


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_handles_are_those_that_the_namespaces_were_made_with() -> None:
    found = placement.handles(node(SHARED, 1))
    assert [(h.placement_id, h.reclaim_unit_handle) for h in found] == [(0, 2), (1, 3)]
    assert [h.reclaim_unit_handle for h in placement.handles(node(APART, 2))] == [1]


def test_a_drive_without_fdp_tells_no_handles() -> None:
    with pytest.raises(DeviceError, match="tells no placement handles"):
        placement.handles(Path("/dev/disk/by-id/ata-FLASHLAB_ROOT_RT0B00TD15K7"))


def test_namespaces_with_a_common_handle_are_refused() -> None:
    with pytest.raises(TargetError, match="both write to reclaim unit handle 3"):
        placement.check_apart(node(SHARED, 1), node(SHARED, 2))


def taken_bytes(before: list[placement.Handle], device: Path) -> int:
    return placement.written_blocks(before, placement.handles(device), UNIT_BLOCKS)[0] * BLOCK_BYTES


def test_journal_writes_go_to_their_own_handle(pair: tuple[Namespace, Namespace]) -> None:
    """And what is written home goes to the other. All of it fits into one reclaim unit."""
    data, journal = pair
    with external_journal.external_journal(data, journal, PLAIN) as folder:
        assert re.search(rf"{folder} ext4 [^ ]*data=journal", Path("/proc/mounts").read_text())
        before = [placement.handles(target.path) for target in pair]
        before_bytes = host_bytes(data.path)
        content = os.urandom(3 * MIB)
        with (folder / "file").open("wb") as file:
            file.write(content)
            os.fsync(file.fileno())
        # All data, a descriptor for every few hundred blocks, some metadata, the commit record.
        assert len(content) < taken_bytes(before[1], journal.path) < len(content) * 1.05
        subprocess.run(["umount", folder], check=True)
        assert len(content) < taken_bytes(before[0], data.path) < len(content) * 1.05
        assert taken_bytes(before[1], journal.path) < len(content) * 1.05
        written_bytes = host_bytes(data.path) - before_bytes
    assert 2 * len(content) < written_bytes < 2 * len(content) * 1.05
    assert filesystems.check(data.path) == ""


def host_bytes(device: Path) -> int:
    """What its drive says was written to it. Which one nvme0 is, another boot decides otherwise."""
    drive = str(device.resolve())
    return int(json.loads(said("nvme", "fdp", "stats", drive, "-e", "1", "-o", "json"))["hbmw"])


def flushes(targets: tuple[Namespace, Namespace], folder: Path, commits: int) -> list[int]:
    """How often each target is asked to flush while a file grows and is synced so often."""
    tracing = Path("/sys/kernel/tracing")
    event = tracing / "events/block/block_bio_queue/enable"
    with (folder / "file").open("wb") as file:
        os.fsync(file.fileno())
        event.write_text("1")
        try:
            (tracing / "trace").write_text("")
            for _ in range(commits):
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
        finally:
            event.write_text("0")
    trace = (tracing / "trace").read_text()
    asked = re.findall(r"block_bio_queue: (\d+),(\d+) F", trace)
    return [asked.count((str(os.major(n)), str(os.minor(n)))) for n in map(number, targets)]


def number(target: Namespace) -> int:
    return target.path.stat().st_rdev


COMMITS = 10


def test_each_fsync_flushes_both_devices(pair: tuple[Namespace, Namespace]) -> None:
    """The journal's with the commit record, and the data's after what was written home by fsync."""
    with external_journal.external_journal(*pair, PLAIN) as folder:
        assert flushes(pair, folder, COMMITS) == [COMMITS, COMMITS]


def test_a_journal_inside_costs_as_many_flushes(pair: tuple[Namespace, Namespace]) -> None:
    with filesystems.ext4(pair[0].path, Ext4Spec(journal_mode="journal")) as folder:
        assert flushes(pair, folder, COMMITS) == [2 * COMMITS, 0]


def test_with_ordered_data_the_data_would_not_be_flushed(pair: tuple[Namespace, Namespace]) -> None:
    """Why data=journal is all that is offered. If this fails, the kernel has learnt it."""
    data, journal = pair
    with external_journal.external_journal(data, journal, PLAIN):
        pass
    with filesystems.mounted(data.path, journal=journal.path) as folder:
        assert flushes(pair, folder, COMMITS) == [0, COMMITS]


def test_the_guard_is_asked_before_each_step(pair: tuple[Namespace, Namespace]) -> None:
    data, journal = pair
    journal.allowed = False
    before = [placement.handles(target.path) for target in pair]
    with (
        pytest.raises(TargetError, match="not today"),
        external_journal.external_journal(*pair, PLAIN),
    ):
        pass
    asked = journal.size_bytes - MIB + 4096  # whole MiB, and the block of its header
    assert (data.asked, journal.asked) == ([], [("make a journal", asked)])
    assert [placement.handles(target.path) for target in pair] == before


def test_impossible_journals(pair: tuple[Namespace, Namespace]) -> None:
    data, journal = pair
    with pytest.raises(TargetError, match="does not fit"):
        external_journal.steps(data, journal, Ext4Spec(journal_bytes=journal.size_bytes + MIB))
    with pytest.raises(BadParameter, match="whole MiB"):
        external_journal.steps(data, journal, Ext4Spec(journal_bytes=4 * MIB + 1))
    with pytest.raises(TargetError, match="two targets"):
        external_journal.steps(data, data, PLAIN)


def script(*devices: Path) -> subprocess.CompletedProcess[str]:
    path = find_project().root / "hardware" / "msdj" / "external_journal.py"
    command = [sys.executable, str(path), *map(str, devices)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_script_prints_a_plan_and_writes_nothing(pair: tuple[Namespace, Namespace]) -> None:
    before = [placement.handles(target.path) for target in pair]
    done = script(*(target.path for target in pair))
    assert done.returncode == 0, done.stderr
    for step in external_journal.steps(*pair, PLAIN):
        assert " ".join(step.command) in done.stdout
    assert [placement.handles(target.path) for target in pair] == before
    refused = script(node(SHARED, 1), node(SHARED, 2))
    assert refused.returncode == 2
    assert "--phndls" in refused.stderr


def test_namespaces_cannot_be_made_here() -> None:
    """If this fails, QEMU has learnt it: then the guide's first part can be tried as well."""
    command = ["nvme", "create-ns", "/dev/nvme0", "--nsze=8192", "--ncap=8192", "--flbas=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Invalid Command Opcode" in done.stdout + done.stderr
