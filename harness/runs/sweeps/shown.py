"""What the notebook of plausible machines shows: one line per step, from recorded sweeps alone."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pandas as pd
from IPython.display import Image
from matplotlib.figure import Figure

from harness import plots
from harness.errors import HarnessError
from harness.paths import Project, find_project
from harness.runs.sweeps import answers, elsewhere, nearest, sensitivity
from harness.runs.sweeps import recorded as records
from harness.runs.sweeps.recorded import Recorded

_VERDICTS: Final = (
    answers.ROBUST,
    answers.UNDECIDED,
    answers.FRAGILE,
    answers.NOT_REACHED,
    answers.OUT_OF_REACH,
    answers.ANOTHER_SCALE,
    answers.NOT_JUDGED,
)
_STATES: Final = ("finished", "refused", "unfinished")
_COLOURS: Final = dict(
    zip(
        _VERDICTS,
        ("#4d7f3c", "#3f9a96", "#c08a1e", "#8a5fa8", "#b5542c", "0.85", "0.7"),
        strict=True,
    )
)


class Sweep:
    """A study's recorded sweep: of those whose machines were drawn the one of the present model, or
    else an earlier one, with most machines. Without one, each part says what would make it.
    """

    def __init__(self, study: str, project: Project | None = None) -> None:
        self.study = study
        project = project or find_project()
        every = _every(project).items()
        mine = {folder: each for folder, each in every if folder.name.startswith(f"{study}.")}
        drawn = {
            folder: each
            for folder, each in mine.items()
            if isinstance(each, Recorded) and each.about["design"] != "list"
        }
        self._folder = max(drawn, key=lambda folder: _rank(drawn[folder]), default=Path())
        self._found = drawn.get(self._folder)
        self._why = next((found for found in mine.values() if isinstance(found, str)), "")

    @property
    def recorded(self) -> Recorded | None:
        """Its tables; None if nobody has swept it here."""
        return self._found

    @property
    def origin(self) -> str:
        """How many machines of what kind, in a line."""
        if self._found is None:
            return self._why or f"not swept here yet: `harness sweep {self.study}` does it"
        about = self._found.about
        earlier = "" if self._found.is_present else ", by an earlier model"
        return (
            f"{self.study}, {about['finished']} of {about['machines']} machines "
            f"({about['refused']} refused by the model, {about['unfinished']} unfinished), scale "
            f"{about['scale']}, design {about['design']}{earlier}"
        )

    def lines(self) -> pd.DataFrame:
        """A line per claim: robust, fragile and on what, or out of reach."""
        if self._found is None:
            return self._nothing()
        return answers.lines(self._found).set_index("claim")

    def shares(self) -> Image | str:
        """In how many machines each claim holds, with its interval, and whether today's does."""
        if self._found is None:
            return self.origin
        table = answers.shares(self._found)
        table = table[table.machines > 0].reset_index(drop=True)
        figure, axes = plots.new(height_in=1.6 + 0.24 * len(table))
        for row, (_, share) in enumerate(table.iterrows()):
            colour = _COLOURS[answers.verdict(share)]
            axes.plot([share.lowest_ratio, share.highest_ratio], [row, row], color=colour)
            axes.plot(share.share_ratio, row, "o", color=colour)
            if share.default_holds:
                axes.plot(1.03, row, "k*", markersize=6, clip_on=False)
        axes.set_yticks(range(len(table)), list(table.claim), fontsize="x-small")
        axes.invert_yaxis()
        axes.set_xlim(-0.02, 1.06)
        axes.set_xlabel("share of plausible machines in which the claim holds, 95 % interval")
        notes = ["a star: it holds on the machine that the pipeline runs"]
        if table.another_scale.any():
            notes.append(f"grey: that machine says something else {self._found.at_larger}")
        return _image(plots.stamp(figure, f"tier: simulated, {self.origin}", notes))

    def decides(self) -> pd.DataFrame:
        """Per unknown how many claims it decides (alone, or with a design for total effects also
        together with others), of those that hold on some of the machines, which, with which
        unknowns it goes in this sample, so that it may be them, and what the paper's words exclude:
        what one would ask the authors, the most telling question first.
        """
        if self._found is None:
            return self._nothing()
        on: dict[str, list[str]] = {name: [] for name in self._found.unknowns.unknowns}
        for _, share in answers.shares(self._found).iterrows():
            if answers.verdict(share) in (answers.FRAGILE, answers.UNDECIDED):
                for name in sensitivity.deciding(self._found, str(share.claim)):
                    on[name].append(str(share.claim))
        beside = _beside(sensitivity.entangled(self._found))
        known = self._found.unknowns.unknowns
        rows = [
            {
                "unknown": name,
                "question": known[name].what,
                "claims": len(claims),
                "which": ", ".join(claims),
                "goes with": ", ".join(beside.get(name, ())),
                "the paper's words exclude": known[name].excluded,
            }
            for name, claims in on.items()
        ]
        frame = pd.DataFrame(rows).sort_values("claims", ascending=False, kind="stable")
        return frame.set_index("unknown")

    def map(self, claim: str) -> Image | str:
        """Where a claim holds, over the two unknowns that matter most for it; one that does not
        decide it is said to.
        """
        if self._found is None:
            return self.origin
        two = list(sensitivity.of_claim(self._found, claim).unknown)[:2]
        deciding = sensitivity.deciding(self._found, claim)
        chance = [name for name in two if name not in deciding]
        if len(two) < 2:
            return f"{claim}: too few machines, or the same number on all of them"
        table = answers.map_of(self._found, claim, *two)
        shown = table.pivot(index="up", columns="across", values="share_ratio")
        counts = table.pivot(index="up", columns="across", values="machines")
        figure, axes = plots.new(height_in=4.0)
        image = axes.imshow(shown.to_numpy(), vmin=0, vmax=1, cmap="RdYlGn", aspect="auto")
        axes.grid(visible=False)
        for row in range(shown.shape[0]):
            for column in range(shown.shape[1]):
                number = counts.iat[row, column]
                if pd.notna(number):
                    text = f"{shown.iat[row, column]:.0%}\nof {int(number)}"
                    axes.text(column, row, text, ha="center", va="center", fontsize="small")
        axes.set_xticks(range(shown.shape[1]), list(map(str, shown.columns)))
        axes.set_yticks(range(shown.shape[0]), list(map(str, shown.index)))
        axes.set_xlabel(self._found.unknowns.unknowns[two[0]].what)
        axes.set_ylabel(two[1])  # what that is stands in the notebook's table
        figure.colorbar(image, label=f"share in which {claim} holds")
        notes = [f"not told from chance: {', '.join(chance)}"] if chance else []
        return _image(plots.stamp(figure, f"tier: simulated, {self.origin}", notes))

    def exclusions(self) -> pd.DataFrame:
        """Claims that hold somewhere each, and nowhere both."""
        return self._nothing() if self._found is None else answers.exclusions(self._found).head(10)

    def nearest(self) -> pd.DataFrame:
        """The five machines that come nearest to all claims that are judged."""
        return self._table(lambda found: nearest.ranked(found).head(5).set_index("machine").T)

    def in_common(self) -> pd.DataFrame:
        """What the nearest tenth has in common."""
        return self._table(lambda found: nearest.in_common(found).head(8).set_index("unknown"))

    def left_out(self) -> pd.DataFrame:
        """Whether these are better at a claim that has not chosen them."""
        return self._table(lambda found: nearest.left_out(found).set_index("claim"))

    def elsewhere(self) -> pd.DataFrame:
        """What others measured on the same device: in how many of the machines it comes out."""
        if self._found is None:
            return self._nothing()
        values = elsewhere.read(self._folder, self.study)
        if values is None:
            what = f"not asked yet: `harness sweep {self.study} --elsewhere` does it"
            return pd.DataFrame({"": [what]})
        there = elsewhere.judged(self._found, self.study, values)
        said = {claim.id: f"{claim.published} ({claim.place})" for claim in there.claims.values()}
        lines = answers.lines(there)
        return lines.assign(measured=lines.claim.map(said)).set_index("claim")

    def _table(self, make: Any) -> pd.DataFrame:
        if self._found is None or len(self._found.finished) < 10 or not nearest.used(self._found):
            return self._nothing()
        table: pd.DataFrame = make(self._found)
        return table

    def _nothing(self) -> pd.DataFrame:
        return pd.DataFrame({"": [self.origin]})


def _beside(pairs: pd.DataFrame) -> dict[str, list[str]]:
    """Unknown -> those that it goes with, and how much."""
    found: dict[str, list[str]] = {}
    for pair in pairs.itertuples():
        for one, other in ((pair.first, pair.second), (pair.second, pair.first)):
            found.setdefault(str(one), []).append(f"{other} ({pair.correlation:.2f})")
    return found


def _image(figure: Figure) -> Image:
    """As a notebook shows it."""
    drawn = plots.files(figure, Path("figure"))
    return Image(data=drawn[Path("figure.png")])


def _rank(found: Recorded) -> tuple[bool, int]:
    """Which of several is to be shown."""
    return found.is_present, found.about["finished"]


@lru_cache(maxsize=4)
def _every(project: Project) -> dict[Path, Recorded | str]:
    """All recorded samples by folder; of one that cannot be read, why.

    The default machine alone, at a paper's size, is no sample (`at_paper_size`).
    """
    every: dict[Path, Recorded | str] = {}
    for folder in records.found(project):
        try:
            found = records.read(project, folder.name.partition(".")[0], folder)
        except HarnessError as error:
            every[folder] = str(error)
        else:
            if found.about["machines"] > 1:
                every[folder] = found
    return every


def summary(project: Project | None = None) -> pd.DataFrame:
    """All recorded sweeps: by which model (of now, or an earlier one), machines, and how many
    claims are robust, fragile, out of reach.
    """
    rows: list[dict[str, Any]] = []
    best: dict[str, Recorded] = {}
    for folder, found in _every(project or find_project()).items():
        if isinstance(found, Recorded):
            best[folder.name] = max(best.get(folder.name, found), found, key=_rank)
    for name, found in best.items():
        shares = answers.shares(found)
        verdicts = [answers.verdict(share) for _, share in shares.iterrows()]
        counts = {each: verdicts.count(each) for each in _VERDICTS}
        model = "of now" if found.is_present else "an earlier one"
        states = {state: found.about[state] for state in _STATES}
        rows.append({"sweep": name, "model": model, **states, **counts})
    columns = ["sweep", "model", *_STATES, *_VERDICTS]
    return pd.DataFrame(rows, columns=columns).set_index("sweep")
