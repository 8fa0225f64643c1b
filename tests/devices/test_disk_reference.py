"""The disk model equals its slow reference, command by command."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_drives import DISK_MECHANICS
from numpy.typing import NDArray
from reference.disk import ReferenceDisk

from harness import _core

READ, WRITE = 0, 1
PARAMETERS: dict[str, Any] = {**DISK_MECHANICS, "capacity_bytes": 200_000_000}
# Without a cache there is no read-ahead either; a queue of one leaves nothing to reorder.
CACHELESS: dict[str, Any] = {
    "cache_bytes": 0,
    "read_segments": 1,
    "write_cache": False,
    "destage_idle_ns": 0,
    "queue_depth": 1,
    "scheduler": "fcfs",
}

Commands = list[tuple[int, int, int]]


def replay(parameters: dict[str, Any], commands: Commands, arrivals: list[int]) -> dict[str, Any]:
    op, lba, sectors = (np.array(column) for column in zip(*commands, strict=True))
    return _core.replay(
        _core.HddParameters(**parameters, **CACHELESS),
        op.astype(np.uint8),
        lba.astype(np.int64),
        sectors.astype(np.int64),
        np.array(arrivals, dtype=np.int64),
        1,
        _core.Cancel(),
    )


def compare(parameters: dict[str, Any], commands: Commands, arrivals: list[int]) -> int:
    """Asserts that every command ends when it should; returns the number of tracks touched.

    The fast model rounds the angle of a sector, and the time of a sweep on each track, down to
    whole nanoseconds (disk/geometry.hpp): it is early by less than 1 ns for each.
    """
    result = replay(parameters, commands, arrivals)
    counters = result["counters"]
    assert counters["buffer_hits"] == counters["stream_hits"] == 0
    reference = ReferenceDisk(**parameters)
    touched = 0
    times: NDArray[np.int64] = result["completed_ns"]
    for i, (op, lba, sectors) in enumerate(commands):
        wanted = reference.serve(op == WRITE, lba, sectors, int(result["submitted_ns"][i]))
        assert 0 <= wanted.end_ns - int(times[i]) < 1 + wanted.tracks, f"command {i}"
        touched += wanted.tracks
    return touched


def random_commands(n: int, capacity_sectors: int, seed: int) -> Commands:
    """Short and long ones, near and far; every tenth goes on where the last one ended."""
    random = np.random.default_rng(seed)
    commands: Commands = []
    lba = 0
    for _ in range(n):
        sectors = int(random.choice([1, 8, 64, 500, 4000], p=[0.2, 0.4, 0.2, 0.1, 0.1]))
        near = random.random() < 0.3
        if random.random() > 0.1:
            low = max(lba - 3000, 0) if near else 0
            high = lba + 3000 if near else capacity_sectors
            lba = int(random.integers(low, max(high, low + 1)))
        lba = min(lba, capacity_sectors - sectors)
        commands.append((int(random.integers(0, 2)), lba, sectors))
        lba += sectors
    return commands


@pytest.mark.parametrize("heads", [1, 2, 5])
@pytest.mark.parametrize("zones", [1, 4])
def test_random_commands_equal_the_reference(heads: int, zones: int) -> None:
    parameters = {**PARAMETERS, "heads": heads, "zones": zones, "start_angle_ns": 123_457}
    n = 2000
    commands = random_commands(n, PARAMETERS["capacity_bytes"] // 512, seed=heads * 10 + zones)
    arrivals = np.cumsum(np.random.default_rng(zones).integers(0, 20_000_000, n)).tolist()
    assert compare(parameters, commands, arrivals) > n


def test_every_track_boundary_of_a_disk_equals_the_reference() -> None:
    """Two sectors on each side of each boundary, zones' included, forwards and backwards."""
    parameters = {**PARAMETERS, "capacity_bytes": 50_000_000, "zones": 5}
    tracks = ReferenceDisk(**parameters).tracks
    end = parameters["capacity_bytes"] // 512
    boundaries = [t.first_lba - 2 for t in tracks[1:] if t.first_lba + 2 <= end]
    commands = [(READ, lba, 4) for lba in boundaries] + [(WRITE, b, 4) for b in boundaries[::-1]]
    assert compare(parameters, commands, [0] * len(commands)) == 2 * len(commands)


def test_the_whole_disk_in_one_sweep_equals_the_reference() -> None:
    parameters = {**PARAMETERS, "capacity_bytes": 50_000_000}
    end = parameters["capacity_bytes"] // 512
    assert compare(parameters, [(READ, 0, end)], [0]) >= end // 2000


@given(
    rpm=st.sampled_from([4200, 5400, 7200, 10_000, 15_000]),
    heads=st.integers(1, 8),
    zones=st.integers(1, 9),
    outer=st.integers(20_000_000, 200_000_000),
    inner_ratio=st.floats(0.3, 1.0),
    head_switch=st.integers(0, 1_500_000),
    seeks=st.lists(st.integers(100_000, 3_900_000), min_size=3, max_size=3),
    settle=st.integers(0, 500_000),
    overhead=st.integers(0, 300_000),
    angle=st.integers(0, 3_900_000),
    seed=st.integers(0, 2**32),
)
def test_any_disk_equals_the_reference(
    rpm: int,
    heads: int,
    zones: int,
    outer: int,
    inner_ratio: float,
    head_switch: int,
    seeks: list[int],
    settle: int,
    overhead: int,
    angle: int,
    seed: int,
) -> None:
    track_to_track, average, full_stroke = sorted(seeks)
    parameters = {
        **PARAMETERS,
        "capacity_bytes": 30_000_000,
        "rpm": rpm,
        "heads": heads,
        "zones": zones,
        "outer_rate_bytes_per_s": outer,
        "inner_rate_bytes_per_s": max(int(outer * inner_ratio), 1_000_000),
        "head_switch_ns": head_switch,
        "track_to_track_seek_ns": track_to_track,
        "average_seek_ns": average,
        "full_stroke_seek_ns": full_stroke,
        "write_settle_ns": settle,
        "command_overhead_ns": overhead,
        "start_angle_ns": angle,
    }
    commands = random_commands(60, 30_000_000 // 512, seed)
    arrivals = np.cumsum(np.random.default_rng(seed).integers(0, 9_000_000, 60)).tolist()
    compare(parameters, commands, arrivals)


def test_the_reference_can_disagree() -> None:
    """A seek that is 1 % slower is seen, though the wait for the platter hides most of it."""
    slower = {**PARAMETERS, "average_seek_ns": 8_080_000}
    commands = random_commands(2000, PARAMETERS["capacity_bytes"] // 512, seed=1)
    result = replay(slower, commands, [0] * len(commands))
    reference = ReferenceDisk(**PARAMETERS)
    off = 0
    for i, (op, lba, sectors) in enumerate(commands):
        wanted = reference.serve(op == WRITE, lba, sectors, int(result["submitted_ns"][i]))
        off += abs(wanted.end_ns - int(result["completed_ns"][i])) > 1000
    assert off > 0


def test_the_reference_takes_every_mechanical_parameter() -> None:
    taken = set(inspect.signature(ReferenceDisk).parameters)
    assert taken == set(PARAMETERS)
