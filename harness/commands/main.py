"""`harness ...`: arguments, exit codes, and nothing else."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.table import Table

from harness.commands import calibrate, device, hardware, probe
from harness.commands.console import pairs, terminal
from harness.errors import EXIT_CODE, HarnessError, Interrupted

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Five papers on flash storage under databases, reproduced on three tiers.",
)

app.add_typer(probe.app, name="probe")

if TYPE_CHECKING:
    import pandas as pd

    from harness.devices.data_sheet_fit import Fitted
    from harness.devices.profiles import DeviceProfile

app.add_typer(calibrate.app, name="calibrate")
app.add_typer(device.app, name="device")
app.add_typer(hardware.app, name="hardware")

TierOption = Annotated[str, typer.Option("--tier", help="simulated, emulated or hardware")]


def main() -> NoReturn:
    """Runs the command line. An operating error is one line on stderr and exit code 2."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app(standalone_mode=True)
    except HarnessError as error:
        _fail(error)
    except KeyboardInterrupt:
        _fail(Interrupted("interrupted: nothing was left half done; run again to continue"))
    sys.exit(0)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _fail(error: HarnessError) -> NoReturn:
    print(f"harness: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
    sys.exit(EXIT_CODE)


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
    scale: Annotated[str | None, typer.Option(help="smoke, small or paper")] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="hardware: a file to make (and delete), or a blank loop device"),
    ] = None,
    drive: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=CLAIMED", help="hardware: a claimed drive for a device"),
    ] = None,
    journal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=CLAIMED", help="hardware: a claimed FDP namespace for a drive's journal"
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
        typer.Option("--set", metavar="NAME=VALUE", help="a parameter of the experiment"),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PROFILE", help="modelled tiers: another profile for a device"),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="modelled tiers: a profile's parameter"),
    ] = None,
    publish: Annotated[bool, typer.Option(help="write tables, traces and figures")] = True,
) -> None:
    """Runs an experiment on a tier, or continues it, and judges the paper's claims."""
    from harness.paths import find_project
    from harness.runs.session import Options, open_session
    from harness.units import parse_size_option

    options = Options(
        scale=scale,
        settings=pairs(settings, "--set"),
        devices=pairs(device, "--device"),
        overrides=pairs(override, "--override"),
        target=file,
        drives=pairs(drive, "--drive"),
        journals=pairs(journal, "--journal"),
        write_budget_bytes=parse_size_option(write_budget) if write_budget else 0,
        queue=pairs(queue, "--queue"),
    )
    if plan:
        hardware.print_run_plan(find_project(), experiment, tier, options, terminal())
        return
    with open_session(find_project(), experiment, tier, options) as session:
        session.run()
        if publish:
            session.publish()
        _print_verdicts(session.verdicts(), f"{experiment}, tier {tier}")


@app.command()
def agreement(experiment: str) -> None:
    """Compares what was run on tier emulated with the simulation of the same points."""
    from harness.paths import find_project
    from harness.runs import agreement as agreements

    table = agreements.publish(find_project(), experiment)
    goal = agreements.of(experiment).goal_ratio
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
    tier: TierOption = "simulated",
) -> None:
    """Executes a notebook into build/report/ and renders it as HTML."""
    from harness.paths import find_project
    from harness.runs import notebooks

    notebooks.execute(find_project(), name, {"tier": tier})


@app.command()
def claims() -> None:
    """Prints the claims of all papers and their verdicts on all tiers."""
    from harness.paths import find_project
    from harness.runs import report

    report.print_claims(find_project(), terminal())


@app.command("report")
def report_() -> None:
    """Writes the HTML report, prints the claims, and says where the report is."""
    from harness.paths import find_project
    from harness.runs import overview

    page = overview.make(find_project(), terminal())
    terminal().print(f"report: {page}")


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
        bool, typer.Option("--all", help="living devices too, not only what was killed")
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
def machine(path: Path) -> None:
    """Writes this machine's fingerprint: what measured results depend on."""
    import json

    from harness.drives import fingerprint
    from harness.system.files import write_atomically

    write_atomically(path, (json.dumps(fingerprint.machine(), indent=1) + "\n").encode())


@app.command()
def doctor() -> None:
    """Says what each tier needs, what is missing here, and how to install it."""
    from harness.tiers import doctor as checks

    checks.print_report(terminal())


@app.command()
def bench(
    only: Annotated[str, typer.Option(help="one group")] = "",
) -> None:
    """Measures the project's figures into build/bench.json."""
    from harness import benchmarks
    from harness.paths import find_project

    benchmarks.run(find_project(), only, terminal())


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
