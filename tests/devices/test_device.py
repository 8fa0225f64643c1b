"""The Python face of a device: replays, questions, faults and changes while it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import REPOSITORY

from harness.devices.model import Device, Job
from harness.errors import BadParameter

PROFILES = REPOSITORY / "hardware" / "profiles"
MIB = 1 << 20
SPAN_SECTORS = 32 * MIB // 512
WORKING_SSD = {
    "capacity": "32 MiB",
    "overprovision": "0.6",
    "pages_per_block": "8",
    "slc_cache": "1 MiB",
    "background_idle": "5 ms",
    "write_buffer": "256 KiB",
    "jitter": "0.1",
    "streams": "3",
    "placement": "id",
    "gc_placement": "by_stream",
}


def ssd() -> Device:
    """A small drive that does everything that a drive can do; TRIM is not queued."""
    return Device.from_profile(PROFILES, "crucial_mx500_250gb", WORKING_SSD, seed=7)


def disk() -> Device:
    """A disk with a small cache."""
    return Device.from_profile(PROFILES, "hitachi_hds721010dle630", {"cache": "1 MiB"})


@dataclass(frozen=True)
class Trace:
    """Requests as columns: see harness.devices.model.TraceChunk."""

    time_ns: npt.NDArray[np.int64]
    op: npt.NDArray[np.uint8]
    lba: npt.NDArray[np.int64]
    sectors: npt.NDArray[np.int64]
    stream: npt.NDArray[np.uint16]
    fua: npt.NDArray[np.bool_]

    def piece(self, begin: int, end: int) -> Trace:
        """Requests [begin, end)."""
        columns = {f.name: getattr(self, f.name)[begin:end] for f in dataclasses.fields(self)}
        return Trace(**columns)


def requests(n: int, seed: int, gaps_ns: list[int]) -> Trace:
    """Random requests of all kinds; TRIMs and writes come in streams, some with FUA."""
    rng = np.random.default_rng(seed)
    op = rng.choice(4, n, p=[0.3, 0.55, 0.1, 0.05]).astype(np.uint8)
    sectors = np.where(op == 3, 0, rng.integers(1, 200, n))
    return Trace(
        time_ns=np.cumsum(rng.choice(gaps_ns, n)).astype(np.int64),
        op=op,
        lba=np.where(op == 3, 0, rng.integers(0, SPAN_SECTORS - 200, n)),
        sectors=sectors,
        stream=rng.integers(0, 3, n).astype(np.uint16),
        fua=(rng.random(n) < 0.1) & (op == 1),
    )


def outcome(device: Device, trace: Trace, chunks: Iterator[Trace]) -> tuple[Any, ...]:
    """Everything that a replay leaves behind, a second after the last request."""
    until_ns = int(trace.time_ns[-1]) + 1_000_000_000
    run = device.replay(chunks, until_ns=until_ns, rows=True)
    flash = device.counters.get("nand_host_bytes") is not None
    state = (device.mapping().tolist(), device.block_erases().tolist()) if flash else ()
    rows = run.rows.to_numpy().tolist()
    return rows, run.counters, device.counters, device.now_s, state


@pytest.mark.parametrize("make", [ssd, disk])
def test_questions_during_a_replay_change_nothing(make: Callable[[], Device]) -> None:
    trace = requests(1500, 3, [0, 20_000, 400_000, 2_000_000, 30_000_000])

    def whole() -> Iterator[Trace]:
        yield trace

    def in_pieces(device: Device) -> Iterator[Trace]:
        for begin in range(0, len(trace.op), 7):
            yield trace.piece(begin, begin + 7)
            if begin % 3 == 0:
                assert (np.diff(device.in_doubt()) > 0).all()
            if begin % 5 == 0:
                assert device.counters["read_ios"] >= 0

    curious = make()
    with_questions = outcome(curious, trace, in_pieces(curious))
    without = outcome(make(), trace, whole())
    assert with_questions == without
    if make is ssd:
        counters = without[1]
        for name in ("collections", "idle_collections", "nand_folded_bytes", "unmapped_bytes"):
            assert counters[name] > 0, name


@pytest.mark.parametrize("depth", [1, 32])
def test_a_board_programs_what_is_written_in_order_once(depth: int) -> None:
    """4 KiB at a time, a quarter of what its map maps."""
    board = Device.from_profile(PROFILES, "cosmos_plus_openssd")
    in_order = Job(pattern="sequential", end_bytes=64 * MIB, requests=16384, queue_depth=depth)
    assert board.run(in_order).waf <= 1.02


@pytest.mark.parametrize("policy", ["dynamic", "fixed"])
def test_an_idle_drive_folds_with_all_its_dies(policy: str) -> None:
    """8 dies of 2 planes: each reads a page of 16 KiB in 60 us and programs it in 900."""
    drive = Device.from_profile(PROFILES, "crucial_mx500_250gb", {"slc": policy})
    in_order = Job(
        pattern="sequential", block_bytes=MIB, end_bytes=1024 * MIB, requests=1024, queue_depth=8
    )
    drive.run(in_order)
    drive.idle(0.1)
    before = drive.counters["nand_folded_bytes"]
    drive.idle(1.0)
    folded = drive.counters["nand_folded_bytes"] - before
    assert 0.5 < folded / (8 * 2 * 16384 / 960e-6) <= 1.0


def test_a_replay_ends_when_it_is_told_and_not_before() -> None:
    device = disk()
    trace = requests(20, 1, [1_000_000])
    device.idle(0.5)
    end = device.replay([trace], until_ns=7_000_000_000).end_ns
    assert device.now_s == 7.5
    assert end < 7_500_000_000
    late = disk()
    run = late.replay([trace], until_ns=0)
    assert late.now_s >= run.end_ns / 1e9 > 0.02


@pytest.mark.parametrize("make", [ssd, disk])
def test_what_is_in_doubt_is_what_a_cut_takes(make: Callable[[], Device]) -> None:
    device = make()
    device.replay([requests(300, 5, [0, 20_000])])
    device.run(Job(op="write", requests=20, queue_depth=20))
    before = device.counters
    doubt = device.in_doubt()
    assert len(doubt) > 3
    assert device.counters == before
    assert np.array_equal(device.in_doubt(), doubt)
    assert np.array_equal(device.power_cut(), doubt)
    assert len(device.in_doubt()) == 0


def test_counters_are_those_of_now() -> None:
    """What the dies have begun by now is counted, though nobody waited for it."""
    device = ssd()
    device.run(Job(op="write", pattern="sequential", block_bytes=MIB // 8, requests=1))
    device.idle(0.004)
    whole = device.counters
    assert whole["die_host_program_ns"] > 4 * 100_000
    device.in_doubt()
    assert device.counters == whole


def test_trim_can_be_switched_off_and_on() -> None:
    device = ssd()
    assert device.trim_policy == "immediate"
    device.run(Job(op="write", pattern="sequential", block_bytes=MIB, requests=8))
    mapped = np.count_nonzero(device.mapping() >= 0)
    trim = Job(op="trim", pattern="sequential", block_bytes=MIB, requests=4)
    device.set_trim_policy("none")
    device.run(trim)
    assert np.count_nonzero(device.mapping() >= 0) == mapped
    with pytest.raises(BadParameter, match="known: none, immediate"):
        device.set_trim_policy("later")
    other = ssd()
    other.restore(device.save())
    assert (device.trim_policy, other.trim_policy) == ("none", "none")
    device.set_trim_policy("immediate")
    device.run(trim)
    assert np.count_nonzero(device.mapping() >= 0) == mapped // 2


def test_a_slow_die_slows_the_requests_that_need_it() -> None:
    def quantiles(factor: float) -> tuple[float, float]:
        device = ssd()
        device.precondition(fill_ratio=1.0)
        device.slow_die(3, factor)
        run = device.run(Job(op="read", requests=2000))
        return run.latency_ns("read", 0.5), run.latency_ns("read", 0.95)

    (median, high), (slow_median, slow_high) = quantiles(1.0), quantiles(20.0)
    assert slow_median == pytest.approx(median, rel=0.05)  # one die of eight
    assert slow_high > high + 15 * 60_000


@pytest.mark.parametrize(("die", "factor"), [(8, 2.0), (-1, 2.0), (0, 0.5), (0, float("nan"))])
def test_a_die_that_cannot_be_slow_is_refused(die: int, factor: float) -> None:
    with pytest.raises(BadParameter, match="die"):
        ssd().slow_die(die, factor)


def test_a_disk_has_neither_a_trim_policy_nor_dies() -> None:
    device = disk()
    for ask in (
        lambda: device.set_trim_policy("none"),
        lambda: device.trim_policy,
        lambda: device.slow_die(0, 2.0),
    ):
        with pytest.raises(BadParameter, match="hard disk"):
            ask()
