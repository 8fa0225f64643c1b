"""The way to a live device: how slow a drive must run for this machine to carry it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conftest import REPOSITORY

from harness.devices.live import path
from harness.devices.live.path import OpCost, PathCosts
from harness.devices.profiles import SsdProfile, load_device

PROFILES = REPOSITORY / "hardware" / "profiles"
COSTS = PathCosts(
    read=OpCost(1_000, 0.0),
    write=OpCost(1_000, 0.0),
    jitter_ns=1_000,
    drift_ns=100,
    iops=1e6,
    bytes_per_s=10e9,
)
"""Of a way that a drive of 100 us, 100,000 requests/s and 1 GB/s needs no slowdown for."""


@pytest.fixture
def ssd(monkeypatch: pytest.MonkeyPatch) -> SsdProfile:
    """A drive that asks for as much."""
    demand = path._Demand(latency_ns=100_000.0, iops=100_000.0, bytes_per_s=1e9)
    monkeypatch.setattr(path, "_demand", lambda _: demand)
    profile = load_device(PROFILES, "crucial_mx500_250gb")
    assert isinstance(profile, SsdProfile)
    return profile


@pytest.mark.parametrize(
    ("changes", "slowdown"),
    [
        ({}, 1),
        # the way's own time and its jitter, which is 1 us, in the drive's 100 us
        ({"read": OpCost(599_000, 0.0)}, 6),
        ({"write": OpCost(599_000, 0.0)}, 6),
        ({"write": OpCost(599_001, 0.0)}, 7),
        # 15 of these hide jitter
        ({"jitter_ns": 75_000}, 5),
        ({"jitter_ns": 75_001}, 6),
        # and 5 hide drift
        ({"drift_ns": 20_000}, 4),
        ({"drift_ns": 20_001}, 5),
        # 35 % of a rate is carried
        ({"iops": 100_000.0}, 3),
        ({"iops": 94_000.0}, 4),
        ({"bytes_per_s": 1e9}, 3),
        ({"bytes_per_s": 0.4e9}, 8),
    ],
)
def test_what_is_worst_of_the_way_decides(
    ssd: SsdProfile, changes: dict[str, Any], slowdown: int
) -> None:
    assert path.slowdown_for(ssd, replace(COSTS, **changes)) == slowdown


def test_a_disk_is_slow_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(path, "_demand")
    way = replace(COSTS, jitter_ns=10**9, drift_ns=10**9, iops=1.0, bytes_per_s=1.0)
    assert path.slowdown_for(load_device(PROFILES, "seagate_250gb"), way) == 1
