"""Preallocation and TRIM under one hash join, and the SLC cache of the drive that it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from harness.devices.model import Device, Job
from harness.devices.profiles import DeviceProfile, SsdProfile
from harness.experiments.base import Scalar
from harness.experiments.question import (
    MIB,
    Answer,
    Beside,
    Given,
    Knob,
    Question,
    Settings,
    shares,
    sizes,
    times,
)
from harness.experiments.trim_fallocate import grid, model, published
from harness.experiments.trim_fallocate.grid import FIRST, Parameters
from harness.tiers.base import DeviceRequest
from harness.units import parse_bytes

_DELAYED: Final = "delayed"
_TRIM: Final[Mapping[Scalar, str]] = {
    "none": "not used",
    "discard": "at each deletion",
    _DELAYED: "at each deletion, delayed by the drive",
}
_CACHE_DRIVE_BYTES: Final = 4 << 30
_SEQUENTIAL_BYTES: Final = 128 << 10


def join_phase(given: Given, settings: Settings) -> Answer:
    """The join phase of one query on a new file system, in s at the paper's size."""
    parameters: Parameters = given.parameters
    cell = _cell(parameters, settings)
    found = model.run_point(cell, _overrides(given, settings), given.bench)
    at_paper_s = float(found.metrics["join_s"]) / cell.size_ratio_to_paper
    more = ("trim_commands", "extents_per_file")
    return Answer(
        at_paper_s,
        _paper(given, cell, str(settings["trim"])),
        {name: float(found.metrics[name]) for name in more},
    )


def _cell(parameters: Parameters, settings: Settings) -> grid.Cell:
    """The grid's first of that drive, for a single query."""
    first = grid.points(parameters, [FIRST])[0]
    return replace(
        grid.Cell.of(first),
        trim="discard" if settings["trim"] == _DELAYED else str(settings["trim"]),
        preallocation_bytes=int(settings["preallocation_bytes"]),
        work_mem_bytes=int(settings["work_mem_bytes"]),
        repetitions=1,
        queries_per_repetition=1,
    )


def _overrides(given: Given, settings: Settings) -> dict[str, str]:
    values: Any = _profile(given, {}).parameters
    price_ns = round(values.trim_command_time.value * float(settings["trim_factor"]))
    policy = {"trim": _DELAYED} if settings["trim"] == _DELAYED else {}
    return {"trim_command_time": f"{price_ns} ns", **policy}


def _paper(given: Given, cell: grid.Cell, trim: str) -> list[Beside]:
    """Figure 2 has no preallocation, and the study's work_mem."""
    told = published.times(given.published)
    told = told[(told.device == FIRST) & (told.trim == trim) & ~told.preallocated]
    of_paper = cell.work_mem_bytes == parse_bytes(given.parameters.drives[FIRST].work_mem)
    if told.empty or not of_paper:
        return []
    [time_s] = told.value
    return [Beside("paper, figure 2", "paper", {0: float(time_s)})]


def slc_cache(given: Given, settings: Settings) -> Answer:
    """Mean rate of a sequential write to a new drive, in MB/s."""
    overrides = {"slc_dynamic": f"{float(settings['slc_dynamic'])}"}
    profile = _profile(given, overrides, _CACHE_DRIVE_BYTES)
    drive = Device(profile)
    requests = round(float(settings["written_ratio"]) * drive.capacity_bytes / _SEQUENTIAL_BYTES)
    run = drive.run(
        Job(
            pattern="sequential",
            block_bytes=_SEQUENTIAL_BYTES,
            queue_depth=profile.parameters.queue_depth.value,
            requests=requests,
        )
    )
    return Answer(run.bytes_per_s / 1e6, _data_sheet(profile))


def _data_sheet(profile: DeviceProfile) -> list[Beside]:
    """What is written in order to a new drive, at the least that can be asked for."""
    least = min(_WRITTEN)
    return [
        Beside(f"data sheet, {figure.name}", "data sheet", {least: figure.quantity()[0] / 1e6})
        for figure in profile.data_sheet
        if figure.job.op == "write" and figure.job.pattern == "sequential"
    ]


def _profile(given: Given, overrides: dict[str, str], size_bytes: int = 0) -> DeviceProfile:
    request = DeviceRequest(device=FIRST, overrides=overrides, size_bytes=size_bytes)
    profile = given.bench.stack(request).device
    assert isinstance(profile, SsdProfile)
    return profile


_WRITTEN: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)

QUESTIONS: Final = (
    Question(
        name="temp_files",
        title="Preallocation and TRIM, under PostgreSQL's hash join",
        metric="join phase of one query (s)",
        knobs=(
            Knob(
                "preallocation_bytes",
                "preallocation of a temporary file",
                sizes(*(n * MIB for n in (0, 1, 2, 4, 8, 16, 32)), nothing="none"),
                0,
            ),
            Knob("trim", "TRIM", _TRIM, "discard"),
            Knob("trim_factor", "a TRIM command's cost", times([0, 0.1, 0.25, 0.5, 1, 2]), 1),
            Knob(
                "work_mem_bytes",
                "work_mem",
                sizes(*(n * MIB for n in (1, 2, 4, 8, 16))),
                4 * MIB,
            ),
        ),
        over="preallocation_bytes",
        size="A 32nd of database, memory and drive, as notebook 30 publishes it, and times made "
        "the paper's: from a 128th to an eighth of the size they differ by less than 10 %. One "
        "query on an empty drive, so nothing has aged.",
        ask=join_phase,
        scale="small",
    ),
    Question(
        name="slc_cache",
        title="The SLC cache, under one long write",
        metric="mean rate of the write (MB/s)",
        knobs=(
            Knob("written_ratio", "written, of the drive", shares(_WRITTEN), 0.2),
            Knob(
                "slc_dynamic",
                "free space that may be SLC",
                shares([0.0, 0.02, 0.04, 0.08, 0.16, 0.33]),
                0.08,
            ),
        ),
        over="written_ratio",
        size="An MX500 of 4 GiB whose spare area and fixed cache are in proportion; dies, channels "
        "and times are the drive's own, so the rates are, too.",
        ask=slc_cache,
        scale="small",
    ),
)
