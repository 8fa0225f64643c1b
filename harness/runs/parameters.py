"""What params.yaml says of an experiment on a tier: its parameters, and those of the bench."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from harness import experiments
from harness.errors import BadParameter
from harness.experiments.base import Experiment
from harness.paths import Project
from harness.tiers.options import BenchParameters


class TierParameters(BaseModel):
    """A section of params.yaml: `parameters` are the experiment's, read by its own model."""

    model_config = ConfigDict(extra="forbid")
    bench: BenchParameters = BenchParameters()
    parameters: dict[str, Any] = {}


def of_tier(project: Project, name: str, tier: str) -> TierParameters:
    """What params.yaml has for an experiment on a tier. Raises BadParameter."""
    try:
        whole = yaml.safe_load(project.params.read_text())
        return TierParameters.model_validate(whole.get(name, {}).get(tier, {}))
    except (ValidationError, yaml.YAMLError) as error:
        raise BadParameter(f"params.yaml, {name}.{tier}: {_first_line(error)}") from error


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
            values[key] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise BadParameter(f"parameter {key}: {text!r} cannot be read") from error
    if scale is not None:
        values["scale"] = scale
    try:
        return experiment.parameters.model_validate(values)
    except ValidationError as error:
        raise BadParameter(f"parameter {_first_line(error)}") from error


def host_name(project: Project, name: str) -> str:
    """The host profile that params.yaml names for an experiment's simulated tier."""
    return of_tier(project, name, "simulated").bench.host


def device_name(project: Project, name: str, device: str) -> str:
    """The profile that params.yaml names for a device of an experiment's simulated tier."""
    return of_tier(project, name, "simulated").bench.devices[device]


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}"
    return " ".join(str(error).split())
