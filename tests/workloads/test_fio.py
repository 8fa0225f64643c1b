"""fio jobs: what is read from fio is what fio did."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import need

from harness.errors import DeviceError
from harness.workloads import fio


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
