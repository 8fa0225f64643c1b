"""A figure with a goal: measured, judged and written down the same way wherever it is asked for."""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}


def within(low: float, high: float) -> str:
    """A goal: both bounds included; an infinite one is none."""
    bounds = ((">=", low), ("<=", high))
    return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if math.isfinite(bound))


@dataclass(frozen=True)
class Goal:
    """A figure that an issue or the documentation asks for, and what was measured of it.

    `goal` is a condition such as '>= 5e6', or two joined by ' and '. `samples` are the single runs;
    the value is their median. `missing` says why there is none. `context` is what a reader needs to
    judge the number (the environment, the two sides of a ratio). `is_claim`: a paper's, which has
    its place elsewhere, too.
    """

    name: str
    unit: str
    goal: str
    command: str
    samples: Sequence[float] = ()
    missing: str = ""
    context: dict[str, Any] = field(default_factory=dict)
    is_claim: bool = False

    @property
    def value(self) -> float | None:
        """Median of the samples."""
        return statistics.median(self.samples) if self.samples else None

    @property
    def holds(self) -> bool | None:
        """Whether the value meets the goal; None if there is no value or no goal."""
        if self.value is None or not self.goal:
            return None
        return all(self._meets(condition) for condition in self.goal.split(" and "))

    def _meets(self, condition: str) -> bool:
        comparison, bound = condition.split()
        assert self.value is not None
        return _COMPARE[comparison](self.value, float(bound))

    def record(self) -> dict[str, Any]:
        """As it stands in bench.json."""
        have = bool(self.samples)
        record: dict[str, Any] = {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "goal": self.goal,
            "holds": self.holds,
            "runs": len(self.samples),
            "min": min(self.samples) if have else None,
            "median": self.value,
            "max": max(self.samples) if have else None,
            "command": self.command,
        }
        if self.is_claim:
            record["is_claim"] = True
        if self.missing:
            record["reason"] = self.missing
        if self.context:
            record["context"] = self.context
        return record

    def line(self) -> str:
        """For the terminal."""
        if self.value is None:
            return f"{self.name}: not measured ({self.missing})"
        verdict = {True: "holds", False: "DOES NOT HOLD", None: "no goal"}[self.holds]
        return f"{self.name}: {self.value:.4g} {self.unit} (goal {self.goal or 'none'}: {verdict})"
