"""For how long a process was runnable: asked of the kernel about processes that work and sleep."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.dbms import server_time
from harness.dbms.server_time import Moment

_LOOK_S = 0.5
_SPINS = "while True: pass"
_SLEEPS = "import time; time.sleep(60)"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel does not count it"
)


@contextmanager
def running(program: str, cpu: int) -> Iterator[int]:
    """A Python of its own on that processor alone; its number."""
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            os.sched_setaffinity(process.pid, {cpu})
            yield process.pid
        finally:
            process.kill()


def ratios(*pids: int) -> list[float]:
    """Which part of some time each was runnable."""
    time.sleep(0.2)  # until they have started
    before = [server_time.moment(pid) for pid in pids]
    time.sleep(_LOOK_S)
    after = [server_time.moment(pid) for pid in pids]
    return [
        (now.runnable_since(then) or 0) / (now.at_ns - then.at_ns)
        for now, then in zip(after, before, strict=True)
    ]


def test_who_waits_for_a_processor_is_runnable_and_who_sleeps_is_not() -> None:
    cpu = min(os.sched_getaffinity(0))
    with running(_SPINS, cpu) as one, running(_SPINS, cpu) as other, running(_SLEEPS, cpu) as idle:
        spinning, waiting, sleeping = ratios(one, other, idle)
    # Each of the two has half of the processor.
    assert spinning == pytest.approx(1.0, abs=0.1)
    assert waiting == pytest.approx(1.0, abs=0.1)
    assert sleeping < 0.1


def test_where_the_kernel_does_not_count_it_it_is_not_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(server_time, "_SCHEDSTAT", f"{tmp_path}/{{}}/schedstat")
    now = server_time.moment(1)
    assert now.runnable_ns is None
    assert now.runnable_since(now) is None
    assert Moment(0, 1).runnable_since(now) is None
    assert Moment(9, 30).runnable_since(Moment(1, 10)) == 20
