"""Block traces of runs of one checkout that are at work at the same time."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import loop_device, need

from harness.benchmarks.power_cuts import direct
from harness.probes import bpftrace
from harness.system import leases
from harness.tiers.block_traces import Recording, Traces

KIB = 1 << 10


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[list[Path]]:
    """Two."""
    with ExitStack() as stack:
        folders = [tmp_path / name for name in ("one", "other")]
        for folder in folders:
            folder.mkdir()
        yield [stack.enter_context(loop_device(folder, 16 << 20)) for folder in folders]


@pytest.mark.root
def test_each_of_two_runs_ends_with_its_own(tmp_path: Path, devices: list[Path]) -> None:
    """The second begins when the first has recorded something and is not done."""
    need("bpftrace")
    place = tmp_path / "block_traces"
    sizes = [4 * KIB, 64 * KIB]
    with closing(Traces(place)) as one, closing(Traces(place)) as other:
        recordings = []
        for traces, device, size in zip((one, other), devices, sizes, strict=True):
            recordings.append(Recording(traces.new_file()))
            recordings[-1].begin(device)
            write(device, size)
        for recording in recordings:
            recording.end()
        assert [written_bytes(recording.path) for recording in recordings] == sizes
    assert list(place.iterdir()) == []


def write(device: Path, size: int) -> None:
    with direct(device) as fd, mmap.mmap(-1, size) as zeros:
        os.pwrite(fd, zeros, 0)


def written_bytes(trace: Path | None) -> int:
    assert trace is not None
    table = pq.read_table(trace).to_pandas()
    return int(table[table.op == "write"].sectors.sum()) * 512


def test_the_trace_of_the_point_before_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bpftrace, "program", lambda: "bpftrace")
    monkeypatch.setattr(leases, "_root", lambda: tmp_path / "leases")
    with closing(Traces(tmp_path / "traces")) as traces:
        first = traces.new_file()
        assert first is not None
        first.touch()
        second = traces.new_file()
        assert second is not None
        assert not second.exists()
