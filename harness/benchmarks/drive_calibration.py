"""Calibration, the loop closed: an emulated drive's figures must give back what it was made from.

Each drive is a live device of a profile; the jobs of `harness calibrate drive` run on it, and a
generic drive of its class is fitted to their figures. What the fit finds is compared with the
profile that the device was made from, and the jobs that it has not seen with what it predicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from harness.calibration.fit import Calibrated, fit, generic_profile
from harness.calibration.jobs import plan_for
from harness.calibration.measure import emulated_drive
from harness.calibration.measure import measure as measure_drive
from harness.calibration.quantities import quantities
from harness.devices import live
from harness.devices.live import LiveSpec
from harness.devices.profiles import DeviceProfile
from harness.errors import HarnessError, InvalidRun
from harness.goals import Goal
from harness.paths import Project

_COMMAND: Final = "make bench ONLY=hardware"
_ATTEMPTS: Final = 5
_PARAMETER_GOAL: Final = "<= 0.1"
_PREDICTION_GOAL: Final = "<= 0.15"


@dataclass(frozen=True)
class _Case:
    """A profile to emulate. `size_bytes` 0: as large as it is."""

    profile: str
    kind: str
    size_bytes: int


_CASES: Final = (
    _Case("seagate_250gb", "hdd", 0),
    _Case("crucial_mx500_250gb", "sata_ssd", 4 << 30),
    _Case("samsung_980_1tb", "nvme_ssd", 2 << 30),
)


def measure(project: Project, console: Console) -> Iterator[Goal]:
    """For each drive: the largest error of a parameter and of a prediction, and each of them."""
    for case in _CASES:
        try:
            true, found = _closed_loop(project, case, console)
        except HarnessError as error:
            name = f"calibration of an emulated {case.profile}"
            yield Goal(name, "ratio", _PARAMETER_GOAL, _COMMAND, missing=str(error))
            continue
        yield from _figures(case, true, found, console)


def _closed_loop(
    project: Project, case: _Case, console: Console
) -> tuple[DeviceProfile, Calibrated]:
    """What the device was made from, and what was found. Raises InvalidRun on a busy machine."""
    spec = LiveSpec(
        profile=case.profile,
        profiles=project.profiles,
        size_bytes=case.size_bytes,
        thin=True,
        slowdown=0,
    )
    generic = generic_profile(project.profiles, case.kind)
    for attempt in range(_ATTEMPTS):
        try:
            with live.created(spec) as device:
                plan = plan_for(case.kind, device.size_bytes)
                drive = emulated_drive(device, plan, generic, 1 << attempt)
                figures = measure_drive(plan, drive, lambda line: console.print(f"  {line}"))
            break
        except InvalidRun as error:  # a new drive: this one has been written to
            console.print(f"{case.profile}, from the beginning: {error}")
            if attempt + 1 == _ATTEMPTS:
                raise
    return spec.device_profile(), fit(generic, plan, figures)


def _figures(
    case: _Case, true: DeviceProfile, found: Calibrated, console: Console
) -> Iterator[Goal]:
    recovered = quantities(found.profile)
    table = Table("quantity", "unit", "made from", "recovered", "error", title=case.profile)
    errors = {}
    for name, (value, unit) in quantities(true).items():
        back = recovered.get(name, (0.0, unit))[0]
        errors[name] = back / value - 1.0
        table.add_row(name, unit, f"{value:.4g}", f"{back:.4g}", f"{errors[name]:+.1%}")
    for row in found.residuals.itertuples():
        kind = "predicted" if row.held_out else "fitted"
        values = (f"{row.measured:.4g}", f"{row.simulated:.4g}", f"{row.error_ratio:+.1%}")
        table.add_row(f"{row.job} ({kind})", str(row.unit), *values)
    console.print(table)
    for name, error in errors.items():
        context: dict[str, Any] = {
            "made_from": quantities(true)[name][0],
            "recovered": recovered.get(name),
        }
        yield _figure(f"{case.profile}, calibrated: {name}", error, _PARAMETER_GOAL, context)
    for row in found.residuals[found.residuals.held_out].itertuples():
        context = {"measured": row.measured, "predicted": row.simulated, "unit": row.unit}
        name = f"{case.profile}, predicted, not in the fit: {row.job}"
        yield _figure(name, float(row.error_ratio), _PREDICTION_GOAL, context)
    yield _figure(
        f"{case.profile}, calibrated: largest error of a job that was fitted",
        found.worst_fitted,
        "",
        {},
    )


def _figure(name: str, error_ratio: float, goal: str, context: dict[str, Any]) -> Goal:
    return Goal(name, "ratio", goal, _COMMAND, [abs(error_ratio)], context=context)
