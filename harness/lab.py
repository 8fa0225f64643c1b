"""What notebooks call: one line per step. Everything here is `runs`, `claims` and `plots`, shown.

session = lab.start("grace_hash_join", tier="simulated")
session.run()
session.figure("read_buffer")
session.claims()
"""

from __future__ import annotations

import atexit
import io
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd
from IPython.display import Image

from harness import plots
from harness.devices.model import Device
from harness.devices.profiles import load_device, load_host
from harness.errors import BadParameter
from harness.experiments.base import Results
from harness.paths import Project, find_project
from harness.runs import claims, published, report
from harness.runs.session import Options, open_session
from harness.tiers import doctor


class Lab:
    """A session in a notebook. Closed by `close()`, or at the latest when the kernel ends."""

    def __init__(self, name: str, tier: str, options: Options) -> None:
        self._stack = ExitStack()
        opened = open_session(find_project(), name, tier, options)
        self.session = self._stack.enter_context(opened)
        self._results: Results | None = None
        atexit.register(self.close)

    def run(self) -> None:
        """Runs or resumes the sweep, with a progress bar."""
        self._results = self.session.run()

    @property
    def results(self) -> pd.DataFrame:
        """One row per finished point: parameters and metrics, names with units."""
        return self._finished().table

    def columns(self, *names: str, where: str | None = None) -> pd.DataFrame:
        """Some columns of the results; `where` is a pandas query."""
        table = self.results if where is None else self.results.query(where)
        return table[list(names)].drop_duplicates().reset_index(drop=True)

    def figure(self, name: str) -> Image:
        """One of the experiment's figures."""
        figures = self.session.experiment.figures(self._finished())
        buffer = io.BytesIO()
        with plots.theme():
            figures[name].savefig(buffer, format="png", dpi=110)
        return Image(buffer.getvalue())

    def claims(self) -> pd.DataFrame:
        """The paper's claims and what came out."""
        judged = claims.judge(self.session.project, self.session.experiment.name, self._finished())
        return _readable(judged)

    def published_cells(self) -> pd.DataFrame:
        """Our cells beside the paper's, with errors; times in s. Raises BadParameter if it has no
        such table.
        """
        experiment = self.session.experiment
        cells = experiment.published_cells(self._finished(), self.session.project)
        if cells is None:
            raise BadParameter(f"{experiment.name}: the paper has no table of cells")
        return cells.map(_cell)

    def assumptions(self) -> pd.DataFrame:
        """The claims' values under other assumptions, one column per variant."""
        name = self.session.experiment.name
        table = claims.judge_variants(self.session.project, name, self._finished())
        variants = [name for name in table if name not in ("claim", "expected")]
        return table.dropna(subset=variants, how="all").set_index("claim").map(_cell)

    def publish(self) -> None:
        """Writes tables, traces, figures and metrics into data/."""
        self.session.publish()

    def close(self) -> None:
        """Gives the devices back."""
        self._stack.close()

    def _finished(self) -> Results:
        if self._results is None:
            self._results = self.session.results
        return self._results


def start(name: str, tier: str = "simulated", **options: Any) -> Lab:
    """A session of an experiment on a tier; options as in `Options`."""
    return Lab(name, tier, Options(**options))


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
    """Published results of any tier, the paper's points only, and who measured them.

    One row per group of equal `by`, in the order of the table; `columns` as pandas' `how` says.
    Empty if there are none.
    """
    results = published.results(_project(), experiment, tier).table
    if results.empty:
        return pd.DataFrame(columns=[*by, *columns, "measured"])
    is_here = published.is_from_here(published.about(_project(), experiment, tier))
    paper = results[results.variant == "paper"]
    table = paper.groupby(list(by), sort=False)[list(columns)].agg(how).reset_index()
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
            "expected": judged.expected.map(report.format_range),
            "here": judged.value.map(claims.format_value),
            "lowest": judged.lowest.map(claims.format_value),
            "highest": judged.highest.map(claims.format_value),
            "verdict": judged.verdict,
        }
    )
    return table.set_index("place")


def _cell(value: Any) -> str:
    return report.format_range(value) if isinstance(value, tuple) else claims.format_value(value)
