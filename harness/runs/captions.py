"""What stands below a figure: the paper's claims that it shows beside what came out, in words and
as a picture of a line's height, with the expected range and our value on one axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
from markupsafe import Markup, escape

from harness.paths import Project
from harness.runs import claims

_WIDTH, _HEIGHT = 132, 14
_MARGIN: Final = 5  # room for the mark at either end
_LOG_FROM: Final = 10.0  # largest over smallest from which the axis is logarithmic
_BEYOND: Final = 0.15  # how far the axis goes on behind what it shows
_MARKS: Final = {
    claims.REPRODUCED: "#1a7a3c",
    claims.DIRECTION_ONLY: "#e0a526",
    claims.UNDECIDED: "#e0a526",
    claims.NOT_REPRODUCED: "#b3261e",
}
_OTHER_MARK: Final = "#6b7785"  # of what is no evidence


@dataclass(frozen=True)
class Caption:
    """A claim below a figure: a sentence, and the picture beside it as SVG."""

    text: str
    picture: str

    def __html__(self) -> str:
        """Both, for a page or a notebook."""
        return Markup("{} {}").format(Markup(self.picture), self.text)  # noqa: S704 - our own markup


def of(project: Project, experiment: str, verdicts: pd.DataFrame) -> dict[str, list[Caption]]:
    """Captions by the figure that shows them, of the claims that were judged.

    `verdicts`: as `claims.judge` gives them.
    """
    lines: dict[str, list[Caption]] = {}
    against = claims.load(project)[experiment].against
    for row in verdicts.itertuples():
        if row.figure and row.verdict != claims.NOT_JUDGED:
            text = (
                f"{row.statement}: {against} {row.published}, {_numbers(row)} ({claims.said(row)})"
            )
            lines.setdefault(row.figure, []).append(Caption(text, picture(row)))
    return lines


def picture(row: Any) -> str:
    """The expected range as a band (open at an end that is infinite), the repetitions' lowest and
    highest as a line, the value as a dot in its verdict's colour. `row`: of `claims.judge`.
    """
    axis = _Axis([*row.expected, row.value, *_spread(row)])
    low, high = (axis.at(bound) for bound in row.expected)
    band = _rect(low, 3, max(high - low, 2), 8, "#bfe0c9")
    spread = [axis.at(each) for each in _spread(row)]
    line = _rect(spread[0], 6.25, spread[1] - spread[0], 1.5, "#1d2329") if spread else ""
    words = escape(_numbers(row))
    colour = _MARKS.get(row.verdict, _OTHER_MARK)
    return (
        f'<svg class="claim" role="img" aria-label="{words}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" style="vertical-align: -2px"><title>{words}</title>'
        f"{_rect(0, 6.75, _WIDTH, 0.5, '#9aa5b1')}{band}{line}"
        f'<circle cx="{axis.at(row.value):.1f}" cy="7" r="3.5" fill="{colour}"/></svg>'
    )


def _numbers(row: Any) -> str:
    expected = claims.format_range(row.expected, row.unit)
    return f"expected {expected}, here {claims.format_value(row.value, row.unit, row.expected)}"


def _spread(row: Any) -> list[float]:
    """Lowest and highest of the repetitions, if there are several."""
    found = [row.lowest, row.highest]
    return [] if pd.isna(found).any() or row.lowest == row.highest else found


def _rect(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{fill}"/>'


class _Axis:
    """Places on the picture; an infinite value lies at its edge."""

    def __init__(self, values: Sequence[float]) -> None:
        finite = [each for each in values if math.isfinite(each)]
        low, high = min(finite), max(finite)
        self._is_log = low > 0 and high / low > _LOG_FROM
        low, high = self._scaled(low), self._scaled(high)
        beyond = (high - low or abs(high) or 1.0) * _BEYOND
        self._from = low - beyond
        self._length = high - low + 2 * beyond

    def _scaled(self, value: float) -> float:
        return math.log(value) if self._is_log else value

    def at(self, value: float) -> float:
        """From the left, in the picture's units."""
        if math.isinf(value):
            return 0.0 if value < 0 else float(_WIDTH)
        share = (self._scaled(value) - self._from) / self._length
        return _MARGIN + share * (_WIDTH - 2 * _MARGIN)
