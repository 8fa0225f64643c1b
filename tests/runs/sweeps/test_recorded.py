"""What is published of sweeps: the answers are those of the record beside them."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from conftest import REPOSITORY

from harness.paths import Project
from harness.runs.sweeps import answers, recorded, tables, written

SWEEPS = REPOSITORY / "data" / "sweeps"
ANSWERED = sorted(path.parent.parent.name for path in SWEEPS.glob(f"*/{tables.ANSWERS}/shares.csv"))
OF_NOW = ["larger_value", "at_larger", "another_scale"]
"""Beside a record by the code of now; an earlier one's is compared with nothing any more."""


def test_sweeps_are_published() -> None:
    assert ANSWERED


@pytest.mark.parametrize("name", ANSWERED)
def test_shares_on_file_are_those_of_the_record(name: str) -> None:
    """To the digits that are printed: whoever records a sweep anew answers it anew."""
    folder = SWEEPS / name
    there = recorded.read(Project(REPOSITORY), name.partition(".")[0], folder)
    on_file = (folder / tables.ANSWERS / "shares.csv").read_text()
    made = written.text(answers.shares(there))
    if there.is_present:
        assert on_file == made
        return
    one, other = (pd.read_csv(io.StringIO(each)).drop(columns=OF_NOW) for each in (on_file, made))
    pd.testing.assert_frame_equal(one, other)
