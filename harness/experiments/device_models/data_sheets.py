"""Figures of the device models against the drives' data sheets: simulated over published."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.devices.data_sheet import measure
from harness.devices.profiles import list_profiles, load_device
from harness.goals import Goal
from harness.paths import Project

_COMMAND: Final = "harness data-sheet"


def measure_data_sheets(project: Project) -> Iterator[Goal]:
    """One figure for each figure of each profile; a ratio of 1 is the data sheet's value."""
    for name in list_profiles(project.profiles):
        profile = load_device(project.profiles, name)
        for figure in profile.data_sheet:
            measured = measure(profile, figure)
            low, high = 1.0 - measured.tolerance_ratio, 1.0 + measured.tolerance_ratio
            yield Goal(
                f"{name}, {figure.name}: simulated over data sheet",
                "",
                f">= {low:g} and <= {high:g}",
                f"{_COMMAND} {name}",
                [measured.value / measured.expected],
                context={
                    "simulated": measured.value,
                    "data_sheet": measured.expected,
                    "unit": measured.unit,
                    "use": figure.use,
                    "source": figure.source,
                },
            )
