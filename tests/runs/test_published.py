"""Results as they are published: what is written is what was found."""

from __future__ import annotations

import math

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from harness.runs import published


def read(text: str) -> pd.DataFrame:
    return published.read("simulated", text, "{}", None).table  # type: ignore[arg-type]


def test_a_size_keeps_its_last_digits_beside_a_point_that_has_none() -> None:
    """Of 2 GiB, nine digits are no multiple of a page."""
    table = pd.DataFrame({"point": ["a", "b"], "device_bytes": [2147483648.0, math.nan]})
    assert published.as_csv(table) == "point,device_bytes\na,2147483648\nb,\n"
    assert read(published.as_csv(table)).device_bytes[0] == 2147483648


def test_what_is_no_whole_number_has_nine_digits() -> None:
    table = pd.DataFrame({"point": ["a", "b"], "time_s": [1 / 3, 1e12], "text": ["x", None]})
    assert published.as_csv(table) == "point,time_s,text\na,0.333333333,x\nb,1e+12,\n"


@given(
    st.lists(st.one_of(st.none(), st.integers(-(2**53) + 1, 2**53 - 1)), min_size=1).map(
        lambda found: [math.nan if value is None else float(value) for value in found]
    )
)
def test_whole_numbers_are_read_again_as_they_were(values: list[float]) -> None:
    table = pd.DataFrame({"point": [str(n) for n in range(len(values))], "bytes": values})
    again = read(published.as_csv(table)).bytes.astype(float)
    pd.testing.assert_series_equal(again, table.bytes)
