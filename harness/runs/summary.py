"""The overview: per paper and tier what became of its claims. Made once, shown everywhere.

README, the end of `make reproduce`, the report's first screen and notebook 90 show the same lines.
They are made of the verdicts that were published, so a fresh checkout has them, too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from harness import experiments, tiers
from harness.paths import Project
from harness.runs import claims, code, parameters, published
from harness.runs.session import pipelines_options, values_of
from harness.runs.sweeps import at_paper_size
from harness.system.files import write_atomically
from harness.tiers.options import Asked

HEADINGS: Final = (
    "paper",
    "tier",
    claims.REPRODUCED,
    *claims.WANTING,
    "no evidence",
    claims.NOT_JUDGED,
)
"""`no evidence`: claims that a fit has seen, and those that cannot fail."""


_SIMULATED: Final = "simulated"
_EARLIER: Final = "by an earlier code"
_OTHERWISE: Final = "with other parameters"
_EMULATED: Final = "emulated"
_SAID: Final = {
    _EARLIER: "*By an earlier code*: something that such a measurement passes through has changed "
    "since it was recorded; `make emulated` records it anew.",
    _OTHERWISE: "*With other parameters*: params.yaml, or a drive's profile, has others for it "
    "now; `make emulated` records it anew.",
}
"""What keeps a record from being one of now."""

_COLUMNS: Final = (
    "*Reproduced*, n of m: of m claims that say something, the numbers of n lie in the range that "
    "the paper's words allow. A claim says something if a wrong result would change its verdict "
    "and no fit has seen its number; one that a fit has seen is among the m only if it fails. *No "
    "evidence* are the others: a fit, or who chose the model, has seen the number and it comes "
    "out; no wrong result was found that changes the verdict; a second reading of a sentence; a "
    "check of ours. So no success is counted that was fitted, and every failure is. *Direction "
    "only*: out of the range, on the paper's side. *Undecided*: the 95 % interval of the "
    "repetitions lies on both sides of a bound; where a run has no repetitions its one number "
    "decides. *Not judged*: the run lacks what it needs."
)
"""What the table's headings mean."""


@dataclass(frozen=True)
class Line:
    """One paper on one tier, or by the model at the paper's size: how many of its claims have each
    verdict.

    `label`: the tier, and whether what ran there is of the code of now. `no_evidence` are fitted,
    or cannot fail; the others' verdicts are in `verdicts`.
    """

    paper: str
    title: str
    tier: str
    label: str
    notebook: str
    verdicts: Counter[str]
    no_evidence: int

    @property
    def is_of_tier(self) -> bool:
        """Whether it is a run's of the pipeline's size, not the model's at the paper's."""
        return self.tier in tiers.names()

    @property
    def mark(self) -> str:
        """What keeps it from being a record of now, of `_SAID`; empty if nothing does."""
        return next((word for word in _SAID if self.label.endswith(word)), "")

    @property
    def section(self) -> str:
        """The report's that tells more of it."""
        return f"{self.paper}-{self.tier if self.is_of_tier else _SIMULATED}"

    @property
    def reproduced(self) -> str:
        """'8 of 10': of those that were judged and could have failed."""
        could_fail = sum(self.verdicts[verdict] for verdict in claims.COULD_FAIL)
        return f"{self.verdicts[claims.REPRODUCED]} of {could_fail}"

    @property
    def counts(self) -> dict[str, int]:
        """How many claims have each verdict; together, all."""
        counted = {verdict: self.verdicts[verdict] for verdict in claims.COULD_FAIL}
        rest = {
            "no evidence": self.no_evidence,
            claims.NOT_JUDGED: self.verdicts[claims.NOT_JUDGED],
        }
        return {name.replace(" ", "_"): count for name, count in {**counted, **rest}.items()}

    @property
    def cells(self) -> list[str]:
        """Under `HEADINGS`; nothing stands for none."""
        counts = [self.verdicts[verdict] for verdict in claims.WANTING]
        counts += [self.no_evidence, self.verdicts[claims.NOT_JUDGED]]
        return [self.title, self.label, self.reproduced, *(str(n) if n else "" for n in counts)]


def lines(project: Project) -> list[Line]:
    """Of every paper, in the order of the claims' file, on each tier that it was published on, and
    after the models' tier at the paper's size, where that is recorded.
    """
    notebooks = parameters.pipelines(project)["simulated"]
    found = []
    for name, paper in claims.load(project).items():
        for tier, verdicts in verdicts_of(project, name).items():
            if verdicts:
                counted = Counter(
                    each["verdict"] for each in verdicts.values() if not each["no_evidence"]
                )
                nothing = sum(each["no_evidence"] for each in verdicts.values())
                notebook = notebooks.get(name, "")
                said = label(project, name, tier)
                found.append(Line(name, paper.title, tier, said, notebook, counted, nothing))
    return found


def label(project: Project, paper: str, tier: str) -> str:
    """What a tier's verdicts are called: a measurement of before the code, the parameters or a
    drive's profile changed says so.
    """
    measured = tier in tiers.names() and tier != _SIMULATED
    about = published.about(project, paper, tier) if measured else None
    if about is None:
        return tier
    if about["code"] != code.run_of(experiments.find(paper), tier).digest():
        return f"{tier}, {_EARLIER}"
    planned = values_of(project, paper, tier, pipelines_options(project))
    if about["parameters"] != planned.model_dump(mode="json"):
        return f"{tier}, {_OTHERWISE}"
    if tier == _EMULATED and not _is_on(project, paper, about["devices"]):
        return f"{tier}, {_OTHERWISE}"
    return tier


def _is_on(project: Project, paper: str, devices: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether a measurement's modelled drives are those that params.yaml and profiles have now."""
    chosen = parameters.of_tier(project, paper, _EMULATED)
    with tiers.find(_EMULATED)(Asked(), chosen.bench, project) as bench:
        return devices.keys() <= set(bench.devices) and all(
            bench.identity(name)["profile"] == of["profile"] for name, of in devices.items()
        )


def verdicts_of(project: Project, paper: str) -> dict[str, dict[str, Any]]:
    """A paper's verdicts, as `claims.published_verdicts` has them, by tier; and after the models'
    tier, under a title of its own, at the paper's size, where that is recorded.
    """
    found = {}
    for tier in tiers.names():
        found[tier] = claims.published_verdicts(project, paper, tier)
        if tier == _SIMULATED:
            title, judged = at_paper_size.verdicts(project, paper)
            found |= {title: judged} if judged else {}
    return found


def write_counts(project: Project) -> None:
    """A file for every line, under names that they all have: `dvc metrics show` makes one table."""
    folder = project.metrics / "verdicts"
    of_tiers = [line for line in lines(project) if line.is_of_tier]
    made = {folder / f"{line.paper}.{line.tier}.json": line for line in of_tiers}
    for path, line in made.items():
        text = json.dumps(line.counts, indent=1) + "\n"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text.encode(), make_folder=True)
    for path in set(folder.glob("*.json")) - set(made):
        path.unlink()


def sceptic(project: Project) -> list[str]:
    """One line per paper: what of it is not reproduced, and why."""
    return [
        f"{paper.title}: {' '.join(paper.sceptic.split())}"
        for paper in claims.load(project).values()
        if paper.sceptic
    ]


def in_markdown(project: Project) -> str:
    """For README: the table, and what a sceptic needs."""
    rows = [list(HEADINGS), ["---"] * len(HEADINGS)]
    shown = lines(project)
    for line in shown:
        title, *rest = line.cells
        link = f"[{title}](notebooks/{line.notebook}.ipynb)" if line.notebook else title
        rows.append([link, *rest])
    table = ["| " + " | ".join(row) + " |" for row in rows]
    doubts = [f"- {line}" for line in sceptic(project)]
    why = [f"{_SAID[mark]}\n" for mark in _marks(shown)]
    return "\n".join(
        [*table, "", f"{_COLUMNS}\n", *why, "What does not come out, and why:", "", *doubts, ""]
    )


def print_to(project: Project, console: Console) -> None:
    """The table, as wide as the terminal is, and where to go on."""
    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        of_text = heading in HEADINGS[:2]
        table.add_column(heading, justify="left" if of_text else "right")
    shown = lines(project)
    for line in shown:
        _, ran_on, reproduced, *counts = line.cells
        if line.mark:
            ran_on = f"{line.tier} *"
        table.add_row(line.paper, ran_on, f"[green]{reproduced}[/]", *counts)
    console.print(table)
    if marks := _marks(shown):
        console.print(f"* {' or '.join(marks)}: make emulated records it anew")
    console.print("claims that could have failed; which, and why: harness claims PAPER --failed")


def _marks(shown: Sequence[Line]) -> list[str]:
    """Those that any of the lines has, each once, in the order of `_SAID`."""
    there = {line.mark for line in shown}
    return [mark for mark in _SAID if mark in there]
