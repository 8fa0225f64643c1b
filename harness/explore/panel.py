"""Sliders in a notebook, above the picture of the answer.

    panel.show("spare_area")

The picture is an ordinary output that each answer replaces: it is saved with the notebook, so that
whoever opens it without a kernel sees the last one.
"""

from __future__ import annotations

from typing import Any, Final

import ipywidgets as widgets
from IPython.display import Image, display

from harness.errors import HarnessError
from harness.experiments.question import Knob
from harness.explore import explorer, picture
from harness.explore.explorer import Explorer
from harness.paths import find_project

WITHOUT_KERNEL: Final = (
    "The sliders need a kernel: Run, Run All Cells. The picture below is the last answer."
)
"""What stands in their place where there is none."""

_WIDE: Final = {"width": "98%", "max_width": "680px"}
_LABELLED: Final = {"description_width": "45%"}


class Panel:
    """The sliders of one question, and the picture of its last answer."""

    def __init__(self, asked: Explorer) -> None:
        self._asked = asked
        question = asked.question
        self.controls = {knob.name: _control(knob) for knob in question.knobs}
        self._line = widgets.HTML(layout=_WIDE)
        self._box = widgets.VBox([*self.controls.values(), self._line])
        for control in self.controls.values():
            control.observe(self._changed, names="value")
        self._picture = _as_image(self._answer())
        self._handle: Any = None

    def show(self) -> None:
        """Sliders, and the picture below them."""
        bundle = self._box._repr_mimebundle_()
        display({**bundle, "text/plain": WITHOUT_KERNEL}, raw=True)
        self._handle = display(self._picture, display_id=True)

    def _changed(self, _: object) -> None:
        try:
            self._picture = _as_image(self._answer())
        except HarnessError as error:
            self._line.value = f"<b>no answer</b>: {error}"
            return
        if self._handle is not None:
            self._handle.update(self._picture)

    def _answer(self) -> bytes:
        now = self._asked.ask(**{name: control.value for name, control in self.controls.items()})
        question = self._asked.question
        self._line.value = f"{question.metric}: <b>{now.answer.value:.4g}</b>. {question.size}"
        return picture.draw(question, self._asked.asked)


def show(name: str) -> Panel:
    """The panel of a question, shown. Raises UnknownName."""
    panel = Panel(explorer.find(find_project(), name))
    panel.show()
    return panel


def _control(knob: Knob) -> Any:
    options = [(label, value) for value, label in knob.choices.items()]
    given = {"options": options, "value": knob.default, "description": knob.title}
    if knob.is_scale:
        return widgets.SelectionSlider(
            **given, continuous_update=False, layout=_WIDE, style=_LABELLED
        )
    return widgets.Dropdown(**given, layout=_WIDE, style=_LABELLED)


def _as_image(png: bytes) -> Image:
    return Image(png, format="png")
