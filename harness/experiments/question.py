"""What a reader may ask a study's models, knob by knob: questions that take less than a second.

A room's `QUESTIONS` stand in its module `explore`; `harness/explore` finds, asks and draws them. An
answer is a single run of the study's own model: nothing is kept, nothing is published, and what
decides it besides the knobs is in params.yaml and the profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from harness.errors import UnknownName
from harness.experiments.base import Scalar
from harness.tiers.simulated import SimulatedBench
from harness.units import format_bytes

Settings = Mapping[str, Scalar]
"""A value for each of a question's knobs, by the knob's name."""


@dataclass(frozen=True)
class Knob:
    """What can be changed: values in their order, each with the label that people see.

    `name` carries the unit. `default` is what the study itself has, or comes nearest to it.
    """

    name: str
    title: str
    choices: Mapping[Scalar, str]
    default: Scalar

    def __post_init__(self) -> None:
        assert self.default in self.choices, f"{self.name}: {self.default} is no choice"

    @property
    def is_scale(self) -> bool:
        """Whether its values have an order: numbers do, names have none."""
        return not any(isinstance(value, str) for value in self.choices)

    def check(self, value: Scalar) -> Scalar:
        """The value itself. Raises UnknownName."""
        if value not in self.choices:
            raise UnknownName(self.name, str(value), map(str, self.choices))
        return value


@dataclass(frozen=True)
class Beside:
    """Numbers that were not simulated here, to be drawn beside an answer.

    `values`: by value of the knob that the picture has as its x axis; in the question's unit.
    `kind` is who says so: a paper, a closed formula, a data sheet.
    """

    label: str
    kind: Literal["paper", "theory", "data sheet"]
    values: Mapping[Scalar, float]


@dataclass(frozen=True)
class Answer:
    """What the model says: `value` in the unit of the question's metric; `more` for a line of text,
    names with units.
    """

    value: float
    beside: Sequence[Beside] = ()
    more: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Given:
    """What a question is asked of: the study's parameters, its drives and host, and the folder of
    published numbers.
    """

    parameters: Any
    bench: SimulatedBench
    published: Path


Ask = Callable[[Given, Settings], Answer]
"""Runs the model once. Raises HarnessError; the same settings give the same answer."""


@dataclass(frozen=True)
class Question:
    """A question with its knobs.

    `over`: the knob on the picture's x axis. `metric`: the y axis, with its unit. `scale`: the
    study's, by name; None where it has its own. `size`: what is smaller than in the study, and
    whether that matters, as a sentence for the page. `logarithmic`: the y axis.
    """

    name: str
    title: str
    metric: str
    knobs: Sequence[Knob]
    over: str
    size: str
    ask: Ask
    scale: str | None = None

    def __post_init__(self) -> None:
        assert self.over in {knob.name for knob in self.knobs}, self.name

    @property
    def axis(self) -> Knob:
        """The knob on the x axis."""
        return next(knob for knob in self.knobs if knob.name == self.over)

    @property
    def defaults(self) -> dict[str, Scalar]:
        """As the study has it."""
        return {knob.name: knob.default for knob in self.knobs}

    def complete(self, settings: Settings) -> dict[str, Scalar]:
        """The settings, with defaults for what they do not name. Raises UnknownName."""
        known = self.defaults
        for name in settings:
            if name not in known:
                raise UnknownName("knob", name, known)
        return {knob.name: knob.check({**known, **settings}[knob.name]) for knob in self.knobs}


def sizes(*sizes_bytes: int, nothing: str = "") -> dict[Scalar, str]:
    """Choices of sizes in bytes; `nothing` is what 0 is called."""
    return {size: format_bytes(size) if size or not nothing else nothing for size in sizes_bytes}


def shares(ratios: Iterable[float]) -> dict[Scalar, str]:
    """Choices of ratios, shown in percent."""
    return {ratio: f"{ratio * 100:g} %" for ratio in ratios}


def times(factors: Iterable[float]) -> dict[Scalar, str]:
    """Choices of factors to a number of a profile, which 1 leaves as it is."""
    return {factor: f"x {factor:g}" for factor in factors}


MIB: Final = 1 << 20
"""For sizes that are settings."""
