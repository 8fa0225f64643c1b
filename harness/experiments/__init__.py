"""Experiments, by name: one package per paper, and one for the device models."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from harness.errors import UnknownName
from harness.experiments.base import Experiment

_TABLE: Final = {
    "delayed_trim": "harness.experiments.delayed_trim",
    "device_models": "harness.experiments.device_models",
    "grace_hash_join": "harness.experiments.grace_hash_join",
    "msdj_crashes": "harness.experiments.msdj_crashes",
    "sort_merge_join": "harness.experiments.sort_merge_join",
    "trim_fallocate": "harness.experiments.trim_fallocate",
    "msdj_tpcc": "harness.experiments.msdj_tpcc",
}


def names() -> list[str]:
    """Names of all experiments."""
    return list(_TABLE)


def find(name: str) -> Experiment:
    """The experiment of that name. Raises UnknownName."""
    if name not in _TABLE:
        raise UnknownName("experiment", name, _TABLE)
    experiment: Experiment = import_module(_TABLE[name]).EXPERIMENT
    return experiment
