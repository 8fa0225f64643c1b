"""Which tier a run gets that asked for `auto`: the most real one that can be had, and why that one.

Hardware, if drives or a file are named and can be used; else emulated, where this machine has what
it needs; else simulated. Whoever names a tier gets that tier, or an error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from harness import experiments
from harness.devices.live import front
from harness.errors import HarnessError
from harness.experiments.base import Experiment
from harness.paths import Project
from harness.runs.session import Options, open_session
from harness.tiers import doctor

AUTO: Final = "auto"


@dataclass(frozen=True)
class Choice:
    """A tier, why (in words; "" if it was named), and what to ask of it."""

    tier: str
    why: str
    options: Options


def choose(project: Project, name: str, tier: str, options: Options) -> Choice:
    """The tier for a run of a study. Writes nothing. Raises UnknownName."""
    if tier != AUTO:
        return Choice(tier, "", options)
    experiment = experiments.find(name)
    file = [str(options.target)] if options.target else []
    named = ", ".join([*options.drives.values(), *file])
    if not named:
        refused = "no drive or file named"
    elif (problem := _no_hardware(project, experiment, options)) is None:
        return Choice("hardware", f"auto: {named} can be used", options)
    else:
        refused = f"{named} cannot be used: {problem}"
    modelled = Options(**options.model_dump(include=set(_OF_MODELS)))
    if (problem := _no_emulation(experiment)) is None:
        return Choice("emulated", f"auto: {refused}", modelled)
    return Choice("simulated", f"auto: {refused}; not emulated: {problem}", modelled)


_OF_MODELS: Final = ("scale", "settings", "devices", "overrides", "host")


def _no_hardware(project: Project, experiment: Experiment, options: Options) -> str | None:
    """Why what is named cannot be used; None if it can."""
    if "hardware" not in experiment.tiers:
        return "the study does not run on hardware"
    try:
        with open_session(project, experiment.name, "hardware", options) as session:
            session.reserve()
    except HarnessError as error:
        return str(error)
    return None


def _no_emulation(experiment: Experiment) -> str | None:
    """What this machine lacks for it; None if nothing."""
    if "emulated" not in experiment.tiers:
        return "the study does not run there"
    if os.geteuid() != 0:
        return "not root"
    try:
        front.named(front.DEFAULT).check()
    except HarnessError as error:
        return str(error)
    missing = [
        need.name for need in doctor.needs_of("emulated", experiment.servers) if not need.present()
    ]
    return f"{', '.join(missing)} not installed" if missing else None
