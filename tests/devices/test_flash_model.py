"""The flash model: sums of documented costs, rates, housekeeping, wear, preconditioning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_drives import (
    FLASH,
    FLUSH,
    MIB,
    MS,
    PAGE,
    READ,
    TRIM,
    UNIT,
    UNIT_SECTORS,
    WRITE,
    Io,
    drive,
    erases,
    feed,
    iops,
    job,
    latency,
    mapping,
    power_cut,
    replay,
    run,
    waf,
)

from harness import _core
from harness.errors import BadParameter, HarnessError

# The parts that the documentation of harness/core/flash names, in ns.
COMMAND, LINK, READ_LATENCY, WRITE_LATENCY = 5_000, 4_000, 7_000, 3_000
SENSE, PROGRAM, SLC_PROGRAM, ERASE = 50_000, 500_000, 200_000, 3 * MS
CHANNEL_UNIT, CHANNEL_PAGE = 10_000, 40_000
DIES = 4


def unit(i: int, n: int = 1) -> tuple[int, int]:
    """LBA and sectors of units [i, i + n)."""
    return i * UNIT_SECTORS, n * UNIT_SECTORS


def filled(**changes: Any) -> _core.Device:
    device = drive(**changes)
    device.precondition(fill_ratio=1.0, overwrites=0.0, seed=0)
    return device


# --- single requests: exactly the sum of the parts


def test_a_read_is_the_sum_of_its_parts() -> None:
    whole = COMMAND + SENSE + CHANNEL_UNIT + LINK + READ_LATENCY
    assert latency(filled(), Io(READ)) == whole


def test_neighbours_on_one_page_are_one_read() -> None:
    device = filled()
    whole = COMMAND + SENSE + 4 * (CHANNEL_UNIT + LINK) + READ_LATENCY
    assert latency(device, Io(READ, *unit(0, 4))) == whole
    assert device.counters()["page_reads"] == 1


def test_pages_of_different_dies_are_read_at_once() -> None:
    # Two pages on two channels: their transfers share nothing but the link.
    whole = COMMAND + SENSE + CHANNEL_PAGE + 2 * 4 * LINK + READ_LATENCY
    assert latency(filled(), Io(READ, *unit(0, 8))) == whole


def test_reading_what_was_never_written_costs_no_flash() -> None:
    device = drive()
    assert latency(device, Io(READ)) == COMMAND + LINK + READ_LATENCY
    assert device.counters()["unmapped_reads"] == 1
    assert device.counters()["page_reads"] == 0


def test_a_write_is_acknowledged_from_the_buffer() -> None:
    assert latency(drive(), Io(WRITE, *unit(0))) == COMMAND + LINK + WRITE_LATENCY
    assert latency(drive(), Io(WRITE, *unit(0, 8))) == COMMAND + 8 * LINK + WRITE_LATENCY


def test_what_is_in_the_buffer_is_read_from_there() -> None:
    device = drive()
    hit = latency(device, Io(WRITE), Io(READ))
    assert hit == COMMAND + LINK + READ_LATENCY
    assert device.counters()["buffer_hits"] == 1


def test_a_flush_programs_what_is_buffered() -> None:
    assert latency(drive(), Io(FLUSH)) == COMMAND
    device = drive()
    assert latency(device, Io(WRITE), Io(FLUSH)) == COMMAND + CHANNEL_PAGE + PROGRAM
    assert device.counters()["nand_padded_bytes"] == PAGE - UNIT
    assert latency(device, Io(FLUSH)) == COMMAND


def test_a_direct_write_is_acknowledged_when_it_is_programmed() -> None:
    whole = COMMAND + LINK + WRITE_LATENCY + CHANNEL_PAGE + PROGRAM
    assert latency(drive(), Io(WRITE, fua=True)) == whole


def test_power_loss_protection_makes_flush_and_direct_writes_free() -> None:
    device = drive(power_loss_protection=True)
    assert latency(device, Io(WRITE), Io(FLUSH)) == COMMAND
    assert latency(device, Io(WRITE, fua=True)) == COMMAND + LINK + WRITE_LATENCY
    assert device.counters()["page_programs"] == 0
    assert power_cut(device) == []


@pytest.mark.parametrize(
    ("lba", "sectors", "slices"), [(0, 32, 1), (0, 64, 2), (16, 32, 2), (8, 8, 1), (31, 2, 2)]
)
def test_a_trim_costs_command_range_and_slices(lba: int, sectors: int, slices: int) -> None:
    whole = COMMAND + 900 + 600 + slices * (40 + 60)
    device = filled()
    assert latency(device, Io(TRIM, lba, sectors)) == whole
    assert device.counters()["trim_slices"] == slices


def test_a_drive_without_trim_forgets_nothing() -> None:
    device = filled(trim="none")
    before = mapping(device)
    assert latency(device, Io(TRIM, 0, 64)) == COMMAND
    assert np.array_equal(mapping(device), before)


def test_a_trim_forgets_whole_units_only() -> None:
    device = filled()
    replay(device, [Io(TRIM, 4, 24)])  # half of unit 0, all of 1 and 2, half of 3
    assert list(np.flatnonzero(mapping(device) < 0)) == [1, 2]
    assert device.counters()["unmapped_bytes"] == 2 * UNIT


def test_a_queued_trim_occupies_the_firmware_only() -> None:
    slow = {"trim_map_time_ns": MS}
    for queued, waits in ((True, COMMAND), (False, 0)):
        device = filled(trim_queued=queued, **slow)
        rows = replay(device, [Io(READ, 64), Io(TRIM, 0, 32), Io(READ, 128)], depth=3)
        ends = dict(zip(rows.lba, rows.latency_ns, strict=True))
        first = COMMAND + SENSE + CHANNEL_UNIT + LINK + READ_LATENCY
        assert ends[64] == first
        start = waits or first  # behind the first command, or behind its end
        trimmed = start + COMMAND + 1500 + 40 + MS
        assert ends[0] == trimmed
        assert ends[128] == trimmed + first


# --- partial units, planes


def test_a_part_of_a_unit_needs_the_rest_of_it() -> None:
    device = filled(map_unit_bytes=PAGE)
    assert latency(device, Io(WRITE, 0, 8)) == COMMAND + LINK + WRITE_LATENCY
    assert device.counters()["merge_reads"] == 0
    flushed = latency(device, Io(FLUSH))
    # The merge read begins with the flush; the page is programmed when it has ended.
    merged = COMMAND + SENSE + CHANNEL_PAGE
    assert flushed == merged + CHANNEL_PAGE + PROGRAM
    assert device.counters()["merge_reads"] == 1


def test_the_program_waits_for_every_merge_read_of_its_page() -> None:
    device = filled()
    replay(device, [Io(WRITE, 32, 4), Io(WRITE, 40, 4)])  # of units of one die
    merged = COMMAND + 2 * (SENSE + CHANNEL_UNIT)
    assert latency(device, Io(FLUSH)) == merged + CHANNEL_PAGE + PROGRAM


@pytest.mark.parametrize("full", [False, True])
def test_a_unit_that_is_written_in_parts_is_programmed_once(full: bool) -> None:
    device = filled(map_unit_bytes=PAGE) if full else drive(map_unit_bytes=PAGE)
    replay(device, [Io(WRITE, *unit(i)) for i in range(32)])
    replay(device, [Io(WRITE, *unit(i)) for i in reversed(range(32, 64))])
    replay(device, [Io(FLUSH)])
    counters = device.counters()
    assert counters["nand_write_bytes"] == counters["write_bytes"] == 64 * UNIT
    assert counters["page_programs"] == 16
    assert counters["merge_reads"] == counters["coalesced_bytes"] == 0


def test_whole_units_and_new_ones_need_no_merge() -> None:
    device = drive(map_unit_bytes=PAGE)
    replay(device, [Io(WRITE, 0, 8), Io(WRITE, 32, 32), Io(FLUSH), Io(WRITE, 32, 32)])
    assert device.counters()["merge_reads"] == 0


def test_planes_are_programmed_at_once() -> None:
    single = {"capacity_bytes": 16 * MIB, "program_page_ns": 4 * MS}
    jobs = {"pattern": "sequential", "block_bytes": 2 * PAGE, "requests": 256, "queue_depth": 8}
    one = run(drive(**single), jobs)
    two = run(drive(**single, planes=2, pages_per_block=8), jobs)
    assert iops(two) == pytest.approx(2 * iops(one), rel=0.03)


# --- rates


def test_the_command_processor_limits_small_reads() -> None:
    device = filled(command_time_ns=50_000, dies_per_channel=4, pages_per_block=8)
    result = run(device, {"read_ratio": 1.0, "requests": 4000, "queue_depth": 32})
    assert iops(result) == pytest.approx(1e9 / 50_000, rel=0.02)


def test_the_link_limits_large_reads() -> None:
    device = filled(link_rate_bytes_per_s=100_000_000)
    job = {"pattern": "sequential", "read_ratio": 1.0, "block_bytes": MIB, "requests": 48}
    assert iops(run(device, {**job, "queue_depth": 4})) * MIB == pytest.approx(100e6, rel=0.02)


def test_the_channels_limit_large_reads() -> None:
    device = filled(channel_rate_bytes_per_s=50_000_000)
    job = {"pattern": "sequential", "read_ratio": 1.0, "block_bytes": MIB, "requests": 48}
    assert iops(run(device, {**job, "queue_depth": 8})) * MIB == pytest.approx(2 * 50e6, rel=0.02)


def test_the_cells_limit_reads() -> None:
    device = filled(read_page_ns=MS)
    job = {"pattern": "sequential", "read_ratio": 1.0, "block_bytes": MIB, "requests": 32}
    rate = DIES * PAGE / (MS + CHANNEL_PAGE) * 1e9
    assert iops(run(device, {**job, "queue_depth": 8})) * MIB == pytest.approx(rate, rel=0.03)


def test_programming_limits_writes() -> None:
    job = {"pattern": "sequential", "block_bytes": 64 * 1024, "requests": 256, "queue_depth": 8}
    rate = DIES * PAGE / (PROGRAM + CHANNEL_PAGE) * 1e9
    assert iops(run(drive(), job)) * 65536 == pytest.approx(rate, rel=0.07)


def test_the_buffer_takes_a_burst_and_no_more() -> None:
    writes = [Io(WRITE, *unit(4 * i, 4)) for i in range(20)]
    rows = replay(drive(), writes)
    quick = COMMAND + 4 * LINK + WRITE_LATENCY
    assert (rows.latency_ns[:16] == quick).all()
    assert rows.latency_ns[16] > 5 * quick


def test_a_write_is_acknowledged_when_all_of_it_is_in_the_buffer() -> None:
    """Its last unit replaces one that waits to be programmed; its first has to wait for room."""
    device = drive()
    replay(device, [Io(WRITE, *unit(4 * i, 4)) for i in range(15)])
    replay(device, [Io(WRITE, *unit(601, 4))])  # now it is full
    waited = latency(device, Io(WRITE, *unit(600, 2)))
    assert device.counters()["coalesced_bytes"] == UNIT
    assert waited > PROGRAM / 10


# --- housekeeping


def test_an_slc_cache_is_fast_until_it_is_full_and_is_folded_when_idle() -> None:
    device = drive(slc_cache_bytes=2 * MIB)
    job = {"pattern": "sequential", "block_bytes": 64 * 1024, "queue_depth": 8}
    fast = run(device, {**job, "requests": 32})
    slow = run(device, {**job, "begin_bytes": 2 * MIB, "requests": 64})
    assert iops(fast) > 1.8 * iops(slow)
    assert device.counters()["slc_programs"] == 2 * MIB // PAGE
    assert device.counters()["nand_folded_bytes"] == 0
    device.idle(10_000 * MS)
    assert device.counters()["nand_folded_bytes"] == 2 * MIB
    again = run(device, {**job, "requests": 32})
    assert iops(again) == pytest.approx(iops(fast), rel=0.02)


def test_padding_takes_slc_cache_too() -> None:
    device = drive(slc_cache_bytes=4 * PAGE)
    for i in range(6):
        replay(device, [Io(WRITE, *unit(i)), Io(FLUSH)])
    assert device.counters()["slc_programs"] == 4


def test_an_idle_drive_collects_ahead() -> None:
    device = drive(background_gc=True, background_target=3)
    device.to_steady_state(0)
    device.idle(20_000 * MS)
    collected = device.counters()["idle_collections"]
    assert collected > 0
    assert device.counters()["collections"] == collected
    run(device, {"requests": 300})
    assert device.counters()["collections"] == collected
    lazy = drive()
    lazy.to_steady_state(0)
    run(lazy, {"requests": 300})
    assert lazy.counters()["collections"] > 0


def test_a_read_goes_before_background_work_that_has_not_begun() -> None:
    device = drive(background_gc=True, background_target=3, read_page_ns=SENSE)
    device.to_steady_state(0)
    rng = np.random.default_rng(0)
    units = rng.integers(0, 4096, 200)
    reads = [Io(READ, *unit(int(u)), time_ns=2 * MS + i * 3 * MS) for i, u in enumerate(units)]
    rows = replay(device, reads, depth=0)
    whole = COMMAND + SENSE + CHANNEL_UNIT + LINK + READ_LATENCY
    assert device.counters()["idle_collections"] > 0
    # At most one operation that has begun on its die: an erase, the longest. Not a whole block.
    assert rows.latency_ns.max() <= whole + ERASE + CHANNEL_PAGE
    assert (rows.latency_ns > whole).any()


def hot_and_cold(streams: int, placement: str) -> float:
    device = drive(
        streams=streams, placement=placement, gc_placement="by_stream", overprovision_ratio=0.5
    )
    device.precondition(fill_ratio=1.0, overwrites=0.0, seed=0)
    hot = {"end_bytes": 2 * MIB, "requests": 20_000, "queue_depth": 8, "stream": 1}
    cold = {"begin_bytes": 2 * MIB, "requests": 20_000, "queue_depth": 1, "seed": 1}
    cold |= {"interval_ns": 2 * MS, "requests": 4000}
    run(device, {**hot, "interval_ns": MS // 5}, cold)
    device.reset_counters()
    run(device, {**hot, "interval_ns": MS // 5, "seed": 3}, {**cold, "seed": 4})
    return waf(device)


def test_streams_that_separate_hot_from_cold_lower_write_amplification() -> None:
    assert hot_and_cold(2, "id") < 0.9 * hot_and_cold(2, "none")


def test_placement_by_range_is_placement_by_id_of_the_same_data() -> None:
    ranges = [("hot", 0, 2 * MIB, 1)]
    maps = []
    for placement, streams in (("range", (0, 0)), ("id", (1, 0))):
        device = drive(streams=2, placement=placement, ranges=ranges)
        jobs = [
            {"end_bytes": 2 * MIB, "requests": 3000, "stream": streams[0]},
            {"begin_bytes": 2 * MIB, "requests": 3000, "seed": 1, "stream": streams[1]},
        ]
        run(device, *jobs)
        maps.append(mapping(device))
        assert device.stream_shares()[1][0] * UNIT <= 3000 * UNIT
        assert device.stream_shares()[1][0] > 2000
    assert np.array_equal(maps[0], maps[1])


@pytest.mark.parametrize("placement", ["none", "id", "range"])
def test_the_shares_sum_to_the_whole(placement: str) -> None:
    ranges = [("a", 0, MIB, 1), ("b", 2 * MIB, 3 * MIB, 2)]
    shape = {"streams": 3, "gc_placement": "by_stream", "overprovision_ratio": 0.8}
    device = drive(**shape, placement=placement, ranges=ranges)
    device.to_steady_state(0)
    jobs = [
        {"requests": 3000, "stream": s, "seed": s, "flush_every": 40, "trim_ratio": 0.1}
        for s in range(3)
    ]
    run(device, *jobs, {"end_bytes": MIB, "requests": 1000, "stream": 9})
    c = device.counters()
    whole = [c[f"nand_{part}_bytes"] // UNIT for part in ("host", "copied", "padded")]
    whole.append(c["coalesced_bytes"] // UNIT)
    assert min(whole) > 0
    assert np.array_equal(np.sum(device.stream_shares(), axis=0), whole)
    assert np.array_equal(np.sum(device.range_shares(), axis=0), whole)
    assert c["nand_write_bytes"] == sum(whole[:3]) * UNIT
    assert (np.array(device.stream_shares())[:, 0] > 0).all()


def test_what_was_written_is_attributed_to_who_wrote_it() -> None:
    device = drive(streams=2, ranges=[("low", 0, MIB, 0)])
    replay(device, [Io(WRITE, *unit(i), stream=i % 2) for i in range(0, 40, 1)])
    replay(device, [Io(WRITE, *unit(300 + i), stream=1) for i in range(8)])
    assert [s[0] for s in device.stream_shares()] == [20, 28]
    assert [s[0] for s in device.range_shares()] == [40, 8]


def test_wear_is_counted_once_per_collection() -> None:
    device = drive(gc_policy="fifo")
    run(device, {"requests": 30_000, "queue_depth": 8})
    c = device.counters()
    assert erases(device).sum() == c["collections"] == c["block_erases"] > 100
    wide = drive(allocation="global", pages_per_block=4, gc_policy="fifo")
    run(wide, {"requests": 30_000, "queue_depth": 8})
    assert DIES * erases(wide).sum() == wide.counters()["block_erases"] > 100


def test_jitter_spreads_what_the_cells_take() -> None:
    def reads(seed: int, jitter: float) -> Any:
        device = filled(jitter_ratio=jitter, seed=seed)
        return run(device, {"read_ratio": 1.0, "requests": 500})["rows"]["latency_ns"]

    whole = COMMAND + SENSE + CHANNEL_UNIT + LINK + READ_LATENCY
    assert set(reads(1, 0.0)) == {whole}
    spread = reads(1, 0.2)
    assert spread.min() >= whole - SENSE * 0.2 - 1
    assert spread.max() <= whole + SENSE * 0.2
    assert spread.mean() == pytest.approx(whole, rel=0.01)
    assert spread.std() == pytest.approx(2 * 0.2 * SENSE / 12**0.5, rel=0.1)
    assert np.array_equal(spread, reads(1, 0.2))
    assert not np.array_equal(spread, reads(2, 0.2))


def test_paced_collection_spares_single_writes() -> None:
    tails = {}
    for pace in ("whole", "paced"):
        device = drive(gc_pace=pace, overprovision_ratio=0.5, write_buffer_bytes=4 * PAGE)
        device.to_steady_state(0)
        waits = run(device, {"requests": 8000, "interval_ns": MS})["rows"]["latency_ns"]
        tails[pace] = np.quantile(waits, 0.999)
        assert device.counters()["collections"] > 50
    assert tails["paced"] < 0.5 * tails["whole"]


# --- preconditioning

SHAPES = [
    {},
    {"allocation": "global", "pages_per_block": 4},
    {"map_unit_bytes": PAGE, "planes": 2, "pages_per_block": 8},
    {"channels": 1, "dies_per_channel": 1, "pages_per_block": 64},
    {"streams": 3, "placement": "id", "overprovision_ratio": 0.6, "gc_placement": "mixed"},
    {"gc_pace": "paced", "gc_policy": "cost_benefit"},
    {"reserve_blocks": 3, "gc_policy": "d_choices", "overprovision_ratio": 0.5},
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(s) or "plain")
@pytest.mark.parametrize("spare", [0.0, 0.4])
@pytest.mark.parametrize("fill", [0.0, 0.5, 1.0])
def test_preconditioning(shape: dict[str, Any], spare: float, fill: float) -> None:
    ratio = shape.get("overprovision_ratio", FLASH["overprovision_ratio"]) + spare
    device = drive(**{**shape, "overprovision_ratio": ratio})
    device.precondition(fill_ratio=fill, overwrites=1.5, seed=3)
    mapped = mapping(device)
    filled_units = int(fill * mapped.size)
    assert (mapped[:filled_units] >= 0).all()
    assert (mapped[filled_units:] == -1).all()
    assert np.unique(mapped[:filled_units]).size == filled_units
    assert device.now_ns == 0
    counters = device.counters()
    assert not any(counters.values())
    assert latency(device, Io(WRITE)) == COMMAND + LINK + WRITE_LATENCY


@pytest.mark.parametrize("allocation", ["per_die", "global"])
@pytest.mark.parametrize("fill", [0.3, 1.0])
def test_preconditioning_of_an_8_gib_drive(allocation: str, fill: float) -> None:
    wide = {"channels": 8, "dies_per_channel": 4, "pages_per_block": 128, "planes": 2}
    if allocation == "global":
        wide["pages_per_block"] = 8
    for spare in (0.08, 0.25):
        device = drive(
            capacity_bytes=8 << 30,
            overprovision_ratio=spare,
            write_buffer_bytes=8 * MIB,
            allocation=allocation,
            **wide,
        )
        device.precondition(fill_ratio=fill, overwrites=0.2, seed=1)
        mapped = mapping(device)
        assert np.count_nonzero(mapped >= 0) == int(fill * mapped.size)
        run(device, {"requests": 1000, "queue_depth": 8})


def test_a_drive_that_has_worked_can_be_preconditioned_again_and_again() -> None:
    device = drive(write_buffer_bytes=2 * PAGE)
    plain = None
    for _ in range(6):
        replay(device, [Io(WRITE, *unit(i)) for i in range(7)])
        device.precondition(fill_ratio=1.0, overwrites=0.5, seed=0)
        assert power_cut(device) == []
        waits = list(replay(device, [Io(WRITE, *unit(i)) for i in range(7)]).latency_ns)
        plain = plain or waits
        assert waits == plain


def test_preconditioning_takes_what_it_wrote_from_the_slc_cache_and_no_more() -> None:
    device = drive(slc_cache_bytes=4 * MIB)
    job = {"pattern": "sequential", "block_bytes": PAGE}
    run(device, {**job, "requests": MIB // PAGE})
    device.precondition(fill_ratio=1 / 16, overwrites=0.0, seed=0)
    run(device, {**job, "requests": 4 * MIB // PAGE})
    assert device.counters()["slc_programs"] == 2 * MIB // PAGE


ILLEGAL: list[tuple[str, dict[str, Any]]] = [
    ("page", {"page_bytes": 1000}),
    ("page", {"page_bytes": 2 * MIB}),
    ("planes", {"planes": 0}),
    ("planes", {"planes": 17}),
    ("map_unit", {"map_unit_bytes": 12_288}),
    ("map_unit", {"map_unit_bytes": 256}),
    ("pages_per_block", {"pages_per_block": 1}),
    ("channels", {"channels": 0}),
    ("dies_per_channel", {"dies_per_channel": 100}),
    ("overprovision", {"overprovision_ratio": -0.1}),
    ("overprovision", {"overprovision_ratio": 0.0}),
    ("overprovision", {"overprovision_ratio": 0.05}),
    ("allocation", {"allocation": "striped"}),
    ("capacity", {"capacity_bytes": UNIT + 512}),
    ("capacity", {"capacity_bytes": 0}),
    ("capacity", {"capacity_bytes": 1 << 55}),
    ("capacity", {"capacity_bytes": (1 << 62) + (1 << 61)}),
    ("read_page", {"read_page_ns": 0}),
    ("channel_rate", {"channel_rate_bytes_per_s": 0}),
    ("link_rate", {"link_rate_bytes_per_s": 999_999}),
    ("jitter", {"jitter_ratio": 1.0}),
    ("command_time", {"command_time_ns": -1}),
    ("write_buffer", {"write_buffer_bytes": PAGE}),
    ("slc_cache", {"slc_cache_bytes": -1}),
    ("gc_policy", {"gc_policy": "best"}),
    ("gc_choices", {"gc_policy": "d_choices", "gc_choices": 0}),
    ("gc_placement", {"gc_placement": "anywhere"}),
    ("gc_pace", {"gc_pace": "slow"}),
    ("placement", {"placement": "hash"}),
    ("reserve_blocks", {"reserve_blocks": 0}),
    ("streams", {"streams": 0}),
    ("streams", {"streams": 65, "write_buffer_bytes": 100 * PAGE, "overprovision_ratio": 9.0}),
    ("trim", {"trim": "later"}),
    ("trim_slice", {"trim_slice_bytes": 0}),
    ("trim_map_time", {"trim_map_time_ns": -1}),
    ("trim_max_ranges", {"trim_max_ranges": 0}),
    ("background_idle", {"background_idle_ns": -1}),
    ("queue_depth", {"queue_depth": 0}),
    ("range a", {"ranges": [("a", 0, 1000, 0)]}),
    ("range a", {"ranges": [("a", 0, 17 * MIB, 0)]}),
    ("range b", {"ranges": [("a", 0, 2 * MIB, 0), ("b", MIB, 3 * MIB, 0)]}),
    ("range a", {"ranges": [("a", 0, MIB, 2)], "streams": 2}),
]


@pytest.mark.parametrize(("name", "changes"), ILLEGAL, ids=lambda x: str(x)[:50])
def test_an_impossible_drive_is_refused_by_name(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(BadParameter) as refused:
        drive(**changes)
    message = str(refused.value)
    assert name in message
    assert "\n" not in message


# --- steady state


@pytest.mark.parametrize(
    ("shape", "seed"),
    [
        ({"capacity_bytes": 64 * MIB, "overprovision_ratio": 0.2, "pages_per_block": 16}, 1),
        ({"capacity_bytes": 64 * MIB, "allocation": "global", "pages_per_block": 4}, 2),
        ({"capacity_bytes": 64 * MIB, "gc_policy": "d_choices", "map_unit_bytes": PAGE}, 3),
        ({"capacity_bytes": 64 * MIB, "gc_policy": "fifo"}, 4),
    ],
)
def test_steady_state_is_that_of_overwriting_again_and_again(
    shape: dict[str, Any], seed: int
) -> None:
    def measured(device: _core.Device) -> float:
        device.reset_counters()
        run(device, {"block_bytes": block, "requests": 50_000, "queue_depth": 32, "seed": 99})
        return waf(device)

    block = shape.get("map_unit_bytes", UNIT)
    quick, slow = drive(**shape), drive(**shape)
    quick.to_steady_state(seed)
    slow.precondition(fill_ratio=1.0, overwrites=12.0, seed=seed)
    assert measured(quick) == pytest.approx(measured(slow), rel=0.01)
    mapped = mapping(quick)
    assert (mapped >= 0).all()
    assert np.unique(mapped).size == mapped.size


def test_a_used_drive_is_not_brought_to_steady_state() -> None:
    device = drive()
    replay(device, [Io(WRITE), Io(TRIM)])
    assert (mapping(device) == -1).all()
    with pytest.raises(BadParameter, match="must be new"):
        device.to_steady_state(0)


# --- determinism, state


def everything(device: _core.Device) -> tuple[Any, ...]:
    return (
        device.counters(),
        device.now_ns,
        mapping(device).tolist(),
        erases(device).tolist(),
        device.stream_shares(),
        device.range_shares(),
    )


BUSY: dict[str, Any] = {
    "streams": 2,
    "placement": "id",
    "gc_placement": "by_stream",
    "gc_pace": "paced",
    "gc_policy": "d_choices",
    "overprovision_ratio": 0.5,
    "background_gc": True,
    "slc_cache_bytes": MIB,
    "jitter_ratio": 0.1,
    "ranges": [("a", MIB, 2 * MIB, 1)],
}


def work(device: _core.Device, seed: int) -> list[Any]:
    mixed = {"read_ratio": 0.3, "trim_ratio": 0.1, "requests": 1500, "flush_every": 100}
    first = run(device, {**mixed, "seed": seed, "queue_depth": 8}, {**mixed, "stream": 1})
    device.idle(30 * MS)
    last = run(device, {"requests": 201, "seed": seed + 1, "queue_depth": 16})
    return [[column.tolist() for column in result["rows"].values()] for result in (first, last)]


def test_devices_share_nothing() -> None:
    seeds = (1, 2)
    alone = {}
    for seed in seeds:
        device = drive(**BUSY, seed=seed)
        alone[seed] = (work(device, seed), work(device, seed + 9), everything(device))
    for order in ((1, 2), (2, 1)):
        devices = {seed: drive(**BUSY, seed=seed) for seed in order}
        first = {seed: work(devices[seed], seed) for seed in order}
        second = {seed: work(devices[seed], seed + 9) for seed in reversed(order)}
        for seed in seeds:
            assert (first[seed], second[seed], everything(devices[seed])) == alone[seed]


@pytest.mark.parametrize("steady", [False, True])
def test_a_restored_drive_continues_as_the_saved_one(steady: bool) -> None:
    device = drive(**BUSY)
    if steady:
        device.to_steady_state(5)
    work(device, 1)  # ends with pages in the buffer, collection under way, SLC cache in use
    saved = device.save()
    later = (work(device, 2), everything(device), power_cut(device))
    for other in (drive(**BUSY), device):
        other.restore(saved)
        assert other.save() == saved
        assert (work(other, 2), everything(other), power_cut(other)) == later


def test_a_damaged_or_foreign_state_is_refused_and_changes_nothing() -> None:
    device = drive(**BUSY)
    work(device, 1)
    before = device.save()
    foreign = drive(**{**BUSY, "overprovision_ratio": 0.7}).save()
    for wrong in (before[:-1], before[: len(before) // 2], b"", before + b"\0", foreign):
        with pytest.raises(BadParameter):
            device.restore(wrong)
        assert device.save() == before


def test_an_interrupted_job_leaves_a_device_that_works() -> None:
    device = drive()
    cancel = _core.Cancel()
    cancel.set()

    with pytest.raises((HarnessError, KeyboardInterrupt)):
        device.run(
            [job(device, requests=100_000, queue_depth=64)],
            rows=False,
            interval_ns=0,
            cancel=cancel,
        )
    assert run(device, {"requests": 100})["write"]["ios"] == 100


@pytest.mark.parametrize(
    ("lba", "sectors"), [(-8, 8), (0, 0), (32768, 8), (32760, 9), (1 << 55, 8), (8, (1 << 62))]
)
def test_a_trace_outside_of_the_device_is_refused(lba: int, sectors: int) -> None:
    device = drive()
    device.begin_trace(depth=1, rows=False, interval_ns=0)
    with pytest.raises(BadParameter, match="outside"):
        feed(device, [Io(WRITE), Io(READ, lba, sectors)])
    with pytest.raises(BadParameter, match="no trace"):
        device.end_trace(_core.Cancel())
    assert latency(device, Io(READ)) == COMMAND + LINK + READ_LATENCY


@given(
    requests=st.lists(
        st.tuples(
            st.sampled_from([READ, WRITE, TRIM, FLUSH]),
            st.integers(0, 16 * MIB // 512 - 512),
            st.integers(1, 512),
            st.booleans(),
        ),
        min_size=1,
        max_size=100,
    ),
    depth=st.integers(1, 64),
)
def test_every_request_completes_and_repeats(
    requests: list[tuple[int, int, int, bool]], depth: int
) -> None:
    ios = [Io(op, lba, n, fua=fua) for op, lba, n, fua in requests]
    device = drive()
    first = replay(device, ios, depth)
    assert len(first) == len(ios)
    assert (first.latency_ns >= COMMAND).all()
    assert first.equals(replay(drive(), ios, depth))
    replay(device, [Io(FLUSH)])  # nothing waits for the rest of its unit
    counters = device.counters()
    assert counters["read_bytes"] == 512 * sum(io.sectors for io in ios if io.op == READ)
    programmed = counters["nand_write_bytes"] + counters["coalesced_bytes"]
    assert programmed >= counters["write_bytes"]
