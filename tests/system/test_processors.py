"""How busy the processors are: the kernel's counts, and what a process of ours adds to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.system import processors
from harness.system.processors import ProcessorTimes

STAT = """cpu  100 10 40 700 50 5 15 80 60 0
cpu0 50 5 20 350 25 2 8 40 30 0
intr 12345
"""


def test_idle_time_waiting_for_a_drive_and_niced_work_are_not_busy(tmp_path: Path) -> None:
    file = tmp_path / "stat"
    file.write_text(STAT)
    assert processors.read(file) == ProcessorTimes(busy=240, all=1000)


def test_the_share_is_of_what_has_passed() -> None:
    before, after = ProcessorTimes(240, 1000), ProcessorTimes(390, 1200)
    assert after.busy_ratio_since(before) == pytest.approx(0.75)
    assert after.busy_ratio_since(after) == 0


def busy_ticks(during: Callable[[], None]) -> int:
    before = processors.read()
    during()
    return processors.read().busy - before.busy


def compute() -> None:
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass


@pytest.mark.clock
def test_a_process_that_computes_is_seen() -> None:
    """By its ticks, of 100 per second, and hardly more where nobody else computes."""
    if busy_ticks(lambda: time.sleep(0.3)) > 10:
        pytest.skip("this machine is too busy with other things")
    found = [busy_ticks(compute) for _ in range(3)]
    assert min(found) >= 25
    assert min(found) <= 40
