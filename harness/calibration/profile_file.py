"""A calibrated drive as a profile's file: every number says which jobs decided it, or is a prior.

Serial numbers stay out of it: `origin` names the drive by model, firmware and a digest.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from harness.calibration.fit import Calibrated
from harness.calibration.jobs import JobPlan
from harness.devices.profiles import (
    DeviceProfile,
    Rate,
    Rotation,
    Size,
    Switch,
    Time,
    load_device,
    profile_path,
)
from harness.drives import fingerprint
from harness.errors import BadParameter, TargetError
from harness.system.files import write_atomically

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{1,62}")
_DIGEST_LETTERS: Final = 12
_UNITS: Final[dict[type, tuple[tuple[str, int], ...]]] = {
    Time: (("ms", 10**6), ("us", 10**3)),
    Rate: (("MB/s", 10**6),),
    Size: (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)),
}
_LEAST_UNIT: Final[dict[type, str]] = {Time: "ns", Rate: "B/s", Size: "B"}


@dataclass(frozen=True)
class Origin:
    """Which drive was measured, where and when."""

    drive: str
    kernel: str
    date: str

    def __str__(self) -> str:
        return f"{self.drive}, Linux {self.kernel}, {self.date}"


def origin_of(path: Path, *, named: str = "") -> Origin:
    """Where a calibration was made: on the drive below a file or device, or on what is named."""
    drive = named or f"the {fingerprint.storage_of(path)['model']} below a file"
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return Origin(drive, fingerprint.machine()["kernel"], today)


def drive_name(facts: Mapping[str, str]) -> str:
    """A drive by its fingerprint (`fingerprint.of_drive`): no serial number is told."""
    firmware = facts["firmware"] or "not told"
    serial = facts["serial_digest"][:_DIGEST_LETTERS]
    return f"{facts['model']}, firmware {firmware}, serial digest {serial}"


def check_name(folder: Path, name: str) -> None:
    """Raises BadParameter for a name that is none, TargetError for one that is taken."""
    if not _NAME.fullmatch(name):
        raise BadParameter(f"profile {name!r}: use small letters, digits and _, such as my_drive")
    if profile_path(folder, name).exists():
        raise TargetError(
            f"{profile_path(folder, name)} exists: choose another name, or move it away"
        )


def write_profile(
    folder: Path, name: str, calibrated: Calibrated, plan: JobPlan, origin: Origin
) -> Path:
    """Writes `name`.yaml into a folder of profiles, and reads it back.

    Raises what `check_name` does, and BadProfile.
    """
    check_name(folder, name)
    path = profile_path(folder, name)
    write_atomically(path, _text(calibrated, plan, origin).encode())
    written = load_device(folder, name)
    assert written.digest() == calibrated.profile.digest(), "the file does not say what was fitted"
    return path


def _text(calibrated: Calibrated, plan: JobPlan, origin: Origin) -> str:
    profile = calibrated.profile
    lines = [
        f"title: {_quoted(f'{origin.drive}, as calibrated')}",
        f"kind: {profile.kind}",
        f"note: {_quoted(_note(calibrated, plan, origin))}",
        "parameters:",
    ]
    for name, value in _values(profile).items():
        where = _origin(name, value, calibrated, origin)
        lines.append(f"  {name}: {{value: {format_parameter(value)}, {where}}}")
    return "\n".join([*lines, "data_sheet: []", ""])


def _values(profile: DeviceProfile) -> dict[str, Any]:
    parameters = profile.parameters
    found = {name: getattr(parameters, name) for name in type(parameters).model_fields}
    return {name: value for name, value in found.items() if value is not None}


def _origin(name: str, value: Any, calibrated: Calibrated, origin: Origin) -> str:
    if name == "capacity":
        return f"source: {_quoted(f'size of the drive: {origin}')}"
    jobs = calibrated.decided_by.get(name)
    if jobs is None:
        return f"{value.origin}: {_quoted(value.reason)}"
    return f"fitted: {_quoted(f'to {_listed(jobs)}; {origin}')}"


def _listed(jobs: tuple[str, ...]) -> str:
    """Jobs' names; of many the first and the last."""
    if len(jobs) <= 4:
        return "; ".join(jobs)
    return f"{len(jobs)} jobs, from {jobs[0]} to {jobs[-1]}"


def _note(calibrated: Calibrated, plan: JobPlan, origin: Origin) -> str:
    seen = calibrated.residuals
    return (
        f"Made by harness calibrate drive ({plan.kind}) on {origin}. "
        f"{int((~seen.held_out).sum())} jobs were fitted, the largest error is "
        f"{calibrated.worst_fitted:.1%}; {int(seen.held_out.sum())} were not, and predicted to "
        f"within {calibrated.worst_held_out:.1%}. Parameters that say prior are those of the "
        f"generic drive: the jobs do not decide them."
    )


def format_parameter(value: Any) -> str:
    """A value as it stands in a profile: '10.53 us', '560 MB/s', 7200 rpm, 0.0993, greedy."""
    number = value.value
    if isinstance(value, Switch):
        return "true" if number else "false"
    if isinstance(value, Rotation):
        return f"{number} rpm"
    kind = type(value)
    if kind not in _UNITS:
        return str(number)
    for unit, factor in _UNITS[kind]:
        if number >= factor and (kind is not Size or number % factor == 0):
            return f"{Decimal(number) / factor:f} {unit}"
    return f"{number} {_LEAST_UNIT[kind]}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
