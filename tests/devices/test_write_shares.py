"""Write amplification by range and over time: sums, samples, series."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from harness.devices.profiles import NamedRange
from harness.devices.write_shares import REST, Sampler, Share, Writes, series, shares_of, since
from harness.errors import HarnessError, TargetError
from harness.workloads.ageing import Ageing

JOURNAL = NamedRange("journal", 0, 4096, 1)


def test_shares_are_in_bytes_and_ranges_of_one_name_are_one() -> None:
    ranges = [JOURNAL, NamedRange("redo", 4096, 8192), NamedRange("journal", 8192, 12288, 1)]
    parts = [(1, 2, 3, 4), (10, 0, 0, 0), (100, 200, 300, 400), (5, 0, 0, 5)]
    shares = shares_of(ranges, parts, 1000)
    assert list(shares) == ["journal", "redo", REST]
    assert shares["journal"] == Share(101_000, 202_000, 303_000, 404_000)
    assert shares["journal"].written_bytes == 505_000
    assert shares["journal"].programmed_bytes == 606_000
    assert shares["journal"].waf == pytest.approx(606 / 505)
    assert shares[REST].waf == pytest.approx(0.5)
    assert math.isnan(Share(copied_bytes=5).waf)
    with pytest.raises(ValueError, match="zip"):
        shares_of(ranges, parts[1:], 1000)


def test_what_a_baseline_knew_is_taken_off_once() -> None:
    before = {"journal": Share(1, 2, 3, 4), REST: Share(10, 20, 30, 40)}
    now = {"journal": Share(2, 2, 3, 4), REST: Share(15, 20, 30, 40)}
    assert since(now, before) == {"journal": Share(1), REST: Share(5)}
    renamed = {"home": Share(7), REST: Share(15, 22, 33, 44)}
    assert since(renamed, before) == {"home": Share(7), REST: Share(4)}
    assert since({}, {}) == {}


def sample(time_ns: int, journal: Share, rest: Share, folded: int = 0) -> Writes:
    programmed = journal.programmed_bytes + rest.programmed_bytes + folded
    written = journal.written_bytes + rest.written_bytes
    counters = {"nand_write_bytes": programmed, "write_bytes": written}
    return Writes(time_ns, counters, {"journal": journal, REST: rest})


def test_a_part_of_a_unit_is_written_with_its_bytes() -> None:
    def at(time_ns: int, unit: int, programmed: int, written: int) -> Writes:
        counters = {"nand_write_bytes": programmed, "write_bytes": written}
        return Writes(time_ns, counters, {REST: Share(unit)})

    found = series([at(0, 0, 0, 0), at(1, 16_384, 16_384, 4096)])
    assert found["waf_written_bytes"] == [0, 4096]
    assert found["waf_ratio"][1] == 4.0


def test_a_series_counts_from_its_first_sample() -> None:
    samples = [
        sample(5_000_000_000, Share(100), Share(1000, 50)),
        sample(6_000_000_000, Share(100), Share(1000, 50)),
        sample(8_000_000_000, Share(300, 0, 20, 100), Share(1400, 450, 0, 0), folded=1000),
    ]
    found = series(samples)
    assert found["waf_time_s"] == [0.0, 1.0, 3.0]
    assert found["waf_written_bytes"] == [0, 0, 700]
    assert found["waf_programmed_bytes"] == [0, 0, 2020]
    assert math.isnan(found["waf_ratio"][0])
    assert math.isnan(found["waf_ratio"][1])
    assert found["waf_ratio"][2] == pytest.approx(2020 / 700)
    assert found["waf_journal_written_bytes"] == [0, 0, 300]
    assert found["waf_journal_ratio"][2] == pytest.approx(220 / 300)
    assert found["waf_rest_programmed_bytes"] == [0, 0, 800]
    assert found["waf_rest_ratio"][2] == pytest.approx(2.0)
    assert {len(values) for values in found.values()} == {3}
    assert series([]) == {}


def test_a_sampler_looks_at_begin_in_between_and_at_the_end() -> None:
    enough = threading.Event()
    count = 0

    def look() -> Writes:
        nonlocal count
        count += 1
        if count == 5:
            enough.set()
        return sample(count, Share(count), Share())

    with Sampler(look, 0.001) as sampler:
        assert [s.time_ns for s in sampler.samples[:1]] == [1]
        assert enough.wait(30)
    assert [s.time_ns for s in sampler.samples] == list(range(1, count + 1))
    assert not sampler.is_running


def test_what_a_sampler_met_is_raised_at_its_end() -> None:
    failed = threading.Event()
    looks = iter([sample(0, Share(), Share())])

    def look() -> Writes:
        for found in looks:
            return found
        failed.set()
        raise TargetError("the device is gone")

    with pytest.raises(TargetError, match="is gone"), Sampler(look, 0.001):
        assert failed.wait(30)
    with (
        pytest.raises(ZeroDivisionError),
        Sampler(lambda: sample(0, Share(), Share()), 100.0) as sampler,
    ):
        1 / 0  # noqa: B018
    assert not sampler.is_running


def test_a_drive_that_does_not_say_has_no_samples() -> None:
    with Sampler(lambda: None, 0.001) as sampler:
        pass
    assert sampler.samples == []
    assert series(sampler.samples) == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"region_bytes": 0}, "region_bytes 0: must be a positive multiple of 512"),
        ({"written_bytes": 100}, "written_bytes 100"),
        ({"begin_bytes": -512}, "begin_bytes -512"),
        ({"block_bytes": 3 * 4096}, "must be multiples of block_bytes 12288"),
        ({"region_bytes": 2 << 20}, "the region ends at 2097152 B, the device at 1048576 B"),
        ({"begin_bytes": 512}, "choose a smaller region"),
        ({"pattern": "both"}, "unknown pattern 'both'; known: random, sequential"),
    ],
)
def test_an_ageing_that_cannot_be_is_refused(change: dict[str, Any], said: str) -> None:
    possible: dict[str, Any] = {"region_bytes": 1 << 20, "written_bytes": 2 << 20}
    Ageing(**possible).check(1 << 20)
    with pytest.raises(HarnessError, match=said):
        Ageing(**possible | change).check(1 << 20)
