"""The flash translation layer equals its slow reference, slot by slot."""

from __future__ import annotations

from itertools import product
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from model_drives import (
    FLUSH,
    MS,
    READ,
    TRIM,
    UNIT,
    UNIT_SECTORS,
    WRITE,
    Io,
    drive,
    erases,
    feed,
    mapping,
)
from reference.ftl import Layout, ReferenceFtl, Rules

from harness import _core
from harness.errors import BadParameter

GAP_NS = 1000 * MS
"""Between two requests: everything has reached the dies by then."""

Operation = tuple[int, int, int, int]
"""op, lba, sectors, stream."""


def pair(shape: dict[str, Any], rules: Rules) -> tuple[_core.Device, ReferenceFtl]:
    """The same drive twice. `shape`: units, spare, channels, dies_per_channel, units_per_page,
    pages_per_block, allocation, buffer_pages (so many that no request waits for room)."""
    dies = shape["channels"] * shape["dies_per_channel"]
    wide = shape["allocation"] == "global"
    block_units = shape["units_per_page"] * shape["pages_per_block"]
    device = drive(
        capacity_bytes=shape["units"] * UNIT,
        overprovision_ratio=shape["spare"],
        page_bytes=shape["units_per_page"] * UNIT,
        pages_per_block=shape["pages_per_block"],
        channels=shape["channels"],
        dies_per_channel=shape["dies_per_channel"],
        allocation=shape["allocation"],
        write_buffer_bytes=shape["buffer_pages"] * shape["units_per_page"] * UNIT,
        placement="id",
        **vars(rules),
    )
    layout = Layout(
        units=shape["units"],
        groups=1 if wide else dies,
        blocks_per_group=ceil(shape["units"] * (1 + shape["spare"]) / (block_units * dies)),
        pages_per_block=shape["pages_per_block"] * (dies if wide else 1),
        units_per_page=shape["units_per_page"],
        unit_sectors=UNIT_SECTORS,
        buffer_units=shape["buffer_pages"] * shape["units_per_page"],
    )
    return device, ReferenceFtl(layout, rules)


def obey(reference: ReferenceFtl, operation: Operation) -> None:
    op, lba, sectors, stream = operation
    stream = stream if stream < reference.rules.streams else 0
    reference.begin_request()
    if op == FLUSH:
        reference.flush()
    touched: dict[int, set[int]] = {}
    for sector in range(lba, lba + sectors):
        touched.setdefault(sector // UNIT_SECTORS, set()).add(sector % UNIT_SECTORS)
    for unit, inside in touched.items():
        whole = len(inside) == UNIT_SECTORS
        if op == READ:
            reference.read(unit, inside)
        elif op == WRITE and whole:
            reference.write(unit, stream)
        elif op == WRITE:
            reference.write_part(unit, inside, stream)
        elif op == TRIM and whole:
            reference.trim(unit)


def expect_equal(device: _core.Device, reference: ReferenceFtl) -> None:
    expected = [reference.slot_of.get(unit, -1) for unit in range(reference.layout.units)]
    assert mapping(device).tolist() == expected
    assert erases(device).tolist() == [block.erases for block in reference.blocks]
    c = device.counters()
    counted = [c[f"nand_{x}_bytes"] // UNIT for x in ("host", "copied", "padded")]
    assert counted == [reference.host, reference.copied, reference.padded]
    assert c["unmapped_bytes"] // UNIT == reference.trimmed
    assert c["coalesced_bytes"] // UNIT == reference.coalesced
    assert c["merge_reads"] == reference.merge_reads
    assert c["gc_page_reads"] == reference.gc_page_reads


def compare(shape: dict[str, Any], rules: Rules, operations: list[Operation], steps: int) -> int:
    """Runs both and compares `steps` times on the way; returns the number of erases."""
    device, reference = pair(shape, rules)
    device.begin_trace(depth=0, rows=False, interval_ns=0)
    size = ceil(len(operations) / steps)
    for first in range(0, len(operations), size):
        part = operations[first : first + size]
        feed(
            device,
            [
                Io(op, lba, sectors, GAP_NS * (first + i), stream)
                for i, (op, lba, sectors, stream) in enumerate(part)
            ],
        )
        for operation in part:
            obey(reference, operation)
        expect_equal(device, reference)
    device.end_trace(_core.Cancel())
    return int(erases(device).sum())


def random_operations(shape: dict[str, Any], count: int, seed: int) -> list[Operation]:
    """Mostly writes, half of them to a tenth of the units; a stream tends to its own part.

    A fifth begins and ends anywhere, not with a unit.
    """
    rng = np.random.default_rng(seed)
    units = shape["units"]
    operations = []
    for _ in range(count):
        kind = rng.random()
        n = int(rng.integers(1, 4))
        span = units // 10 + 4 if rng.random() < 0.5 else units
        unit = int(rng.integers(0, span - n + 1))
        op = WRITE if kind < 0.82 else READ if kind < 0.87 else TRIM if kind < 0.95 else FLUSH
        stream = int(rng.integers(0, 4)) if rng.random() < 0.2 else min(3, 4 * unit // units)
        lba, sectors = unit * UNIT_SECTORS, n * UNIT_SECTORS
        if rng.random() < 0.2:
            lba += int(rng.integers(0, UNIT_SECTORS))
            sectors = int(rng.integers(1, (unit + n) * UNIT_SECTORS - lba + 1))
        operations.append((op, 0, 0, 0) if op == FLUSH else (op, lba, sectors, stream))
    return operations


def shape_of(allocation: str, units_per_page: int, **changes: Any) -> dict[str, Any]:
    shape = {
        "units": 500,
        "spare": 0.9,
        "channels": 2,
        "dies_per_channel": 2,
        "units_per_page": units_per_page,
        "pages_per_block": 8 if units_per_page == 1 else 2,
        "allocation": allocation,
        "buffer_pages": 24,
    }
    if allocation == "global":
        shape |= {"pages_per_block": 4 if units_per_page == 1 else 2, "spare": 1.2}
    return {**shape, **changes}


SHAPES = [shape_of(allocation, n) for allocation in ("per_die", "global") for n in (1, 4)]
POLICIES = ("greedy", "fifo", "cost_benefit", "d_choices")
PLACEMENTS = ("mixed", "separate", "by_stream")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s['allocation']}-{s['units_per_page']}")
@pytest.mark.parametrize("pace", ["whole", "paced"])
@pytest.mark.parametrize(("policy", "placement"), list(product(POLICIES, PLACEMENTS)))
def test_long_random_work(shape: dict[str, Any], policy: str, placement: str, pace: str) -> None:
    streams = 1 if placement == "separate" else 2
    rules = Rules(policy, 3, placement, pace, reserve_blocks=1, streams=streams, seed=11)
    if shape["units_per_page"] == 4:
        shape = {**shape, "spare": shape["spare"] + 0.8}
    assert compare(shape, rules, random_operations(shape, 1600, 5), 2) > 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_longer_random_work(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = shape_of(
        str(rng.choice(["per_die", "global"])),
        int(rng.choice([1, 2, 4])),
        units=int(rng.integers(300, 900)),
        channels=int(rng.integers(1, 4)),
        dies_per_channel=int(rng.integers(1, 3)),
        pages_per_block=int(rng.integers(2, 9)),
        spare=float(rng.uniform(0.5, 4.0)),
    )
    rules = Rules(
        str(rng.choice(POLICIES)),
        int(rng.integers(1, 12)),
        str(rng.choice(PLACEMENTS)),
        str(rng.choice(["whole", "paced"])),
        int(rng.integers(1, 4)),
        int(rng.integers(1, 4)),
        seed,
    )
    try:
        compare(shape, rules, random_operations(shape, 8000, seed), 4)
    except BadParameter:
        compare({**shape, "spare": 8.0}, rules, random_operations(shape, 8000, seed), 4)


@given(data=st.data())
def test_any_work(data: st.DataObject) -> None:
    draw = data.draw
    shape: dict[str, Any] = {
        "units": draw(st.integers(8, 60)),
        "spare": draw(st.floats(0.5, 6.0)),
        "channels": draw(st.integers(1, 3)),
        "dies_per_channel": draw(st.integers(1, 2)),
        "units_per_page": draw(st.sampled_from([1, 2, 4])),
        "pages_per_block": draw(st.integers(2, 4)),
        "allocation": draw(st.sampled_from(["per_die", "global"])),
        "buffer_pages": draw(st.integers(22, 64)),
    }
    rules = Rules(
        draw(st.sampled_from(POLICIES)),
        draw(st.integers(1, 5)),
        draw(st.sampled_from(PLACEMENTS)),
        draw(st.sampled_from(["whole", "paced"])),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 1 << 64 - 1)),
    )
    # Anywhere within a unit, more often all of it.
    begin = st.sampled_from([0, 0, 0, *range(UNIT_SECTORS)])
    one = st.tuples(
        st.sampled_from([WRITE, WRITE, WRITE, READ, TRIM, FLUSH]),
        st.integers(0, shape["units"] - 1),
        begin,
        begin,
        st.integers(0, 3),
    )
    work = draw(st.lists(one, min_size=60, max_size=200))
    operations = [
        (op, 0, 0, 0)
        if op == FLUSH
        else (op, unit * UNIT_SECTORS + first, max(UNIT_SECTORS - first - less, 1), s)
        for op, unit, first, less, s in work
    ]
    try:
        compare(shape, rules, operations, 2)
    except BadParameter:
        assume(False)
