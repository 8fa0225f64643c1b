"""`harness probe ...`: arguments and printing of the probes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from harness.commands.console import say, terminal

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(
    no_args_is_help=True, help="Records what the kernel does to a block device, without a gap."
)
Trace = Annotated[Path, typer.Argument(help="a recorded trace.parquet")]


@app.command("list")
def list_() -> None:
    """Lists the probes."""
    from harness.probes import scripts

    table = Table("probe", "records", "columns", box=None)
    for probe in map(scripts.find, scripts.names()):
        table.add_row(probe.name, probe.purpose, ", ".join(probe.schema.names))
    terminal().print(table)


@app.command()
def record(
    device: Annotated[Path, typer.Argument(help="a whole block device")],
    output: Annotated[Path, typer.Option(help="the Parquet file to make")],
    script: Annotated[str, typer.Option(help="see `harness probe list`")] = "block_io",
    duration: Annotated[
        str | None, typer.Option(help="such as 10s; without it until Ctrl-C")
    ] = None,
) -> None:
    """Records a device until the time is over, or until Ctrl-C; fails if anything is missing."""
    from harness.probes.recorder import Recorder
    from harness.units import parse_time

    limit_s = parse_time(duration) / 1e9 if duration else None
    console = terminal()
    with Recorder(device, output, script) as recorder:
        if recorder.tracefs_mounted:
            console.print("mounted tracefs at /sys/kernel/tracing, it stays mounted")
        console.print(f"recording {device} with {script}; Ctrl-C ends it")
        try:
            threading.Event().wait(limit_s)
        except KeyboardInterrupt:
            console.print("ending")
    recording = recorder.recording
    assert recording is not None
    console.print(
        f"{output}: {recording.rows:,} rows, complete; latency unknown of "
        f"{recording.unknown_latency:,}"
    )


@app.command()
def analyse(
    trace: Trace,
    figure: Annotated[
        Path | None, typer.Option(help="also draw addresses over time: a path without suffix")
    ] = None,
) -> None:
    """Prints latencies, utilisation, seeks and discards of a trace of block_io."""
    from harness.probes import analysis, trace_file

    probe = trace_file.recorded_by(trace)
    for name, table in ((probe and probe.tables) or analysis.TABLES).items():
        _print(table(trace), name)
    if figure is not None:
        from harness import plots
        from harness.system.files import publication

        with plots.theme():
            drawn = plots.lba_over_time(analysis.addresses(trace), trace.stem)
        written = []
        with publication() as files:
            for path, data in plots.files(drawn, figure).items():
                files.write(path, data)
                written.append(path)
        for path in written:
            say(f"written: {path}")


@app.command()
def check(trace: Trace) -> None:
    """Counts a trace again and compares it with what the kernel counted while it was recorded."""
    from harness.probes.trace_file import check_file

    facts = check_file(trace)
    terminal().print(f"{trace}: {facts['rows']:,} rows of {facts['script']}, complete")


def _print(rows: pd.DataFrame, title: str) -> None:
    table = Table(*rows.columns, title=title, box=None)
    for row in rows.itertuples(index=False):
        table.add_row(*(f"{v:,.4g}" if isinstance(v, float) else str(v) for v in row))
    terminal().print(table)
