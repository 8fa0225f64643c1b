"""A calibration and a group of figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console

from harness.experiments.base import Calibrated, Calibration, Runs
from harness.experiments.judged import judged
from harness.goals import Goal

_COMMAND: Final = "make bench ONLY=toy"


def calibrate(runs: Runs) -> Calibrated:
    with runs.open("simulated") as session:
        least = float(session.run().table.iops.min())

    def write(profiles: Path) -> list[str]:
        (profiles / "toy.txt").write_text(f"{least:g}\n")
        return ["toy"]

    return Calibrated([f"{least:.0f} IOPS at depth 1"], write)


def measure(runs: Runs, console: Console) -> Iterator[Goal]:
    console.print("reads")
    with runs.open("simulated") as session:
        yield from judged(runs, session.run(), _COMMAND)


CALIBRATION: Final = Calibration("Fits nothing, and says how fast the drive is.", calibrate)
BENCHMARKS: Final = {"toy": (measure,)}
