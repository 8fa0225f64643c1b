"""The flash model: sums of documented costs, rates, overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from harness import _core
from harness.devices.profiles import SsdProfile, load_device
from harness.errors import BadParameter
from harness.paths import Project

READ, WRITE, TRIM, FLUSH = range(4)
MIB = 1 << 20
PAGE = 4096


def drive(**options: Any) -> _core.SsdParameters:
    defaults: dict[str, Any] = {
        "capacity_bytes": 64 * MIB,
        "page_bytes": PAGE,
        "channels": 4,
        "dies_per_channel": 2,
        "read_page_ns": 25_000,
        "program_page_ns": 200_000,
        "channel_rate_bytes_per_s": 409_600_000,
        "link_rate_bytes_per_s": 256_000_000,
        "command_time_ns": 10_000,
        "write_latency_ns": 20_000,
        "write_buffer_bytes": 64 * PAGE,
        "queue_depth": 31,
    }
    return _core.SsdParameters(**{**defaults, **options})


def run(
    device: _core.SsdParameters, requests: list[tuple[int, int, int]], depth: int = 1
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    op, lba, sectors = (np.array(column) for column in zip(*requests, strict=True))
    result = _core.replay(
        device,
        op.astype(np.uint8),
        lba.astype(np.int64),
        sectors.astype(np.int64),
        np.zeros(len(requests), dtype=np.int64),
        depth,
        _core.Cancel(),
    )
    return result["completed_ns"] - result["submitted_ns"], result


def bytes_per_s(requests: list[tuple[int, int, int]], result: dict[str, Any]) -> float:
    return sum(n for _, _, n in requests) * 512 / (int(result["completed_ns"].max()) / 1e9)


def test_a_read_is_the_sum_of_its_parts() -> None:
    latencies, _ = run(drive(), [(READ, 0, 8)])
    assert latencies[0] == 10_000 + 25_000 + 10_000 + 16_000  # command, tR, channel, link


def test_a_write_is_acknowledged_from_the_buffer() -> None:
    latencies, _ = run(drive(), [(WRITE, 0, 8)])
    assert latencies[0] == 10_000 + 16_000 + 20_000


def test_reads_of_different_dies_overlap_and_of_one_die_queue() -> None:
    apart = [(READ, i * 8, 8) for i in range(8)]
    together = [(READ, i * 64, 8) for i in range(8)]
    _, spread = run(drive(command_time_ns=0), apart, depth=8)
    _, queued = run(drive(command_time_ns=0), together, depth=8)
    assert queued["completed_ns"].max() >= 8 * 35_000
    assert spread["completed_ns"].max() < 0.7 * queued["completed_ns"].max()


def test_the_command_processor_limits_small_reads() -> None:
    requests = [(READ, 8 * i, 8) for i in range(4000)]
    _, result = run(drive(command_time_ns=50_000), requests, depth=31)
    assert bytes_per_s(requests, result) == pytest.approx(PAGE / 50e-6, rel=0.02)


def test_the_link_limits_large_reads() -> None:
    requests = [(READ, 2048 * i, 2048) for i in range(60)]
    _, result = run(drive(), requests, depth=4)
    assert bytes_per_s(requests, result) == pytest.approx(256e6, rel=0.02)


def test_programming_limits_sustained_writes() -> None:
    requests = [(WRITE, 256 * i, 256) for i in range(400)]
    _, result = run(drive(program_page_ns=1_000_000), requests, depth=8)
    assert bytes_per_s(requests, result) == pytest.approx(8 * PAGE / 1.01e-3, rel=0.05)


def test_a_flush_waits_for_what_is_buffered() -> None:
    latencies, _ = run(drive(), [(WRITE, 0, 8), (FLUSH, 0, 0)], depth=2)
    assert latencies[1] >= 200_000


def test_data_sheet_of_the_x25e(project: Project) -> None:
    """The four numbers of the data sheet that the profile was fitted to come out of the model."""
    profile = load_device(project.profiles, "intel_x25e_32gb")
    assert isinstance(profile, SsdProfile)
    x25e = profile.to_core()
    random = np.random.default_rng(1).integers(0, 32_000_000_000 // PAGE - 1, 20_000) * 8
    read_latency, _ = run(x25e, [(READ, int(lba), 8) for lba in random[:500]])
    write_latency, _ = run(x25e, [(WRITE, int(lba), 8) for lba in random[:500]])
    assert read_latency.mean() == pytest.approx(75_000, rel=0.1)
    assert write_latency.mean() == pytest.approx(85_000, rel=0.1)
    reads = [(READ, int(lba), 8) for lba in random]
    assert bytes_per_s(reads, run(x25e, reads, 31)[1]) / PAGE == pytest.approx(35_000, rel=0.05)
    sequential = [(READ, 256 * i, 256) for i in range(4000)]
    assert bytes_per_s(sequential, run(x25e, sequential, 31)[1]) == pytest.approx(250e6, rel=0.05)
    writes = [(WRITE, 256 * i, 256) for i in range(4000)]
    assert bytes_per_s(writes, run(x25e, writes, 31)[1]) == pytest.approx(170e6, rel=0.05)


@pytest.mark.parametrize(
    "options",
    [
        {"page_bytes": 1000},
        {"channels": 0},
        {"dies_per_channel": 100},
        {"read_page_ns": 0},
        {"write_buffer_bytes": 512},
        {"queue_depth": 0},
        {"capacity_bytes": PAGE + 512},
    ],
)
def test_impossible_drives(options: dict[str, int]) -> None:
    with pytest.raises(BadParameter):
        _core.capacity_bytes(drive(**options))


@given(
    requests=st.lists(
        st.tuples(
            st.sampled_from([READ, WRITE, TRIM, FLUSH]),
            st.integers(0, 64 * MIB // 512 - 1024),
            st.integers(1, 1024),
        ),
        min_size=1,
        max_size=100,
    ),
    depth=st.integers(1, 64),
)
def test_every_request_completes_and_repeats(
    requests: list[tuple[int, int, int]], depth: int
) -> None:
    fixed = [(op, lba, 0 if op == FLUSH else n) for op, lba, n in requests]
    latencies, first = run(drive(), fixed, depth)
    assert (latencies >= 10_000).all()
    counters = first["counters"]
    assert counters["page_programs"] * PAGE >= counters["write_bytes"]
    assert counters["page_reads"] * PAGE >= counters["read_bytes"]
    assert (run(drive(), fixed, depth)[1]["completed_ns"] == first["completed_ns"]).all()
