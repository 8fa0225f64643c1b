"""Questions of a flash drive that theory answers, too: spare area, victims, streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.devices import waf_theory
from harness.experiments.base import Measurement, Scalar
from harness.experiments.device_models import amplification
from harness.experiments.device_models.grid import FLASH, LAYOUTS, HotColdCell, UniformCell
from harness.experiments.question import Answer, Beside, Given, Knob, Question, Settings, shares

_SPARE: Final = Knob(
    "spare_factor",
    "spare area",
    shares([0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4]),
    0.1,
)
_UNIFORM_SCALE: Final = "small"
_HOT_COLD_SCALE: Final = "smoke"
"""Half the blocks, and half of the warm-up."""


def spare_area(given: Given, settings: Settings) -> Answer:
    """Write amplification of uniform random writes, and the closed formula at every spare area."""
    cell = UniformCell(
        device=FLASH,
        scale=_UNIFORM_SCALE,
        repetition=0,
        kind="waf",
        policy=str(settings["policy"]),
        gc_choices=given.parameters.gc_choices,
        spare_factor=float(settings["spare_factor"]),
    )
    found = amplification.waf(cell, given.bench)
    return Answer(_waf(found), _formula(cell))


def _formula(cell: UniformCell) -> list[Beside]:
    """At the spare factor without the block that is kept free; none of cost_benefit."""
    pages, choices = amplification.PAGES_PER_BLOCK, cell.gc_choices
    formulas: dict[str, Callable[[float], float]] = {
        "fifo": waf_theory.fifo,
        "greedy": lambda spare: waf_theory.greedy(spare, pages),
        "d_choices": lambda spare: waf_theory.d_choices(spare, pages, choices),
    }
    if cell.policy not in formulas:
        return []
    formula = formulas[cell.policy]
    usable = 1 - 1 / amplification.BLOCKS
    values: dict[Scalar, float] = {
        spare: formula(1 - (1 - float(spare)) / usable) for spare in _SPARE.choices
    }
    return [Beside(f"closed formula, {cell.policy}", "theory", values)]


def streams(given: Given, settings: Settings) -> Answer:
    """The same where a tenth of the data gets most of the writes, in one stream or in two."""
    spare = float(settings["spare_factor"])
    found = amplification.hot_cold(
        HotColdCell(
            device=FLASH,
            scale=_HOT_COLD_SCALE,
            repetition=0,
            layout=str(settings["layout"]),
            spare_factor=spare,
            hot_data_ratio=given.parameters.hot_data_ratio,
            hot_access_ratio=given.parameters.hot_access_ratio,
        ),
        given.bench,
    )
    marks = {
        "theory_mixed_waf": "one stream, FIFO",
        "theory_balanced_waf": "as if all data were alike",
        "theory_separated_waf": "two streams, best split",
    }
    beside = [
        Beside(label, "theory", {spare: float(found.metrics[name])})
        for name, label in marks.items()
    ]
    return Answer(_waf(found), beside)


def _waf(found: Measurement) -> float:
    return float(found.metrics["waf"])


QUESTIONS: Final = (
    Question(
        name="spare_area",
        title="Spare area and victim policy, under uniform random writes",
        metric="write amplification",
        knobs=(
            _SPARE,
            Knob(
                "policy",
                "victim policy",
                {name: name for name in ("greedy", "fifo", "d_choices", "cost_benefit")},
                "greedy",
            ),
        ),
        over="spare_factor",
        size="A drive of 256 MiB with 1,024 blocks, as in notebook 05. With more blocks nothing "
        "changes but the one that is kept free, which theory is corrected for.",
        ask=spare_area,
    ),
    Question(
        name="streams",
        title="Streams: hot and cold data, mixed or apart",
        metric="write amplification",
        knobs=(
            _SPARE,
            Knob("layout", "layout and policy", {name: name for name in LAYOUTS}, [*LAYOUTS][1]),
        ),
        over="spare_factor",
        size="Half the blocks of notebook 05's drive and half of its warm-up: with little spare "
        "area cold data does not lie yet as it will, and the open blocks weigh more.",
        ask=streams,
    ),
)
