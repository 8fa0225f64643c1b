"""`harness device ...`: live devices, from the command line."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from harness import _core
from harness.commands.console import say, terminal
from harness.errors import BadParameter, TargetError
from harness.units import format_bytes, parse_size_option

if TYPE_CHECKING:
    from harness.devices.live import LiveDevice
    from harness.devices.live.registry import Place
    from harness.devices.profiles import NamedRange

app = typer.Typer(no_args_is_help=True, help="Block devices with a drive's personality.")

NameArgument = Annotated[str, typer.Argument(help="as `harness device list` shows it")]


@app.command()
def create(
    profile: Annotated[str, typer.Option(help="a name, a part of one, or a path: mx500")],
    size: Annotated[str, typer.Option(help="8G, 512MiB; the profile's if not given")] = "",
    store: Annotated[str, typer.Option(help="memory, or a file to make")] = "memory",
    state: Annotated[
        Path | None, typer.Option(help="keep the drive's state there over a stop")
    ] = None,
    record: Annotated[Path | None, typer.Option(help="a Parquet file of all requests")] = None,
    speed: Annotated[str, typer.Option(help="real, or none: at once")] = "real",
    slowdown: Annotated[
        str, typer.Option(help="run so many times slower than the drive, or auto")
    ] = "1",
    condition: Annotated[
        str, typer.Option(help="what a flash drive has been through: new, full, steady")
    ] = "new",
    name: Annotated[str, typer.Option(help="what to call it")] = "",
    override: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="a profile's parameter")
    ] = None,
    seed: Annotated[int, typer.Option(help="of everything random in the drive")] = 0,
    front: Annotated[str, typer.Option(help="the way into the kernel, if not the usual one")] = "",
    placement: Annotated[
        str, typer.Option(help="processors of the way to it: auto, one-core or spread")
    ] = "auto",
    thin: Annotated[bool, typer.Option("--thin", help="the store may be smaller")] = False,
    dishonest: Annotated[
        bool, typer.Option("--dishonest", help="acknowledge flushes and forget them")
    ] = False,
    recoverable: Annotated[
        bool, typer.Option("--recoverable", help="stay if its process is killed: see `recover`")
    ] = False,
) -> None:
    """Makes a block device that behaves like the profile's drive."""
    from harness.devices import live
    from harness.devices.live.front import DEFAULT
    from harness.devices.profiles import match_profile
    from harness.paths import find_project

    folder = find_project().profiles
    spec = live.LiveSpec.checked(
        profile=match_profile(folder, profile),
        profiles=folder,
        overrides=_pairs(override),
        size_bytes=parse_size_option(size) if size else 0,
        store=store,
        state=state,
        record=record,
        speed=speed,
        slowdown=0 if slowdown == "auto" else slowdown,
        condition=condition,
        seed=seed,
        front=front or DEFAULT,
        placement=placement,
        thin=thin,
        honest_flush=not dishonest,
        recoverable=recoverable,
    )
    device = live.create(spec, name)
    about = device.place.about()
    say(f"{device.path}  {device.name}, {format_bytes(device.size_bytes)}")
    if about["processor"] is not None:
        say(f"the way to it runs on processor {about['processor']}")
    if about["slowdown"] > 1:
        say(f"its time runs {about['slowdown']} times slower than the clock")
    if about["proposed_slowdown"] > about["slowdown"]:
        say(
            f"this machine's path is too slow for this drive: --slowdown "
            f"{about['proposed_slowdown']} is proposed, or results will be invalid"
        )


@app.command("list")
def list_() -> None:
    """Lists live devices, dead ones included."""
    from harness.devices import live
    from harness.devices.live import registry
    from harness.errors import UnknownName

    names = live.list_names()
    if not names:
        say("there is no live device")
        return
    table = Table("name", "device", "profile", "size", "speed", "valid", box=None)
    for column in table.columns:
        column.overflow = "fold"
    for name in names:
        with contextlib.suppress(UnknownName):  # removed meanwhile
            table.add_row(name, *_row(registry.existing(name)))
    terminal().print(table)


def _row(place: Place) -> tuple[str, ...]:
    """What the list says of a device; speed as in real/9: nine times slower than the clock."""
    from harness.devices import live
    from harness.errors import HarnessError

    if place.is_dead() or place.is_abandoned():
        return ("dead", "remove it with: harness clean")
    if not place.about():
        return ("is being made",)
    try:
        s = live.LiveDevice(place).stats(patience_s=2.0)
    except HarnessError:
        return (place.about()["device"], "does not answer")
    speed = s["speed"] if s["slowdown"] == 1 else f"{s['speed']}/{s['slowdown']}"
    valid = "yes" if s["valid"] else "no"
    return (s["device_path"], s["profile"], format_bytes(s["size_bytes"]), speed, valid)


@app.command()
def stats(
    name: NameArgument,
    watch: Annotated[bool, typer.Option("--watch", help="again every second")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="then count from 0 again")] = False,
) -> None:
    """Shows what a device counts, how late its replies were, and whether results are valid."""
    device = _find(name)
    if as_json:
        terminal().print_json(data=device.stats())
    elif watch:
        with contextlib.suppress(KeyboardInterrupt):  # which is how it is ended
            _watch(device)
    else:
        terminal().print(_stats_table(device.stats()))
    if reset:
        device.reset()


@app.command("trim-policy")
def trim_policy(
    name: NameArgument,
    policy: Annotated[str, typer.Argument(help=", ".join(_core.policy_names("trim")))] = "",
) -> None:
    """Shows or changes how a drive handles TRIM."""
    say(_find(name).trim_policy(policy) or "a hard disk has none")


@app.command()
def streams(
    name: NameArgument,
    ranges: Annotated[
        list[str] | None, typer.Argument(metavar="STREAM:BEGIN-END", help="such as 1:128M-256M")
    ] = None,
) -> None:
    """Gives writes to a range of the device a stream of their own; without ranges: none."""
    _find(name).set_streams([_range(text) for text in ranges or []])


@app.command()
def ranges(
    name: NameArgument,
    ranges: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=[STREAM:]BEGIN-END", help="such as journal=1:128M-256M"),
    ] = None,
) -> None:
    """Counts ranges of a drive apart (`stats`), and with placement=range puts them in streams."""
    _find(name).set_ranges([_named_range(text) for text in ranges or []])


@app.command("power-cut")
def power_cut(
    name: NameArgument,
    seed: Annotated[int, typer.Option(help="which volatile blocks are lost")] = 0,
    stay_off: Annotated[
        bool, typer.Option("--stay-off", help="everything fails until `power-on`")
    ] = False,
) -> None:
    """Cuts the power: requests in flight fail, volatile writes may be lost; then it is back."""
    cut = _find(name).power_cut(seed, stay_off=stay_off)
    say(
        f"{cut['unanswered']} requests failed, {cut['doubtful_sectors']} sectors were in doubt, "
        f"{cut['changed_sectors']} have earlier content"
    )


@app.command("power-on")
def power_on(name: NameArgument) -> None:
    """Ends a power cut that was told to last."""
    _find(name).power_on()


@app.command()
def fault(
    name: NameArgument,
    op: Annotated[str, typer.Argument(help="read, write, trim; or clear")],
    where: Annotated[str, typer.Option(metavar="BEGIN-END", help="everywhere if not given")] = "",
    times: Annotated[int, typer.Option(help="so many requests fail")] = 1,
) -> None:
    """Lets requests fail on purpose, or lets none fail any more."""
    device = _find(name)
    if op == "clear":
        device.clear_faults()
        return
    begin, end = _interval(where) if where else (0, 0)
    device.add_fault(op, begin_bytes=begin, end_bytes=end, times=times)


@app.command("slow-die")
def slow_die(name: NameArgument, die: int, factor: float) -> None:
    """Lets one die of a flash drive take FACTOR times as long; 1: as it was."""
    _find(name).slow_die(die, factor)


@app.command()
def speed(
    name: NameArgument,
    pace: Annotated[str, typer.Argument(help="real, virtual or none")],
    slowdown: Annotated[int, typer.Option(help="0: as it is")] = 0,
) -> None:
    """Lets a device keep its drive's times, or answer at once (virtual: tells the model)."""
    _find(name).set_speed(pace, slowdown)


@app.command()
def recover(name: NameArgument) -> None:
    """Serves a recoverable device again whose process was killed; whoever uses it goes on."""
    from harness.devices import live
    from harness.devices.live import registry

    kept = registry.existing(name).about().get("store", "memory")
    if kept != "memory" and not Path(kept).exists():  # its host must not get zeros for its data
        raise TargetError(f"{name}: its data, {kept}, is gone: put it back, or `harness clean`")
    device = live.recover(name)
    say(f"{device.path}  {device.name}; its drive's state is lost: nothing measured on it is valid")


@app.command()
def remove(
    name: NameArgument,
    force: Annotated[
        bool, typer.Option("--force", help="even if it does not answer, or is in use")
    ] = False,
) -> None:
    """Ends a device, saving its state if it was given a place for it; a store in a file stays."""
    from harness.devices import live
    from harness.devices.live import registry

    if force:
        for line in registry.remove_traces(registry.existing(name)):
            say(line)
        return
    device = live.find(name)
    about = device.place.about()
    device.remove()
    if about["store"] != "memory":
        kept = f"its data stays in {about['store']}"
        say(f"{kept}, its state in {about['state']}" if about["state"] else kept)


def _find(name: str) -> LiveDevice:
    from harness.devices import live

    return live.find(name)


def _watch(device: LiveDevice) -> None:
    """The table again every second: in its place on a terminal, one after the other elsewhere."""
    from rich.live import Live

    console = terminal()
    with Live(console=console, auto_refresh=False) as screen:
        while True:
            table = _stats_table(device.stats())
            if console.is_terminal:
                screen.update(table, refresh=True)
            else:
                console.print(table)
            time.sleep(1.0)


def _stats_table(s: dict[str, Any]) -> Table:
    title = (
        f"{s['name']}: {s['profile']}, {format_bytes(s['size_bytes'])} at {s['device_path']}, "
        f"speed {s['speed']}, slowdown {s['slowdown']}"
    )
    table = Table("counter", "value", title=title, box=None)
    for kind in ("device", "live"):
        for counter, value in s[kind].items():
            if value:
                table.add_row(counter, f"{value:,}")
    for name, share in s["shares"].items():
        parts = "  ".join(f"{k.removesuffix('_bytes')} {v:,}" for k, v in share.items() if v)
        if parts:
            table.add_row(f"{name}, bytes", parts)
    for what in ("model_latency", "lateness"):
        found = {k.removesuffix("_ns"): v / 1e3 for k, v in s[what].items() if k.endswith("_ns")}
        table.add_row(f"{what}, us", "  ".join(f"{k} {v:,.1f}" for k, v in found.items()))
    for kind, times in s["kinds"].items():
        late, took = times["lateness"], times["model_latency"]
        if late["count"]:
            shown = [
                f"{name.removesuffix('_ns')} {late[name] / 1e3:,.1f} of {took[name] / 1e3:,.1f}"
                for name in ("mean_ns", "p99_ns")
            ]
            table.add_row(f"{kind}: late, us", "  ".join(shown))
    for what, problems in (("valid", "problems"), ("valid, each kind", "problems_of_kinds")):
        table.add_row(what, "[red]no[/]: " + "; ".join(s[problems]) if s[problems] else "yes")
    return table


def _range(text: str) -> tuple[int, int, int]:
    stream, _, interval = text.partition(":")
    if not stream.isdigit():
        raise BadParameter(f"range {text!r}: write it as STREAM:BEGIN-END, such as 1:128M-256M")
    return (*_interval(interval), int(stream))


def _named_range(text: str) -> NamedRange:
    from harness.devices.profiles import NamedRange

    name, separator, where = text.partition("=")
    if not (name and separator):
        raise BadParameter(
            f"range {text!r}: write it as NAME=[STREAM:]BEGIN-END, such as journal=1:128M-256M"
        )
    begin, end, stream = _range(where) if ":" in where else (*_interval(where), 0)
    return NamedRange(name, begin, end, stream)


def _interval(text: str) -> tuple[int, int]:
    begin, separator, end = text.partition("-")
    if not separator:
        raise BadParameter(f"range {text!r}: write it as BEGIN-END, such as 128M-256M")
    return parse_size_option(begin), parse_size_option(end)


def _pairs(texts: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts or []]
    for name, separator, value in pairs:
        if not (name and separator and value):
            raise BadParameter(f"--override {name}{separator}{value}: write it as NAME=VALUE")
    return {name: value for name, _, value in pairs}
