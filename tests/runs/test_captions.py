"""Captions: a claim's sentence, and its picture, which says what the verdict says."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as Xml

import pytest
from claims_world import PAPER, project_of, results
from hypothesis import given
from hypothesis import strategies as st

from harness.paths import Project
from harness.runs import captions, claims

CLAIMS = (
    PAPER
    + """\
    - {id: a, place: p, statement: s < t, metric: SELECT avg(x) FROM r, published: about 10,
       expected: [8, 12], direction: [2, 50], why: w, figure: f}
    - {id: b, place: p, statement: s, metric: SELECT avg(x) FROM r, published: about 10,
       expected: [8, 12], why: w}
"""
)
SVG = "{http://www.w3.org/2000/svg}"
BAND, DOT = "#bfe0c9", "circle"


@pytest.fixture
def small(tmp_path: Path) -> Project:
    return project_of(tmp_path, CLAIMS)


def test_a_caption_puts_the_paper_beside_what_came_out(small: Project) -> None:
    verdicts = claims.judge(small, "grace_hash_join", results(9.0, 13.0))
    below = captions.of(small, "grace_hash_join", verdicts)
    assert list(below) == ["f"], "a claim without a figure has no caption"
    [caption] = below["f"]
    assert caption.text == "s < t: paper about 10, expected 8 .. 12, here 11 (undecided)"
    assert "s &lt; t" in caption.__html__()
    assert caption.__html__().startswith("<svg")
    assert "expected 8 .. 12, here 11" in caption.picture


def test_what_was_not_run_has_no_caption(small: Project) -> None:
    nothing = claims.judge(small, "grace_hash_join", results())
    assert captions.of(small, "grace_hash_join", nothing) == {}


def row(low: float, high: float, value: float, lowest: float, highest: float) -> SimpleNamespace:
    return SimpleNamespace(
        expected=(low, high),
        value=value,
        lowest=lowest,
        highest=highest,
        unit="ratio",
        verdict=claims.REPRODUCED,
    )


NUMBERS = st.floats(-1e6, 1e6).map(lambda x: float(f"{x:.4g}"))


@given(low=NUMBERS, high=NUMBERS, is_open=st.booleans(), value=NUMBERS, more=NUMBERS)
def test_the_dot_is_in_the_band_if_the_value_is_in_the_range(
    low: float, high: float, is_open: bool, value: float, more: float
) -> None:
    low, high = min(low, high), max(low, high)
    bound = math.inf if is_open else high
    shown = row(low, bound, value, min(value, more), max(value, more))
    drawn = Xml.fromstring(captions.picture(shown).replace("<svg", f'<svg xmlns="{SVG[1:-1]}"', 1))
    width = float(drawn.get("width", "nan"))
    [band] = [each for each in drawn.iter(f"{SVG}rect") if each.get("fill") == BAND]
    [dot] = drawn.iter(f"{SVG}{DOT}")
    left, across = float(band.get("x", "nan")), float(band.get("width", "nan"))
    at = float(dot.get("cx", "nan"))
    assert all(0 <= x <= width for x in (left, left + across, at))
    if low <= value <= bound:
        assert left - 0.11 <= at <= left + across + 0.11
    elif abs(value - (low if value < low else bound)) > 0.02 * max(
        abs(x) for x in (low, high if not is_open else low, value, more)
    ):
        assert not left + 0.11 < at < left + across - 2.11, "outside, or at the edge"


def test_an_axis_of_many_sizes_is_logarithmic() -> None:
    drawn = captions.picture(row(1, 2, 677, 677, 677))
    dot = float(drawn.split('cx="')[1].split('"')[0])
    band = float(drawn.split('x="')[2].split('"')[0])
    assert dot - band > 50
    assert float(drawn.split('width="')[3].split('"')[0]) > 5, "the range can be seen"


def test_repetitions_are_a_line() -> None:
    assert "#1d2329" in captions.picture(row(1, 2, 1.5, 1.2, 1.8))
    assert "#1d2329" not in captions.picture(row(1, 2, 1.5, 1.5, 1.5))
    assert "#1d2329" not in captions.picture(row(1, 2, 1.5, math.nan, math.nan))
