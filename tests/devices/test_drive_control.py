"""What can be done to a flash drive does the same whatever holds the drive, or nothing at all."""

from __future__ import annotations

import os
from typing import Any

import pytest
from model_drives import flash_parameters

from harness import _core
from harness.errors import BadParameter

RANGE = ("log", 0, 1 << 20, 0)


def in_virtual_time() -> _core.Device:
    return _core.Device(flash_parameters(trim="immediate"))


@pytest.fixture
def live() -> _core.LiveDevice:
    parameters = flash_parameters(trim="immediate")
    capacity = _core.capacity_bytes(parameters)
    store = os.memfd_create("store")
    os.ftruncate(store, capacity + (64 << 20))
    return _core.LiveDevice(parameters, store_fd=store, visible_bytes=capacity)


@pytest.fixture(params=["virtual", "live"])
def holder(request: pytest.FixtureRequest, live: _core.LiveDevice) -> Any:
    return in_virtual_time() if request.param == "virtual" else live


def saved(holder: Any) -> bytes:
    state = holder.save() if isinstance(holder, _core.Device) else holder.save(then_record=False)
    assert isinstance(state, bytes)
    return state


def counters(holder: Any) -> Any:
    return holder.counters() if isinstance(holder, _core.Device) else holder.snapshot()["device"]


@pytest.mark.parametrize("factor", [0.999, 0.0, -1.0, 1000.1, float("nan"), float("inf")])
def test_a_die_is_not_slowed_by_an_impossible_factor(holder: Any, factor: float) -> None:
    with pytest.raises(BadParameter, match="1 to 1000 times as slow"):
        holder.slow_die(0, factor)


def test_a_die_that_is_not_there_is_not_slowed(holder: Any) -> None:
    with pytest.raises(BadParameter, match="the drive has dies 0 to"):
        holder.slow_die(1 << 20, 2.0)
    holder.slow_die(0, 1000.0)
    holder.slow_die(0, 1.0)


def test_a_state_that_does_not_fit_changes_nothing(holder: Any) -> None:
    older = saved(holder)
    holder.precondition(fill_ratio=1.0, overwrites=0.5, seed=3)
    holder.set_ranges([RANGE])
    holder.set_trim_policy("none")
    before = saved(holder)
    for damaged in (b"", older[: len(older) // 2], older[:-1], older + b"\0"):
        with pytest.raises(BadParameter, match="saved state"):
            holder.restore(damaged)
        assert saved(holder) == before
    holder.restore(older)
    assert saved(holder) == older
    holder.restore(before)
    assert saved(holder) == before


def test_a_change_that_fails_is_none(holder: Any) -> None:
    holder.set_ranges([RANGE])
    before = saved(holder)
    for change, arguments in (
        ("set_ranges", ([("odd", 0, 513, 0)],)),
        ("set_ranges", ([("far", 0, 1 << 60, 0)],)),
        ("set_trim_policy", ("unheard_of",)),
    ):
        with pytest.raises(BadParameter):
            getattr(holder, change)(*arguments)
    with pytest.raises(BadParameter, match="fill_ratio"):
        holder.precondition(fill_ratio=2.0, overwrites=0.0, seed=0)
    assert saved(holder) == before
    assert counters(holder)["write_ios"] == 0


def test_under_a_host_ranges_are_checked_the_same() -> None:
    host = _core.HostParameters(
        cores=1,
        submit_cpu_ns=0,
        complete_cpu_ns=0,
        max_request_bytes=1 << 20,
        io_scheduler="none",
    )
    storage = _core.VirtualStorage(flash_parameters(), host)
    storage.set_ranges([RANGE])
    assert len(storage.range_shares()) == 2
    with pytest.raises(BadParameter, match="range odd: must begin and end at a multiple of 512 B"):
        storage.set_ranges([("odd", 0, 513, 0)])
    assert len(storage.range_shares()) == 2
