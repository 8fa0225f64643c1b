"""What params.yaml says of an experiment on a tier: its parameters, and those of the bench."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from harness import experiments
from harness.errors import BadParameter
from harness.experiments.base import Experiment
from harness.paths import Project
from harness.system.documents import read_yaml
from harness.tiers.options import BenchParameters


class TierParameters(BaseModel):
    """A section of params.yaml: `parameters` are the experiment's, read by its own model."""

    model_config = ConfigDict(extra="forbid")
    bench: BenchParameters = BenchParameters()
    parameters: dict[str, Any] = {}


def of_tier(project: Project, name: str, tier: str) -> TierParameters:
    """What params.yaml has for an experiment on a tier. Raises BadParameter."""
    try:
        whole = read_yaml(project.params.read_text())
        return TierParameters.model_validate((whole.get(name) or {}).get(tier, {}))
    except (ValidationError, yaml.YAMLError) as error:
        raise BadParameter(f"params.yaml, {name}.{tier}: {first_line(error)}") from error


def absolute_profiles(devices: Mapping[str, str]) -> dict[str, str]:
    """Of profiles that are given as files, their paths from anywhere."""
    return {
        name: str(Path(each).absolute()) if each.endswith(".yaml") else each
        for name, each in devices.items()
    }


def default(project: Project, name: str, tier: str) -> BaseModel:
    """An experiment's parameters on a tier, as params.yaml has them."""
    return with_settings(experiments.find(name), of_tier(project, name, tier).parameters, {})


def with_settings(
    experiment: Experiment,
    given: Mapping[str, Any],
    settings: Mapping[str, str],
    scale: str | None = None,
) -> BaseModel:
    """An experiment's parameters, some of them replaced by texts in YAML. Raises BadParameter."""
    values = dict(given)
    for key, text in settings.items():
        if key not in experiment.parameters.model_fields:
            known = ", ".join(experiment.parameters.model_fields)
            raise BadParameter(f"unknown parameter {key!r} of {experiment.name}; known: {known}")
        try:
            values[key] = read_yaml(text)
        except yaml.YAMLError as error:
            raise BadParameter(f"parameter {key}: {text!r} cannot be read") from error
    if scale is not None:
        values["scale"] = scale
    try:
        return experiment.parameters.model_validate(values)
    except ValidationError as error:
        raise BadParameter(f"parameter {first_line(error)}") from error
    except TypeError as error:  # a study's own check of a name got a list, or a mapping
        named = ", ".join(settings) or "in params.yaml"
        raise BadParameter(f"parameter {named}: a value of the wrong kind ({error})") from error


def pipelines(project: Project) -> dict[str, dict[str, str]]:
    """Of each tier that has a pipeline: its studies, and their notebooks."""
    whole = read_yaml(project.params.read_text())["pipeline"]
    return {tier: studies for tier, studies in whole.items() if isinstance(studies, dict)}


def of_notebooks(project: Project) -> dict[str, Any]:
    """What the pipelines give to every notebook's parameters cell: section `notebook`."""
    try:
        section = (read_yaml(project.params.read_text()) or {}).get("notebook") or {}
    except yaml.YAMLError as error:
        raise BadParameter(f"params.yaml: {first_line(error)}") from error
    if not isinstance(section, dict):
        raise BadParameter("params.yaml, notebook: write a mapping of parameters to values")
    return {name: value for name, value in section.items() if value not in (None, {})}


def texts(value: Any) -> Any:
    """A mapping as one, as YAML ("{ssd: mine}"), or as lines or parts such as NAME=VALUE."""
    if isinstance(value, str):
        value = _pairs(value)
    if not isinstance(value, Mapping):
        return value
    return {str(name): _text_of(each) for name, each in value.items()}


def _pairs(text: str) -> Any:
    if not text.strip() or text.strip().startswith("{"):
        return read_yaml(text) or {}
    pairs = [part.partition("=") for line in text.splitlines() for part in line.split(";")]
    if not all(name.strip() and equals for name, equals, _ in pairs):
        raise ValueError(f"{text!r}: write it as NAME=VALUE, or as a mapping")
    return {name.strip(): given.strip() for name, _, given in pairs}


def _text_of(value: Any) -> str:
    """As it would be typed; YAML knows lists and mappings in one line."""
    if isinstance(value, str):
        return value
    return (
        str(yaml.safe_dump(value, default_flow_style=True, width=1 << 20)).split("\n...")[0].strip()
    )


def scale_of(values: BaseModel) -> str:
    """How large a run with these parameters is, in words for a figure; "" if it has but one size.

    What a study's parameters say of it themselves is `size_said`.
    """
    said = getattr(values, "size_said", "")
    return ", ".join(filter(None, (getattr(values, "scale", ""), said)))


def host_name(project: Project, name: str) -> str:
    """The host profile that params.yaml names for an experiment's simulated tier."""
    return of_tier(project, name, "simulated").bench.host


def device_name(project: Project, name: str, device: str) -> str:
    """The profile that params.yaml names for a device of an experiment's simulated tier."""
    return of_tier(project, name, "simulated").bench.devices[device]


def first_line(error: Exception) -> str:
    """What a reader of settings said is wrong, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}"
    return " ".join(str(error).split())
