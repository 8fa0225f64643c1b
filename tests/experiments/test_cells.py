"""Cells: typed where they run, flat in tables, and the same when they are read back."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from conftest import REPOSITORY

from harness import experiments
from harness.experiments.base import Cell, Point, points_of
from harness.experiments.delayed_trim import grid as delayed_trim
from harness.tiers.simulated import SimulatedBench


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


class Seen:
    """A study's parameters, and which of them were read."""

    def __init__(self, parameters: Any) -> None:
        self._parameters = parameters
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self._parameters, name)


STUDIES = [name for name in experiments.names() if "simulated" in experiments.find(name).runs]


@pytest.mark.parametrize("name", STUDIES)
def test_what_a_run_reads_of_the_parameters_is_in_its_points_key(name: str, tmp_path: Path) -> None:
    """Or `--set` would find the results of other parameters in the journal.

    `variants` is read by every run, and only the one that the point's cell names.
    """
    study = experiments.find(name)
    section = yaml.safe_load((REPOSITORY / "params.yaml").read_text())[name]["simulated"]
    parameters = study.parameters.model_validate({**section["parameters"], "scale": "smoke"})
    devices, host = section["bench"]["devices"], section["bench"]["host"]
    bench = SimulatedBench(REPOSITORY / "hardware" / "profiles", devices, host)
    point = study.points(parameters, bench)[-1]
    seen = Seen(parameters)
    study.input_digest(parameters, tmp_path)
    study.run_point(point, seen, bench, tmp_path)
    values = parameters.model_dump(mode="json")
    unknown = {f for f in seen.read if str(values[f]) not in point.depends.values()}
    assert unknown <= {"variants"}
