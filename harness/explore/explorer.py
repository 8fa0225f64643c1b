"""One question of one study: asked of its models, and what has been answered so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from harness import experiments
from harness.errors import UnknownName
from harness.experiments.base import Scalar
from harness.experiments.question import Answer, Given, Question
from harness.paths import Project
from harness.runs import parameters
from harness.tiers.options import Asked
from harness.tiers.simulated import open_bench

_TIER: Final = "simulated"


@dataclass(frozen=True)
class Asking:
    """An answer and what it answers: a value for every knob."""

    settings: Mapping[str, Scalar]
    answer: Answer


class Explorer:
    """Asks one question; what was asked before is not simulated again.

    The study's parameters, drives and host are those of its simulated tier in params.yaml.
    """

    def __init__(self, project: Project, study: str, question: Question) -> None:
        self.study = study
        self.question = question
        chosen = parameters.of_tier(project, study, _TIER)
        values = parameters.with_settings(
            experiments.find(study), chosen.parameters, {}, question.scale
        )
        bench = open_bench(Asked(), chosen.bench, project)
        self._given = Given(values, bench, project.published)
        self._asked: dict[tuple[Scalar, ...], Asking] = {}

    def ask(self, **settings: Scalar) -> Asking:
        """The answer; knobs that are not named are as the study has them.

        Raises UnknownName for a knob or a value that it has not, and HarnessError.
        """
        complete = self.question.complete(settings)
        key = tuple(complete.values())
        # Asked again, it is the latest one.
        found = self._asked.pop(key, None) or Asking(
            complete, self.question.ask(self._given, complete)
        )
        self._asked[key] = found
        return found

    @property
    def asked(self) -> list[Asking]:
        """All answers, each once, the latest at the end."""
        return [*self._asked.values()]


def questions() -> Iterator[tuple[str, Question]]:
    """All questions, each with its study."""
    for study in experiments.names():
        module = f"{type(experiments.find(study)).__module__}.explore"
        if find_spec(module) is not None:
            yield from ((study, question) for question in import_module(module).QUESTIONS)


def find(project: Project, name: str) -> Explorer:
    """The explorer of a question by its name. Raises UnknownName."""
    known = {question.name: (study, question) for study, question in questions()}
    if name not in known:
        raise UnknownName("question", name, known)
    return Explorer(project, *known[name])
