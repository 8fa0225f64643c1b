"""The join engine: whatever the buffers, the data and the storage, its result is the join."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import REPOSITORY, contents
from engine_joins import BLOCK, MIB, join, oracle, spec
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import _core
from harness.devices.profiles import SsdProfile, load_device
from harness.errors import BadParameter, DataCorrupted, DiskFull, Interrupted
from harness.workloads.records import RECORD_BYTES
from harness.workloads.tpch import JoinInputs, join_by_duckdb


def ssd() -> _core.SsdParameters:
    small = {"capacity": "64 MiB", "overprovision": "0.5", "channels": "2", "dies_per_channel": "2"}
    profile = load_device(REPOSITORY / "hardware/profiles", "intel_x25e_32gb", small)
    assert isinstance(profile, SsdProfile)
    return profile.to_core()


def hdd() -> _core.HddParameters:
    return _core.HddParameters(
        capacity_bytes=64 * 10**6,
        rpm=7200,
        heads=2,
        zones=3,
        outer_rate_bytes_per_s=100_000_000,
        inner_rate_bytes_per_s=50_000_000,
        head_switch_ns=800_000,
        track_to_track_seek_ns=1_000_000,
        average_seek_ns=8_000_000,
        full_stroke_seek_ns=16_000_000,
        write_settle_ns=200_000,
        link_rate_bytes_per_s=250_000_000,
        command_overhead_ns=100_000,
        cache_bytes=2 * MIB,
        read_segments=4,
        write_cache=True,
        destage_idle_ns=10_000_000,
        queue_depth=31,
        scheduler="sptf",
        start_angle_ns=0,
    )


def host(scheduler: str = "none") -> _core.HostParameters:
    return _core.HostParameters(
        cores=2,
        submit_cpu_ns=5000,
        complete_cpu_ns=5000,
        max_request_bytes=524288,
        io_scheduler=scheduler,
    )


def make_storage(kind: str) -> Any:
    if kind == "memory":
        return _core.MemoryStorage(64 * MIB)
    device = ssd() if kind == "ssd" else hdd()
    scheduler = "cfq" if kind == "hdd" else "none"
    return _core.VirtualStorage(device, host(scheduler), cell_bytes=128, kept_bytes=32)


def keys(most: int) -> st.SearchStrategy[list[int]]:
    """Few or many distinct keys, negative ones too: uniform, skewed, and all equal."""
    one_key = st.integers(0, most).flatmap(lambda n: st.just([7] * n))
    skewed = st.lists(st.sampled_from([1, 1, 1, 1, 2, 3]), max_size=most)
    spread = st.lists(st.integers(-300, 300), max_size=most)
    wide = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=most)
    return st.one_of(one_key, skewed, spread, wide)


buffers = st.sampled_from([(512, 512), (1024, 512), (2048, 512), (4096, 1024), (65536, 4096)])


@pytest.mark.parametrize("kind", ["memory", "ssd", "hdd"])
@pytest.mark.parametrize("algorithm", ["grace", "hybrid"])
@given(
    build=keys(300),
    probe=keys(600),
    sizes=buffers,
    depth=st.sampled_from([1, 2, 5, 32]),
    users=st.integers(1, 3),
    seed=st.integers(0, 2**64 - 1),
)
@settings(max_examples=40)
def test_the_result_is_the_join(
    kind: str,
    algorithm: str,
    build: list[int],
    probe: list[int],
    sizes: tuple[int, int],
    depth: int,
    users: int,
    seed: int,
) -> None:
    one, other = contents(build), contents(probe)
    wanted = spec(
        algorithm=_core.Algorithm[algorithm],
        read_buffer_bytes=sizes[0],
        write_buffer_bytes=sizes[1],
        input_io_bytes=min(2048, sizes[0]),
        queue_depth=depth,
        hash_seed=seed,
    )
    expected = oracle(one, other)
    for user in join(make_storage(kind), one, other, wanted, users=users):
        assert (user["matches"], user["checksum"]) == expected


@pytest.mark.slow
@given(build=keys(2000), probe=keys(4000), sizes=buffers, depth=st.integers(1, 64))
@settings(settings.get_profile("long"), max_examples=600)
def test_the_result_is_the_join_at_length(
    build: list[int], probe: list[int], sizes: tuple[int, int], depth: int
) -> None:
    one, other = contents(build), contents(probe)
    wanted = spec(
        read_buffer_bytes=sizes[0],
        write_buffer_bytes=sizes[1],
        input_io_bytes=min(2048, sizes[0]),
        queue_depth=depth,
    )
    (user,) = join(make_storage("memory"), one, other, wanted)
    assert (user["matches"], user["checksum"]) == oracle(one, other)


@pytest.mark.parametrize("algorithm", ["grace", "hybrid"])
def test_against_duckdb_on_tpch(smoke: JoinInputs, algorithm: str) -> None:
    wanted = spec(
        algorithm=_core.Algorithm[algorithm],
        read_buffer_bytes=256 << 10,
        write_buffer_bytes=4096,
        input_io_bytes=64 << 10,
    )
    storage = make_storage("ssd")
    (user,) = join(storage, smoke.orders, smoke.lineitem, wanted, scratch_bytes=16 * MIB)
    assert (user["matches"], user["checksum"]) == join_by_duckdb(smoke.orders, smoke.lineitem)
    assert user["matches"] == len(smoke.lineitem)  # every lineitem has its order
    assert user["partitions"] > 1


def test_equal_keys_end_in_a_nested_loop() -> None:
    one, other = contents([5] * 500), contents([5] * 300)
    (user,) = join(make_storage("memory"), one, other, spec())
    assert user["matches"] == 500 * 300
    assert user["nested_loops"] > 0
    assert user["overflows"] == 0  # a partition of one key is recognised, not split again


def test_skew_is_partitioned_again() -> None:
    keys_of_one = [1] * 40 + list(range(2, 400))
    one, other = contents(keys_of_one), contents([1] * 50 + list(range(400)))
    wanted = spec(read_buffer_bytes=2048, write_buffer_bytes=512)
    (user,) = join(make_storage("memory"), one, other, wanted)
    assert user["overflows"] > 0
    assert (user["matches"], user["checksum"]) == oracle(one, other)


def test_the_smaller_side_is_built() -> None:
    one, other = contents(list(range(400))), contents(list(range(0, 400, 40)))
    (user,) = join(make_storage("memory"), one, other, spec())
    assert user["role_reversals"] > 0
    assert (user["matches"], user["checksum"]) == oracle(one, other)


def test_hybrid_keeps_a_partition_in_memory() -> None:
    one, other = contents(list(range(400))), contents(list(range(800)))
    grace, hybrid = (
        join(
            make_storage("memory"),
            one,
            other,
            spec(algorithm=_core.Algorithm[name], read_buffer_bytes=32768),
        )[0]
        for name in ("grace", "hybrid")
    )
    assert hybrid["resident_records"] > 100
    written = [u["io"]["partition"]["write"]["bytes"] for u in (grace, hybrid)]
    assert written[1] < 0.6 * written[0]


def test_hybrid_gives_up_a_partition_that_does_not_fit() -> None:
    one, other = contents([3] * 300 + list(range(1000, 1100))), contents([3] * 10)
    results = [
        join(
            make_storage("memory"),
            one,
            other,
            spec(algorithm=_core.Algorithm.hybrid, read_buffer_bytes=8192, hash_seed=seed),
        )[0]
        for seed in range(8)
    ]
    assert {(u["matches"], u["checksum"]) for u in results} == {oracle(one, other)}
    assert any(u["resident_records"] == 0 for u in results)


def test_bytes_are_counted() -> None:
    one, other = contents(list(range(512))), contents(list(range(512)) * 3)
    (user,) = join(make_storage("memory"), one, other, spec())
    moved = user["io"]
    assert moved["partition"]["read"]["bytes"] == 2048 * RECORD_BYTES
    written = moved["partition"]["write"]
    assert moved["join"]["read"]["bytes"] == written["bytes"] >= 2048 * RECORD_BYTES
    assert sum(written["by_size_log2"]) == sum(written["by_seek_log2"]) == written["ios"]
    assert sum(n << i for i, n in enumerate(written["by_size_log2"])) <= written["bytes"]


def test_seeks_are_counted_from_the_end_of_the_user_s_transfer_before() -> None:
    """Forwards and backwards alike, whatever phase that was in, and whoever else used the drive."""
    one = contents([1] * 40 + list(range(2, 400)))
    other = contents([1] * 50 + list(range(400)))
    wanted = spec(read_buffer_bytes=2048, write_buffer_bytes=512, queue_depth=1, trace=True)
    for user in join(make_storage("ssd"), one, other, wanted, users=2):
        trace, end = user["trace"], 0
        found = {key: [0] * 48 for key in product(range(3), range(2))}
        columns = (trace[name].tolist() for name in ("phase", "op", "lba", "bytes"))
        for phase, op, lba, size in zip(*columns, strict=True):
            found[phase, op][abs(lba - end).bit_length()] += 1
            end = lba + size // 512
        for phase, name in enumerate(("partition", "join", "repartition")):
            for op, kind in enumerate(("read", "write")):
                assert user["io"][name][kind]["by_seek_log2"] == found[phase, op]
        written = found[0, 1]
        assert 0 < written[0] < sum(written), "some are sequential, and not all"


def test_partitions_are_written_one_after_another() -> None:
    one, other = contents(list(range(2000))), contents([])
    (user,) = join(make_storage("ssd"), one, other, spec(trace=True))
    trace = user["trace"]
    writes = trace["op"] == 1
    ends = trace["lba"][writes] * 512 + trace["bytes"][writes]
    full = trace["bytes"][writes][:-1] == 1024
    assert (np.diff(trace["lba"][writes]) * 512 == 1024)[full].all()
    assert ends[-1] > 0
    assert (trace["completed_ns"] > trace["submitted_ns"]).all()


def test_synchronous_means_one_at_a_time() -> None:
    one, other = contents(list(range(500))), contents(list(range(500)))
    (user,) = join(make_storage("ssd"), one, other, spec(trace=True, queue_depth=1))
    trace = user["trace"]
    assert (trace["submitted_ns"][1:] >= trace["completed_ns"][:-1]).all()


def test_depth_bounds_the_transfers_in_flight() -> None:
    one, other = contents(list(range(2000))), contents(list(range(2000)))
    (user,) = join(make_storage("ssd"), one, other, spec(trace=True, queue_depth=8))
    trace = user["trace"]
    events = sorted(
        [(t, 1) for t in trace["submitted_ns"]] + [(t, -1) for t in trace["completed_ns"]]
    )
    in_flight = np.cumsum([change for _, change in events])
    assert 2 <= in_flight.max() <= 8


def test_changed_data_is_found() -> None:
    storage = _core.MemoryStorage(64 * MIB)
    one, other = contents(list(range(100))), contents(list(range(100)))
    damaged = other.copy()
    damaged["first"][50] += 1
    with pytest.raises(DataCorrupted):
        join(storage, one, damaged, spec())


def test_a_full_device_ends_the_join() -> None:
    one, other = contents(list(range(1000))), contents(list(range(1000)))
    with pytest.raises(DiskFull, match="do not fit"):
        join(make_storage("memory"), one, other, spec(), scratch_bytes=65536)


def test_units_given_back_are_used_again() -> None:
    keys_of_one = [1] * 40 + list(range(2, 400))
    one, other = contents(keys_of_one), contents([1] * 50 + list(range(400)))
    wanted = spec(read_buffer_bytes=2048, write_buffer_bytes=512)
    needed = _core.scratch_bytes_needed(wanted, len(one), len(other), BLOCK)
    (user,) = join(
        make_storage("memory"), one, other, wanted, scratch_bytes=-(-needed // 4096) * 4096 + 32768
    )
    assert user["matches"] == oracle(one, other)[0]


def test_a_cancelled_join_stops() -> None:
    cancel = _core.Cancel()
    cancel.set()
    one, other = contents(list(range(1000))), contents(list(range(1000)))
    with pytest.raises(Interrupted):
        join(make_storage("memory"), one, other, spec(), cancel=cancel)


@pytest.mark.parametrize(
    "options",
    [
        {"read_buffer_bytes": 0},
        {"write_buffer_bytes": 100},
        {"write_buffer_bytes": 8192},
        {"input_io_bytes": 700},
        {"queue_depth": 0},
        {"memory_budget_bytes": 2048},
    ],
)
def test_buffers_that_make_no_join(options: dict[str, int]) -> None:
    one, other = contents(list(range(1000))), contents(list(range(10)))
    with pytest.raises(BadParameter):
        join(make_storage("memory"), one, other, spec(**options))


@given(n=st.integers(1, 10**7), capacity=st.integers(1, 10**6))
def test_planned_partitions_fit_with_room_for_chance(n: int, capacity: int) -> None:
    partitions = _core.partitions_for(n, capacity)
    mean = -(-n // partitions)
    assert mean <= capacity
    assert partitions == 1 or mean <= 1 or mean + 4 * int(mean**0.5) <= capacity


def test_memory_budget_is_kept_by_partitioning_again() -> None:
    one, other = contents(list(range(4000))), contents(list(range(4000)))
    wanted = spec(read_buffer_bytes=8192, write_buffer_bytes=2048, memory_budget_bytes=40 << 10)
    (user,) = join(make_storage("memory"), one, other, wanted)
    assert user["memory_bytes"] <= 40 << 10
    assert user["overflows"] > 0
    assert (user["matches"], user["checksum"]) == oracle(one, other)
