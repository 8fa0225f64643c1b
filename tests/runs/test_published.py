"""Results as they are published: what is written is what was found."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import DataFolderError
from harness.paths import Project
from harness.runs import places, published


def read(text: str) -> pd.DataFrame:
    return published.read("simulated", text, "{}", None).table  # type: ignore[arg-type]


def test_a_table_of_another_run_than_it_says_is_not_read(tmp_path: Path) -> None:
    """A crash between the two, or somebody's hand."""
    project = Project(tmp_path)
    place = places.published(project, "toy", "simulated")
    project.results.mkdir(parents=True)
    table, series = "point,time_s\na,1\n", "{}\n"
    texts = {place.table: table, place.series: series}
    for path, text in texts.items():
        path.write_text(text)
    place.about.write_text(json.dumps({"scale": "small"}))
    assert published.results(project, "toy", "simulated").scale == "small"  # an older one
    place.about.write_text(json.dumps({"files": published.digests(place, table, series)}))
    assert list(published.results(project, "toy", "simulated").table.time_s) == [1]
    for path, text in texts.items():
        path.write_text(text + " ")
        with pytest.raises(DataFolderError, match=f"^{path.name}: not what its run"):
            published.results(project, "toy", "simulated")
        path.write_text(text)
    place.series.unlink()
    with pytest.raises(DataFolderError):
        published.results(project, "toy", "simulated")


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
