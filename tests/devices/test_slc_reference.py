"""The dynamic SLC cache equals its slow reference, page by page."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from model_drives import FLUSH, MS, PAGE, TRIM, UNIT, UNIT_SECTORS, WRITE, Io, drive, feed
from reference.ftl import Layout, ReferenceFtl, Rules
from reference.slc import ReferenceSlc

from harness import _core
from harness.errors import BadParameter

GAP_NS = 1000 * MS
"""Between two requests: everything has reached the dies by then."""

NEVER_NS = 10**15
REST_NS = 10**13
"""Longer than everything that could be folded takes; only here the drive is idle."""

Operation = tuple[int, int, int]
"""op, unit, units."""


def pair(
    units: int, spare: float, cache_bytes: int, ratio: float, fold_first: bool, idle_ns: int
) -> tuple[_core.Device, ReferenceFtl, ReferenceSlc]:
    device = drive(
        capacity_bytes=units * UNIT,
        overprovision_ratio=spare,
        pages_per_block=4,
        slc="dynamic",
        slc_cache_bytes=cache_bytes,
        slc_dynamic_ratio=ratio,
        slc_fold_first=fold_first,
        background_idle_ns=idle_ns,
        write_buffer_bytes=64 * PAGE,
    )
    layout = Layout(units, 4, ceil(units * (1 + spare) / (16 * 4)), 4, PAGE // UNIT)
    ftl = ReferenceFtl(layout, Rules())
    slc = ReferenceSlc(cache_bytes, ratio, fold_first, UNIT)
    ftl.on_host_page = lambda page: slc.host_page(ftl, page)
    return device, ftl, slc


def compare(
    operations: list[Operation],
    *,
    units: int,
    spare: float,
    cache_bytes: int,
    ratio: float,
    fold_first: bool,
    rests: int = 0,
) -> ReferenceSlc:
    """Runs both, with so many rests on the way, and compares at each of them and at the end."""
    idle_ns = REST_NS // 2 if rests else NEVER_NS
    device, ftl, slc = pair(units, spare, cache_bytes, ratio, fold_first, idle_ns)
    device.begin_trace(depth=0, rows=False, interval_ns=0)
    size = ceil(len(operations) / (rests + 1))
    now_ns = 0
    for first in range(0, len(operations), size):
        part = operations[first : first + size]
        ios = []
        for op, unit, n in part:
            now_ns += GAP_NS
            ios.append(Io(op, unit * UNIT_SECTORS, n * UNIT_SECTORS, now_ns))
        feed(device, ios)
        for op, unit, n in part:
            obey(ftl, op, unit, n)
        if rests and first + size < len(operations):
            now_ns += REST_NS
            slc.rest(ftl)
    device.end_trace(_core.Cancel())
    c = device.counters()
    assert c["slc_programs"] == slc.taken
    for name in ("folded_pressed", "folded_idle", "dropped"):
        assert c[f"slc_{name}_bytes"] // PAGE == getattr(slc, name), name
    assert c["nand_folded_bytes"] == c["slc_folded_idle_bytes"] + c["slc_folded_pressed_bytes"]
    expected = sum(c[f"nand_{x}_bytes"] for x in ("host", "copied", "padded", "folded"))
    assert c["nand_write_bytes"] == expected
    return slc


def obey(ftl: ReferenceFtl, op: int, unit: int, units: int) -> None:
    ftl.begin_request()
    if op == FLUSH:
        ftl.flush()
    for lpn in range(unit, unit + units):
        if op == WRITE:
            ftl.write(lpn, 0)
        elif op == TRIM:
            ftl.trim(lpn)


def operations(units: int, count: int, seed: int, trims: float) -> list[Operation]:
    """Long writes, and TRIMs that are as long: as of files."""
    rng = np.random.default_rng(seed)
    found: list[Operation] = []
    for _ in range(count):
        n = int(rng.integers(1, 25))
        unit = int(rng.integers(0, units - n + 1))
        kind = rng.random()
        op = TRIM if kind < trims else FLUSH if kind < trims + 0.03 else WRITE
        found.append((op, 0, 0) if op == FLUSH else (op, unit, n))
    return found


@pytest.mark.parametrize("rests", [0, 3])
@pytest.mark.parametrize("fold_first", [False, True])
@pytest.mark.parametrize("trims", [0.0, 0.3, 0.5])
def test_long_work(fold_first: bool, trims: float, rests: int) -> None:
    slc = compare(
        operations(1200, 400, 7, trims),
        units=1200,
        spare=0.6,
        cache_bytes=6 * PAGE,
        ratio=0.3,
        fold_first=fold_first,
        rests=rests,
    )
    assert slc.taken > 50
    assert slc.dropped > 0
    assert slc.folded_pressed > 0
    assert (slc.folded_idle > 0) == (rests > 0)


@given(data=st.data())
def test_any_work(data: st.DataObject) -> None:
    draw = data.draw
    units = draw(st.integers(64, 300))
    one = st.tuples(
        st.sampled_from([WRITE, WRITE, TRIM, FLUSH]), st.integers(0, units - 1), st.integers(1, 40)
    )
    work = draw(st.lists(one, min_size=20, max_size=80))
    whole = [(FLUSH, 0, 0) if op == FLUSH else (op, u, min(n, units - u)) for op, u, n in work]
    settings: dict[str, Any] = {
        "spare": draw(st.floats(0.6, 4.0)),
        "cache_bytes": draw(st.integers(0, 20 * PAGE)),
        "ratio": draw(st.floats(0.01, 0.5)),
        "fold_first": draw(st.booleans()),
        "rests": draw(st.integers(0, 2)),
    }
    try:
        compare(whole, units=units, **settings)
    except BadParameter:
        assume(False)
