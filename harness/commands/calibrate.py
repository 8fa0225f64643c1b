"""`harness calibrate ...`: parameters that no document has, fitted to what was measured."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from harness.errors import BadParameter
from harness.units import format_bytes, format_seconds, parse_size_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from harness.calibration.fit import Calibrated
    from harness.calibration.jobs import JobPlan
    from harness.calibration.measure import Drive
    from harness.drives.targets import Step
    from harness.experiments.sort_merge_join.calibrate import Calibration
    from harness.paths import Project
    from harness.tiers.simulated import SimulatedBench

_Parameters = TypeVar("_Parameters")
_Found = TypeVar("_Found")

app = typer.Typer(
    help="Fits what no document says: of a paper's machine, or of a drive of one's own.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

WriteOption = Annotated[bool, typer.Option("--write", help="put the values into the profile")]


@app.callback()
def default(context: typer.Context) -> None:
    """What a paper does not say of its machine is fitted to a declared part of its numbers.

    What the model then says of those that the fit has not seen is printed beside. Without a
    command: sort_merge_join.
    """
    if context.invoked_subcommand is None:
        sort_merge_join()


@app.command("sort_merge_join")
def sort_merge_join(write: WriteOption = False) -> None:
    """Fits the sort-merge join's machine to 8 of the paper's 24 cells."""
    _say_written(_calibrate_sort_merge_join, write)


@app.command("trim_fallocate")
def trim_fallocate(write: WriteOption = False) -> None:
    """Fits what a TRIM command costs the MX500 to one ratio of the paper."""
    _say_written(_calibrate_trim_fallocate, write)


@app.command("msdj_tpcc")
def msdj_tpcc(write: WriteOption = False) -> None:
    """Fits the drive's spare area to one cell of the paper."""
    _say_written(_calibrate_msdj_tpcc, write)


@app.command("delayed_trim")
def delayed_trim(write: WriteOption = False) -> None:
    """Fits a TRIM's parts to the paper's table 2 and figure 2."""
    _say_written(_calibrate_delayed_trim, write)


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
            _print_plan(jobs, steps(jobs, target, generic))
            return
        figures = measure(jobs, target, _say)
        origin = profile_file.origin_of(target.target.path, named=named)
    calibrated = fit(generic, jobs, figures)
    _print_calibrated(calibrated)
    if write:
        written = profile_file.write_profile(profiles, write, calibrated, jobs, origin)
        _say(f"written: {written}")


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

    with guard.claimed(name) as target:
        yield Drive(target), drive_name(fingerprint.of_drive(target.drive))


def _print_plan(plan: JobPlan, steps: list[Step]) -> None:
    table = Table("step", "writes at most", "expected", "command", box=None)
    for step in steps:
        written = format_bytes(step.written_bytes) if step.written_bytes else "-"
        command = shlex.join(step.command)
        table.add_row(step.what, written, format_seconds(step.expected_s), command)
    _console().print(table)
    total_s = sum(step.expected_s for step in steps)
    _say(
        f"in all: {format_bytes(plan.written_bytes)} written, {format_seconds(total_s)} on a drive "
        f"such as the generic one ({plan.kind})"
    )


def _print_calibrated(found: Calibrated) -> None:
    from harness.calibration.profile_file import format_parameter

    table = Table("parameter", "value", "jobs", box=None)
    for name, jobs in found.decided_by.items():
        value = getattr(found.profile.parameters, name)
        table.add_row(name, format_parameter(value), str(len(jobs)))
    _console().print(table)
    table = Table("job", "measured", "simulated", "error", "", box=None)
    for row in found.residuals.to_dict("records"):
        quantities = [_quantity(row[key], row["unit"]) for key in ("measured", "simulated")]
        predicted = "predicted" if row["held_out"] else "fitted"
        table.add_row(row["job"], *quantities, f"{row['error_ratio']:+.1%}", predicted)
    _console().print(table)
    _say(
        f"largest error of a fitted job {found.worst_fitted:.1%}, of a predicted one "
        f"{found.worst_held_out:.1%}"
    )


def _quantity(value: float, unit: str) -> str:
    return f"{value / 1e6:.4g} MB/s" if unit == "bytes/s" else f"{value * 1e6:.4g} us"


def _say_written(calibrate: Callable[[bool], list[str]], write: bool) -> None:
    changed = calibrate(write)
    if write:
        _say(f"written: {', '.join(changed) or 'nothing, all values stay'}")


def _on_its_models(
    project: Project,
    experiment: str,
    kind: type[_Parameters],
    fit: Callable[[_Parameters, SimulatedBench, Path], _Found],
) -> _Found:
    """What a fit finds on an experiment's simulated bench, as params.yaml has it."""
    from harness.runs.session import open_session

    with open_session(project, experiment, "simulated") as session:
        parameters, models = session.parameters, session.bench.models
        assert isinstance(parameters, kind)
        assert models is not None
        return fit(parameters, models, project.published)


def _calibrate_sort_merge_join(write: bool) -> list[str]:
    from harness.experiments.sort_merge_join import calibrate as fitting
    from harness.experiments.sort_merge_join.grid import Parameters
    from harness.paths import find_project
    from harness.runs.parameters import host_name

    project = find_project()
    found = _on_its_models(project, "sort_merge_join", Parameters, fitting.calibrate)
    _print_calibration(found)
    host = host_name(project, "sort_merge_join")
    return fitting.write(project.profiles, host, found.values) if write else []


def _calibrate_trim_fallocate(write: bool) -> list[str]:
    from harness.experiments.trim_fallocate import calibrate as fitting
    from harness.experiments.trim_fallocate.grid import Parameters
    from harness.paths import find_project
    from harness.runs import report
    from harness.runs.parameters import device_name

    project = find_project()
    found = _on_its_models(project, "trim_fallocate", Parameters, fitting.calibrate)
    _console().print(
        f"{fitting.FITTED} of {fitting.DEVICE}: {found.command_time_ns / 1e6:g} ms gives "
        f"{found.ratio:.3f}, the paper has {found.paper_ratio:.3f} ({found.evaluations} runs)"
    )
    title = "after one repetition per cell; the first ratio was seen by the fit"
    report.print_judged(project, "trim_fallocate", found.results, title, _console())
    name = device_name(project, "trim_fallocate", fitting.DEVICE)
    return fitting.write(project.profiles, name, found.command_time_ns) if write else []


def _calibrate_msdj_tpcc(write: bool) -> list[str]:
    from harness.experiments.msdj_tpcc import calibrate as fitting
    from harness.experiments.msdj_tpcc.grid import Parameters
    from harness.paths import find_project
    from harness.runs import report
    from harness.runs.parameters import device_name

    project = find_project()
    found = _on_its_models(project, "msdj_tpcc", Parameters, fitting.calibrate)
    _console().print(
        f"{fitting.FITTED} of {fitting.DEVICE}: {found.overprovision_ratio:g} gives a WAF of "
        f"{found.waf_ratio:.3f}, the paper has {found.paper_waf_ratio:.3f} "
        f"({found.evaluations} runs)"
    )
    title = "table 1's cell of DJ was seen by the fit, all others are predictions"
    report.print_judged(project, "msdj_tpcc", found.results, title, _console())
    name = device_name(project, "msdj_tpcc", fitting.DEVICE)
    return fitting.write(project.profiles, name, found.overprovision_ratio) if write else []


def _calibrate_delayed_trim(write: bool) -> list[str]:
    from harness.experiments.delayed_trim import calibrate as fitting
    from harness.experiments.delayed_trim.grid import Parameters
    from harness.paths import find_project
    from harness.runs.parameters import device_name

    project = find_project()
    found = _on_its_models(project, "delayed_trim", Parameters, fitting.calibrate)
    for name, value_ns in found.values.items():
        _console().print(f"{name}: {value_ns / 1e3:g} us")
    for row in found.cells.itertuples():
        seen = "seen by the fit" if row.fitted else "not seen"
        _console().print(
            f"{row.metric}, {row.unit_bytes >> 10} KiB: paper {row.value:.4f}, model "
            f"{row.model:.4f}, off by {100 * (row.model - row.value):+.2f} points ({seen})"
        )
    name = device_name(project, "delayed_trim", fitting.DEVICE)
    return fitting.write(project.profiles, name, found.values) if write else []


def _print_calibration(found: Calibration) -> None:
    from harness.experiments.sort_merge_join.calibrate import format_value
    from harness.experiments.sort_merge_join.published import TIMES

    table = Table("parameter", "value", box=None, title=f"{found.evaluations} evaluations")
    for name, value in found.values.items():
        table.add_row(name, format_value(name, value))
    _console().print(table)
    table = Table("device", "clients", "work_mem", *TIMES, "fitted", box=None)
    for row in found.cells.to_dict("records"):
        times = [f"{row[name]:.0f} ({row[f'{name}_error']:+.0%})" for name in TIMES]
        seen = "yes" if row["fitted"] else ""
        table.add_row(row["device"], str(row["clients"]), f"{row['work_mem_mb']} MB", *times, seen)
    _console().print(table)
    for name, error in found.held_out_errors().items():
        _console().print(f"held out, median error of {name}: {error:.1%}")


def _say(line: str) -> None:
    _console().print(line, soft_wrap=True, highlight=False, markup=False)


def _console() -> Console:
    """As wide as the terminal; wide enough for the tables where there is none."""
    return Console(width=None if sys.stdout.isatty() else 120)
