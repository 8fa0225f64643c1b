"""Where the way to a live device runs; the machine is as it was afterwards, whoever was killed.

The setting is the whole machine's, so nobody else may make devices meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import leaks
import pytest
from conftest import cleaning_alone
from live_world import NEEDS_DEVICES, eventually, harness, new_name, processes_of, small

from harness.devices import live
from harness.devices.live import placement
from harness.errors import TargetError
from harness.system import idle_states, workqueues

pytestmark = [*NEEDS_DEVICES, cleaning_alone, pytest.mark.clock]

if len(os.sched_getaffinity(0)) < 2:
    pytest.skip("there is one processor only", allow_module_level=True)


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """With nobody else's choice in the way, and nothing left."""
    if not workqueues.available():
        pytest.skip("where the kernel's own work runs cannot be set here")
    before, mask = leaks.look(), workqueues._read()
    if int(mask, 16).bit_count() < 2:
        pytest.skip(f"somebody else has bound the kernel's own work: {mask}")
    yield
    assert leaks.changes(before, patient=True) == []
    assert workqueues._read() == mask


def on_one_core() -> live.LiveDevice:
    return live.create(small(placement="one-core"), new_name())


def allowed(pid: int) -> list[set[int]]:
    """Of every thread but the first."""
    tasks = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    return [os.sched_getaffinity(task) for task in tasks if task != pid]


def test_one_core_is_one_core() -> None:
    chosen = placement.processor()
    device = on_one_core()
    try:
        assert device.place.about()["processor"] == chosen
        assert workqueues._read() == f"{1 << chosen:x}"
        [pid] = processes_of(device.name)
        bound = [each for each in allowed(pid) if each == {chosen}]
        assert len(bound) >= 3  # two of the front end's, and the pacing one
    finally:
        device.remove()


def test_spread_changes_nothing() -> None:
    before = workqueues._read()
    with live.created(small(placement="spread")) as device:
        assert device.place.about()["processor"] is None
        assert workqueues._read() == before
        assert not device.place.processors.exists()


def test_two_devices_and_the_kill_of_one() -> None:
    first, second = on_one_core(), on_one_core()
    for pid in processes_of(first.name):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not first.place.is_alive())
    bound = workqueues._read()
    assert harness("clean").returncode == 0
    assert workqueues._read() == bound, "the living one wants it so"
    second.remove()


def test_a_killed_one_is_put_back_by_clean() -> None:
    device = on_one_core()
    for pid in processes_of(device.name):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not device.place.is_alive())
    cleaned = harness("clean")
    assert "put back the processors of the kernel's own work" in cleaned.stdout


def test_what_cannot_be_had_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workqueues, "_SETTING", Path("/nonexistent"))
    with pytest.raises(TargetError, match="--placement spread"):
        on_one_core()
    assert not placement.can_choose()


def test_processors_are_awake_while_it_is_paced() -> None:
    """The kernel has the bound from a file that the device's process has open."""
    bound = str(idle_states._BOUND)
    if not idle_states._BOUND.exists():
        pytest.skip(f"there is no {bound}")
    with live.created(small()) as device:
        [pid] = processes_of(device.name)

        def holds() -> bool:
            names = []
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                    names.append(str(fd.readlink()))
            return bound in names

        device.set_speed("real", 4)
        assert holds()
        device.set_speed("none")
        assert not holds()
