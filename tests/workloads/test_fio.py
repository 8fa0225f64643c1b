"""fio jobs: what is read from fio is what fio did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import cleaning_alone, need

from harness.errors import BadParameter, DeviceError
from harness.runs import cleaning
from harness.system import leases, processes
from harness.workloads import fio

LIMIT_S = 30.0


@pytest.mark.builds
def test_a_job_does_what_it_says(tmp_path: Path) -> None:
    need("fio")
    job: dict[str, str | int] = {"rw": "randrw", "bs": "4k", "size": "4m", "rwmixread": 30}
    run = fio.run(tmp_path / "file", {**job, "randrepeat": 1})
    assert sum(op.ios for op in run.ops.values()) == 1024
    assert run.busiest is run.ops["write"]
    assert run.errors == 0
    for op in run.ops.values():
        assert op.bytes == op.ios * 4096
        assert 0 < op.latency_p50_ns <= op.latency_p99_ns <= op.latency_max_ns * 1.01


@pytest.mark.builds
def test_a_job_that_fails_says_why(tmp_path: Path) -> None:
    need("fio")
    with pytest.raises(DeviceError, match=r"fio failed on .*file: .*rw"):
        fio.run(tmp_path / "file", {"rw": "sideways", "bs": "4k", "size": "4k"})


def test_a_job_by_the_clock_has_a_limit_and_one_by_size_has_none() -> None:
    spare = fio.limit_s([{"runtime": 0}])
    assert spare is not None
    for told, seconds in (("1500ms", 1.5), (30, 30), ("2m", 120), ("7", 7)):
        limit = fio.limit_s([{"runtime": told}])
        assert limit is not None
        assert limit - spare >= seconds
    turns = fio.limit_s([{"runtime": 10, "ramp_time": 5}, {"runtime": 20}])
    assert turns is not None
    assert turns - spare == pytest.approx(2 * 35)
    assert fio.limit_s([{"runtime": 10}, {"size": "1g"}]) is None
    with pytest.raises(BadParameter, match="no time"):
        fio.limit_s([{"runtime": "soon"}])


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(DeviceError, match="sleep did not end within 1 s"):
        leases.call(["sleep", "600"], dies_with_us=True, limit_s=1.0)
    assert leases.call(["echo", "said"], limit_s=60.0).stdout == b"said\n"


RUN = """
import sys
from pathlib import Path
from harness.workloads import fio
slow = {"rw": "randwrite", "bs": "4k", "size": "4m", "rate_iops": 50, "time_based": 1}
fio.run(Path(sys.argv[1]), {**slow, "runtime": 600, "numjobs": 2})
"""
PREPARE = """
import sys
from pathlib import Path
from types import SimpleNamespace
from harness.calibration import measure
from harness.calibration.jobs import Phase
target = SimpleNamespace(path=Path(sys.argv[1]), size_bytes=4 << 20, permit=lambda *_: None)
phase = Phase("steady", (), prepare="overwrite", prepared_bytes=1 << 50)
measure._prepare(phase, measure.Drive(target))
"""


@pytest.mark.root
@pytest.mark.builds
@pytest.mark.parametrize("program", [RUN, PREPARE], ids=["run", "prepare"])
@cleaning_alone
def test_nobody_writes_on_when_the_run_is_killed(tmp_path: Path, program: str) -> None:
    """And a second run on the same target would have it for itself."""
    need("fio")
    file = tmp_path / "file"
    file.write_bytes(bytes(4 << 20))
    child = subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=subprocess.DEVNULL)
    try:
        while not processes.users(file):
            assert child.poll() is None
        child.kill()
        child.wait()
        deadline = time.monotonic() + LIMIT_S
        while processes.users(file):
            assert time.monotonic() < deadline, "it is still written to"
            time.sleep(0.02)
    finally:
        child.kill()
        child.wait()
        for pid in processes.users(file):
            os.kill(pid, signal.SIGKILL)
        cleaning.clean()
