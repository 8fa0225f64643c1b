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
from live_world import eventually

from harness.dbms import server_time
from harness.dbms.server_time import Moment

_LOOK_S = 0.5
_SPINS = "print('ready', flush=True)\nwhile True: pass"
_SLEEPS = "import time; print('ready', flush=True); time.sleep(600)"


@contextmanager
def running(program: str, cpu: int) -> Iterator[int]:
    """A Python of its own on that processor alone, once it does what it is for; its number."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            os.sched_setaffinity(process.pid, {cpu})
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.kill()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def ratios(*pids: int) -> list[float]:
    """Which part of some time each was runnable."""
    before = [server_time.moment(pid) for pid in pids]
    time.sleep(_LOOK_S)
    after = [server_time.moment(pid) for pid in pids]
    return [
        (now.runnable_since(then) or 0) / (now.at_ns - then.at_ns)
        for now, then in zip(after, before, strict=True)
    ]


@pytest.mark.clock
@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel does not count it"
)
def test_who_waits_for_a_processor_is_runnable_and_who_sleeps_is_not() -> None:
    cpu = min(os.sched_getaffinity(0))
    with running(_SLEEPS, cpu) as idle, running(_SPINS, cpu) as one, running(_SPINS, cpu) as other:
        eventually(lambda: state_of(idle) == "S")
        spinning, waiting, sleeping = ratios(one, other, idle)
    # Each of the two has half of the processor.
    assert spinning == pytest.approx(1.0, abs=0.1)
    assert waiting == pytest.approx(1.0, abs=0.1)
    assert sleeping < 0.1


def test_who_is_runnable_runs_or_waits_for_a_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The third number is how often it was put on one (sched-stats.rst)."""
    monkeypatch.setattr(server_time, "_SCHEDSTAT", f"{tmp_path}/{{}}/schedstat")
    (tmp_path / "7").mkdir()
    told = tmp_path / "7" / "schedstat"
    told.write_text("1000 200 5\n")
    before = server_time.moment(7)
    told.write_text("1800 1200 9\n")
    now = server_time.moment(7)
    assert (before.runnable_ns, now.runnable_ns) == (1200, 3000)
    assert now.runnable_since(before) == 1800
    assert now.at_ns >= before.at_ns


def test_where_the_kernel_does_not_count_it_it_is_not_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(server_time, "_SCHEDSTAT", f"{tmp_path}/{{}}/schedstat")
    now = server_time.moment(1)
    assert now.runnable_ns is None
    assert now.runnable_since(now) is None
    assert Moment(0, 1).runnable_since(now) is None
    assert Moment(9, 30).runnable_since(Moment(1, 10)) == 20
