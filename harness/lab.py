"""What notebooks call: one line per step. Everything here is `runs`, `claims` and `plots`, shown.

session = lab.start("grace_hash_join", tier="simulated")
session.run()
session.figure("read_buffer")
session.claims()
"""

from __future__ import annotations

import atexit
import base64
import io
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from IPython import get_ipython
from IPython.display import HTML, Markdown
from matplotlib.figure import Figure

from harness import plots
from harness.devices.model import Device
from harness.devices.profiles import load_device, load_host
from harness.errors import BadParameter, UnknownName
from harness.experiments.base import Results
from harness.experiments.obtaining import no_results
from harness.paths import Project, find_project
from harness.runs import captions, claims, places, published, report, summary
from harness.runs.asked import Wanted, check_injected, check_names
from harness.runs.captions import Caption
from harness.runs.choice import choose
from harness.runs.session import Options, Session, open_session
from harness.tiers import doctor


class _Shown:
    """What a notebook shows of finished results: drawn and judged once, when it is asked for."""

    def __init__(self, session: Session, results: Results) -> None:
        self._session = session
        self.results = results

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """All that there is data for."""
        return {} if self.results.table.empty else self._session.experiment.figures(self.results)

    @cached_property
    def captions(self) -> dict[str, list[Caption]]:
        """What stands below figures."""
        return captions.of(self._session.project, self._session.experiment.name, self.verdicts)

    @property
    def verdicts(self) -> pd.DataFrame:
        """As `claims.judge` gives them."""
        return self._judged[0]

    @property
    def variants(self) -> pd.DataFrame:
        """As `claims.judge_variants` gives them."""
        return self._judged[1]

    @cached_property
    def _judged(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        name = self._session.experiment.name
        return claims.judge_all(self._session.project, name, self.results)


class Lab:
    """A session in a notebook. Closed by `close()`, or at the latest when the kernel ends."""

    def __init__(self, name: str, wanted: Wanted, **more: Any) -> None:
        self._stack = ExitStack()
        project = find_project()
        chosen = choose(project, name, wanted.tier, wanted.options(**more))
        opened = open_session(
            project,
            name,
            chosen.tier,
            chosen.options,
            why_tier=chosen.why,
            publish=wanted.publish,
        )
        self.session = self._stack.enter_context(opened)
        self._shown: _Shown | None = None
        atexit.register(self.close)
        _LABS.append(self)
        folder = self.session.place.folder.relative_to(project.root)
        print(f"{name}, {self.session.stamp}; results go to {folder}")  # noqa: T201 - what a notebook shows first

    def run(self) -> None:
        """Runs or resumes the sweep, with a progress bar."""
        self._shown = _Shown(self.session, self.session.run())

    @property
    def results(self) -> pd.DataFrame:
        """One row per finished point: parameters and metrics, names with units."""
        return self._finished.results.table

    def columns(self, *names: str, where: str | None = None) -> pd.DataFrame:
        """Some columns of the results, a row per point; `where` is a pandas query."""
        table = self.results if where is None else self.results.query(where)
        return table[list(names)].reset_index(drop=True)

    def figure(self, name: str) -> HTML | Markdown:
        """One of the experiment's figures, and below it what the paper says and what came out;
        without data, a line that says which points it needs.

        Raises UnknownName.
        """
        shown = self._finished
        if name not in shown.figures:
            needs = {**dict.fromkeys(shown.figures, ""), **self.session.experiment.figure_needs}
            if name not in needs:
                raise UnknownName("figure", name, needs)
            stamp = shown.results.stamp
            return Markdown(f"No figure *{name}* here ({stamp}): it needs {needs[name]}.")
        buffer = io.BytesIO()
        with plots.theme():
            shown.figures[name].savefig(buffer, format="png", dpi=110)
        picture = base64.b64encode(buffer.getvalue()).decode()
        lines = "".join(f"<li>{line.__html__()}</li>" for line in shown.captions.get(name, ()))
        return HTML(
            f'<figure><img alt="{name}" src="data:image/png;base64,{picture}">'
            f"<figcaption><ul>{lines}</ul></figcaption></figure>"
        )

    def claims(self) -> pd.DataFrame:
        """The paper's claims and what came out."""
        return _readable(self._finished.verdicts)

    def published_cells(self) -> pd.DataFrame:
        """Our cells beside the paper's, with errors; times in s. Raises BadParameter if it has no
        such table.
        """
        experiment = self.session.experiment
        cells = experiment.published_cells(self._finished.results, self.session.project)
        if cells is None:
            raise BadParameter(f"{experiment.name}: the paper has no table of cells")
        return cells.map(_cell)

    def tuned(self) -> pd.DataFrame:
        """What was chosen after looking at results: no evidence for these choices is left."""
        session = self.session
        return claims.tuned(session.project, session.experiment.name).set_index("what")

    def assumptions(self) -> pd.DataFrame:
        """The claims' values under other assumptions, one column per variant."""
        table = self._finished.variants
        variants = [name for name in table if name not in claims.NOT_VARIANTS]
        rows = table.dropna(subset=variants, how="all").set_index("claim")
        shown = [
            {"expected": claims.format_range(row.expected, row.unit)}
            | {name: claims.format_value(row[name], row.unit, row.expected) for name in variants}
            for _, row in rows.iterrows()
        ]
        return pd.DataFrame(shown, index=rows.index)

    def publish(self) -> Path:
        """Writes tables, traces, figures and metrics; returns their folder: data/ for what
        params.yaml describes, else one of the run's own, with a report.
        """
        return self.session.publish()

    def will_publish(self, experiment: str, tier: str) -> bool:
        """Whether what it runs goes where results of that study on that tier are looked for."""
        return self.session.place == places.published(self.session.project, experiment, tier)

    def close(self) -> None:
        """Gives the devices back."""
        self._stack.close()

    @property
    def _finished(self) -> _Shown:
        if self._shown is None:
            self._shown = _Shown(self.session, self.session.results)
        return self._shown


_LABS: list[Lab] = []
"""Of this notebook, in the order in which they were started."""


def start(name: str, tier: str = "simulated", **options: Any) -> Lab:
    """A session of an experiment on a tier; options as in `Wanted`, or else as in `Options`.

    Raises HarnessError; also for a parameter that papermill was given and no notebook has.
    """
    shell = get_ipython()
    check_injected(shell.user_ns.get("In", []) if shell else [])
    known = {key: value for key, value in options.items() if key in Wanted.model_fields}
    more = {key: value for key, value in options.items() if key not in known}
    if unknown := set(more) - set(Options.model_fields):
        check_names(sorted(unknown))
    if tier == "hardware":
        for lab in _LABS:
            lab.close()  # it holds its drives, and a cell that is run again asks for them again
    return Lab(name, Wanted.of({"tier": tier, **known}), **more)


def asked(*values: Any) -> dict[str, Any]:
    """The parameters cell but its tier, in the cell's order, by name: for `start`."""
    names = [name for name in Wanted.model_fields if name != "tier"]
    return dict(zip(names, values, strict=True))


def overview() -> pd.DataFrame:
    """Per paper and tier what became of its claims."""
    rows = [line.cells for line in summary.lines(find_project())]
    return pd.DataFrame(rows, columns=list(summary.HEADINGS)).set_index(summary.HEADINGS[0])


def sceptic() -> list[str]:
    """Per paper what is not reproduced, and why."""
    return summary.sceptic(find_project())


def all_claims() -> dict[str, pd.DataFrame]:
    """Per paper and tier with published results: its claims and what came out."""
    project = find_project()
    tables = {}
    for name, tier, results in report.all_published(project):
        tables[f"{name}, tier {tier}"] = _readable(claims.judge(project, name, results))
    return tables


def recorded(
    experiment: str, tier: str, *columns: str, by: Sequence[str], how: str = "mean"
) -> pd.DataFrame:
    """Published results of any tier, the paper's points only, and who measured them. Of the study
    and tier that this notebook runs, its own, which it is about to publish.

    One row per group of equal `by`, in the order of the table: of how many runs, and `columns` as
    pandas' `how` says; of a mean of several runs the least and the most, too. Empty if there are
    none; then it says how to get them.
    """
    running = [lab for lab in _LABS if lab.will_publish(experiment, tier)]
    results = running[-1].results if running else pd.DataFrame()
    is_here = bool(running)
    if results.empty:
        results = published.results(_project(), experiment, tier).table
        is_here = published.is_from_here(published.about(_project(), experiment, tier))
    if results.empty:
        print(no_results(experiment, tier))  # noqa: T201 - in the place of its rows
        return pd.DataFrame(columns=[*by, "runs", *columns, "measured"])
    groups = results[results.variant == "paper"].groupby(list(by), sort=False)
    found = {"runs": groups.size()}
    for name in columns:
        found[name] = groups[name].agg(how)
        if how == "mean" and (found["runs"] > 1).any():
            found |= {f"{name}, least": groups[name].min(), f"{name}, most": groups[name].max()}
    table = pd.DataFrame(found).reset_index()
    return table.assign(measured="here" if is_here else "by the authors")


def profile(name: str, *, host: bool = False) -> pd.DataFrame:
    """Every number of a profile with its origin and the reason for it."""
    folder = _project().profiles
    loaded = load_host(folder, name) if host else load_device(folder, name)
    sections = loaded.sections.values() if loaded.kind == "host" else [loaded.parameters]
    given = [
        (field, value) for section in sections for field, value in section if value is not None
    ]
    rows = [(field, _shown(value), value) for field, value in given]
    data = [(field, shown, value.origin, value.reason) for field, shown, value in rows]
    return pd.DataFrame(data, columns=["parameter", "value", "origin", "why"])


def device(name: str, **overrides: str) -> Device:
    """A new drive from a profile; overrides as they would stand in it: page="8 KiB"."""
    return Device.from_profile(_project().profiles, name, overrides)


def tools() -> pd.DataFrame:
    """What each tier needs of this machine, and what it has."""
    return doctor.table()


def data_folder() -> Path:
    """Where results, traces and figures lie."""
    return _project().root / "data"


def _project() -> Project:
    return find_project()


def _shown(value: Any) -> str:
    return (
        f"{value.value:,}{value.suffix.replace('_', ' ').replace(' per s', '/s')}"
        if (isinstance(value.value, int) and not isinstance(value.value, bool))
        else str(value.value)
    )


def _readable(judged: pd.DataFrame) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "place": judged.place,
            "statement": judged.statement,
            "paper": judged.published,
            "expected": list(map(claims.format_range, judged.expected, judged.unit)),
            "here": list(map(claims.format_value, judged.value, judged.unit)),
            "lowest": list(map(claims.format_value, judged.lowest, judged.unit)),
            "highest": list(map(claims.format_value, judged.highest, judged.unit)),
            "verdict": [claims.said(row) for row in judged.itertuples()],
            "needs": judged.needs,
            "why this range": judged.why,
            "erratum": judged.errata,
        }
    )
    return table.set_index("place")


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        return claims.format_range(value)
    return value if isinstance(value, str) else claims.format_value(value)
