"""Experiments, by name: one package per paper, and one for the device models.

A package of somebody else's joins them by an entry point of the group `flashlab.studies`: its name
is the experiment's, its module the package that has an EXPERIMENT.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from harness.errors import UnknownName
from harness.experiments.base import Experiment

_TABLE: Final = {
    "grace_hash_join": "harness.experiments.grace_hash_join",
    "sort_merge_join": "harness.experiments.sort_merge_join",
    "trim_fallocate": "harness.experiments.trim_fallocate",
    "msdj_tpcc": "harness.experiments.msdj_tpcc",
    "msdj_crashes": "harness.experiments.msdj_crashes",
    "delayed_trim": "harness.experiments.delayed_trim",
    "device_models": "harness.experiments.device_models",
}
_GROUP: Final = "flashlab.studies"


def names() -> list[str]:
    """Names of all experiments; ours first."""
    return [*_TABLE, *(name for name in _others() if name not in _TABLE)]


def find(name: str) -> Experiment:
    """The experiment of that name. Raises UnknownName."""
    if name not in names():
        raise UnknownName("experiment", name, names())
    module = _TABLE.get(name) or _others()[name]
    experiment: Experiment = import_module(module).EXPERIMENT
    return experiment


def _others() -> dict[str, str]:
    """Name -> module of experiments that other packages have."""
    return _found(tuple(sys.path))


@cache
def _found(path: tuple[str, ...]) -> dict[str, str]:
    """In the packages that lie on `path`, which is Python's: all of them are looked through."""
    del path
    return {entry.name: entry.module for entry in entry_points(group=_GROUP)}
