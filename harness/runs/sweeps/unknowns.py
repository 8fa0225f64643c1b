"""What a paper leaves open, as data: hardware/unknowns/<study>.yaml.

An unknown has a range or choices, a reason for them, and the places that it sets. A machine is a
value for each; the default machine, number 0, is what params.yaml and the profiles say.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.errors import BadParameter, UnknownName
from harness.paths import Project
from harness.runs.parameters import first_line
from harness.system.documents import read_yaml

Value = float | str
"""A number of the unknown's range, or one of its choices by name."""

_PLACES: Final = ("setting", "profile", "host", "device")
_DIGITS: Final = 4


def _known_place(place: str) -> str:
    kind, _, name = place.partition(" ")
    if kind not in _PLACES or not name or (kind == "profile" and "." not in name):
        raise ValueError(
            f"{place!r} is no place: 'setting PATH', 'profile DEVICE.PARAMETER', 'host PARAMETER' "
            "or 'device NAME'"
        )
    return place


Place = Annotated[str, AfterValidator(_known_place)]
"""What is set: `setting PATH` in the study's parameters (drives.mx500.repetitions), `profile
DEVICE.PARAMETER` or `host PARAMETER` in a profile, `device NAME`: another profile behind it.
"""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Unknown(_Strict):
    """One thing that a paper does not say.

    Either `range` with `sets` (place -> text, in which {} is the value), uniform or, with `form:
    log`, uniform in the logarithm; `whole` numbers, or `digits` after the point; or `choices`, each
    with what it sets, all as likely. `default`: today's. `source` or `prior`: why this range;
    `excluded`: what the paper's words exclude.
    """

    what: str
    sets: dict[Place, str] = {}
    range: tuple[float, float] | None = None
    form: Literal["linear", "log"] = "linear"
    whole: bool = False
    digits: int | None = Field(None, ge=0, le=9)
    choices: dict[str, dict[Place, str]] = {}
    default: Value
    source: str = ""
    prior: str = ""
    excluded: str

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.source) == bool(self.prior):
            raise ValueError("exactly one of source and prior must say why this range")
        if (self.range is None) != bool(self.choices) or bool(self.sets) != bool(self.range):
            raise ValueError("give a range and what it sets, or choices")
        if self.range is None:
            if self.default not in self.choices:
                raise ValueError(f"default {self.default!r} is none of the choices")
            return self
        low, high = self.range
        if not low < high or (self.form == "log" and low <= 0):
            raise ValueError(f"{low} to {high} is no range")
        if isinstance(self.default, str) or not low <= self.default <= high:
            raise ValueError(f"default {self.default!r} is not in the range")
        return self

    def at(self, share: float) -> Value:
        """The value that a share (0 to 1) of the plausible ones lies below."""
        assert 0 <= share <= 1
        if self.range is None:
            names = list(self.choices)
            return names[min(int(share * len(names)), len(names) - 1)]
        low, high = self.range
        if self.form == "log":
            value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            value = low + share * (high - low)
        return self._rounded(min(max(value, low), high))

    def _rounded(self, value: float) -> float:
        if self.whole:
            return round(value)
        if self.digits is not None:
            return round(value, self.digits)
        return float(f"{value:.{_DIGITS}g}")

    def share(self, value: Value) -> float:
        """Where a value lies in the range, 0 to 1; a choice by the middle of its part."""
        if isinstance(value, str):
            names = list(self.choices)
            return (names.index(value) + 0.5) / len(names)
        assert self.range is not None
        low, high = self.range
        if self.form == "log":
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    def check(self, value: Value) -> Value:
        """The value itself. Raises BadParameter, UnknownName."""
        if self.choices:
            if not isinstance(value, str) or value not in self.choices:
                raise UnknownName("choice", str(value), self.choices)
            return value
        assert self.range is not None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadParameter(f"{value!r} is not a number")
        if not self.range[0] <= value <= self.range[1]:
            raise BadParameter(f"{value!r} is not in {self.range[0]:g} to {self.range[1]:g}")
        return value

    def texts(self, value: Value) -> dict[str, str]:
        """What a value sets: place -> text, as it would be typed."""
        if isinstance(value, str):
            return dict(self.choices[value])
        shown = f"{value:.9g}"
        return {place: text.replace("{}", shown) for place, text in self.sets.items()}

    @property
    def why(self) -> str:
        """The reason for the range."""
        return self.source or self.prior


class Unknowns(_Strict):
    """A study's.

    `scale`, `machines`: that sweeps take unless others are asked for. `settings` (path -> value)
    are the study's for all machines. Of the grid's points those of `variants` and `devices` (all,
    if none is named) are run, those with the values `first` before all others; cells of the
    variants `as_paper` are judged as the paper's.
    `held_back`: claims by whose numbers no nearest machine may be chosen. `left_alone`: what is
    open and not varied, or not open, and why.
    """

    title: str
    scale: str
    machines: int = Field(64, ge=1)
    settings: dict[str, Any] = {}
    variants: list[str] = ["paper"]
    as_paper: list[str] = ["paper"]
    devices: list[str] = []
    first: dict[str, float | str] = {}
    held_back: list[str] = []
    left_alone: list[str] = []
    unknowns: dict[str, Unknown] = Field(min_length=1)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of what decides which machines are drawn, and what they are: no texts, and
        not the default machine, which is not drawn.
        """
        prose = {"what", "source", "prior", "excluded", "default"}
        known = {n: u.model_dump(mode="json", exclude=prose) for n, u in self.unknowns.items()}
        return hashlib.sha256(json.dumps([self.settings, known]).encode()).hexdigest()

    @property
    def default(self) -> dict[str, Value]:
        """The default machine: what is set today."""
        return {name: each.default for name, each in self.unknowns.items()}

    def at(self, shares: Mapping[str, float]) -> dict[str, Value]:
        """The machine at these places of the unknowns' ranges."""
        return {name: each.at(shares[name]) for name, each in self.unknowns.items()}

    def check(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """A machine that somebody names, with defaults for the rest. Raises BadParameter."""
        for name in values:
            if name not in self.unknowns:
                raise UnknownName("unknown of the study", str(name), self.unknowns)
        given = {name: self.unknowns[name].check(value) for name, value in values.items()}
        return {**self.default, **given}

    def texts(self, values: Mapping[str, Value]) -> dict[str, str]:
        """All that a machine sets: place -> text."""
        found: dict[str, str] = {}
        for name, each in self.unknowns.items():
            found |= each.texts(values[name])
        return found


def load(project: Project, study: str) -> Unknowns:
    """A study's. Raises UnknownName where there is none, BadParameter for a bad file."""
    path = project.root / FOLDER / f"{study}.yaml"
    if not path.is_file():
        raise UnknownName("study with unknowns", study, names(project))
    try:
        return Unknowns.model_validate(read_yaml(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError, UnicodeDecodeError) as error:
        raise BadParameter(f"{FOLDER}/{path.name}: {first_line(error)}") from error


def names(project: Project) -> list[str]:
    """Studies that have such a file, sorted."""
    return sorted(path.stem for path in (project.root / FOLDER).glob("*.yaml"))


FOLDER: Final = "hardware/unknowns"
"""Where they lie in a checkout."""
