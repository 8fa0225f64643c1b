"""`harness ...`: arguments, exit codes, and nothing else."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from rich.table import Table

import harness
from harness.commands import calibrate, device, hardware, probe, sweep
from harness.commands.console import pairs, say, terminal
from harness.errors import EXIT_CODE, HarnessError, Interrupted
from harness.units import format_bytes


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"harness {harness.__version__}")
        raise typer.Exit


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(probe.app, name="probe")


@app.callback()
def harness_(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the package's version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Five papers on flash storage under databases, reproduced on three tiers."""


if TYPE_CHECKING:
    import pandas as pd

    from harness.devices.data_sheet_fit import Fitted
    from harness.devices.profiles import DeviceProfile

app.add_typer(calibrate.app, name="calibrate")
app.add_typer(device.app, name="device")
app.add_typer(hardware.app, name="hardware")
app.command()(sweep.sweep)

_LONG: Final = re.compile(r"^(.{200}).{200,}(.{100})$")
"""A word of which nobody wants to see all, such as a name of thousands of letters."""

TierOption = Annotated[
    str, typer.Option("--tier", help="simulated, emulated, hardware, or auto: the best there is")
]


_STOPPED: Final = "interrupted: nothing was left half done; run again to continue"

_INTERRUPTED: Final = 130
"""Typer's exit code of a KeyboardInterrupt."""

_QUERY_STOPPED: Final = "Query interrupted"
"""What DuckDB makes of a KeyboardInterrupt that comes in a query: a RuntimeError that says this."""


def main() -> NoReturn:
    """Runs the command line. An operating error is one line on stderr and exit code 2."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # which is how nohup wants it
        signal.signal(signal.SIGHUP, _hang_up)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files need not be text
            stream.reconfigure(errors="backslashreplace")
    try:
        with _all_said():
            app(standalone_mode=True)
    except HarnessError as error:
        _fail(error)
    except OSError as error:  # what nobody expected, but the system has said what it is
        where = f"{error.filename}: " if error.filename is not None else ""
        _fail(HarnessError(f"{where}{error.strerror or error}"))
    except KeyboardInterrupt:
        _fail(Interrupted(_STOPPED))
    except SystemExit as ended:
        if ended.code == _INTERRUPTED:
            _fail(Interrupted(_STOPPED))
        raise
    except RuntimeError as error:
        if str(error) != _QUERY_STOPPED:
            raise
        _fail(Interrupted(_STOPPED))
    sys.exit(0)


@contextlib.contextmanager
def _all_said() -> Iterator[None]:
    """What was printed has arrived at the end, or there is an error: the disk may be full there."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - not to be said again at exit
                os.dup2(nowhere.fileno(), sys.stdout.fileno())
            raise


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _hang_up(_signal: int, _frame: FrameType | None) -> None:
    """A lost terminal ends us as SIGTERM would now.

    It is told twice, by the shell and by the kernel: the second time nothing is to be cut off of
    what puts all back, nor a program that it starts.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.raise_signal(signal.SIGTERM)


def _fail(error: HarnessError) -> NoReturn:
    words = (_LONG.sub(r"\1...\2", _shown(word)) for word in str(error).split())
    print(f"harness: {' '.join(words)}", file=sys.stderr)  # noqa: T201
    sys.exit(EXIT_CODE)


def _shown(text: str) -> str:
    """As it may be shown on a terminal, to which control characters would be commands."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@app.command("list")
def list_() -> None:
    """Lists experiments, tiers, scales and profiles."""
    from harness import experiments, tiers
    from harness.devices.profiles import list_profiles
    from harness.paths import find_project
    from harness.workloads.tpch import SCALES

    profiles = find_project().profiles
    table = Table("kind", "names", box=None)
    table.add_row("experiments", ", ".join(experiments.names()))
    table.add_row("tiers", ", ".join(tiers.names()))
    table.add_row("scales", ", ".join(f"{name} (SF {sf:g})" for name, sf in SCALES.items()))
    table.add_row("devices", ", ".join(list_profiles(profiles)))
    table.add_row("hosts", ", ".join(list_profiles(profiles / "hosts")))
    terminal().print(table)


@app.command()
def run(
    experiment: str,
    tier: TierOption = "simulated",
    scale: Annotated[str | None, typer.Option(help="smoke, small, medium or paper")] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="hardware: a file to make (and delete), or a blank loop device"),
    ] = None,
    cached: Annotated[
        bool, typer.Option("--cached", help="hardware: a file where there is no O_DIRECT, too")
    ] = False,
    drive: Annotated[
        list[str] | None,
        typer.Option(
            *("--drive", "--drives"),
            metavar="NAME=CLAIMED",
            help="hardware: a claimed drive for a device",
        ),
    ] = None,
    journal: Annotated[
        list[str] | None,
        typer.Option(
            *("--journal", "--journals"),
            metavar="NAME=CLAIMED",
            help="hardware: a claimed FDP namespace for a drive's journal",
        ),
    ] = None,
    write_budget: Annotated[
        str, typer.Option(metavar="SIZE", help="hardware: what each drive may be written at most")
    ] = "",
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="hardware: of /sys/block/DRIVE/queue; put back"),
    ] = None,
    plan: Annotated[
        bool, typer.Option(help="hardware: print what would be overwritten, and stop")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            *("--set", "--settings"), metavar="NAME=VALUE", help="a parameter of the experiment"
        ),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            *("--device", "--devices"),
            metavar="NAME=PROFILE",
            help="modelled tiers: another profile for a device",
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            *("--override", "--overrides"),
            metavar="NAME=VALUE",
            help="modelled tiers: a profile's parameter",
        ),
    ] = None,
    publish: Annotated[
        bool,
        typer.Option(
            help="what params.yaml describes goes into data/; all else, or all, into build/runs/"
        ),
    ] = True,
) -> None:
    """Runs an experiment on a tier, or continues it, and judges the paper's claims."""
    from harness.paths import find_project
    from harness.runs.asked import Wanted
    from harness.runs.choice import choose
    from harness.runs.session import open_session
    from harness.units import parse_size_option

    project = find_project()
    wanted = Wanted(
        tier=tier,
        scale=scale,
        drives=pairs(drive, "--drive"),
        journals=pairs(journal, "--journal"),
        file=file,
        devices=pairs(device, "--device"),
        settings=pairs(settings, "--set"),
        overrides=pairs(override, "--override"),
        publish=publish,
    )
    budget_bytes = parse_size_option(write_budget) if write_budget else 0
    options = wanted.options(
        write_budget_bytes=budget_bytes, queue=pairs(queue, "--queue"), cached=cached
    )
    chosen = choose(project, experiment, tier, options)
    if plan:
        hardware.print_run_plan(project, experiment, chosen.tier, chosen.options, terminal())
        return
    with open_session(
        project,
        experiment,
        chosen.tier,
        chosen.options,
        why_tier=chosen.why,
        publish=publish,
    ) as session:
        say(f"{experiment}, {session.stamp}")
        session.run()
        folder = session.publish()
        _print_verdicts(session.verdicts(), f"{experiment}, {session.stamp}")
        if session.place.page is not None:
            say(f"results, figures and their report: {folder}")


@app.command()
def agreement(
    experiment: Annotated[str, typer.Argument(help="none is needed for --document")] = "",
    publish: Annotated[bool, typer.Option("--publish", help="into data/, as pipelines do")] = False,
    document: Annotated[
        bool, typer.Option("--document", help="Write all that is published into docs/validation.md")
    ] = False,
) -> None:
    """Compares what was run on tier emulated with the simulation of the same points."""
    from harness.paths import find_project
    from harness.runs import agreement as agreements
    from harness.runs import agreement_page
    from harness.runs.study import agreement_of

    project = find_project()
    if document:
        part = agreement_page.part(project)
        part.write(agreement_page.in_markdown(project))
        say(f"written: {part.page}")
        return
    table, judged, path = agreements.write(project, experiment, publish=publish)
    goal = agreement_of(experiment).goal_ratio
    shown = Table(
        "device", "what", "points", "median", "lowest", "highest", f"within {goal:.0%}", box=None
    )
    for row in agreements.summary(table, experiment).itertuples():
        spread = (f"{row.median:.3f}", f"{row.lowest:.3f}", f"{row.highest:.3f}")
        share = f"{row.within_goal_ratio:.0%}"
        shown.add_row(str(row.device), str(row.what), str(row.points), *spread, share)
    terminal().print("emulated over simulated:", shown)
    if "ios_differ" in table:
        differ = int(table.ios_differ.sum())
        terminal().print(f"{differ} of {int(table.ios_compared.sum()):,} I/O counts differ")
    if not judged.empty:
        _print_claims_beside(judged)
    say(f"the table: {path}")


def _print_claims_beside(judged: pd.DataFrame) -> None:
    """What an emulated run says of the claims, and what the model of the same run says."""
    from harness.runs.claims import NOT_JUDGED, format_value

    shown = Table("claim", "emulated", "the model of that run", box=None)
    for row in judged.itertuples():
        cells = [
            verdict if verdict == NOT_JUDGED else f"{format_value(value, row.unit)}, {verdict}"
            for value, verdict in (
                (row.emulated, row.emulated_verdict),
                (row.modelled, row.modelled_verdict),
            )
        ]
        shown.add_row(row.id, *cells)
    terminal().print(shown)


@app.command()
def draw(experiment: str, tier: TierOption = "simulated") -> None:
    """Draws the figures of published results again; exit code 1 if one is not what it was, or if
    one that is published was not drawn.
    """
    from harness import tiers
    from harness.paths import find_project
    from harness.runs import redraw

    done = redraw.redraw(find_project(), experiment, tiers.check(tier))
    say(f"{len(done.same)} files are as they were, {len(done.other)} are not")
    for path in done.other:
        say(f"other, or new: {path}")
    for path in done.left:
        say(f"not drawn (it needs a raw trace, dvc pull; or nothing draws it any more): {path}")
    if done.other or done.left:
        raise typer.Exit(1)


@app.command()
def data(scale: Annotated[str, typer.Argument(help="smoke, small or paper")]) -> None:
    """Makes the TPC-H inputs of a scale, or checks that they are there and whole."""
    from harness.paths import find_project
    from harness.workloads.tpch import expected_join, join_inputs, scale_factor

    scale_factor(scale)
    project = find_project()
    inputs = join_inputs(project.raw, scale)
    matches, checksum = expected_join(project.raw, inputs)
    terminal().print(
        f"{scale}: {len(inputs.orders):,} orders, {len(inputs.lineitem):,} lineitems, "
        f"{matches:,} matches, checksum {checksum:#018x}"
    )


@app.command()
def notebook(
    name: Annotated[str, typer.Argument(help="such as 10_grace_hash_join")],
    tier: Annotated[str, typer.Option("--tier", help="the same as -p tier=...")] = "",
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            *("-p", "--parameter"),
            metavar="NAME=VALUE",
            help="of its parameters cell: tier, scale, drives, journals, file, devices, settings, "
            "overrides, publish; a mapping as {ssd: mine} or ssd=mine",
        ),
    ] = None,
    chosen: Annotated[
        Path | None,
        typer.Option(help="the drives of a hardware run, as `harness hardware choose` wrote them"),
    ] = None,
) -> None:
    """Executes a notebook and renders it as HTML: beside its run's results, or in build/report/."""
    from harness.paths import find_project
    from harness.runs import notebooks, times

    project = find_project()
    given = pairs(parameter, "-p", once=True) | ({"tier": tier} if tier else {})
    asked = given.get("tier", "")
    with times.noted(project, f"{name}, tier {asked}" if asked else name):
        page = notebooks.run(project, name, given, chosen)
    say(f"executed: {page}")


@app.command()
def claims(
    papers: Annotated[
        list[str] | None, typer.Argument(metavar="[PAPER]...", help="all, if none is named")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only what is not reproduced, or not wholly.")
    ] = False,
    could_fail: Annotated[
        bool, typer.Option("--could-fail", help="Whether a wrong result would change each verdict.")
    ] = False,
    document: Annotated[
        bool, typer.Option("--document", help="Write all into docs/validation.md and README.md.")
    ] = False,
) -> None:
    """Prints papers' claims and their verdicts on all tiers."""
    from harness.paths import find_project
    from harness.runs import evidence, report

    project = find_project()
    if document:
        for page in evidence.update(project):
            terminal().print(f"written: {page}")
    elif could_fail:
        report.print_mutations(project, papers or [], terminal())
    else:
        report.print_claims(project, papers or [], terminal(), only_failed=failed)


@app.command("report")
def report_() -> None:
    """Writes the HTML report, prints the claims, and says where the report is."""
    from harness.paths import find_project
    from harness.runs import overview, times

    project = find_project()
    with times.noted(project, times.REPORT):
        page = overview.make(project, terminal())
    if stages := times.read(project):
        say(times.in_words(stages))
    terminal().print(f"report: {page}")


@app.command("times")
def times_() -> None:
    """Prints what each stage took here when it last ran, in s, and its largest process's memory."""
    from harness.paths import find_project
    from harness.runs import times
    from harness.units import format_bytes

    stages = times.read(find_project())
    total = times.Stage(
        "all, one after the other",
        sum(stage.elapsed_s for stage in stages),
        sum(stage.cpu_s for stage in stages),
        max((stage.memory_bytes for stage in stages), default=0),
    )
    table = Table("stage", "elapsed", "processor", "memory", box=None)
    for stage in (*stages, total):
        memory = format_bytes(stage.memory_bytes) if stage.memory_bytes else "-"
        table.add_row(stage.name, f"{stage.elapsed_s:.1f}", f"{stage.cpu_s:.1f}", memory)
    terminal().print(table)


@app.command("data-sheet")
def data_sheet(
    profile: Annotated[
        str, typer.Argument(help="such as samsung_980_1tb, or a path that ends in .yaml")
    ] = "",
    every: Annotated[bool, typer.Option("--all", help="all profiles that have figures")] = False,
) -> None:
    """Runs the figures of a drive's data sheet on its model; exit code 1 if one does not hold."""
    from harness.devices.data_sheet import check
    from harness.errors import BadParameter

    if bool(profile) == every:
        raise BadParameter("data-sheet: name a profile, or give --all")
    holds = True
    for name, drive in _with_data_sheet(profile):
        figures = check(drive)
        _print_data_sheet(figures, name)
        holds = holds and bool(figures.holds.all())
    if not holds:
        raise typer.Exit(1)


@app.command()
def fit(
    profile: Annotated[
        str, typer.Argument(help="such as samsung_980_1tb, or a path that ends in .yaml")
    ],
    write: Annotated[bool, typer.Option("--write", help="put the values into the file")] = False,
) -> None:
    """Solves a profile's fitted parameters for its data sheet; exit code 1 if that fails."""
    from harness.devices import data_sheet_fit
    from harness.paths import find_project

    [(name, drive)] = _with_data_sheet(profile)
    fitted = data_sheet_fit.fit(drive)
    _print_fit(fitted, drive, name)
    if write and fitted.converged:
        changed = data_sheet_fit.write_fit(find_project().profiles, name, fitted)
        terminal().print(f"written: {', '.join(changed) or 'nothing, all values stay'}")
    if not fitted.converged:
        raise typer.Exit(1)


@app.command()
def clean(
    everything: Annotated[
        bool, typer.Option("--all", help="living devices too, but for those of living runs")
    ] = False,
) -> None:
    """Removes what killed runs have left: live devices, mounts, servers, folders."""
    from harness.errors import TargetError
    from harness.runs import cleaning

    cleaned = cleaning.clean(everything=everything)
    for line in cleaned.done or ([] if cleaned.failed else ["nothing was left behind"]):
        terminal().print(line, soft_wrap=True, highlight=False)
    if cleaned.failed:
        raise TargetError("; ".join(cleaned.failed))


@app.command()
def digests() -> None:
    """Writes what each study's results depend on into data/code/, for DVC."""
    from harness.paths import find_project
    from harness.runs import code

    code.publish(find_project())


@app.command()
def machine(
    tier: Annotated[str, typer.Argument(help="emulated or hardware")],
    studies: Annotated[
        list[str] | None, typer.Argument(help="of the pipeline; by default all", show_default=False)
    ] = None,
) -> None:
    """Says that studies are to be measured on this machine: writes it down, for DVC."""
    from harness.paths import find_project
    from harness.runs import machines

    machines.write(find_project(), tier, studies or ())


@app.command()
def doctor() -> None:
    """Says what each tier needs, what is missing here, and how to install it."""
    from harness.tiers import doctor as checks

    checks.print_report(terminal())


@app.command()
def release(
    studies: Annotated[
        list[str] | None, typer.Argument(help="of the pipeline; by default all", show_default=False)
    ] = None,
    output: Annotated[Path, typer.Option(help="the archive", show_default=True)] = Path(
        "build/release/flashlab.tar"
    ),
) -> None:
    """Writes one archive: sources, recorded data as a DVC remote, and an RO-Crate."""
    from harness.paths import find_project
    from harness.runs import release as releases

    archive = releases.write(find_project(), output.absolute(), studies or [])
    say(f"release: {archive}, {format_bytes(archive.stat().st_size)}")


@app.command()
def bench(
    only: Annotated[str, typer.Option(help="one group")] = "",
    beside: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FOLDER", help="a checkout of another program, to be measured beside ours"
        ),
    ] = None,
    document: Annotated[
        bool,
        typer.Option(
            "--document",
            help="Measure nothing; write what was into docs/validation.md and README.md.",
        ),
    ] = False,
) -> None:
    """Measures the project's figures into build/bench.json."""
    from harness import benchmarks
    from harness.paths import find_project

    if document:
        from harness.benchmarks import documented

        for page in documented.update(find_project()):
            terminal().print(f"written: {page}")
        return
    checkouts = {name: Path(folder) for name, folder in pairs(beside, "--beside").items()}
    benchmarks.run(find_project(), only, terminal(), checkouts)


def _with_data_sheet(name: str) -> list[tuple[str, DeviceProfile]]:
    """The named profile, or all that have figures. Raises UnknownName, BadProfile."""
    from harness.devices.profiles import list_profiles, load_device, profile_path
    from harness.errors import BadProfile
    from harness.paths import find_project

    folder = find_project().profiles
    named = [(n, load_device(folder, n)) for n in ([name] if name else list_profiles(folder))]
    found = [(n, drive) for n, drive in named if drive.data_sheet]
    if name and not found:
        path = profile_path(folder, name)
        raise BadProfile(str(path), "has no figures under data_sheet: there is nothing to compare")
    return found


def _print_data_sheet(figures: pd.DataFrame, name: str) -> None:
    table = Table(
        "figure", "use", "data sheet", "simulated", "error", "holds", title=name, box=None
    )
    for row in figures.to_dict("records"):
        table.add_row(
            row["figure"],
            row["use"],
            _quantity(row["expected"], row["unit"]),
            _quantity(row["simulated"], row["unit"]),
            f"{row['error_ratio']:+.2%}",
            "[green]yes[/]"
            if row["holds"]
            else f"[red]no[/] (within {row['tolerance_ratio']:.0%})",
        )
    terminal().print(table)


def _print_fit(fitted: Fitted, before: DeviceProfile, name: str) -> None:
    from harness.devices.data_sheet_fit import format_value

    columns = ("figure", "parameter", "before", "after", "error before", "error after")
    table = Table(*columns, title=f"{name}: {fitted.summary}", box=None)
    for row in fitted.fits.to_dict("records"):
        table.add_row(
            row["figure"],
            row["parameter"],
            format_value(before, row["parameter"]),
            format_value(fitted.profile, row["parameter"]),
            f"{row['error_before']:+.2%}",
            f"{row['error_after']:+.2%}",
        )
    terminal().print(table)
    if len(fitted.checks):
        _print_data_sheet(fitted.checks, "not used for the fit")


def _quantity(value: float, unit: str) -> str:
    if unit == "bytes/s":
        return f"{value / 1e6:.5g} MB/s"
    return f"{value * 1e3:.4g} ms" if unit == "s" else f"{value:.0f} IOPS"


def _print_verdicts(verdicts: pd.DataFrame, title: str) -> None:
    from harness.runs import report

    report.print_verdicts(verdicts, title, terminal())
