"""The erase guard without a drive; with drives see tests/hardware/inside/test_guard.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lab_world import CLAIM

from harness.drives.guard import ClaimedDrive
from harness.drives.targets import Step
from harness.errors import TargetError
from harness.runs import roles
from harness.system.leases import Lease

DRIVE = replace(roles.examples()["ssd"], name="sdb", node=Path("/dev/sdb"))


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClaimedDrive:
    """A drive that nobody has; whoever goes on to look at it fails."""
    monkeypatch.setattr(ClaimedDrive, "_all_written_bytes", lambda _: 0)
    for name in ("_check_neighbours", "permit", "close"):
        monkeypatch.setattr(ClaimedDrive, name, lambda *_: pytest.fail("it was permitted"))
    return ClaimedDrive("mine", CLAIM, DRIVE, 1 << 30, Lease(tmp_path), tmp_path / "lab.json")


@pytest.mark.parametrize(
    "command",
    [
        ("nvme", "format", "/dev/sda", "--force"),
        ("blkdiscard", "--force", "/dev/sdb1"),
        ("hdparm", "--user-master", "u", "--security-erase", "flashlab", "/dev/sdba"),
        ("fio", "--name=sdb", "--filename=/dev/sda"),
        ("true",),
    ],
    ids=lambda command: command[0],
)
def test_a_step_that_was_made_for_another_node_is_refused(
    held: ClaimedDrive, command: tuple[str, ...]
) -> None:
    """Before anything is given up of the drive, its header's partition among it."""
    named = Step("discard all", ("blkdiscard", "--force", "/dev/sdb"), 0, 1.0)
    other = Step("erase", command, 0, 1.0)
    with (
        pytest.raises(TargetError, match=r"'erase' was planned for another device than /dev/sdb "),
        held.whole([named, other]),
    ):
        pass
