"""Cells: typed where they run, flat in tables, and the same when they are read back."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pandas as pd
import pytest

from harness.experiments.base import Cell, Point, points_of
from harness.experiments.delayed_trim import grid as delayed_trim


@dataclass(frozen=True, kw_only=True)
class Example(Cell):
    variant: str
    size_bytes: int
    ratio: float
    merged: bool


@dataclass(frozen=True, kw_only=True)
class Other(Cell):
    size_bytes: int


ONE = Example(device="ssd", variant="paper", size_bytes=1 << 40, ratio=0.1, merged=True)


def test_values_are_the_fields_in_their_order() -> None:
    assert list(ONE.values) == ["device", "variant", "size_bytes", "ratio", "merged"]
    assert ONE.values["size_bytes"] == 1 << 40


def test_a_cell_comes_back_from_a_table_with_other_columns_and_rows_of_other_kinds() -> None:
    rows = [{**ONE.values, "elapsed_s": 1.5}, {"device": "hdd", "elapsed_s": 2.0}]
    written = pd.DataFrame(rows).to_csv(index=False, float_format="%.17g")
    read = pd.read_csv(io.StringIO(written)).to_dict("records")[0]
    assert isinstance(read["size_bytes"], float), "a column with gaps has no integers"
    back = Example.read({str(name): value for name, value in read.items()})
    assert back == ONE
    assert [type(value) for value in back.values.values()] == [str, str, int, float, bool]


def test_a_row_without_one_of_the_columns_is_no_cell() -> None:
    with pytest.raises(KeyError, match="ratio"):
        Example.read({name: value for name, value in ONE.values.items() if name != "ratio"})


def test_a_point_is_of_one_kind_of_cell() -> None:
    point = Point(ONE, "one")
    assert Example.of(point) is ONE
    with pytest.raises(AssertionError):
        Other.of(point)


def test_equal_cells_are_one_point_and_the_first_of_them() -> None:
    again = Other(device="ssd", size_bytes=1)
    cells = [again, Other(device="ssd", size_bytes=2), Other(device="ssd", size_bytes=1)]
    labels = iter("abc")
    found = points_of(cells, lambda _: next(labels))
    assert [point.label for point in found] == ["a", "b"]
    assert found[0].cell is again


@pytest.mark.parametrize(("name", "kind"), delayed_trim.KINDS.items())
def test_a_kind_says_which_it_is(name: str, kind: type[delayed_trim.Cell]) -> None:
    names = {"device", "policy", *kind.__dataclass_fields__} - {"kind", "variant"}
    values = {**dict.fromkeys(names, 1), "kind": name, "variant": "paper"}
    assert type(delayed_trim.read(values)) is kind
