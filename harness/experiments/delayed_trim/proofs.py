"""Figures of the delayed TRIM's C module: what was tried against a plain map, cost, size."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from harness.errors import HarnessError
from harness.experiments.base import Runs
from harness.goals import Goal
from harness.system.programs import find_program

_COMMAND: Final = "make bench ONLY=delayed_trim"
_SOURCES: Final = "tests/core/trim"
_PROGRAMS: Final = ("trim_random", "trim_states", "trim_curve")
_OPERATIONS: Final = 20_000_000
_SEED: Final = 2
# Blocks, of a slice, ranges, writes, slices of a batch, forced slices, merging.
_DRIVE: Final = ("5", "2", "3", "2", "2", "1", "1")
_MOST_TABLE_BYTES: Final = 64 << 10


def measure(runs: Runs, console: Console) -> Iterator[Goal]:
    """Builds the programs of tests/core/trim and runs them. Raises HarnessError."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run(find_program("make"), "-C", runs.project.root / _SOURCES, f"OUT={folder}", "all")
        console.print(f"{_OPERATIONS:,} random operations against a plain map")
        yield from _random(folder)
        console.print(f"every state of a drive of {_DRIVE[0]} blocks")
        yield from _states(folder)
        yield from _curve(folder)


def _run(*command: str | Path) -> str:
    """What it prints. Raises HarnessError."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise HarnessError(f"{Path(str(command[0])).name}: {said[-1]}")
    return done.stdout


def _figure(
    what: str, value: float, goal: str, unit: str, context: dict[str, Any] | None = None
) -> Goal:
    return Goal(f"delayed_trim: {what}", unit, goal, _COMMAND, [value], context=context or {})


def _random(folder: Path) -> Iterator[Goal]:
    counts = json.loads(_run(folder / "trim_random", str(_OPERATIONS), str(_SEED)))
    what = "random operations against a plain map without a difference"
    yield _figure(what, counts["operations"], ">= 1e7", "operations", counts)
    yield _figure("such operations per second", counts["operations_per_second"], "", "1/s")
    goal = f"< {_MOST_TABLE_BYTES}"
    yield _figure("tables at the default sizes", counts["table_bytes"], goal, "B")


def _states(folder: Path) -> Iterator[Goal]:
    found = json.loads(_run(folder / "trim_states", *_DRIVE))
    what = "states of a tiny drive, every one reached and compared"
    complete = found["states"] if found["complete"] else 0
    yield _figure(what, complete, ">= 1e6", "states", {"drive": _DRIVE, **found})


def _curve(folder: Path) -> Iterator[Goal]:
    curve = json.loads(_run(folder / "trim_curve"))
    longest = curve[-1]["entries"]
    probes = [point["write_probes"] for point in curve]
    what = f"entries looked at per write, 1 to {longest:,} in the list, most"
    yield _figure(what, max(probes), "<= 3", "entries", {"curve": curve})
    thousand = next(point for point in curve if point["entries"] == 1000)
    for kind in ("write", "check"):
        ratio = curve[-1][f"{kind}_ns"] / thousand[f"{kind}_ns"]
        yield _figure(f"a {kind}'s time with {longest:,} entries over 1,000", ratio, "", "ratio")
