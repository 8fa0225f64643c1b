"""Queue settings on real loop devices: set, and put back whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import cleaning_alone, loop_device
from lab_world import bound_by_a_killed_device

from harness.drives.queue_settings import queue_settings
from harness.errors import TargetError, UnknownName
from harness.runs import cleaning
from harness.system import block_queue, loop_devices

pytestmark = pytest.mark.root

MIB = 1 << 20


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    with loop_device(tmp_path, 16 * MIB) as made:
        yield made
    with contextlib.suppress(OSError):  # somebody has taken it
        loop_devices.remove(made)  # limits of a queue outlast what lies below the device


def setting(device: Path, name: str) -> str:
    text = (Path("/sys/block") / device.name / "queue" / name).read_text().strip()
    return text.partition("[")[2].partition("]")[0] or text


def write(device: Path, name: str, value: int) -> None:
    (Path("/sys/block") / device.name / "queue" / name).write_text(str(value))


CHANGES: dict[str, str | int] = {
    "scheduler": "mq-deadline",
    "nr_requests": 64,
    "iosched/writes_starved": 5,
    "read_ahead_kb": 128,
    "add_random": 1,
    "write_cache": "write through",
    "max_sectors_kb": 512,
}


def test_they_are_set_and_put_back(device: Path) -> None:
    was = block_queue.noted(device.name)
    with queue_settings(device, CHANGES):
        assert {name: setting(device, name) for name in CHANGES} == {
            name: str(value) for name, value in CHANGES.items()
        }
    assert block_queue.noted(device.name) == was


def test_what_counts_a_drive_s_writes_stays_on(device: Path) -> None:
    with pytest.raises(TargetError, match="leave it on"), queue_settings(device, {"iostats": 0}):
        pass
    assert setting(device, "iostats") == "1"


def test_what_a_setting_changes_that_is_put_back_after_another(device: Path) -> None:
    """New limits of sizes bring another read_ahead_kb, also when they are put back."""
    write(device, "read_ahead_kb", 640)
    was = block_queue.noted(device.name)
    with queue_settings(device, {"max_sectors_kb": 512, "read_ahead_kb": 128}):
        assert setting(device, "read_ahead_kb") == "128"
    assert block_queue.noted(device.name) == was


def test_what_a_scheduler_changes_by_the_way_is_put_back_too(device: Path) -> None:
    """nr_requests was not the default: another scheduler's default comes and goes with it."""
    block_queue.put(device.name, {"nr_requests": "33"})
    with queue_settings(device, {"scheduler": "mq-deadline"}):
        assert setting(device, "nr_requests") != "33"
    assert setting(device, "nr_requests") == "33"
    assert setting(device, "scheduler") == "none"


def test_so_are_the_settings_of_the_scheduler_that_was_left(device: Path) -> None:
    block_queue.put(device.name, {"scheduler": "mq-deadline"})
    block_queue.put(device.name, {"iosched/writes_starved": "7"})
    with queue_settings(device, {"scheduler": "none"}):
        assert setting(device, "scheduler") == "none"
    assert setting(device, "iosched/writes_starved") == "7"


def test_a_limit_of_discards_that_can_be_put_back(device: Path) -> None:
    write(device, "discard_max_bytes", 4 * MIB)
    was = block_queue.noted(device.name)
    with queue_settings(device, {"read_ahead_kb": 128, "discard_max_bytes": MIB}):
        assert setting(device, "discard_max_bytes") == str(MIB)
        assert setting(device, "read_ahead_kb") == "128", "new limits bring another one"
    assert block_queue.noted(device.name) == was
    assert was["discard_max_bytes"] == str(4 * MIB)


def test_a_limit_of_discards_that_could_not_be_put_back_is_not_changed(device: Path) -> None:
    """A loop device's own is no multiple of its granularity, and the kernel wants one."""
    was = block_queue.noted(device.name)
    if int(was["discard_max_bytes"]) % int(setting(device, "discard_granularity")) == 0:
        pytest.skip("this kernel's loop device has another limit")
    with (
        pytest.raises(TargetError, match="could not be put back"),
        queue_settings(device, {"discard_max_bytes": MIB}),
    ):
        pytest.fail("it was set")
    assert block_queue.noted(device.name) == was


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_they_are_put_back_after_an_error(device: Path, error: type[BaseException]) -> None:
    was = block_queue.noted(device.name)
    with pytest.raises(error), queue_settings(device, CHANGES):
        raise error
    assert block_queue.noted(device.name) == was


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"read_ahead_kb": 256, "nr_requests": "many"}, TargetError),
        ({"read_ahead_kb": 7}, TargetError),  # the kernel makes a 4 of it
        ({"read_ahead_kb": 256, "reed_ahead_kb": 1}, UnknownName),
        ({"read_ahead_kb": 256, "fua": 1}, UnknownName),  # may be read only
        ({"scheduler": "elevator"}, TargetError),
        ({"discard_max_bytes": 0}, TargetError),
    ],
)
def test_a_setting_that_cannot_be_set_leaves_none_behind(
    device: Path, settings: dict[str, str | int], expected: type[Exception]
) -> None:
    was = block_queue.noted(device.name)
    with pytest.raises(expected) as refused, queue_settings(device, settings):
        pytest.fail("it was set")
    assert device.name in str(refused.value)
    assert block_queue.noted(device.name) == was


CHILD = """
import sys
from pathlib import Path
from harness.devices.live.front import loops
from harness.drives.queue_settings import queue_settings
with queue_settings(Path(sys.argv[1]), {"scheduler": "mq-deadline", "nr_requests": 64}):
    print("set", flush=True)
    sys.stdin.read()
"""


def killed_in_between(device: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
    """A run that was killed while the settings were in force, and after something else was done."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(device)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"set\n"
    assert (setting(device, "scheduler"), setting(device, "nr_requests")) == ("mq-deadline", "64")
    cleaned = cleaning.clean()
    assert not any(device.name in line for line in cleaned.done), "it lives, and needs them"
    assert setting(device, "nr_requests") == "64"
    meanwhile()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdin.close()
    child.stdout.close()


@cleaning_alone
def test_clean_puts_back_what_a_killed_run_left(device: Path) -> None:
    was = block_queue.noted(device.name)
    killed_in_between(device)
    assert block_queue.noted(device.name) != was
    cleaned = cleaning.clean()
    assert f"put back the queue settings of {device.name}" in cleaned.done
    assert block_queue.noted(device.name) == was
    assert not any(device.name in line for line in cleaning.clean().done)


@cleaning_alone
def test_a_run_does_not_take_over_what_a_killed_one_left(device: Path) -> None:
    was = block_queue.noted(device.name)
    killed_in_between(device)
    with queue_settings(device, {}):
        assert block_queue.noted(device.name) == was
    assert block_queue.noted(device.name) == was


@cleaning_alone
def test_clean_does_not_put_back_what_a_killed_run_left_under_a_living_one(device: Path) -> None:
    was = block_queue.noted(device.name)
    killed_in_between(device)
    with queue_settings(device, {"scheduler": "mq-deadline", "nr_requests": 77}):
        cleaning.clean()
        assert (setting(device, "scheduler"), setting(device, "nr_requests")) == (
            "mq-deadline",
            "77",
        )
    assert block_queue.noted(device.name) == was


@cleaning_alone
def test_what_was_killed_while_another_run_had_begun_is_put_back_after_that(device: Path) -> None:
    was = block_queue.noted(device.name)
    with contextlib.ExitStack() as living:
        killed_in_between(
            device, lambda: living.enter_context(queue_settings(device, {"nr_requests": 77}))
        )
        waits = f"left the queue settings of {device.name} to a run that uses it: clean up after it"
        assert waits in cleaning.clean().done
        assert setting(device, "nr_requests") == "77"
    assert block_queue.noted(device.name) != was
    cleaning.clean()
    assert block_queue.noted(device.name) == was


def test_the_kernel_s_own_work_runs_where_it_did_before_a_killed_live_device(
    device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpumask = bound_by_a_killed_device(tmp_path, monkeypatch)
    with queue_settings(device, {}):
        assert cpumask.read_text() == "3"


def test_what_could_not_be_put_back_is_not_changed(
    device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 5.15 nothing tells a drive from another one of its name."""
    was = block_queue.noted(device.name)
    monkeypatch.setattr(block_queue, "sequence", lambda _: "")
    with pytest.raises(TargetError, match="diskseq"), queue_settings(device, {"nr_requests": 77}):
        pytest.fail("it was set")
    for settings in ({}, {"nr_requests": was["nr_requests"]}):
        with queue_settings(device, settings):
            assert block_queue.noted(device.name) == was


@cleaning_alone
def test_clean_leaves_another_device_of_that_name_alone(tmp_path: Path) -> None:
    """The device of the killed run has gone, and its name has come back."""
    with loop_device(tmp_path, 16 * MIB) as device:
        killed_in_between(device)
        subprocess.run(["losetup", "--detach", str(device)], check=True)
        subprocess.run(["losetup", str(device), str(tmp_path / "loop.img")], check=True)
        block_queue.put(device.name, {"scheduler": "mq-deadline"})
        block_queue.put(device.name, {"nr_requests": "77"})
        assert not any(device.name in line for line in cleaning.clean().done)
        assert setting(device, "nr_requests") == "77"
        block_queue.put(device.name, {"scheduler": "none"})


def test_what_is_no_block_device_has_no_queue(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="not a block device"), queue_settings(tmp_path, {}):
        pass
