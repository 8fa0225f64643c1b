"""The picture of an answer: among earlier answers, beside what others say."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Final

from matplotlib.axes import Axes

from harness import plots
from harness.experiments.base import Scalar
from harness.experiments.question import Beside, Knob, Question
from harness.explore.explorer import Asking
from harness.units import format_bytes

_NOW: Final = plots.COLOURS["ssd"]
_EARLIER: Final = "0.72"
_HEADROOM: Final = 1.12
_BESIDE: Final[Mapping[str, Mapping[str, Any]]] = {
    "paper": {"color": "#b5542c", "marker": "D", "markersize": 8},
    "data sheet": {"color": "#b5542c", "marker": "s", "markersize": 7},
    "theory": {"color": "#4d7f3c", "markersize": 7, "linestyle": "--"},
}
"""How what was not simulated here is drawn, by who says so."""

_MARKERS: Final = "x+*v"
"""Of several that say the same kind of thing."""


def draw(question: Question, asked: Sequence[Asking]) -> bytes:
    """A PNG of the last answer; those before it are shown faintly.

    What was answered with all other knobs as they are now is joined by a line.
    """
    with plots.theme():
        figure, axes = plots.new(height_in=4.0)
        now = asked[-1]
        _earlier(axes, question, asked)
        for beside, marker in zip(now.answer.beside, cycle(_MARKERS), strict=False):
            _beside(axes, question.axis, beside, marker)
        axes.plot(
            [_place(question.axis, now.settings)],
            [now.answer.value],
            linestyle="",
            marker="o",
            markersize=11,
            color=_NOW,
            label=f"simulated: {now.answer.value:.4g}",
            zorder=4,
        )
        _label(axes, question)
        plots.stamp(figure, f"tier: simulated. {said(question, now)}")
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=100, metadata={"Software": None})
    return file.getvalue()


def said(question: Question, asking: Asking) -> str:
    """The settings and the answer in words, for a line of text."""
    settings = [
        f"{knob.title}: {knob.choices[asking.settings[knob.name]]}" for knob in question.knobs
    ]
    more = [_in_words(name, value) for name, value in asking.answer.more.items()]
    return f"{'; '.join(settings)}. {', '.join(more)}".strip()


def _in_words(name: str, value: float) -> str:
    """Of a name that ends with its unit, as `Answer.more` has it."""
    words = name.removesuffix("_bytes").replace("_", " ")
    if name.endswith("_bytes"):
        return f"{words} {format_bytes(value)}"
    return f"{words} {value:,.0f}" if value >= 1000 else f"{words} {value:.4g}"


def _earlier(axes: Axes, question: Question, asked: Sequence[Asking]) -> None:
    now = asked[-1]
    alike = [each for each in asked if _others(question, each) == _others(question, now)]
    rest = [each for each in asked if each not in alike]
    points = [(_place(question.axis, each.settings), each.answer.value) for each in rest]
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, linestyle="", marker="o", color=_EARLIER, label="other settings")
    line = sorted((_place(question.axis, each.settings), each.answer.value) for each in alike)
    axes.plot(*zip(*line, strict=True), marker="o", markersize=5, color=_NOW, alpha=0.6)


def _others(question: Question, asking: Asking) -> dict[str, Scalar]:
    return {name: value for name, value in asking.settings.items() if name != question.over}


def _beside(axes: Axes, knob: Knob, beside: Beside, marker: str) -> None:
    places = {value: i for i, value in enumerate(knob.choices)}
    shown = [(places[value], y) for value, y in beside.values.items() if value in places]
    if not shown:
        return
    x, y = zip(*sorted(shown), strict=True)
    style: dict[str, Any] = {
        "linestyle": "",
        "marker": marker,
        "alpha": 0.85,
        **_BESIDE[beside.kind],
    }
    axes.plot(x, y, label=beside.label, **style)


def _place(knob: Knob, settings: Mapping[str, Scalar]) -> int:
    return [*knob.choices].index(settings[knob.name])


def _label(axes: Axes, question: Question) -> None:
    """Ticks at all choices, so that nothing moves but what has changed."""
    knob = question.axis
    axes.set_xticks(range(len(knob.choices)), [*knob.choices.values()])
    axes.set_xlim(-0.5, len(knob.choices) - 0.5)
    axes.set_xlabel(knob.title)
    axes.set_ylabel(question.metric)
    axes.set_title(question.title)
    axes.set_ylim(0, _HEADROOM * axes.dataLim.y1)
    axes.legend(fontsize="small")
