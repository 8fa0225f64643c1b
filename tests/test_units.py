"""Human units at the edge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import units
from harness.errors import BadParameter


@pytest.mark.parametrize(
    ("text", "value"),
    [("4 KiB", 4096), ("250 GB", 250 * 10**9), ("1.5 MiB", 1572864), ("31_999 B", 31999)],
)
def test_bytes(text: str, value: int) -> None:
    assert units.parse_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("8.5 ms", 8_500_000), ("25us", 25_000), ("2 s", 2 * 10**9), ("0 ns", 0)]
)
def test_times(text: str, value: int) -> None:
    assert units.parse_time(text) == value


def test_rate_and_rotation() -> None:
    assert units.parse_rate("125 MB/s") == 125_000_000
    assert units.parse_rpm("7200 rpm") == 7200


@pytest.mark.parametrize("text", ["4", "4 KB/s", "KiB", "-4 KiB", "4 kib", "", 4, None, "1 KiB 2"])
def test_sizes_that_are_refused(text: object) -> None:
    with pytest.raises(BadParameter):
        units.parse_bytes(text)


@pytest.mark.parametrize("text", ["9223372036854775808 B", f"{'9' * 5000} GiB", "9000000000 GiB"])
def test_sizes_that_nothing_counts(text: str) -> None:
    with pytest.raises(BadParameter, match="is too large"):
        units.parse_bytes(text)
    assert units.parse_bytes("9223372036854775807 B") == 2**63 - 1


def test_no_fraction_of_a_byte() -> None:
    with pytest.raises(BadParameter, match="whole number"):
        units.parse_bytes("0.3 B")


@given(st.integers(0, 2**50))
def test_every_size_survives_the_text(n_bytes: int) -> None:
    assert units.parse_bytes(f"{n_bytes} B") == n_bytes


def test_for_people() -> None:
    assert units.format_bytes(4096) == "4 KiB"
    assert units.format_bytes(100) == "100 B"
    assert units.format_seconds(3.5) == "3.5 s"
    assert units.format_seconds(365) == "6 min 05 s"
    assert units.format_seconds(7380) == "2 h 03 min"
