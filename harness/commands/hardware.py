"""`harness hardware ...`: arguments and printing of discovery, the guard, and what it protects."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from harness.commands.console import say, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.drives.discovery import Drive, Machine
    from harness.drives.guard import ClaimPlan
    from harness.drives.targets import Step
    from harness.paths import Project
    from harness.runs.session import Options

app = typer.Typer(
    no_args_is_help=True,
    help="Real drives: finds them, and overwrites only those that were claimed on purpose.",
)
Name = Annotated[str, typer.Argument(help="the name under which the drive is claimed")]


@app.command("list")
def list_() -> None:
    """Lists the drives of this machine, what occupies them, and what they could serve for."""
    from harness.drives.discovery import Machine, nvme_features
    from harness.units import format_bytes

    machine = Machine()
    console = terminal(140)
    for drive in machine.drives:
        features = nvme_features(drive)
        kind = f"disk, {drive.rpm or 'unknown'} rpm" if drive.rotational else "flash"
        facts = Table(show_header=False, box=None)
        facts.add_row("model", f"{drive.model}, firmware {drive.firmware or 'not told'}")
        facts.add_row("serial number", drive.serial or "not told")
        facts.add_row("WWN", drive.wwn or "not told")
        facts.add_row("size", f"{format_bytes(drive.size_bytes)}, {drive.transport}, {kind}")
        facts.add_row("TRIM", _trim(trim=drive.trim, queued=drive.trim_queued))
        facts.add_row("streams, FDP", f"{_known(features.streams)}, {_known(features.fdp)}")
        for link in drive.by_id:
            facts.add_row("name", str(link))
        if not drive.by_id:
            facts.add_row(
                "name", "none that is its alone below /dev/disk/by-id, as far as udev says"
            )
        for occupant in machine.occupants(drive.name) or ["nothing"]:
            facts.add_row("occupied by", occupant)
        for role in _could_serve(drive, machine, fdp=bool(features.fdp)):
            facts.add_row("could serve", role)
        console.print(str(drive.node), highlight=False)
        console.print(facts, highlight=False)
    if not machine.drives:
        console.print("no drives")


def _could_serve(drive: Drive, machine: Machine, *, fdp: bool) -> list[str]:
    """A drive that nobody can claim, such as the one with the root file system, serves nothing."""
    from harness.drives import guard
    from harness.errors import TargetError
    from harness.runs import roles

    try:
        guard.check_claimable(drive, machine)
    except TargetError as error:
        return [f"nothing: {error}"]
    return roles.of(drive, fdp=fdp)


@app.command()
def claim(
    drive: Annotated[Path, typer.Argument(help="its path in /dev/disk/by-id/")],
    name: Annotated[str, typer.Option("--as", help="how it shall be called, such as ssd")],
    plan: Annotated[bool, typer.Option("--plan", help="only say what would be done")] = False,
    token: Annotated[str, typer.Option(help="in batch use: the token that --plan printed")] = "",
) -> None:
    """Gives a drive up to this program, which may overwrite all of it from then on."""
    from harness.drives import guard
    from harness.errors import TargetError
    from harness.units import format_bytes

    made = guard.plan_claim(name, drive)
    console = terminal(140)
    _print_claim_plan(made, console)
    if plan:
        console.print(f"token of this plan: {made.token}", highlight=False)
        return
    if not token and not sys.stdin.isatty():
        raise TargetError("claim: nobody is there to type: give the --token that --plan prints")
    also = f" {made.warning}." if made.warning else ""
    question = (
        f"EVERYTHING on {made.drive.node} ({made.drive.model}, "
        f"{format_bytes(made.drive.size_bytes)}) will be lost.{also} Type the last "
        f"{guard.TYPED_CHARACTERS} characters of its serial number"
    )
    guard.claim(made, token or typer.prompt(question, default="", show_default=False))
    console.print(f"claimed as {name}: use it with --drive DEVICE={name}", highlight=False)


@app.command()
def release(
    name: Name,
    forget: Annotated[
        bool, typer.Option("--forget", help="of a drive that has gone: write nothing to any")
    ] = False,
) -> None:
    """Gives a drive back: it is no longer one that may be overwritten."""
    from harness.drives import guard

    gone = guard.forget(name) if forget else guard.release(name)
    terminal(140).print(f"{name} ({gone.model}) is no longer claimed", highlight=False)


@app.command()
def claims() -> None:
    """Lists the claimed drives, and whether each still is the one that was claimed."""
    from harness.drives import guard, lab_file
    from harness.errors import HarnessError
    from harness.paths import find_project

    table = Table("name", "model", "drive", "state", box=None)
    for name, claim in lab_file.load(lab_file.path_of(find_project())).items():
        try:
            state = f"there, as {guard.check(name).node}"
        except HarnessError as error:
            state = str(error)
        table.add_row(name, claim.model, claim.by_id, state)
    terminal(140).print(table)


@app.command()
def wear(
    drive: Annotated[Path, typer.Argument(help="any drive; it is only asked")],
) -> None:
    """What a drive has counted in its life, and the write amplification that this means."""
    from harness.drives.discovery import Machine
    from harness.drives.wear import counters, reading
    from harness.system import block_queue
    from harness.tiers.hardware import WEAR_BY

    node = Path(os.path.realpath(drive))  # of a link that leads to itself, that link
    found = Machine().drive(block_queue.drive_of(node).name)
    said = reading.read(found.node, WEAR_BY[found.transport])
    table = Table("count", "value", "from", box=None)
    for name, count in said.counts.items():
        table.add_row(name, f"{count.value:,}", count.source)
    for name, why in said.unsaid.items():
        table.add_row(name, "not told", why)
    table.add_row("write amplification", counters.since_new(said).waf_text, "its whole life")
    terminal(140).print(table, highlight=False)


@app.command()
def prepare(
    name: Name,
    way: Annotated[str, typer.Option(help="how to erase it; else the most thorough there is")] = "",
    precondition: Annotated[
        bool, typer.Option(help="then fill it twice, and write at random until it is steady")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="only say what would be done")] = False,
) -> None:
    """Brings a claimed drive into a known state: erased, and, if asked for, worn in."""
    from harness.drives import capabilities, conditions, guard, preparation, total
    from harness.errors import TargetError

    console = terminal(140)
    drive = guard.check(name)
    if precondition and drive.rotational:
        raise TargetError(
            f"{name} is a disk: --precondition wears flash in, and writing all of a disk at random "
            "takes weeks; go without it"
        )
    target = guard.Part(drive)
    capable = capabilities.read(drive.node, drive.transport)
    ways = preparation.ways(drive.node, target, capable, by_id=next(iter(drive.by_id), None))
    chosen = preparation.choose(ways, way)
    after = preparation.precondition(target) if precondition else []
    for other in ways:
        console.print(f"{other.name}: {other.refused or 'offered'}", highlight=False)
    steps = [*chosen.steps, *after]
    _print_steps(steps, console)
    cost = total.of_plans([(name, drive.size_bytes, steps)])
    console.print(cost, highlight=False, soft_wrap=True)
    if plan:
        return
    budget_bytes = sum(step.written_bytes for step in (*chosen.steps, *after)) + drive.size_bytes
    with guard.claimed(name, budget_bytes=budget_bytes) as held:
        if held.drive != drive:  # the steps name its node, which may be another drive's by now
            raise TargetError(f"{name} is not what it was when the plan was made: plan again")
        if chosen.whole_drive:
            with _interrupted_told(), held.whole(chosen.steps) as before:
                preparation.carry_out(chosen, before)
        else:
            preparation.erase(held, chosen)
        for step in after:
            preparation.run(held, step)
    warmth = conditions.temperature_c(drive.node)
    console.print(f"{name} is prepared" + ("" if warmth is None else f", at {warmth:g} degrees C"))


@contextmanager
def _interrupted_told() -> Iterator[None]:
    """What was lost besides, where an interrupt is said to have left nothing half done.

    Raises Interrupted.
    """
    from harness.errors import Interrupted

    try:
        yield
    except KeyboardInterrupt as interrupt:
        if lost := getattr(interrupt, "__notes__", []):
            raise Interrupted(f"interrupted; and {'; '.join(lost)}") from interrupt
        raise


@app.command()
def expect(
    document: Annotated[
        bool, typer.Option("--document", help="Write the table into hardware/README.md.")
    ] = False,
) -> None:
    """What the device models say that each experiment writes on a drive, and how long it takes."""
    from harness.paths import find_project
    from harness.runs import expected_on_drives

    project = find_project()
    found = expected_on_drives.rows(project)
    if document:
        part = expected_on_drives.part(project)
        part.write(expected_on_drives.in_markdown(found))
        say(f"written: {part.page}")
        return
    table = Table(*expected_on_drives.HEADINGS, box=None)
    for row in found:
        table.add_row(*row)
    terminal(140).print(table)


def print_run_plan(
    project: Project, experiment: str, tier: str, options: Options, console: Console
) -> None:
    """What a run on claimed drives would overwrite: commands, bytes, times. Runs nothing."""
    from harness.errors import BadParameter
    from harness.runs import hardware_plan

    if tier != "hardware":
        raise BadParameter("--plan is for tier hardware: the others overwrite nothing of yours")
    plans = hardware_plan.plan(project, experiment, options)
    for drive in plans:
        console.print(drive.title, highlight=False)
        _print_steps(drive.steps, console)
    console.print(hardware_plan.total(plans), highlight=False, soft_wrap=True)


@app.command()
def choose(
    drives: Annotated[
        list[str], typer.Argument(metavar="NAME=CLAIMED...", help="such as ssd=mine")
    ],
    journal: Annotated[
        list[str] | None, typer.Option(metavar="NAME=CLAIMED", help="a drive's FDP namespace")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="write the choice here, which is what runs them")
    ] = None,
) -> None:
    """Says what all studies would do to claimed drives; with --write, chooses these drives."""
    from harness.commands.console import pairs
    from harness.paths import find_project
    from harness.runs import chosen_drives, hardware_plan

    chosen, journals = pairs(drives, "NAME=CLAIMED"), pairs(journal, "--journal")
    console = terminal(140)
    plans = []
    for study, plan in chosen_drives.plans(find_project(), chosen, journals):
        console.rule(study, align="left")
        if isinstance(plan, str):
            console.print(f"cannot run: {plan}", highlight=False)
            continue
        for drive in plan:
            console.print(drive.title, highlight=False)
            _print_steps(drive.steps, console)
        for device in chosen_drives.unused_journals(study, plan, journals):
            console.print(
                f"--journal {device}=...: no point of params.yaml keeps its journal apart"
            )
        plans += plan
    console.rule("all studies", align="left")
    console.print(hardware_plan.total(plans), highlight=False, soft_wrap=True)
    if write is not None:
        chosen_drives.write(find_project(), write, chosen, journals)


def _print_claim_plan(plan: ClaimPlan, console: Console) -> None:
    from harness.drives import total

    drive = plan.drive
    console.print(f"{plan.by_id} is {drive.node}: {drive.model}, serial number {drive.serial}")
    if plan.warning:
        console.print(plan.warning, highlight=False, soft_wrap=True)
    _print_steps(plan.steps, console)
    cost = total.of_plans([(plan.name, drive.size_bytes, plan.steps)])
    console.print(cost, highlight=False, soft_wrap=True)


def _print_steps(steps: Sequence[Step], console: Console) -> None:
    from harness.units import format_bytes, format_seconds

    table = Table("step", "command", "writes", "expected", box=None)
    for step in steps:
        expected = format_seconds(step.expected_s) if step.expected_s else "at once"
        command = " ".join(step.command)
        table.add_row(step.what, command, format_bytes(step.written_bytes), expected)
    console.print(table, soft_wrap=True, highlight=False)


def _trim(*, trim: bool, queued: bool | None) -> str:
    if not trim:
        return "no"
    return (
        "yes, " + {True: "queued", False: "not queued", None: "queued or not is not known"}[queued]
    )


def _known(answer: bool | None) -> str:
    return {True: "yes", False: "no", None: "not known"}[answer]
