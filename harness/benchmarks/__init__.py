"""The project's figures, measured: `make bench` and its groups.

Every figure is a record {name, value, unit, goal, holds, runs, min, median, max, command}; a figure
that cannot be measured here has the reason instead of a value and `holds: null`. Nothing is typed
in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final

from rich.console import Console
from rich.table import Table

from harness.benchmarks.figure import Figure
from harness.errors import UnknownName
from harness.paths import Project
from harness.system.files import write_atomically

_GROUPS: Final = {
    "grace_hash_join": ("harness.benchmarks.grace_hash_join",),
    "device_models": ("harness.benchmarks.device_models",),
    "live_device": ("harness.benchmarks.live_device", "harness.benchmarks.live_safety"),
    "probes": ("harness.benchmarks.probes",),
    "sort_merge_join": ("harness.benchmarks.sort_merge_join",),
    "trim_fallocate": ("harness.benchmarks.trim_fallocate",),
    "msdj_tpcc": ("harness.benchmarks.msdj_tpcc",),
    "delayed_trim": ("harness.benchmarks.delayed_trim", "harness.benchmarks.delayed_trim_proofs"),
    "hardware": ("harness.benchmarks.erase_guard", "harness.benchmarks.drive_calibration"),
    "reviewer": ("harness.benchmarks.reviewer",),
}


def run(project: Project, only: str, console: Console) -> None:
    """Measures one group, or all of them, into build/bench.json; other groups' records stay."""
    if only and only not in _GROUPS:
        raise UnknownName("benchmark group", only, _GROUPS)
    path = project.build / "bench.json"
    records = json.loads(path.read_text()) if path.is_file() else []
    for group in [only] if only else list(_GROUPS):
        figures = []
        for module in _GROUPS[group]:
            measure: Callable[[Project, Console], Iterator[Figure]] = import_module(module).measure
            for figure in measure(project, console):
                figures.append(figure)
                console.print(figure.line())
        records = [r for r in records if r["group"] != group]
        records += [{"group": group, **figure.record()} for figure in figures]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(records, indent=1) + "\n").encode())
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
