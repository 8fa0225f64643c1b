"""What outlasts a device's life, or its patience: many lives one after another, and a long stop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import leaks
import pytest
from conftest import cleaning_alone
from live_world import NEEDS_DEVICES, new_name, processes_of, remove_all, small

from harness.devices import live
from harness.devices.live import registry

pytestmark = [cleaning_alone, pytest.mark.slow, *NEEDS_DEVICES]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    remove_all()


def count(pattern: str) -> int:
    root, _, rest = pattern.partition("*")
    return len(list(Path(root).glob(f"*{rest}")))


GROWS: dict[str, Callable[[], int]] = {
    "our open files": lambda: count("/proc/self/fd/*"),
    "our threads": lambda: count("/proc/self/task/*"),
    "backing devices": lambda: count("/sys/class/bdi/*"),
    "devices' folders": lambda: count(f"{registry.ROOT}/*"),
    "mounts": lambda: len(Path("/proc/self/mountinfo").read_text().splitlines()),
    "FUSE connections": lambda: count("/sys/fs/fuse/connections/*"),
}


def memory_kib(*names: str) -> int:
    """Of the kernel: lines of /proc/meminfo."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(words[1]) for words in lines if words[0].rstrip(":") in names)


def write_durably(fd: int, data: bytes) -> None:
    os.write(fd, data)
    os.fsync(fd)


def test_200_devices_made_and_removed_leave_nothing() -> None:
    def life() -> None:
        device = live.create(small(), new_name())
        device.path.write_bytes(b"x" * 4096)
        device.remove()

    life()
    before = leaks.look()
    counts = {name: look() for name, look in GROWS.items()}
    kernel = memory_kib("SUnreclaim", "KernelStack", "PageTables", "Percpu")
    for _ in range(200):
        life()
    assert leaks.changes(before, patient=True) == []
    after = {name: look() for name, look in GROWS.items()}
    # What others do meanwhile moves a count by a few; 200 of anything that stays would be seen.
    assert {name: n for name, n in after.items() if n > counts[name] + 20} == {}
    grown = memory_kib("SUnreclaim", "KernelStack", "PageTables", "Percpu") - kernel
    assert grown < 200 * 256  # a quarter of a MiB per life would be seen


def test_a_minute_in_which_nothing_runs_makes_the_run_invalid() -> None:
    """As when a virtual machine is suspended: requests wait, and it is said that they did."""
    device = live.create(small(speed="real", slowdown=1), new_name())
    before = device.stats()["live"]["errors"]
    with ThreadPoolExecutor(1) as pool, device.path.open("r+b", buffering=0) as file:
        stopped = processes_of(device.name)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        writing = pool.submit(write_durably, file.fileno(), b"y" * 4096)
        time.sleep(60)
        assert not writing.done()
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        writing.result(timeout=30)
        stats = device.stats()
    assert not stats["valid"]
    assert any("late" in problem for problem in stats["problems"]), stats["problems"]
    assert stats["live"]["errors"] == before
    assert device.path.read_bytes()[:4096] == b"y" * 4096
    device.remove()
