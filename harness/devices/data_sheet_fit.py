"""Fitting: the parameters of a profile that its data sheet decides, solved figure by figure.

Each figure with `use: fit` names the one parameter that is solved for it. Fits interact, so they
are repeated until all figures hold at once. What is within the tolerance already keeps its value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Final

import pandas as pd

from harness.devices.data_sheet import check, measure
from harness.devices.profiles import (
    DataSheetFigure,
    DeviceProfile,
    Ratio,
    Time,
    load_device,
    profile_path,
)
from harness.errors import BadParameter, BadProfile
from harness.system.files import write_atomically

FIT_TOLERANCE: Final = 0.005
"""How near to its figure a fit must come."""

_ROUNDS: Final = 6
_STEPS: Final = 16
_CLOSE: Final = 0.0005  # where a solution is good enough to stop
_DIGITS: Final = 4  # that a fitted value is written with
_FURTHEST: Final = math.log(4.0)  # a step at most
_LEAST_NS: Final = 10  # where a solution for a time that was 0 begins


@dataclass(frozen=True)
class Fitted:
    """A profile with its fitted values, and how it got there.

    `fits`: one row per fit with figure, parameter, before, after (values), error_before and
    error_after (ratios). `checks`: the other figures, as `data_sheet.check` has them.
    """

    profile: DeviceProfile
    fits: pd.DataFrame
    checks: pd.DataFrame

    @property
    def converged(self) -> bool:
        """Whether all fits hold at once."""
        return bool((self.fits.error_after.abs() <= FIT_TOLERANCE).all())

    @property
    def summary(self) -> str:
        """'N fitted parameters, M figures'."""
        figures = len(self.fits) + len(self.checks)
        return f"{len(set(self.fits.parameter))} fitted parameters, {figures} figures"


def fit(profile: DeviceProfile) -> Fitted:
    """Solves every fitted parameter for its figure.

    Raises BadParameter where there is nothing to fit, a parameter is not marked `fitted` in the
    profile or is fitted twice, or does not change its figure.
    """
    figures = [figure for figure in profile.data_sheet if figure.use == "fit"]
    _require_fittable(profile, figures)
    before = {f.name: _value(profile, f.fits) for f in figures}
    errors = {f.name: measure(profile, f).error_ratio for f in figures}
    now = dict(errors)
    for _ in range(_ROUNDS):
        if all(abs(error) <= FIT_TOLERANCE for error in now.values()):
            break
        last = profile
        for figure in figures:
            if abs(measure(profile, figure).error_ratio) > FIT_TOLERANCE:
                profile = _solved(profile, figure)
        if profile == last:
            break
        now = {f.name: measure(profile, f).error_ratio for f in figures}
    rows = [
        {
            "figure": f.name,
            "parameter": f.fits,
            "before": before[f.name],
            "after": _value(profile, f.fits),
            "error_before": errors[f.name],
            "error_after": now[f.name],
        }
        for f in figures
    ]
    checked = [figure for figure in profile.data_sheet if figure.use == "check"]
    checks = check(profile.model_copy(update={"data_sheet": tuple(checked)}))
    return Fitted(profile, pd.DataFrame(rows), checks)


def write_fit(folder: Path, name: str, fitted: Fitted) -> list[str]:
    """Puts the fitted values into the profile's file; returns the parameters that changed.

    Only the text of these values changes. Raises BadProfile for a value that does not stand on a
    line of its own.
    """
    values = {str(row.parameter): row.after for row in fitted.fits.itertuples()}
    changed = write_values(folder, name, values)
    if changed:
        written = load_device(folder, name)
        assert written.digest() == fitted.profile.digest(), "the file does not say what was fitted"
    return changed


def write_values(folder: Path, name: str, values: Mapping[str, float]) -> list[str]:
    """Puts values (ns, bytes, bytes/s, or a ratio) into the profile's file; returns what changed.

    Raises BadProfile for one that does not stand on a line of its own, or is not marked `fitted`.
    """
    path = profile_path(folder, name)
    text = path.read_text(encoding="utf-8")
    parameters = load_device(folder, name).parameters
    changed = []
    for parameter, value in values.items():
        present = getattr(parameters, parameter)
        if present.origin != "fitted":
            raise BadProfile(str(path), f"{parameter}: does not say 'fitted: ...'")
        if present.value != value:
            changed.append(parameter)
            text = _with_value(path, text, parameter, value)
    if changed:
        write_atomically(path, text.encode())
    return changed


def into_profile(name: str, values: Mapping[str, float]) -> Callable[[Path], list[str]]:
    """The step that puts these values into a profile, given the profiles' folder."""
    return lambda folder: write_values(folder, name, values)


def format_value(profile: DeviceProfile, parameter: str) -> str:
    """A parameter's value for people: '10.53 us', '540 MB/s', '0.0454'."""
    value = getattr(profile.parameters, parameter)
    if isinstance(value, Ratio):
        return f"{value.value:g}"
    if isinstance(value, Time):
        return f"{value.value / 1e3:g} us"
    return f"{value.value / 1e6:g} MB" + ("/s" if value.suffix.endswith("_s") else "")


def _require_fittable(profile: DeviceProfile, figures: list[DataSheetFigure]) -> None:
    if not figures:
        raise BadParameter(f"{profile.title}: no figure of its data_sheet has use: fit")
    seen = set()
    for figure in figures:
        value = getattr(profile.parameters, figure.fits)
        if value is None or value.origin != "fitted":
            raise BadParameter(
                f"data sheet, {figure.name}: parameter {figure.fits} does not say 'fitted: ...' in "
                f"the profile; say there to what it is fitted, or make the figure a check"
            )
        if figure.fits in seen:
            raise BadParameter(f"data sheet, {figure.name}: {figure.fits} is fitted already")
        seen.add(figure.fits)


def _value(profile: DeviceProfile, parameter: str) -> float:
    return float(getattr(profile.parameters, parameter).value)


def _with(profile: DeviceProfile, parameter: str, value: float) -> DeviceProfile:
    whole = not isinstance(getattr(profile.parameters, parameter), Ratio)
    rounded = float(f"{value:.{_DIGITS}g}")
    values = {parameter: round(rounded) if whole else rounded}
    return profile.model_copy(update={"parameters": profile.parameters.with_values(values)})


def _solved(profile: DeviceProfile, figure: DataSheetFigure) -> DeviceProfile:
    """The profile with the parameter at which the figure's job gives the figure."""

    def error(log_value: float) -> float:
        measured = measure(_with(profile, figure.fits, math.exp(log_value)), figure)
        return math.log(measured.value / measured.expected)

    begin = math.log(max(_value(profile, figure.fits), 1e-4))
    if isinstance(getattr(profile.parameters, figure.fits), Time):
        begin = max(begin, math.log(_LEAST_NS))
    try:
        best = solve(error, begin)
    except ArithmeticError:
        raise BadParameter(
            f"data sheet, {figure.name}: {figure.fits} does not change it; fit another parameter"
        ) from None
    return _with(profile, figure.fits, math.exp(best))


def solve(error: Callable[[float], float], begin: float) -> float:
    """Where a monotone function is nearest to 0: by secants, kept inside of a bracket once known.

    Evaluates it at most `_STEPS` times. Raises ArithmeticError if it does not change.
    """
    tried: dict[float, float] = {}
    for x in _candidates(begin, tried):
        tried[x] = error(x)
        if abs(tried[x]) <= _CLOSE or len(tried) == _STEPS:
            break
    if len(tried) > 1 and max(tried.values()) == min(tried.values()):
        raise ArithmeticError("the function is constant")
    return min(tried, key=lambda x: abs(tried[x]))


def _candidates(begin: float, tried: dict[float, float]) -> Iterator[float]:
    """Where to look next, given what was found (`tried` grows between two of them)."""
    yield begin
    yield begin + math.log(1.1)
    while True:
        bracket = _bracket(tried)
        x = _secant(tried)
        if bracket is not None and not bracket[0] < x < bracket[1]:
            x = (bracket[0] + bracket[1]) / 2.0
        if x in tried:
            return
        yield x


def _bracket(tried: dict[float, float]) -> tuple[float, float] | None:
    """The nearest two neighbours between which the sign changes."""
    xs = sorted(tried)
    for low, high in pairwise(xs):
        if (tried[low] > 0.0) != (tried[high] > 0.0):
            return low, high
    return None


def _secant(tried: dict[float, float]) -> float:
    """Through the two best points, at most `_FURTHEST` away; where it is flat, further on."""
    (x0, y0), (x1, y1) = sorted(tried.items(), key=lambda xy: abs(xy[1]))[:2]
    if y0 == y1:
        furthest = max(tried) if len(tried) % 2 else min(tried)
        return furthest + (_FURTHEST if len(tried) % 2 else -_FURTHEST)
    step = -y0 * (x1 - x0) / (y1 - y0)
    return x0 + max(-_FURTHEST, min(_FURTHEST, step))


_SIZES: Final = {"B": 1} | {
    f"{prefix}{infix}B": base ** (i + 1)
    for infix, base in (("", 1000), ("i", 1024))
    for i, prefix in enumerate("KMGT")
}
_UNITS: Final = (
    {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
    | _SIZES
    | {f"{unit}/s": factor for unit, factor in _SIZES.items()}
)


def _with_value(path: Path, text: str, parameter: str, value: float) -> str:
    line = re.compile(rf"^(\s+{parameter}:\s*\{{\s*value:\s*)([^,}}]+?)(\s*[,}}])", re.MULTILINE)
    match = line.search(text)
    if match is None:
        raise BadProfile(str(path), f"{parameter}: write it as {parameter}: {{value: ..., ...}}")
    unit = match[2].strip("\"'").partition(" ")[2]
    number = Decimal(repr(value)) / _UNITS.get(unit, 1)
    written = f"{number.normalize():f} {unit}".strip()
    return text[: match.start(2)] + written + text[match.end(2) :]
