"""The erase guard's word on drives that others use, have claimed, or that cannot be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import need
from lab_world import CLAIM
from test_discovery import Tree, sata, with_drives

from harness.calibration import measure
from harness.calibration.jobs import plan_for
from harness.drives import guard, lab_file
from harness.drives.discovery import Drive
from harness.drives.guard import ClaimedDrive, ClaimPlan
from harness.drives.targets import Step
from harness.errors import DeviceError, TargetError, UnknownName
from harness.paths import Project
from harness.runs import roles
from harness.system import kernel_partitions
from harness.system.kernel_partitions import HEADER_BYTES
from harness.system.leases import Lease

DRIVE = replace(
    roles.examples()["ssd"],
    name="sdb",
    node=Path("/dev/sdb"),
    model=CLAIM.model,
    serial=CLAIM.serial,
    wwn=CLAIM.wwn,
    size_bytes=4 << 20,
)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A blank file for a drive."""
    path = tmp_path / "drive"
    path.touch()
    os.truncate(path, DRIVE.size_bytes)
    return path


@pytest.fixture
def fd(image: Path) -> Iterator[int]:
    made = os.open(image, os.O_RDWR)
    try:
        yield made
    finally:
        os.close(made)


def claimed_drive(folder: Path) -> ClaimedDrive:
    lease, lab = Lease(folder), folder / "lab.json"
    return ClaimedDrive("mine", CLAIM, DRIVE, 1 << 30, lease, lab)


def fails(*_: object) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


# --- what cannot be read


@pytest.mark.parametrize("look", [guard._token_on, guard._token_on_cached])
def test_a_drive_that_cannot_be_read_is_named(
    look: Callable[[int], object], image: Path, fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A locked drive says no more than that, and so does one that a sanitize still erases."""
    for name in ("pread", "preadv"):
        monkeypatch.setattr(os, name, fails)
    said = rf"^{image} cannot be read \(Input/output error\): refused; .*hdparm -I.* sanitize"
    with pytest.raises(TargetError, match=said):
        look(fd)


def test_a_drive_that_cannot_be_read_is_given_up_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClaimedDrive, "_all_written_bytes", lambda _: 0)
    monkeypatch.setattr(kernel_partitions, "remove_ours", fails)
    with pytest.raises(TargetError, match=r"^/dev/sdb cannot be read"):
        claimed_drive(tmp_path).close()


# --- the header, once a step has gone over all of the drive


@dataclass
class Taken:
    """A drive whose whole is at hand; whether it was taken again afterwards."""

    drive: ClaimedDrive
    again: bool = False


@pytest.fixture
def taken(tmp_path: Path, fd: int, monkeypatch: pytest.MonkeyPatch) -> Taken:
    @contextmanager
    def whole(_: ClaimedDrive) -> Iterator[int]:
        yield fd

    monkeypatch.setattr(ClaimedDrive, "_all_written_bytes", lambda _: 0)
    monkeypatch.setattr(ClaimedDrive, "_whole", whole)
    monkeypatch.setattr(ClaimedDrive, "_check", lambda *_: None)
    monkeypatch.setattr(ClaimedDrive, "_check_part", lambda _: None)
    made = Taken(claimed_drive(tmp_path))
    monkeypatch.setattr(ClaimedDrive, "take", lambda _: setattr(made, "again", True))
    return made


STEP = Step("erase", ("hdparm", "--security-erase", "flashlab", "/dev/sdb"), 0, 1.0)
LOST = "the claim's header could not be written again (Input/output error): claim it again"


def erase(taken: Taken, error: BaseException | None = None) -> None:
    with taken.drive.whole([STEP]):
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [None, DeviceError("erase failed"), KeyboardInterrupt()])
def test_the_header_is_written_again_however_it_ends(
    error: BaseException | None, taken: Taken, fd: int
) -> None:
    if error is None:
        erase(taken)
    else:
        with pytest.raises(type(error)) as raised:
            erase(taken, error)
        assert raised.value is error
        assert "header" not in str(error)
        assert not hasattr(error, "__notes__")
    assert guard._token_on(fd) == CLAIM.token
    assert taken.again == (error is None)


def test_a_header_that_is_lost_is_told(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_write_header", fails)
    with pytest.raises(TargetError) as raised:
        erase(taken)
    assert str(raised.value) == f"mine: {LOST}"
    assert not taken.again


def test_why_an_erase_failed_is_told_before_what_was_lost_by_it(
    taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first says how to rescue the drive."""
    monkeypatch.setattr(guard, "_write_header", fails)
    with pytest.raises(DeviceError) as raised:
        erase(taken, DeviceError("erase failed: run hdparm --security-disable"))
    assert str(raised.value) == f"erase failed: run hdparm --security-disable; and {LOST}"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError("a bug")])
def test_an_interrupt_stays_one_and_has_a_note_of_what_was_lost(
    error: BaseException, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_write_header", fails)
    with pytest.raises(type(error)) as raised:
        erase(taken, error)
    assert raised.value is error
    assert error.__notes__ == [LOST]


# --- the part that others can take


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A run has made its two partitions on sdb."""
    made = with_drives(tmp_path)
    place = sata("b", 2, "", rate=1)[0]
    made.partition(place, "8:17", "sdb1")
    made.partition(place, "8:18", "sdb2")
    return made


def mount(tree: Tree) -> None:
    tree.mounts("25 1 8:2 / / rw - ext4 /dev/sda2 rw", "26 1 8:18 / /mnt rw - xfs /dev/sdb2 rw")


def swap(tree: Tree) -> None:
    swap_on(tree, "sda2", "sdb2")


def swap_on(tree: Tree, *names: str) -> None:
    lines = [f"/dev/{name} partition 8 0 -2" for name in names]
    tree.write("proc/swaps", "\n".join(["Filename Type Size Used Priority", *lines, ""]))


def map_volume(tree: Tree) -> None:
    tree.block("devices/virtual/block/dm-0", "253:0", {"size": "8"})
    tree.made_of("dm-0", "sdb2")


USES = {"mounted": mount, "swap": swap, "held by dm-0": map_volume}


@pytest.fixture
def drive(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClaimedDrive:
    """One that still is what was claimed, on the machine of that tree."""
    monkeypatch.setattr(guard, "Machine", lambda: tree.machine)
    monkeypatch.setattr(guard, "_drive_at", lambda *_: replace(DRIVE, size_bytes=CLAIM.size_bytes))
    monkeypatch.setattr(guard, "_token_on", lambda _: CLAIM.token)
    monkeypatch.setattr(ClaimedDrive, "_all_written_bytes", lambda _: 0)
    monkeypatch.setattr(ClaimedDrive, "_check_part", lambda _: None)
    return claimed_drive(tmp_path)


@pytest.mark.parametrize("use", USES)
def test_a_part_that_somebody_uses_is_not_overwritten(
    use: str, tree: Tree, drive: ClaimedDrive
) -> None:
    drive.permit("before", 0)
    USES[use](tree)
    with pytest.raises(TargetError, match=rf"somebody uses /dev/sdb2 \({use}.*\): .* 'after'"):
        drive.permit("after", 0)


def test_what_others_use_beside_the_part_does_not_matter(tree: Tree, drive: ClaimedDrive) -> None:
    tree.mounts("25 1 8:2 / / rw - ext4 /dev/sda2 rw", "26 1 8:32 / /mnt rw - ext4 /dev/sdc rw")
    tree.block("devices/virtual/block/dm-0", "253:0", {"size": "8"})
    tree.made_of("dm-0", "sdc")
    swap_on(tree, "sda2", "sdb20")
    drive.permit("after", 0)


def test_a_calibration_discards_a_part_that_nobody_uses() -> None:
    """By force it would discard one that somebody has mounted, too."""
    need("blkdiscard")
    part = guard.Part(replace(DRIVE, size_bytes=1 << 30))
    plan = plan_for("sata_ssd", part.size_bytes, discards=True)
    phase = next(phase for phase in plan.phases if phase.prepare == "discard")
    [(_, command, _)] = measure._preparation(phase, measure.Drive(part))
    assert command[-1] == "/dev/sdb2"
    assert not {"--force", "-f"} & set(command)


# --- a claim over another


@pytest.fixture
def here(tmp_path: Path) -> Project:
    return checkout(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Project:
    return checkout(tmp_path / "there")


def checkout(root: Path) -> Project:
    (root / "hardware").mkdir(parents=True)
    return Project(root)


@pytest.fixture
def free(image: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in the place of a drive that nobody uses, by whatever name."""

    @contextmanager
    def held(_: Drive) -> Iterator[int]:
        opened = os.open(image, os.O_RDWR)
        try:
            yield opened
        finally:
            os.close(opened)

    def nothing(*_: Any) -> None:
        """Nobody has it, and it is told from all others."""

    monkeypatch.setattr(guard, "_drive_at", lambda *_: DRIVE)
    monkeypatch.setattr(guard, "_held", held)
    monkeypatch.setattr(guard, "_check_facts", nothing)
    monkeypatch.setattr(guard, "_check_free", nothing)
    return image


def plan_in(project: Project, name: str = "mine") -> ClaimPlan:
    return guard.plan_claim(name, Path(CLAIM.by_id), project=project)


def claim_in(project: Project, name: str = "mine") -> lab_file.Claim:
    return guard.claim(plan_in(project, name), CLAIM.serial[-6:], project)


def token_on(image: Path) -> str | None:
    return guard._token_in(image.read_bytes()[:4096])


def test_the_claim_of_a_drive_that_has_gone_can_be_forgotten(
    here: Project, free: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_in(here)
    before = free.read_bytes()
    monkeypatch.setattr(guard, "_drive_at", lambda *_: fails())
    with pytest.raises(OSError, match="Input/output"):
        guard.release("mine", here)
    gone = guard.forget("mine", here)
    assert gone.serial == CLAIM.serial
    assert free.read_bytes() == before, "the header stays: nothing is written"
    assert lab_file.load(lab_file.path_of(here)) == {}
    with pytest.raises(UnknownName):
        guard.forget("mine", here)


def test_a_blank_drive_and_one_s_own_are_claimed_without_a_warning(
    free: Path, here: Project
) -> None:
    assert plan_in(here).warning == ""
    first = claim_in(here)
    assert token_on(free) == first.token
    with free.open("r+b") as file:  # experiments reach as far
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    assert plan_in(here, "renamed").warning == ""
    again = claim_in(here, "renamed")
    assert token_on(free) == again.token != first.token
    assert list(lab_file.load(lab_file.path_of(here))) == ["renamed"]


def test_a_claim_of_another_checkout_is_told_before_it_is_lost(
    free: Path, here: Project, there: Project
) -> None:
    blank = plan_in(here)
    theirs = claim_in(there)
    plan = plan_in(here)
    assert plan.found == theirs.token
    assert "claim of another checkout or machine: whoever made it loses it" in plan.warning
    assert plan_in(there).warning == ""
    assert len({blank.token, plan.token, plan_in(there).token}) == 3
    for answer in (blank.token, plan_in(there).token):
        with pytest.raises(TargetError, match="neither"):
            guard.claim(plan, answer, here)
    assert token_on(free) == theirs.token
    ours = guard.claim(plan, plan.token, here)
    assert token_on(free) == ours.token


def test_a_claim_that_came_after_the_plan_is_not_overwritten(
    free: Path, here: Project, there: Project
) -> None:
    """Whoever typed the serial number was not told of it."""
    plan = plan_in(here)
    theirs = claim_in(there)
    with pytest.raises(TargetError, match="not what it was when the plan was made"):
        guard.claim(plan, CLAIM.serial[-6:], here)
    assert token_on(free) == theirs.token
    assert lab_file.load(lab_file.path_of(here)) == {}


def test_a_claim_in_the_last_moment_is_not_overwritten(
    free: Path, here: Project, there: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the second look, and before the drive is held for the header."""
    plan = plan_in(here)
    load = lab_file.load

    def meanwhile(path: Path) -> dict[str, lab_file.Claim]:
        if path == lab_file.path_of(here):
            monkeypatch.setattr(lab_file, "load", load)
            claim_in(there)
        return load(path)

    monkeypatch.setattr(lab_file, "load", meanwhile)
    with pytest.raises(TargetError, match="claimed by somebody a moment ago"):
        guard.claim(plan, plan.token, here)
    assert token_on(free) == load(lab_file.path_of(there))["mine"].token


def test_what_another_checkout_has_written_is_somebody_s(
    free: Path, here: Project, there: Project
) -> None:
    theirs = claim_in(there)
    with free.open("r+b") as file:
        file.seek(HEADER_BYTES)
        file.write(b"x")
    assert plan_in(here).warning
    with free.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    with pytest.raises(TargetError, match="not blank at its end"):
        plan_in(here)
    assert plan_in(there).found == theirs.token
