"""A plausible machine, made: the study's parameters, and profiles of its devices and its host."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel

from harness import experiments, tiers
from harness.devices.profiles import SsdProfile, load_device, load_host, profile_path
from harness.errors import BadParameter, HarnessError, UnknownName
from harness.experiments.base import Experiment, Point
from harness.paths import Project
from harness.runs import code, parameters
from harness.runs.sweeps.unknowns import Unknowns, Value
from harness.system.documents import read_yaml
from harness.tiers.base import Bench
from harness.tiers.options import Asked, BenchParameters

TIER: Final = "simulated"


@dataclass(frozen=True)
class Machine:
    """`number`: 0 is the default machine. `refused`: why the study cannot be asked on it at all.

    `profiles`: of its devices, by the study's names, as the bytes of their files; `host` likewise.
    `points`: in the order in which they are run.
    """

    number: int
    values: Mapping[str, Value]
    parameters: BaseModel | None
    profiles: Mapping[str, bytes]
    host: bytes
    points: Sequence[Point]
    refused: str = ""


class Maker:
    """Makes a study's machines. Raises HarnessError for what is wrong with its unknowns."""

    def __init__(
        self, project: Project, name: str, unknowns: Unknowns, scale: str | None = None
    ) -> None:
        self.project = project
        self.unknowns = unknowns
        self.experiment: Experiment = experiments.find(name)
        if TIER not in self.experiment.tiers:
            raise BadParameter(f"{name} does not run on tier {TIER}: no sweep can be made of it")
        chosen = parameters.of_tier(project, name, TIER)
        self.bench_parameters: BenchParameters = chosen.bench
        self.scale = scale or unknowns.scale
        self._given = copy.deepcopy(chosen.parameters)
        for path, value in unknowns.settings.items():
            _set(self._given, path, value)
        # What is wrong with all machines is the user's doing, and none's that the model refuses.
        parameters.with_settings(self.experiment, self._given, {}, self.scale)
        self._documents: dict[Path, dict[str, Any]] = {}
        self._inputs: dict[str, str] = {}
        with tiers.find(TIER)(Asked(), chosen.bench, project) as bench:
            self._bench: Bench = bench  # of it only the devices' names are asked

    def make(self, number: int, values: Mapping[str, Value]) -> Machine:
        """The machine with these values; one that cannot be says why (`refused`)."""
        texts = self.unknowns.texts(values)
        given = copy.deepcopy(self._given)
        names, host = dict(self.bench_parameters.devices), self._read_host()
        changed: dict[str, dict[str, str]] = {}
        for place, text in texts.items():
            kind, _, rest = place.partition(" ")
            if kind == "setting":
                _set(given, rest, _value(text))
            elif kind == "device":
                if rest not in names:
                    raise UnknownName("device", rest, names)
                names[rest] = text
            elif kind == "host":
                _override_host(host, rest, _value(text))
            else:
                device, _, parameter = rest.partition(".")
                changed.setdefault(device, {})[parameter] = text
        profiles = {
            device: self._profile(name, changed.pop(device, {})) for device, name in names.items()
        }
        if changed:
            raise UnknownName("device", min(changed), names)
        made = (profiles, json.dumps(host).encode())
        try:
            study = parameters.with_settings(self.experiment, given, {}, self.scale)
            points = self._kept(self.experiment.points(study, self._bench))
        except HarnessError as error:
            return Machine(number, values, None, *made, (), str(error))
        return Machine(number, values, study, *made, self._in_order(points))

    @cached_property
    def code(self) -> str:
        """Digest of all that a point passes through."""
        return code.run_of(self.experiment, TIER).digest()

    def has_made(self, about: Mapping[str, Any]) -> bool:
        """Whether a record (`about`: its about.json) is by the code of now, and of the machine that
        the pipeline runs now. One of an earlier version, which notes no machine, is not.
        """
        if about.get("code") != self.code:
            return False
        default = self.make(0, self.unknowns.default)
        return bool(about.get("default") == self.identity(default))

    def input(self, study: BaseModel) -> str:
        """Digest of the inputs with these parameters; they are made if need be."""
        asked = study.model_dump_json()
        if asked not in self._inputs:
            self._inputs[asked] = self.experiment.input_digest(study, self.project.raw)
        return self._inputs[asked]

    def identity(self, machine: Machine) -> str:
        """Digest of what the machine is, but for code and inputs: profiles and parameters."""
        facts = {
            "profiles": {name: _digest(data) for name, data in sorted(machine.profiles.items())},
            "host": _digest(machine.host),
            "bench": self.bench_parameters.model_dump(mode="json"),
            "parameters": machine.parameters and machine.parameters.model_dump(mode="json"),
        }
        return _digest(json.dumps(facts, sort_keys=True).encode())

    def key(self, machine: Machine, point: Point) -> str:
        """Equal only for what gives the same result, also of two machines."""
        assert machine.parameters is not None
        facts = {
            "experiment": self.experiment.name,
            "tier": TIER,
            "values": dict(sorted(point.values.items())),
            "depends": dict(point.depends),
            "profile": _digest(machine.profiles[point.cell.device]),
            "host": _digest(machine.host),
            "overrides": dict(sorted(self.bench_parameters.overrides.items())),
            "code": self.code,
            "input": self.input(machine.parameters),
            # A cell need not say all that its study's parameters do.
            "parameters": machine.parameters.model_dump(mode="json"),
        }
        return _digest(json.dumps(facts, sort_keys=True).encode())

    def _kept(self, points: Sequence[Point]) -> list[Point]:
        variants, devices = self.unknowns.variants, self.unknowns.devices
        return [
            point
            for point in points
            if point.values.get("variant", "paper") in variants
            and (not devices or point.cell.device in devices)
        ]

    def _in_order(self, points: Sequence[Point]) -> list[Point]:
        first = self.unknowns.first.items()
        ordered = sorted(points, key=lambda point: not first <= point.values.items())
        if ordered and not first <= ordered[0].values.items():
            raise BadParameter(f"first: no point has {dict(first)}")
        return ordered

    def _profile(self, name: str, changed: Mapping[str, str]) -> bytes:
        path = profile_path(self.project.profiles, name)
        if path not in self._documents:
            load_device(self.project.profiles, name)  # is refused here, if it is bad in itself
            self._documents[path] = _values_of(path)
        document = copy.deepcopy(self._documents[path])
        table = document["parameters"]
        for parameter, text in changed.items():
            if parameter not in table and not self._is_optional(name, parameter):
                raise UnknownName(f"parameter of profile {name}", parameter, table)
            table[parameter] = _set_to(_value(text))
        return json.dumps(document).encode()

    def _is_optional(self, name: str, parameter: str) -> bool:
        profile = load_device(self.project.profiles, name)
        return (
            isinstance(profile, SsdProfile) and parameter in type(profile.parameters).model_fields
        )

    def _read_host(self) -> dict[str, Any]:
        path = self.project.profiles / "hosts" / f"{self.bench_parameters.host}.yaml"
        if path not in self._documents:
            load_host(self.project.profiles, self.bench_parameters.host)
            self._documents[path] = _values_of(path)
        return copy.deepcopy(self._documents[path])


def _values_of(path: Path) -> dict[str, Any]:
    """A profile's values: whence they are, and its drive's data sheet, change no result."""
    document: dict[str, Any] = read_yaml(path.read_text(encoding="utf-8"))
    kept = {name: each for name, each in document.items() if name not in ("note", "data_sheet")}
    return {
        name: {parameter: _set_to(entry["value"]) for parameter, entry in each.items()}
        if isinstance(each, dict)
        else each
        for name, each in kept.items()
    }


def _set_to(value: Any) -> dict[str, Any]:
    """As the loader of profiles wants it: with an origin, which is the same for all."""
    return {"value": value, "prior": "of a machine of a sweep"}


def _set(given: dict[str, Any], path: str, value: Any) -> None:
    """A value deep inside of nested mappings. Raises BadParameter where there is none."""
    *outer, last = path.split(".")
    table: Any = given
    for name in outer:
        table = table.get(name) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        raise BadParameter(f"setting {path}: params.yaml has no {'.'.join(outer)} to set it in")
    table[last] = value


def _override_host(host: dict[str, Any], parameter: str, value: Any) -> None:
    tables = [table for table in host.values() if isinstance(table, dict)]
    for table in tables:
        if parameter in table:
            table[parameter] = _set_to(value)
            return
    raise UnknownName("parameter of the host", parameter, (name for t in tables for name in t))


def _value(text: str) -> Any:
    try:
        return read_yaml(text)
    except yaml.YAMLError as error:
        raise BadParameter(f"{text!r} cannot be read") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
