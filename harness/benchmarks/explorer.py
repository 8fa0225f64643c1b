"""How long a reader waits after moving a slider of the explorer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console

from harness.explore import explorer, picture
from harness.explore.explorer import Explorer
from harness.goals import Goal
from harness.paths import Project

_COMMAND: Final = "make bench ONLY=reviewer"
_ROUNDS: Final = 3


def measure(project: Project, console: Console) -> Iterator[Goal]:
    """Every choice of every knob, alone: from the change to the picture."""
    console.print("moving every slider of the explorer ...")
    rounds = [_answers_s(project) for _ in range(_ROUNDS)]
    waited, spent = ([[each[i] for each in answers] for answers in rounds] for i in range(2))
    yield Goal(
        "explorer's answer, 95 % within",
        "s",
        "<= 1",
        _COMMAND,
        [_most(answers) for answers in waited],
        context={
            "answers": len(rounds[0]),
            "median_s": statistics.median(each for answers in waited for each in answers),
            "longest_s": max(map(max, waited)),
            # What it would be on a machine that does nothing else.
            "processor_s": statistics.median(map(_most, spent)),
        },
    )


def _most(answers: Sequence[float]) -> float:
    """What 95 % of them did not exceed."""
    return statistics.quantiles(answers, n=20)[-1]


def _answers_s(project: Project) -> list[tuple[float, float]]:
    """Wall and processor seconds of each; nothing is known from before, but the first answer of a
    question is not timed: its notebook was loading then.
    """
    found = []
    for study, question in explorer.questions():
        asked = Explorer(project, study, question)
        asked.ask()
        for knob in question.knobs:
            for value in knob.choices:
                if value == knob.default:
                    continue
                begin = time.monotonic(), time.process_time()
                asked.ask(**{knob.name: value})
                picture.draw(question, asked.asked)
                found.append((time.monotonic() - begin[0], time.process_time() - begin[1]))
    return found
