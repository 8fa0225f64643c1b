"""`harness sweep`: a study on many plausible machines, and what that says of its claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from harness.commands.console import say, terminal
from harness.errors import BadParameter, HarnessError

if TYPE_CHECKING:
    import pandas as pd

    from harness.paths import Project
    from harness.runs.sweeps.sweep import Sweep


def sweep(
    study: Annotated[str, typer.Argument(help="one with a file in hardware/unknowns")],
    machines: Annotated[
        int | None,
        typer.Option(min=0, help="how many beside the default one, which 0 takes alone"),
    ] = None,
    design: Annotated[
        str, typer.Option(help="sobol: evenly; totals: blocks for total effects")
    ] = "sobol",
    samples: Annotated[
        Path | None, typer.Option(help="a YAML list of machines, unknown: value, instead")
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="smoke, small, ... in place of the file's")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="processes on this machine")] = 1,
    scheduler: Annotated[
        str, typer.Option(metavar="ADDRESS", help="tcp://...: its workers instead")
    ] = "",
    publish: Annotated[bool, typer.Option("--publish", help="into data/, not build/")] = False,
    answers: Annotated[
        bool, typer.Option("--answers", help="run nothing: what the sweep says of each claim")
    ] = False,
    elsewhere: Annotated[
        bool,
        typer.Option("--elsewhere", help="run no points: what others measured on its devices"),
    ] = False,
) -> None:
    """Runs a study on many plausible machines, or continues; its table is made from the journal."""
    from harness.paths import find_project
    from harness.runs.sweeps import sweep as sweeps
    from harness.runs.sweeps import unknowns

    if design not in ("sobol", "totals"):
        raise BadParameter(f"--design {design}: sobol or totals")
    asked = sweeps.Asked(machines, "totals" if design == "totals" else "sobol", samples, scale)
    project = find_project()
    size = scale or unknowns.load(project, study).scale
    folder = sweeps.place(project, study, size, asked.drawn, publish=publish)
    if answers:
        _answer(project, study, folder, publish=publish)
        return
    wanted = sweeps.Sweep(project, study, asked)
    if elsewhere:
        _measure_elsewhere(wanted, folder, workers)
        return
    failed = wanted.run(workers, scheduler, say)
    _print_states(wanted.publish(folder))
    say(f"machines and their claims: {folder}")
    if failed:
        raise HarnessError(f"{len(failed)} points failed, the first: {failed[0]}")


def _print_states(machines: pd.DataFrame) -> None:
    counts = machines.groupby(["state", "reason"]).size()
    table = Table("state", "machines", "reason", box=None)
    for (state, reason), count in counts.items():
        table.add_row(str(state), str(count), str(reason))
    terminal().print(table)


def _measure_elsewhere(wanted: Sweep, folder: Path, workers: int) -> None:
    from harness.runs.sweeps import answers, elsewhere, recorded

    there = recorded.read(wanted.project, wanted.study, folder)
    if not there.machines.points.isin(set(wanted.points.values()) - {""}).any():
        raise BadParameter(
            f"{folder}: none of its machines is of now: run the sweep first, without --elsewhere"
        )
    values = elsewhere.measured(wanted.study, wanted.machines, workers)
    elsewhere.write(values, wanted.points, wanted.study, folder)
    found = elsewhere.read(folder, wanted.study)
    assert found is not None
    _print_lines(answers.lines(elsewhere.judged(there, wanted.study, found)))


def _print_lines(lines: pd.DataFrame) -> None:
    table = Table("claim", "what would have to be true", box=None)
    for row in lines.itertuples():
        table.add_row(str(row.claim), str(row.line))
    terminal().print(table)


def _answer(project: Project, study: str, folder: Path, *, publish: bool) -> None:
    from harness.runs.sweeps import at_paper_size, recorded, written

    there = recorded.read(project, study, folder)
    if not there.is_present:
        say(
            "of an earlier model: what the pipeline's machine says now at a larger scale is no "
            "measure of these machines; of another scale are the claims that it has noted as such"
        )
    elif not there.larger and there.about["scale"] != at_paper_size.SCALE:
        missing = (
            "nothing is published of the pipeline's own results now (`dvc repro dvc.yaml` makes "
            "them): no claim can be called of another scale"
        )
        if publish:
            raise BadParameter(missing)
        say(missing)
    found = written.write(there, folder)
    _print_lines(found["lines"])
    say(f"all answers as tables: {folder / 'answers'}")
