"""`harness calibrate ...`: parameters that no document has, fitted to what was measured."""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from harness.commands.console import say, terminal
from harness.errors import BadParameter
from harness.units import format_bytes, format_seconds, parse_size_option

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from harness.calibration.fit import Calibrated
    from harness.calibration.jobs import JobPlan
    from harness.calibration.measure import Drive
    from harness.drives.targets import Step
    from harness.experiments.base import Shown


class _Studies(TyperGroup):
    """The commands of this file, and one for each study that has a calibration.

    Studies are imported when they are asked for: `harness --help` must not wait for them.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Studies first, in the order of their table."""
        from harness import experiments

        studies = [name for name in experiments.names() if experiments.find(name).calibration]
        return [*studies, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A study's command is made from its calibration's summary."""
        from harness import experiments

        if cmd_name not in experiments.names():
            return super().get_command(ctx, cmd_name)
        calibration = experiments.find(cmd_name).calibration
        return _study_command(cmd_name, calibration.summary) if calibration else None


def _study_command(name: str, summary: str) -> Any:
    one = typer.Typer(add_completion=False, rich_markup_mode=None)

    @one.command(name, help=summary)
    def command(
        write: Annotated[
            bool, typer.Option("--write", help="put the values into the profile")
        ] = False,
    ) -> None:
        _calibrate(name, write)

    return typer.main.get_command(one)


app = typer.Typer(
    cls=_Studies,
    help="Fits what no document says: of a paper's machine, or of a drive of one's own.\n\n"
    "What a paper does not say of its machine is fitted to a declared part of its numbers; what "
    "the model then says of those that the fit has not seen is printed beside.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def drive(
    kind: Annotated[
        str, typer.Option(help="hdd, sata_ssd or nvme_ssd: the generic drive to begin with")
    ],
    file: Annotated[
        Path | None, typer.Option(help="to try it: a file to make (and delete), or a loop device")
    ] = None,
    size: Annotated[str, typer.Option(help="of the file that --file makes")] = "2G",
    live: Annotated[str, typer.Option(metavar="NAME", help="a live device; all is lost")] = "",
    claimed: Annotated[
        str, typer.Option(metavar="NAME", help="a drive claimed with `harness hardware claim`")
    ] = "",
    plan: Annotated[bool, typer.Option("--plan", help="say what would be done, and stop")] = False,
    write: Annotated[str, typer.Option(metavar="PROFILE", help="the profile to be written")] = "",
) -> None:
    """Measures a drive with fio and fits a profile to it, which can then be simulated."""
    from harness.calibration import profile_file
    from harness.calibration.fit import fit, generic_profile
    from harness.calibration.jobs import plan_for
    from harness.calibration.measure import measure, steps
    from harness.paths import find_project

    profiles = find_project().profiles
    if write:
        profile_file.check_name(profiles, write)
    with _opened_drive(kind, file, size, live, claimed, plan=plan) as (target, named):
        jobs = plan_for(kind, target.size_bytes, discards=target.discards)
        generic = generic_profile(profiles, kind)
        if plan:
            _print_plan(jobs, steps(jobs, target, generic), target.size_bytes)
            return
        figures = measure(jobs, target, say)
        origin = profile_file.origin_of(target.target.path, named=named)
    calibrated = fit(generic, jobs, figures)
    _print_calibrated(calibrated)
    if write:
        written = profile_file.write_profile(profiles, write, calibrated, jobs, origin)
        say(f"written: {written}")


def _opened_drive(
    kind: str, file: Path | None, size: str, live: str, claimed: str, *, plan: bool
) -> AbstractContextManager[tuple[Drive, str]]:
    """The one drive that was named, for as long as it is used, and what a profile calls it."""
    if (file is not None) + bool(live) + bool(claimed) != 1:
        raise BadParameter("calibrate drive: give one of --file, --live and --claimed")
    if file is not None:
        return _file_drive(file, size, plan=plan)
    return _live_drive(live, kind) if live else _claimed_drive(claimed)


@contextmanager
def _file_drive(file: Path, size: str, *, plan: bool) -> Iterator[tuple[Drive, str]]:
    """A scratch file or loop device; for a plan nothing is made or changed."""
    from harness.calibration.measure import file_drive
    from harness.drives import scratch

    size_bytes = parse_size_option(size)
    if file.is_block_device():
        with file.open("rb") as device:
            size_bytes = device.seek(0, os.SEEK_END)
    if plan:
        scratch.check(file, size_bytes)
        yield file_drive(scratch.Scratch(file, size_bytes)), ""
        return
    with scratch.use(file, size_bytes) as target:
        yield file_drive(target), ""


@contextmanager
def _live_drive(name: str, kind: str) -> Iterator[tuple[Drive, str]]:
    from harness.calibration.fit import generic_profile
    from harness.calibration.jobs import plan_for
    from harness.calibration.measure import emulated_drive
    from harness.devices import live
    from harness.paths import find_project

    device = live.find(name)
    before = device.stats()
    generic = generic_profile(find_project().profiles, kind)
    plan = plan_for(kind, device.size_bytes)
    try:
        yield emulated_drive(device, plan, generic), f"emulated {before['profile']}"
    finally:
        device.set_speed(before["speed"], before["slowdown"])


@contextmanager
def _claimed_drive(name: str) -> Iterator[tuple[Drive, str]]:
    from harness.calibration.measure import Drive
    from harness.calibration.profile_file import drive_name
    from harness.drives import fingerprint, guard
    from harness.drives.queue_settings import queue_settings

    with guard.claimed(name) as target, queue_settings(target.drive.node, {}):
        yield Drive(target), drive_name(fingerprint.of_drive(target.drive))


def _print_plan(plan: JobPlan, steps: list[Step], size_bytes: int) -> None:
    table = Table("step", "writes at most", "expected", "command", box=None)
    for step in steps:
        written = format_bytes(step.written_bytes) if step.written_bytes else "-"
        command = shlex.join(step.command)
        table.add_row(step.what, written, format_seconds(step.expected_s), command)
    terminal().print(table)
    total_s = sum(step.expected_s for step in steps)
    say(
        f"in all: {format_bytes(plan.written_bytes)} written, {format_seconds(total_s)} on a drive "
        f"such as the generic one ({plan.kind}); wear: it is written "
        f"{plan.written_bytes / size_bytes:.2g} times over"
    )


def _print_calibrated(found: Calibrated) -> None:
    from harness.calibration.profile_file import format_parameter

    table = Table("parameter", "value", "jobs", box=None)
    for name, jobs in found.decided_by.items():
        value = getattr(found.profile.parameters, name)
        table.add_row(name, format_parameter(value), str(len(jobs)))
    terminal().print(table)
    table = Table("job", "measured", "simulated", "error", "", box=None)
    for row in found.residuals.to_dict("records"):
        quantities = [_quantity(row[key], row["unit"]) for key in ("measured", "simulated")]
        predicted = "predicted" if row["held_out"] else "fitted"
        table.add_row(row["job"], *quantities, f"{row['error_ratio']:+.1%}", predicted)
    terminal().print(table)
    say(
        f"largest error of a fitted job {found.worst_fitted:.1%}, of a predicted one "
        f"{found.worst_held_out:.1%}"
    )


def _quantity(value: float, unit: str) -> str:
    return f"{value / 1e6:.4g} MB/s" if unit == "bytes/s" else f"{value * 1e6:.4g} us"


def _calibrate(name: str, write: bool) -> None:
    """A study's calibration, shown, and written if that is wanted."""
    from harness import experiments
    from harness.paths import find_project
    from harness.runs import report
    from harness.runs.study import StudyRuns

    project = find_project()
    calibration = experiments.find(name).calibration
    assert calibration is not None
    found = calibration.run(StudyRuns(project, name))
    for said in found.says:
        if isinstance(said, str):
            terminal().print(said)
        else:
            terminal().print(_as_page(said))
    if found.judged:
        results, title = found.judged
        report.print_judged(project, name, results, title, terminal())
    if write:
        changed = found.write(project.profiles)
        say(f"written: {', '.join(changed) or 'nothing, all values stay'}")


def _as_page(shown: Shown) -> Table:
    table = Table(*shown.table.columns, box=None, title=shown.title or None)
    for row in shown.table.itertuples(index=False):
        table.add_row(*row)
    return table
