"""What a study's own tools are given: the face of `runs` that experiments/base describes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from harness import experiments
from harness.errors import UnknownName
from harness.experiments.base import Agreement, Results
from harness.paths import Project
from harness.runs import claims, parameters, published, session
from harness.runs.session import Options, Session


def agreement_of(experiment: str) -> Agreement:
    """How the study's tiers are compared. Raises UnknownName if it compares none."""
    having = [name for name in experiments.names() if experiments.find(name).agreement]
    found = experiments.find(experiment).agreement if experiment in having else None
    if found is None:
        raise UnknownName("experiment with an agreement", experiment, having)
    return found


@dataclass(frozen=True)
class StudyRuns:
    """One study's sessions, results and claims; see experiments.base.Runs."""

    project: Project
    name: str
    beside: Mapping[str, Path] = field(default_factory=dict)

    def open(self, tier: str, **options: Any) -> AbstractContextManager[Session]:
        """A session on a tier; options as in session.Options. Raises HarnessError."""
        return session.open_session(self.project, self.name, tier, Options(**options))

    def published(self, tier: str) -> Results:
        """What was published last; empty if there is nothing."""
        return published.results(self.project, self.name, tier)

    def recorded(self, tier: str) -> Mapping[str, Any]:
        """What is noted down beside them; empty if there is nothing."""
        return published.about(self.project, self.name, tier) or {}

    def judge(self, results: Results) -> pd.DataFrame:
        """The study's claims, by these results."""
        return claims.judge(self.project, self.name, results)

    def compare(self, **options: Any) -> pd.DataFrame:
        """The study's agreement. Raises UnknownName if it has none, BadParameter if nothing has
        been run on tier emulated.
        """
        return agreement_of(self.name).compare(self, **options)

    def host_name(self) -> str:
        """The simulated tier's host profile in params.yaml."""
        return parameters.host_name(self.project, self.name)

    def device_name(self, device: str) -> str:
        """The profile of a device of the simulated tier in params.yaml."""
        return parameters.device_name(self.project, self.name, device)
