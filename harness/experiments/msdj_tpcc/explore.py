"""The journal's stream: how much is written to flash, by mode and spare area."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from harness.devices.profiles import SsdProfile
from harness.experiments.base import Scalar
from harness.experiments.msdj_tpcc import grid, model, published
from harness.experiments.question import Answer, Beside, Given, Knob, Question, Settings, times
from harness.tiers.base import DeviceRequest

_MODES: Final[Mapping[Scalar, str]] = {
    "oj_dwb": "ordered, doublewrite buffer",
    "dj": "data journal",
    "msdj": "data journal in a stream of its own",
}
_JOURNALS: Final[Mapping[Scalar, str]] = {"small": "128 MiB", "large": "5 GiB"}
"""As the published numbers call them; the grid has them in this order."""

_SHORTER: Final = 0.25
"""Of the measured time that the scale has: so that an answer takes no second."""


def written(given: Given, settings: Settings) -> Answer:
    """Write amplification of TPC-C in one mode."""
    mode, journal = str(settings["mode"]), str(settings["journal"])
    cell = _cell(given, mode, journal)
    found = model.run_point(cell, _overrides(given, settings, cell.device), given.bench)
    paper = published.waf(given.published)
    beside = [
        Beside("paper, table 1", "paper", {1.0: waf})
        for cell_of, waf in paper.items()
        if cell_of == (journal, mode)
    ]
    metrics = ("tpmc", "journal_written_bytes", "home_written_bytes")
    return Answer(
        float(found.metrics["waf_ratio"]),
        beside,
        {name: float(found.metrics[name]) for name in metrics},
    )


def _cell(given: Given, mode: str, journal: str) -> grid.Cell:
    device, *_ = given.bench.devices
    size = given.parameters.journals[[*_JOURNALS].index(journal)]
    chosen = given.parameters.model_copy(
        update={"modes": [mode], "journals": [size], "variants": {}}
    )
    cell = grid.Cell.of(grid.points(chosen, [device])[0])
    return replace(cell, measured_s=cell.measured_s * _SHORTER, warm_up_s=cell.warm_up_s * _SHORTER)


def _overrides(given: Given, settings: Settings, device: str) -> dict[str, str]:
    profile = given.bench.stack(DeviceRequest(device=device)).device
    assert isinstance(profile, SsdProfile)
    values: Any = profile.parameters
    spare = values.overprovision.value * float(settings["spare_ratio"])
    return {"overprovision": f"{spare:.6f}"}


QUESTIONS: Final = (
    Question(
        name="journal_stream",
        title="A stream for the journal, under TPC-C",
        metric="write amplification",
        knobs=(
            Knob(
                "spare_ratio",
                "the drive's spare area",
                times([0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0]),
                1.0,
            ),
            Knob("mode", "page writes", _MODES, "dj"),
            Knob("journal", "journal", _JOURNALS, "small"),
        ),
        over="spare_ratio",
        size="A hundredth of the paper's size and a quarter of that scale's time. Here size "
        "matters: write amplification has not settled and is below table 1's; compare the modes "
        "with each other, and see notebook 40 for the values.",
        ask=written,
        scale="smoke",
    ),
)
