"""work_mem and the temp tablespace's drive, for one client, at the paper's own size."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from harness.experiments.base import Scalar
from harness.experiments.question import (
    MIB,
    Answer,
    Beside,
    Given,
    Knob,
    Question,
    Settings,
    sizes,
)
from harness.experiments.sort_merge_join import grid, model, published
from harness.experiments.sort_merge_join.grid import Parameters

_PAPER_VERSION: Final = "9.4"
"""What the paper's numbers are of, and are shown beside."""


def join(given: Given, settings: Settings) -> Answer:
    """The sort-merge join of a single client, in s."""
    device, work_mem_bytes = str(settings["device"]), int(settings["work_mem_bytes"])
    changed: Parameters = given.parameters.model_copy(update={"version": str(settings["version"])})
    found = model.run_point(_cell(changed, device, work_mem_bytes), changed, given.bench)
    times = {name: float(found.metrics[name]) for name in ("sort_s", "join_s")}
    paper = [_paper(given, device)] if changed.version == _PAPER_VERSION else []
    return Answer(float(found.metrics["elapsed_s"]), paper, times)


def _cell(parameters: Parameters, device: str, work_mem_bytes: int) -> grid.Cell:
    """The grid's for one client, with another work_mem."""
    alone = parameters.model_copy(update={"clients": [1]})
    points = grid.points(alone, [device], what_if=False)
    cell = grid.Cell.of(points[0])
    scaled = int(work_mem_bytes * parameters.ratio)
    return replace(cell, nominal_work_mem_bytes=work_mem_bytes, work_mem_bytes=scaled)


def _paper(given: Given, device: str) -> Beside:
    told = published.cells(given.published)
    cells = told[(told.clients == 1) & (told.device == device)]
    values: dict[Scalar, float] = {
        int(cell.work_mem_mb) * MIB: float(cell.elapsed_s) for cell in cells.itertuples()
    }
    return Beside("paper, tables 3 to 8", "paper", values)


QUESTIONS: Final = (
    Question(
        name="work_mem",
        title="work_mem, and the drive under the temporary files",
        metric="sort-merge join of one client (s)",
        knobs=(
            Knob(
                "work_mem_bytes",
                "work_mem",
                sizes(*(n * MIB for n in (2, 4, 8, 16, 32, 64, 128))),
                4 * MIB,
            ),
            Knob("device", "temp tablespace on", {"hdd": "the disk", "ssd": "the SSD"}, "hdd"),
            Knob(
                "version",
                "PostgreSQL",
                {name: name for name in ("9.4", "12", "15", "17")},
                _PAPER_VERSION,
            ),
        ),
        over="work_mem_bytes",
        size="The paper's own size, 5.5 GiB of tables. A single client: more of them take longer "
        "than a reader wants to wait, and memory does not scale (notebook 20 has them).",
        ask=join,
        scale="paper",
    ),
)
