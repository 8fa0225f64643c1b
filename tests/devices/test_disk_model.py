"""The disk model: what its documentation says, and the invariants that hold for any disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import REPOSITORY
from hypothesis import given
from hypothesis import strategies as st
from model_drives import DISK_MECHANICS
from numpy.typing import NDArray

from harness import _core
from harness.devices.profiles import HddProfile, load_device
from harness.errors import BadParameter

READ, WRITE, TRIM, FLUSH = range(4)
REVOLUTION_NS = 60_000_000_000 // 7200
MIB = 1 << 20
SECTORS = 1_000_000_000 // 512


def disk(**options: Any) -> _core.HddParameters:
    defaults: dict[str, Any] = {
        **DISK_MECHANICS,
        "capacity_bytes": 1_000_000_000,
        "cache_bytes": 8 * MIB,
        "read_segments": 16,
        "write_cache": True,
        "destage_idle_ns": 10_000_000,
        "queue_depth": 31,
        "scheduler": "fcfs",
    }
    return _core.HddParameters(**{**defaults, **options})


def run(
    device: _core.HddParameters,
    requests: list[tuple[int, int, int]],
    arrivals: list[int] | None = None,
    depth: int = 1,
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Latencies in ns of (op, lba, sectors) requests, and everything that replay returns."""
    op, lba, sectors = (np.array(column) for column in zip(*requests, strict=True))
    result = _core.replay(
        device,
        op.astype(np.uint8),
        lba.astype(np.int64),
        sectors.astype(np.int64),
        np.array(arrivals or [0] * len(requests), dtype=np.int64),
        depth,
        _core.Cancel(),
    )
    return result["completed_ns"] - result["submitted_ns"], result


def random_lbas(n: int, sectors: int, seed: int = 1) -> list[int]:
    return [int(x) for x in np.random.default_rng(seed).integers(0, SECTORS - sectors, n)]


def test_sequential_reads_run_at_the_sustained_rate() -> None:
    requests = [(READ, i * 2048, 2048) for i in range(64)]
    _, result = run(disk(), requests, depth=4)
    rate = 64 * MIB / (result["completed_ns"][-1] / 1e9)
    assert rate == pytest.approx(100e6, rel=0.02)


@pytest.mark.parametrize("name", ["hitachi_hds721010dle630", "seagate_250gb"])
@pytest.mark.parametrize("begin", ["0", "8 sectors", "track 1", "track 1000", "odd"])
def test_sequential_writes_run_at_the_sustained_rate(name: str, begin: str) -> None:
    """Wherever they begin: also at a track's first sector, so that each track is one of them."""
    profile = load_device(REPOSITORY / "hardware" / "profiles", name)
    assert isinstance(profile, HddProfile)
    p = profile.parameters
    revolution_ns = 60_000_000_000 // p.rpm.value
    switches_ns = (p.heads.value - 1) * p.head_switch.value + p.track_to_track_seek.value
    cylinder_ns = p.heads.value * revolution_ns + switches_ns
    track = p.outer_rate.value * cylinder_ns // 10**9 // p.heads.value // 512
    first = {
        "0": 0,
        "8 sectors": 8,
        "track 1": track,
        "track 1000": 1000 * track,
        "odd": 12_345_677,
    }
    requests = [(WRITE, first[begin] + i * 2048, 2048) for i in range(512)]
    _, result = run(profile.to_core(), [*requests, (FLUSH, 0, 0)], depth=4)
    rate = 512 * MIB / (result["completed_ns"][-1] / 1e9)
    assert rate == pytest.approx(p.outer_rate.value, rel=0.05)


def test_inner_zone_is_slower() -> None:
    first = SECTORS - 200_000
    requests = [(READ, first + i * 2048, 2048) for i in range(64)]
    _, result = run(disk(), requests, depth=4)
    rate = 64 * MIB / (result["completed_ns"][-1] / 1e9)
    assert rate == pytest.approx(50e6, rel=0.03)


def test_random_reads_cost_seek_and_half_a_revolution() -> None:
    latencies, _ = run(disk(), [(READ, lba, 8) for lba in random_lbas(4000, 8)])
    distances = np.abs(np.diff([0.0, *random_lbas(4000, 8)])) / SECTORS
    assert distances.mean() == pytest.approx(1 / 3, abs=0.02)
    expected = 100_000 + 7_800_000 + REVOLUTION_NS / 2  # the mean of a concave curve is below it
    assert latencies.mean() == pytest.approx(expected, rel=0.06)


def test_rotation_is_real_time() -> None:
    """Two reads of one sector: the second waits for the platter to come round again."""
    far = 900_000
    arrivals = [0, 0, 500_000_000]
    latencies, result = run(
        disk(read_segments=1, cache_bytes=512),
        [(READ, 0, 8), (READ, far, 8), (READ, 0, 8)],
        arrivals,
    )
    landed = [int(t) - 4096 * 1000 // 250_000 for t in result["completed_ns"]]
    assert (landed[2] - landed[0]) % REVOLUTION_NS == pytest.approx(0, abs=2000)
    assert latencies[2] > 1_000_000


def test_a_cached_write_is_acknowledged_over_the_link() -> None:
    latencies, _ = run(disk(), [(WRITE, 4000, 8)])
    assert latencies[0] == 100_000 + 4096 * 4


def test_a_write_without_cache_waits_for_the_platter() -> None:
    latencies, _ = run(disk(write_cache=False), [(WRITE, lba, 8) for lba in random_lbas(200, 8)])
    assert latencies.mean() > 8_000_000


def test_flush_writes_everything_back_and_holds_what_follows() -> None:
    writes = [(WRITE, lba, 8) for lba in random_lbas(50, 8)]
    latencies, result = run(disk(), [*writes, (FLUSH, 0, 0), (READ, 77, 8)], depth=100)
    counters = result["counters"]
    assert counters["media_write_bytes"] == 50 * 4096
    assert latencies[50] > 50 * 1_000_000
    assert result["completed_ns"][51] > result["completed_ns"][50]


def test_a_flush_of_nothing_is_free() -> None:
    latencies, _ = run(disk(), [(FLUSH, 0, 0)])
    assert latencies[0] == 100_000


def test_an_idle_disk_writes_its_cache_back() -> None:
    _, result = run(disk(), [(WRITE, 4000, 8), (READ, 1_000_000, 8)], [0, 2_000_000_000])
    assert result["counters"]["media_write_bytes"] == 4096


def test_a_full_cache_makes_writes_wait() -> None:
    writes = [(WRITE, lba, 2048) for lba in random_lbas(40, 2048)]
    latencies, _ = run(disk(), writes)
    assert latencies[:7].max() < 10_000_000
    assert latencies[8:].mean() > 10_000_000


def test_rewriting_dirty_data_takes_no_more_cache() -> None:
    latencies, result = run(disk(), [(WRITE, 4000, 2048)] * 40)
    assert latencies.max() < 10_000_000
    assert result["counters"]["write_bytes"] == 40 * MIB


def test_what_was_written_is_read_from_the_cache() -> None:
    latencies, result = run(disk(), [(WRITE, 4000, 8), (READ, 4000, 8)])
    assert latencies[1] == 100_000 + 4096 * 4
    assert result["counters"]["buffer_hits"] == 1


def test_read_ahead_makes_the_next_read_a_hit() -> None:
    latencies, result = run(disk(), [(READ, 4000, 8), (READ, 4008, 8)], [0, 50_000_000])
    assert latencies[1] == 100_000 + 4096 * 4
    assert result["counters"]["buffer_hits"] == 1


def test_a_short_gap_is_passed_over() -> None:
    """Every 16th block, synchronously: as fast as reading everything, not a revolution each."""
    requests = [(READ, i * 128, 8) for i in range(2000)]
    latencies, _ = run(disk(), requests)
    passing_ns = 128 * 512 / 100e6 * 1e9
    assert latencies[100:].mean() == pytest.approx(passing_ns, rel=0.05)


def test_a_gap_of_more_than_a_track_is_jumped() -> None:
    track_sectors = 100e6 * (REVOLUTION_NS + 900_000) / 1e9 / 512
    stride = int(1.3 * track_sectors)
    latencies, _ = run(disk(heads=1), [(READ, i * stride, 8) for i in range(200)])
    assert latencies[10:].mean() < 0.6 * REVOLUTION_NS


@pytest.mark.parametrize("scheduler", ["elevator", "sptf"])
def test_a_queue_is_worth_reordering(scheduler: str) -> None:
    requests = [(READ, lba, 8) for lba in random_lbas(2000, 8)]
    _, alone = run(disk(scheduler=scheduler), requests, depth=1)
    _, queued = run(disk(scheduler=scheduler), requests, depth=31)
    gain = alone["completed_ns"].max() / queued["completed_ns"].max()
    assert gain > {"elevator": 1.5, "sptf": 2.0}[scheduler]


def test_sptf_starves_nobody() -> None:
    """What is far waits for half a second while others come that are near, and no longer."""
    near = [(READ, 1000 + 64 * i, 8) for i in range(4000)]
    requests = [near[0], (READ, SECTORS - 100, 8), *near[1:]]
    latencies, result = run(
        disk(scheduler="sptf", read_segments=1, cache_bytes=512), requests, depth=8
    )
    longest_ns = 500_000_000 + 3 * (17_000_000 + 2 * REVOLUTION_NS)
    assert 500_000_000 < latencies[1] < longest_ns
    assert result["completed_ns"].max() > 2 * longest_ns, "the others would have gone on for longer"


def test_the_head_start_angle_shifts_the_first_wait_only() -> None:
    first = [run(disk(start_angle_ns=angle), [(READ, 0, 8)])[0][0] for angle in (0, 1_000_000)]
    assert first[0] != first[1]
    assert abs(int(first[0]) - int(first[1])) <= REVOLUTION_NS


def test_unknown_scheduler_lists_the_known() -> None:
    with pytest.raises(BadParameter, match="fcfs, elevator, sptf"):
        _core.capacity_bytes(disk(scheduler="lottery"))


request = st.tuples(
    st.sampled_from([READ, READ, WRITE, WRITE, TRIM, FLUSH]),
    st.integers(0, SECTORS - 4096),
    st.integers(1, 4096),
)
nearby = st.tuples(
    st.sampled_from([READ, WRITE]), st.integers(0, 20_000), st.sampled_from([8, 64, 128, 1024])
)


@given(
    requests=st.lists(st.one_of(request, nearby), min_size=1, max_size=80),
    gaps=st.lists(st.sampled_from([0, 0, 0, 50_000, 9_000_000, 60_000_000]), min_size=80),
    depth=st.integers(1, 40),
    heads=st.integers(1, 4),
    zones=st.integers(1, 6),
    cache=st.sampled_from([0, 65536, MIB, 8 * MIB]),
    write_cache=st.booleans(),
    scheduler=st.sampled_from(["fcfs", "elevator", "sptf"]),
)
def test_every_request_completes_once_and_never_early(
    requests: list[tuple[int, int, int]],
    gaps: list[int],
    depth: int,
    heads: int,
    zones: int,
    cache: int,
    write_cache: bool,
    scheduler: str,
) -> None:
    arrivals = np.cumsum(gaps[: len(requests)]).tolist()
    parameters = disk(
        heads=heads,
        zones=zones,
        cache_bytes=cache,
        write_cache=write_cache and cache >= 4 * MIB,
        scheduler=scheduler,
    )
    fixed = [(op, lba, 0 if op == FLUSH else n) for op, lba, n in requests]
    latencies, first = run(parameters, fixed, arrivals, depth)
    assert (latencies >= 100_000).all()  # the command overhead at least
    counters = first["counters"]
    reads = sum(n for op, _, n in fixed if op == READ) * 512
    writes = sum(n for op, _, n in fixed if op == WRITE) * 512
    assert counters["read_bytes"] == reads
    assert counters["write_bytes"] == writes
    assert counters["media_write_bytes"] <= writes
    assert (
        counters["buffer_hits"] + counters["stream_hits"] + counters["media_reads"]
        == (counters["read_ios"])
    )
    _, again = run(parameters, fixed, arrivals, depth)
    assert (again["completed_ns"] == first["completed_ns"]).all()
