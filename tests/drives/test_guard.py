"""The erase guard without a drive; with drives see tests/hardware/inside/test_guard.py."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import loop_device
from hypothesis import example, given
from hypothesis import strategies as st
from lab_world import CLAIM
from test_discovery import Tree, sata, with_drives

from harness.drives import guard
from harness.drives.discovery import EDGE_BYTES
from harness.drives.guard import BudgetSpent, ClaimedDrive
from harness.drives.targets import Step
from harness.errors import TargetError
from harness.runs import roles
from harness.system import block_queue
from harness.system.kernel_partitions import HEADER_BYTES, MARKER
from harness.system.leases import Lease

DRIVE = replace(roles.examples()["ssd"], name="sdb", node=Path("/dev/sdb"))

# --- what a page says


def line(said: Any) -> bytes:
    """A header's first page that says this."""
    return MARKER + json.dumps(said).encode() + b"\n"


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["format", "token"]) | st.text(), inner)
        | st.fixed_dictionaries({"format": st.just(1), "token": inner})
    ),
)


@given(ANYTHING)
@example({"format": 1, "token": "x"})
@example({"format": 2, "token": "x"})
@example({"format": 1})
@example({"token": "x"})
@example([1, "x"])
def test_a_token_is_a_text_in_a_line_of_the_first_format(said: Any) -> None:
    fits = isinstance(said, dict) and said.get("format") == 1
    token = said.get("token") if fits else None
    expected = token if isinstance(token, str) else None
    assert guard._token_in(line(said)) == expected
    assert guard._token_in(line(said).ljust(4096, b"\0")) == expected
    moved = bytes(len(MARKER)) + line(said).removeprefix(MARKER) + MARKER
    assert guard._token_in(moved) is None


@given(st.binary(max_size=4096 - len(MARKER)))
@example(b"\xff" * 100)
@example(b'{"format": 1, "token": "\xff"}\n')
@example(b"9" * 4000)
def test_behind_the_marker_may_be_anything(rest: bytes) -> None:
    assert guard._token_in(MARKER + rest) is None
    assert guard._token_in(rest) is None


def test_a_page_that_is_nested_as_deep_as_it_can_be_has_no_token() -> None:
    assert guard._token_in((MARKER + b"[" * 4096)[:4096]) is None


def test_a_page_that_is_cut_short_has_the_token_or_none() -> None:
    whole = line({"format": 1, "token": CLAIM.token})
    cut = [guard._token_in(whole[:length]) for length in range(len(whole) + 1)]
    assert cut == [None] * (len(whole) - 1) + [CLAIM.token] * 2  # without the line's end, with it


# --- what a drive says of itself


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return with_drives(tmp_path)


def check_facts(tree: Tree, name: str) -> None:
    machine = tree.machine
    guard._check_facts(machine.drive(name), machine)


def add_sata(tree: Tree, letter: str, serial: str, **files: str) -> None:
    """One that is as good as the others but for these files."""
    place, good = sata(letter, 4, serial, rate=1)
    tree.block(place, "8:48" if letter == "d" else "8:64", {**good, **files})


@pytest.mark.parametrize("name", ["sdb", "sdc", "nvme0n1", "nvme0n2"])
def test_a_drive_that_is_known_from_all_others_can_be_claimed(tree: Tree, name: str) -> None:
    """The namespaces have one serial number, but two WWNs."""
    check_facts(tree, name)


def test_a_drive_must_tell_six_characters_of_a_serial_number(tree: Tree) -> None:
    add_sata(tree, "d", "S12345")
    add_sata(tree, "e", "S1234")
    check_facts(tree, "sdd")
    with pytest.raises(TargetError, match="serial number of at least 6"):
        check_facts(tree, "sde")


def test_a_drive_that_tells_no_serial_number_is_refused(tree: Tree) -> None:
    add_sata(tree, "d", "")
    with pytest.raises(TargetError, match="serial number of at least 6"):
        check_facts(tree, "sdd")


def test_two_drives_of_one_serial_number_and_wwn_are_both_refused(tree: Tree) -> None:
    add_sata(tree, "d", "SERIAL02")
    for name in ("sdb", "sdd"):
        with pytest.raises(TargetError, match="sdb and sdd have the same serial number and WWN"):
            check_facts(tree, name)
    check_facts(tree, "sdc")


def test_a_drive_of_another_wwn_is_no_twin(tree: Tree) -> None:
    add_sata(tree, "d", "SERIAL02", **{"device/wwid": "naa.6\n"})
    check_facts(tree, "sdd")


def test_the_system_s_drive_and_all_that_could_be_it_are_refused(tree: Tree) -> None:
    add_sata(tree, "d", "SERIAL01")
    for name in ("sda", "sdd"):
        with pytest.raises(TargetError, match="this system runs from"):
            check_facts(tree, name)
    tree.mounts("25 1 259:1 / / rw - ext4 /dev/nvme0n1 rw")
    for name in ("nvme0n1", "nvme0n2"):
        with pytest.raises(TargetError, match="this system runs from"):
            check_facts(tree, name)


def test_where_the_system_s_drive_is_not_known_none_can_be_claimed(tree: Tree) -> None:
    tree.mounts("25 1 0:25 / / rw - overlay overlay rw")
    with pytest.raises(TargetError, match="no drive can be claimed"):
        check_facts(tree, "sdb")


@pytest.mark.parametrize("ro", ["1\n", ""], ids=["said", "not said"])
def test_a_drive_that_is_not_known_to_be_writable_is_refused(tree: Tree, ro: str) -> None:
    add_sata(tree, "d", "SERIAL04", ro=ro)
    with pytest.raises(TargetError, match="read-only"):
        check_facts(tree, "sdd")


def test_a_drive_has_a_least_size(tree: Tree) -> None:
    sectors = (64 << 20) // 512
    add_sata(tree, "d", "SERIAL04", size=f"{sectors}\n")
    add_sata(tree, "e", "SERIAL05", size=f"{sectors - 1}\n")
    check_facts(tree, "sdd")
    with pytest.raises(TargetError, match="too small"):
        check_facts(tree, "sde")


# --- what is on it

SIZES = (4 << 20, (4 << 20) + 512)
"""The end of the second one begins within a page."""


@pytest.fixture(params=SIZES, ids=["whole pages", "half a page"])
def blank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A file for a drive: its descriptor and size."""
    path = tmp_path / "drive"
    path.touch()
    os.truncate(path, request.param)
    fd = os.open(path, os.O_RDWR)
    try:
        yield fd, request.param
    finally:
        os.close(fd)


def check_blank_or_ours(fd: int, size: int) -> None:
    guard._check_blank_or_ours(fd, replace(DRIVE, size_bytes=size))


@pytest.mark.parametrize(
    ("place", "told"),
    [(0, "begin"), (EDGE_BYTES - 1, "begin"), (-EDGE_BYTES, "end"), (-1, "end")],
)
def test_a_byte_at_either_edge_is_somebody_s(blank: tuple[int, int], place: int, told: str) -> None:
    fd, size = blank
    os.pwrite(fd, b"\1", place % size)
    with pytest.raises(TargetError, match=f"not blank at its {told}"):
        check_blank_or_ours(fd, size)


def test_what_lies_between_the_edges_is_not_looked_at(blank: tuple[int, int]) -> None:
    """No signature does (discovery.EDGE_BYTES)."""
    fd, size = blank
    check_blank_or_ours(fd, size)
    for place in (EDGE_BYTES, size - EDGE_BYTES - 1):
        os.pwrite(fd, b"\1", place)
    check_blank_or_ours(fd, size)


def test_what_cannot_be_read_whole_is_not_blank(blank: tuple[int, int]) -> None:
    fd, size = blank
    os.truncate(fd, size - 1)
    with pytest.raises(TargetError, match="could not be read"):
        check_blank_or_ours(fd, size)


def test_a_header_marks_a_drive_and_is_all_that_is_written(blank: tuple[int, int]) -> None:
    fd, size = blank
    os.pwrite(fd, b"\xff" * size, 0)
    with pytest.raises(TargetError, match="not blank"):
        check_blank_or_ours(fd, size)
    guard._write_header(fd, CLAIM)
    assert guard._token_on(fd) == guard._token_on_cached(fd) == CLAIM.token
    check_blank_or_ours(fd, size)  # ours, whatever is on the rest
    held = os.pread(fd, size, 0)
    header = line({"format": 1, "token": CLAIM.token})
    assert held[:HEADER_BYTES] == header.ljust(HEADER_BYTES, b"\0")
    assert set(held[HEADER_BYTES:]) == {0xFF}
    assert len(held) == size


def test_a_header_that_is_given_up_leaves_a_blank_begin(blank: tuple[int, int]) -> None:
    fd, size = blank
    guard._write_header(fd, CLAIM)
    guard._write_whole_header(fd, b"")
    assert guard._token_on(fd) is None
    assert not any(os.pread(fd, size, 0))


def test_a_header_that_is_not_written_whole_is_none(
    blank: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: HEADER_BYTES - 512)
    with pytest.raises(TargetError, match="not be written whole"):
        guard._write_header(blank[0], CLAIM)


# --- a drive that is held


class Counted:
    """What the kernel has written to the drive since it was started."""

    def __init__(self) -> None:
        self.bytes = 7000


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    made = Counted()
    monkeypatch.setattr(ClaimedDrive, "_all_written_bytes", lambda _: made.bytes)
    return made


def claimed_drive(folder: Path, budget_bytes: int) -> ClaimedDrive:
    lease, lab = Lease(folder), folder / "lab.json"
    return ClaimedDrive("mine", CLAIM, DRIVE, budget_bytes, lease, lab)


def test_a_budget_may_be_spent_to_its_last_byte(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClaimedDrive, "_check", lambda *_: None)
    monkeypatch.setattr(ClaimedDrive, "_check_part", lambda _: None)
    drive = claimed_drive(tmp_path, 1000)
    drive.permit("all", 1000)
    with pytest.raises(BudgetSpent, match="all and one would write 1001 B"):
        drive.permit("all and one", 1001)
    counted.bytes += 400
    drive.permit("the rest", 600)
    with pytest.raises(BudgetSpent):
        drive.permit("more than the rest", 601)
    counted.bytes += 600
    drive.permit("nothing", 0)
    drive.check_budget()
    assert not drive.is_overspent
    counted.bytes += 1
    assert drive.is_overspent
    with pytest.raises(BudgetSpent):
        drive.check_budget()
    with pytest.raises(BudgetSpent):
        drive.permit("nothing", 0)


@pytest.mark.root
def test_a_drive_whose_writes_are_not_counted_is_not_taken(tmp_path: Path) -> None:
    """Its budget would never be spent, and nobody would know who else writes to it."""
    with loop_device(tmp_path, 16 << 20) as device:
        number = block_queue.number_of(device.name)
        drive = replace(DRIVE, name=device.name, number=number, node=device)
        switch = Path("/sys/block") / device.name / "queue" / "iostats"
        switch.write_text("0")
        try:
            with pytest.raises(TargetError, match=f"echo 1 > .*/{device.name}/queue/iostats"):
                ClaimedDrive("mine", CLAIM, drive, 1, Lease(tmp_path), tmp_path / "lab.json")
        finally:
            switch.write_text("1")
        held = ClaimedDrive("mine", CLAIM, drive, 1, Lease(tmp_path), tmp_path / "lab.json")
        assert not held.is_overspent
        switch.write_text("0")  # as tuned does, hours later
        try:
            assert held.is_overspent, "whoever watches stops"
            with pytest.raises(TargetError, match="does not count"):
                held.check_budget()
        finally:
            switch.write_text("1")


@pytest.mark.parametrize("header", [b"", line({"format": 1, "token": "f" * 32})])
def test_nothing_is_permitted_without_the_claim_s_own_token(
    tmp_path: Path,
    blank: tuple[int, int],
    counted: Counted,
    header: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del counted
    monkeypatch.setattr(ClaimedDrive, "_check_identity", lambda *_: None)
    monkeypatch.setattr(ClaimedDrive, "_check_part", lambda _: None)
    drive = claimed_drive(tmp_path, 1000)
    drive._header, _ = blank
    guard._write_header(drive._header, CLAIM)
    drive.permit("before", 0)
    guard._write_whole_header(drive._header, header)
    with pytest.raises(TargetError, match="does not carry the token of its claim"):
        drive.permit("after", 0)


def test_nothing_is_permitted_where_the_part_s_node_has_gone(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fio would make a file of that name."""
    del counted
    monkeypatch.setattr(ClaimedDrive, "_check", lambda *_: None)
    with pytest.raises(TargetError, match="has gone, by partprobe"):
        claimed_drive(tmp_path, 1000).permit("overwrite", 0)


# --- steps


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
