"""What the kernel may hold of one device unwritten: bounded, kept so, and lifted."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.devices.live.front import loops
from harness.errors import MissingTool
from harness.system import block_queue, cgroups, leases, writeback

pytestmark = [pytest.mark.servers, pytest.mark.root]
LIMIT_BYTES = 8 << 20


@pytest.fixture
def place() -> Iterator[Path]:
    """What the kernel says of a loop device's write-back."""
    with tempfile.TemporaryDirectory() as folder:  # a short name: it is the device's mark
        file = Path(folder) / "disk"
        file.touch()
        os.truncate(file, 64 << 20)
        device = loops.attach(file)
        number = block_queue.number_of(device.name)
        try:
            yield Path("/sys/class/bdi") / number
        finally:
            loops.detach(file)


@pytest.fixture
def throttle(place: Path) -> Path:
    """The setting that says after how long a read write-back is throttled."""
    setting = Path("/sys/dev/block") / place.name / "queue/wbt_lat_usec"
    if not setting.is_file():
        pytest.skip("this kernel does not throttle write-back")
    return setting


@pytest.fixture
def own_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place in which nobody else's leases are."""
    root = tmp_path / "leases"
    monkeypatch.setattr(leases, "_root", lambda: root)
    return root


def bounded_bytes(place: Path) -> int:
    return int((place / "max_bytes").read_text())


def test_a_bound_is_kept_and_lifted(place: Path) -> None:
    if not (place / "max_bytes").exists():
        with pytest.raises(MissingTool), writeback.limited(place.name, LIMIT_BYTES):
            pass
        pytest.skip("this kernel cannot bound a device")
    with writeback.limited(place.name, LIMIT_BYTES):
        assert bounded_bytes(place) == pytest.approx(LIMIT_BYTES, rel=0.02)
        assert (place / "strict_limit").read_text().strip() == "1"
        (place / "max_bytes").write_text(str(LIMIT_BYTES // 2))  # as if memory had become scarce
        deadline = time.monotonic() + 10
        while bounded_bytes(place) < 0.9 * LIMIT_BYTES:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert bounded_bytes(place) == pytest.approx(LIMIT_BYTES, rel=0.02)
    assert (place / "max_ratio").read_text().strip() == "100"
    assert (place / "strict_limit").read_text().strip() == "0"
    assert not [thread for thread in threading.enumerate() if thread.name == "dirty-limit"]


def test_a_bound_leaves_what_somebody_else_had_set(place: Path) -> None:
    if not (place / "max_bytes").exists():
        pytest.skip("this kernel cannot bound a device")
    (place / "max_ratio").write_text("40")
    with writeback.limited(place.name, LIMIT_BYTES):
        assert (place / "strict_limit").read_text().strip() == "1"
    assert (place / "max_ratio").read_text().strip() == "40"
    assert (place / "strict_limit").read_text().strip() == "0"
    writeback.lift(place.name)


def test_the_end_of_a_bound_leaves_the_throttle_as_it_is(place: Path, throttle: Path) -> None:
    if not (place / "max_bytes").exists():
        pytest.skip("this kernel cannot bound a device")
    writeback.do_not_throttle(place.name)
    with writeback.limited(place.name, LIMIT_BYTES):
        pass
    assert throttle.read_text().strip() == "0"


def test_without_a_bound_nothing_is_changed(place: Path) -> None:
    before = (place / "max_ratio").read_text()
    with writeback.limited(place.name, 0):
        assert (place / "max_ratio").read_text() == before


def test_a_throttle_is_taken_off_and_put_back(place: Path, throttle: Path) -> None:
    # The kernel's own value, which follows whether the device spins: a loop device that was here
    # before, and was told that it does, may have the value of one that does not.
    writeback.lift(place.name)
    before = throttle.read_text()
    writeback.do_not_throttle(place.name)
    assert throttle.read_text().strip() == "0"
    writeback.lift(place.name)
    assert throttle.read_text() == before


def test_a_device_that_has_gone_is_no_error() -> None:
    writeback.do_not_throttle("7:1048000")
    writeback.lift("7:1048000")


def test_any_share_may_be_dirty_where_groups_do_not_bound_it() -> None:
    if cgroups.bound_writeback():
        pytest.skip("control groups of version 2 do, on this machine")
    writeback.check_share(1.0)


def killed(lease: leases.Lease) -> None:
    """As if its run had been: whoever looks finds a lock that nobody holds."""
    lock = lease.folder / "lock"
    lock.rename(lease.folder / "lock of before")
    lock.touch(mode=0o600)


def settings(place: Path) -> tuple[str, str]:
    return writeback.bound_of(place.name)


def test_a_bound_that_a_killed_run_has_left_is_lifted_by_clean(
    place: Path, own_leases: Path
) -> None:
    drive = (Path("/sys/dev/block") / place.name).resolve().name
    (place / "max_ratio").write_text("40")
    with leases.open_lease() as lease:
        lease.note_bound(drive)
        writeback.lift_bound(place.name, "1", "1")
        living = leases.end_processes()
        assert (living, settings(place)) == (([], []), ("1", "1"))
        killed(lease)
        done, failed = leases.end_processes()
        assert (done, failed) == ([f"lifted the bound of {drive}'s dirty pages"], [])
        assert settings(place) == ("40", "0")
    writeback.lift(place.name)


def test_a_run_finds_a_drive_as_it_was_before_one_that_was_killed(
    place: Path, own_leases: Path
) -> None:
    """Else it would note, and put back, what that one had set."""
    drive = (Path("/sys/dev/block") / place.name).resolve().name
    with leases.open_lease() as first:
        first.note_bound(drive)
        writeback.lift_bound(place.name, "1", "1")
        killed(first)
        with leases.open_lease() as second:
            second.note_bound(drive)
            assert settings(place) == ("100", "0")
            writeback.lift_bound(place.name, "2", "1")
        assert settings(place) == ("100", "0")


def test_a_bound_that_a_living_run_needs_is_left_to_it(place: Path, own_leases: Path) -> None:
    drive = (Path("/sys/dev/block") / place.name).resolve().name
    with leases.open_lease() as living:
        living.note_bound(drive)
        writeback.lift_bound(place.name, "1", "1")
        with leases.open_lease() as other:
            facts = next(living.folder.glob("bound-*")).read_text()
            (other.folder / "bound-0123456789abcdef").write_text(facts)
            killed(other)
            done, _ = leases.end_processes()
            assert done == [f"left the bound of {drive} to a run that uses it: clean up after it"]
            assert settings(place) == ("1", "1")
            next(other.folder.glob("bound-*")).unlink()
    assert settings(place) == ("100", "0")


def test_a_bound_of_before_the_boot_is_nobody_s(place: Path, own_leases: Path) -> None:
    """Sequence numbers of drives begin again, and the folder of leases may have stayed."""
    drive = (Path("/sys/dev/block") / place.name).resolve().name
    (place / "max_ratio").write_text("40")
    with leases.open_lease() as lease:
        lease.note_bound(drive)
        [note] = lease.folder.glob("bound-*")
        facts = json.loads(note.read_text())
        note.write_text(json.dumps({**facts, "boot": "another", "ratio": "7"}))
        killed(lease)
        assert leases.end_processes() == ([], [])
        assert not note.exists()
        assert settings(place) == ("40", "0")
    writeback.lift(place.name)
