"""TRIM policies through Python: one command of many ranges, and what must not have changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import REPOSITORY

from harness.devices.model import Device, Job
from harness.errors import BadParameter

PROFILES = REPOSITORY / "hardware" / "profiles"
SMALL = {"capacity": "1 GiB", "pages_per_block": "16"}

THEN = {
    "crucial_mx500_250gb": {
        "slc": "fixed",
        "slc_cache": "8 GiB",
        "background_idle": "100 ms",
        "trim_command_time": "2.65 ms",
    }
}
"""Their caches as they were then, when these are emptied, and what was fitted to a paper."""


def device(profile: str = "daisyplus_openssd", **overrides: str) -> Device:
    return Device.from_profile(PROFILES, profile, {**SMALL, **overrides}, seed=3)


def mixed(requests: int = 30_000, **changes: Any) -> Job:
    settings = {"read_ratio": 0.3, "trim_ratio": 0.2, "pattern": "hot_cold", "block_bytes": 16384}
    return Job(**{**settings, "requests": requests, "queue_depth": 8, "seed": 5, **changes})


@pytest.mark.parametrize(
    ("profile", "policy", "expected"),
    [
        ("samsung_840pro_256gb", "none", (3616139171, 9742895253, 943448064, 33412018460)),
        ("samsung_840pro_256gb", "immediate", (4078757321, 10205513403, 823980032, 32061111893)),
        ("crucial_mx500_250gb", "none", (6240323295, 12367063881, 949592064, 34174534551)),
        ("crucial_mx500_250gb", "immediate", (18889290570, 25016031156, 887083008, 32821956899)),
    ],
)
def test_policies_that_put_nothing_off_are_as_they_were(
    profile: str, policy: str, expected: tuple[int, ...]
) -> None:
    """To the nanosecond and the slot, as the model was before any policy could put work off.

    But that a flush waits for the data of a write that it overtakes, that all dies work while the
    drive is idle, that the page which is programmed first makes room in the buffer, and that
    nothing goes beside a flush, which is no NCQ command either.
    """
    drive = device(profile, trim=policy, **THEN.get(profile, {}))
    drive.precondition(fill_ratio=0.9, overwrites=0.5, seed=1)
    busy = drive.run(mixed(flush_every=500))
    calm = Job(
        read_ratio=0.2, trim_ratio=0.3, interval_s=0.004, poisson=True, requests=1500, seed=6
    )
    slow = drive.run(calm)
    drive.idle(1.0)
    found = (busy.end_ns, slow.end_ns, drive.counters["nand_write_bytes"], drive.mapping().sum())
    assert found == expected
    assert not any("idle" in name and "trim" in name for name in drive.counters)


def test_one_command_of_many_ranges() -> None:
    drive = device()
    drive.precondition(fill_ratio=1.0)
    size = 16 << 10
    ranges = [(2 * i * size, (2 * i + 1) * size) for i in range(256)]
    latency_ns = drive.trim(ranges)
    assert latency_ns == drive.counters["firmware_command_ns"] + sum(
        drive.counters[f"firmware_trim_{part}_ns"] for part in ("command", "buffer", "map")
    )
    assert drive.counters["trim_ranges"] == drive.counters["trim_slices"] == 256
    gone = drive.mapping()[:512] < 0
    assert (gone == (np.arange(512) % 2 == 0)).all()


def test_a_command_that_the_drive_does_not_take_leaves_it_usable() -> None:
    drive = device()
    for ranges in ([], [(0, 512)] * 257, [(0, 0)], [(512, drive.capacity_bytes + 512)], [(1, 512)]):
        with pytest.raises(BadParameter):
            drive.trim(ranges)
    assert drive.run(mixed(100)).ios == 100
    assert drive.trim([(0, 1 << 20)]) > 0


@pytest.mark.parametrize("policy", ["immediate", "delayed"])
def test_the_parts_of_the_cost_are_the_same_whenever_they_are_paid(policy: str) -> None:
    drive = device(trim=policy)
    drive.precondition(fill_ratio=1.0)
    drive.trim([(0, 100 << 20)])
    drive.idle(1.0)
    slices, profile = (100 << 20) // (16 << 10), drive.profile.parameters
    for part in ("buffer", "map"):
        each_ns = getattr(profile, f"trim_{part}_time").value
        assert drive.counters[f"firmware_trim_{part}_ns"] == slices * each_ns
    assert drive.counters["unmapped_bytes"] == 100 << 20


def test_what_is_pending_goes_with_the_saved_state() -> None:
    drive = device(trim="delayed")
    drive.precondition(fill_ratio=1.0)
    drive.trim([(0, 100 << 20)])
    assert drive.counters["trim_pending_ranges"] == 1
    other = device(trim="immediate")
    other.restore(drive.save())
    assert other.trim_policy == "delayed"
    for each in (drive, other):
        each.idle(1.0)
    assert other.counters == drive.counters
    assert (other.mapping() == drive.mapping()).all()


def test_replay_of_a_delayed_drive_is_the_same_drive() -> None:
    rows = device(trim="delayed").run(mixed(5000), rows=True)
    again = device(trim="delayed").run(mixed(5000))
    assert rows.end_ns == again.end_ns
    assert rows.counters == again.counters


def test_a_smaller_capacity_of_tables_changes_nothing_that_is_left() -> None:
    drives = [
        device(trim="immediate"),
        device(trim="delayed"),
        device(trim="delayed", trim_pending_ranges="4", trim_list_entries="2"),
        device(trim="delayed", trim_merge="true", trim_step="64"),
    ]
    for drive in drives:
        drive.run(mixed(20_000, queue_depth=1))
        drive.idle(10.0)
    first, *others = [drive.mapping() < 0 for drive in drives]
    for other in others:
        assert (other == first).all()
    assert drives[2].counters["trim_full_tables"] > 0
    assert drives[2].counters["trim_forgotten_blocks"] == 0
