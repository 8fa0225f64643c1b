"""What a TRIM costs the host, and what delaying it saves, by the firmware's prices."""

from __future__ import annotations

from typing import Any, Final

from harness.devices.profiles import SsdProfile
from harness.experiments.base import Scalar
from harness.experiments.delayed_trim import model, published
from harness.experiments.delayed_trim.grid import BOARD, Parameters, UnitsCell
from harness.experiments.question import (
    MIB,
    Answer,
    Beside,
    Given,
    Knob,
    Question,
    Settings,
    sizes,
    times,
)
from harness.units import parse_bytes

_PRICES: Final = {
    "command_factor": ("trim_command_time", "trim_range_time"),
    "slice_factor": ("trim_buffer_time", "trim_map_time"),
}
"""Knob -> what it multiplies in the board's profile."""


def reduction(given: Given, settings: Settings) -> Answer:
    """By how much less the host waits for TRIM of a file if the drive only notes it, in percent."""
    overrides = _prices(given, settings)
    spent = {
        policy: model.run_point(_cell(given.parameters, policy, settings), given.bench, overrides)
        for policy in ("immediate", "delayed")
    }
    waited_us = {policy: float(found.metrics["trim_us"]) for policy, found in spent.items()}
    return Answer(
        100 * (1 - waited_us["delayed"] / waited_us["immediate"]),
        [_paper(given)],
        {f"{policy}_ms": us / 1e3 for policy, us in waited_us.items()},
    )


def _cell(parameters: Parameters, policy: str, settings: Settings) -> UnitsCell:
    return UnitsCell(
        device=BOARD,
        policy=policy,
        file_bytes=parse_bytes(parameters.file),
        unit_bytes=int(settings["unit_bytes"]),
    )


def _prices(given: Given, settings: Settings) -> dict[str, str]:
    profile = given.bench.new_model(BOARD, overrides={}).profile
    assert isinstance(profile, SsdProfile)
    values: Any = profile.parameters
    return {
        name: f"{round(getattr(values, name).value * float(settings[knob]))} ns"
        for knob, names in _PRICES.items()
        for name in names
    }


def _paper(given: Given) -> Beside:
    cells = published.cells(given.published).query("metric == 'reduction_ratio'")
    values: dict[Scalar, float] = {
        int(cell.unit_bytes): 100 * float(cell.value) for cell in cells.itertuples()
    }
    return Beside("paper, figure 2", "paper", values)


QUESTIONS: Final = (
    Question(
        name="trim_cost",
        title="TRIM's cost: what the host gains by a drive that delays it",
        metric="time that the host waits less (%)",
        knobs=(
            Knob(
                "unit_bytes",
                "TRIM in units of",
                sizes(MIB // 16, MIB // 4, MIB, 4 * MIB, 20 * MIB, 100 * MIB),
                MIB // 4,
            ),
            Knob(
                "slice_factor",
                "a slice's look into buffer and map",
                times([0.125, 0.25, 0.5, 1, 2, 4]),
                1,
            ),
            Knob("command_factor", "a command's handling", times([0.25, 0.5, 1, 2, 4, 8]), 1),
        ),
        over="unit_bytes",
        size="A file of 100 MiB on a board of 32 GiB that holds nothing else: what a TRIM costs "
        "the firmware does not depend on the drive's size.",
        ask=reduction,
    ),
)
