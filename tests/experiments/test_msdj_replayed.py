"""Recorded requests on other drives: the journal's place, and what a stream is worth to a drive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import REPOSITORY

from harness.devices.model import Device
from harness.devices.profiles import SsdProfile, load_device
from harness.devices.scaling import scaled_to
from harness.errors import BadParameter, TraceError
from harness.experiments.msdj_tpcc.replayed import Replayed, Requests, replay

PROFILES = REPOSITORY / "hardware" / "profiles"
PAGE = 8
"""Sectors."""

MIB = 1 << 20
DRIVE_BYTES = 256 * MIB
JOURNAL_BYTES = MIB // 2
BEGIN_BYTES = 96 * MIB
Row = tuple[str, int, int]


def recorded(path: Path, rows: Sequence[Row]) -> Path:
    """A block trace of (op, lba, sectors), issued in this order, written to the file backwards."""
    frame = pd.DataFrame(rows, columns=["op", "lba", "sectors"])
    frame["issued_ns"] = np.arange(len(frame)) * 1000
    frame["latency_ns"] = 100
    frame["completed_ns"] = frame.issued_ns + 100
    frame.iloc[::-1].to_parquet(path)
    return path


def journalled(rounds: int) -> list[Row]:
    """Pages that are written to a journal first, eight at a time, which comes round and round."""
    chance = np.random.default_rng(3)
    rows: list[Row] = []
    pages = JOURNAL_BYTES // 4096
    for turn in range(rounds):
        begin = BEGIN_BYTES // 512 + turn * 9 % (pages - 9) * PAGE
        rows += [("write", begin, 9 * PAGE), ("flush", 0, 0)]
        homes = chance.integers(0, BEGIN_BYTES // 4096, size=8) * PAGE
        rows += [("write", int(home), PAGE) for home in homes]
        rows.append(("read", int(homes[0]), PAGE))
    return rows


def drive(placement: str) -> SsdProfile:
    overrides = {
        "streams": "2",
        "placement": placement,
        "channels": "2",
        "dies_per_channel": "2",
        "pages_per_block": "16",
        "write_buffer": "1 MiB",
        "gc_placement": "by_stream",
    }
    profile = load_device(PROFILES, "samsung_pm953_480gb", overrides)
    assert isinstance(profile, SsdProfile)
    return scaled_to(profile, DRIVE_BYTES)


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Requests:
    return Requests.of(recorded(tmp_path_factory.mktemp("trace") / "t.parquet", journalled(8000)))


def test_requests_come_in_the_order_of_their_issue_without_flushes(tmp_path: Path) -> None:
    rows = [("write", 64, 8), ("flush", 0, 0), ("read", 8, 16), ("write", 0, 8)]
    found = Requests.of(recorded(tmp_path / "t.parquet", rows))
    assert found.op.tolist() == [1, 0, 1]
    assert found.lba.tolist() == [64, 8, 0]
    assert found.sectors.tolist() == [8, 16, 8]


def test_a_trace_that_writes_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no write"):
        Requests.of(recorded(tmp_path / "t.parquet", [("read", 0, 8)]))
    with pytest.raises(TraceError):
        Requests.of(tmp_path / "none.parquet")


def test_the_journal_is_what_is_written_all_over_again(requests: Requests, tmp_path: Path) -> None:
    """Not a page that is hotter than any of its pages, nor one that is read often."""
    rows = journalled(2000) + [("write", 800, PAGE)] * 3000 + [("read", 1600, PAGE)] * 9000
    for each in (requests, Requests.of(recorded(tmp_path / "t.parquet", rows))):
        begin, end = each.journal_of(JOURNAL_BYTES)
        assert end - begin == JOURNAL_BYTES
        assert abs(begin - BEGIN_BYTES) <= 9 * 4096, "its last pages are written less often"


@pytest.mark.parametrize("size_bytes", [0, 4097, DRIVE_BYTES])
def test_a_journal_that_is_not_there_is_refused(requests: Requests, size_bytes: int) -> None:
    with pytest.raises(BadParameter, match="no journal"):
        requests.journal_of(size_bytes)


def test_a_stream_saves_copies_and_time(requests: Requests) -> None:
    journal = (BEGIN_BYTES, BEGIN_BYTES + JOURNAL_BYTES)

    def on(placement: str) -> Replayed:
        return replay(drive(placement), requests, journal)

    apart, mixed = on("range"), on("none")
    assert apart == on("range"), "the same bits"
    assert 1 < apart.waf_ratio < 0.95 * mixed.waf_ratio
    assert apart.elapsed_s < mixed.elapsed_s


def test_what_is_counted_is_the_drives(requests: Requests) -> None:
    """Written as often as the requests say, programmed as often as the drive's own counters do."""
    found = replay(drive("range"), requests, (BEGIN_BYTES, BEGIN_BYTES + JOURNAL_BYTES))
    device = Device(drive("none"))
    device.precondition(fill_ratio=1.0)
    runs = [device.replay(requests.chunks(), queue_depth=8) for _ in range(2)]
    mixed = replay(drive("none"), requests, (BEGIN_BYTES, BEGIN_BYTES + JOURNAL_BYTES))
    written = requests.sectors[requests.op == 1].sum() * 512
    assert runs[1].counters["nand_write_bytes"] / written == pytest.approx(mixed.waf_ratio)
    assert runs[1].elapsed_s == pytest.approx(mixed.elapsed_s, rel=1e-3)
    assert found.journal_waf_ratio != mixed.journal_waf_ratio


def test_a_drive_with_one_stream_is_refused(requests: Requests) -> None:
    profile = drive("range")
    one = profile.model_copy(update={"parameters": profile.parameters.with_values({"streams": 1})})
    with pytest.raises(BadParameter, match="stream"):
        replay(one, requests, (BEGIN_BYTES, BEGIN_BYTES + JOURNAL_BYTES))
