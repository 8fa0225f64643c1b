"""The project's figures, measured: `make bench` and its groups.

Every figure is a record {name, value, unit, goal, holds, runs, min, median, max, command}; a figure
that cannot be measured here has the reason instead of a value and `holds: null`. `made` says when
it was measured, of which commit, on which machine. Nothing is typed in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from harness import experiments
from harness.errors import UnknownName
from harness.experiments.base import Benchmark
from harness.goals import Goal
from harness.paths import Project
from harness.runs.checkout import made_here
from harness.runs.study import StudyRuns
from harness.system.files import write_atomically

_OURS: Final = {
    "live_device": ("harness.benchmarks.live_device", "harness.benchmarks.live_safety"),
    "probes": ("harness.benchmarks.probes",),
    "hardware": ("harness.benchmarks.erase_guard", "harness.benchmarks.drive_calibration"),
    "sweeps": ("harness.benchmarks.sweeps",),
    "reviewer": ("harness.benchmarks.explorer", "harness.benchmarks.reviewer"),
}
"""Groups that no study owns; studies have theirs in their packages, and may add to these."""

Measure = Callable[[Project, Console], Iterator[Goal]]


def groups() -> list[str]:
    """Names of all groups: the studies', then ours."""
    studies = (experiments.find(name).benchmarks for name in experiments.names())
    return list(dict.fromkeys([*(group for found in studies for group in found), *_OURS]))


def _check_beside(checkouts: Mapping[str, Path]) -> None:
    """Raises UnknownName for a program beside which no study measures itself."""
    known = {name for study in experiments.names() for name in experiments.find(study).beside}
    for name in checkouts:
        if name not in known:
            raise UnknownName("program to be measured beside", name, known)


def _measures(group: str, checkouts: Mapping[str, Path]) -> Iterator[Measure]:
    """What measures a group, in order."""
    for module in _OURS.get(group, ()):
        yield import_module(module).measure
    for name in experiments.names():
        for measure in experiments.find(name).benchmarks.get(group, ()):
            yield _of_study(name, measure, checkouts)


def _of_study(name: str, measure: Benchmark, checkouts: Mapping[str, Path]) -> Measure:
    return lambda project, console: measure(StudyRuns(project, name, checkouts), console)


def run(project: Project, only: str, console: Console, checkouts: Mapping[str, Path]) -> None:
    """Measures one group, or all of them, into build/bench.json; other groups' records stay.

    `checkouts`: of other people's programs, by name; beside these, too. Raises UnknownName.
    """
    _check_beside(checkouts)
    known = groups()
    if only and only not in known:
        raise UnknownName("benchmark group", only, known)
    path = project.build / "bench.json"
    records = json.loads(path.read_text()) if path.is_file() else []
    for group in [only] if only else known:
        figures, made = [], made_here(project)
        for measure in _measures(group, checkouts):
            for figure in measure(project, console):
                figures.append(figure)
                console.print(figure.line())
        records = [r for r in records if r["group"] != group]
        records += [{"group": group, "made": made, **figure.record()} for figure in figures]
        write_atomically(path, (json.dumps(records, indent=1) + "\n").encode(), make_folder=True)
    _summarise(records, console)
    console.print(f"written: {path}")


def _summarise(records: list[dict[str, object]], console: Console) -> None:
    table = Table("group", "figure", "value", "goal", "holds", box=None)
    marks = {True: "[green]yes[/]", False: "[red]no[/]", None: "[yellow]not measured[/]"}
    for r in records:
        holds = r["holds"]
        assert holds is None or isinstance(holds, bool)
        value = "-" if r["value"] is None else f"{r['value']:.4g} {r['unit']}"
        table.add_row(str(r["group"]), str(r["name"]), value, str(r["goal"]), marks[holds])
    console.print(table)
