"""The trim x fallocate matrix, simulated against emulated: the modelled ext4 beside the real one.

What is compared is what the file system decides: into how many extents the temporary files fall,
how many TRIMs their end costs, what the drive's flash makes of it, and how long it takes. What the
server needs for itself is measured here, with its temporary files in memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from harness.experiments.base import Measurement, Runs
from harness.experiments.beside import Beside, JudgedAgreement, here_or_published, modelled
from harness.experiments.this_machine import memory_bench, plain, write_profile
from harness.experiments.trim_fallocate import hash_batches, model, real
from harness.experiments.trim_fallocate.grid import Cell
from harness.paths import Project
from harness.tiers.base import DeviceRequest
from harness.tiers.simulated import SimulatedBench

_COMPARED: Final = (
    *("extents_per_file", "trim_commands", "trim_bytes", "temp_written_bytes"),
    *("waf_ratio", "last_waf_ratio", "first_elapsed_s", "last_elapsed_s"),
)
_WAF: Final = "repetition_waf_ratio"
_ORDERS: Final = 9
"""Of tuples."""

_IN_MEMORY: Final = 3
"""Runs in memory, of which the median counts."""

_VALUES: Final = (
    "device",
    "variant",
    "trim",
    "preallocation_bytes",
    "work_mem_bytes",
    "repetitions",
)
_HISTOGRAMS: Final = ("extent_length_histogram", "trim_length_histogram")


def compare(runs: Runs, **options: Any) -> pd.DataFrame:
    """One row per emulated hash join that has been run here, or else that is published.

    What the emulated tier measures does not depend on the model beside it, so what was published
    may be laid beside a model that has changed since. See `agreement.compare`. Where nothing is
    trimmed there is no ratio of TRIMs. The model runs with several orders of tuples: its values are
    medians, and columns *_low and *_high the least and the most, since small causes have large
    effects on what a drive must copy. `worst_repetition_waf_ratio` is of the repetition in which it
    is farthest from 1. Columns extent_length_histogram_* and trim_length_histogram_* have
    the distributions as texts, counts by power of two of 4 KiB, the model's of one order.
    """
    return beside(runs, **options).table


def beside(runs: Runs, **options: Any) -> Beside:
    """That, and the model's results: each number's median over the orders of tuples.

    Raises BadParameter if there is nothing.
    """
    with runs.open("emulated", **options) as session:
        results, bench = session.results, session.bench
        devices = {name: bench.profile_name(name) for name in bench.devices}
    results = here_or_published(runs, results)
    points = results.table[results.table.workload == "hash_join"].to_dict("records")
    pace = _measured_pace(runs.project, points[0])
    rows, model_of = [], {}
    for point in points:
        orders, found = _simulated(runs.project, devices, point, pace)
        median = Measurement(orders.median().to_dict(), _median(found))
        model_of[str(point["point"])] = Cell.read(point), median
        row = {name: point[name] for name in _VALUES}
        for name in _COMPARED:
            simulated = orders[name].median()
            row |= {f"{name}_emulated": point[name], f"{name}_simulated": simulated}
            row |= {f"{name}_low": orders[name].min(), f"{name}_high": orders[name].max()}
            if simulated:
                row[f"{name}_ratio"] = point[name] / simulated
        here = results.series[str(point["point"])]
        row["worst_repetition_waf_ratio"] = _worst_waf(here, found)
        for name in _HISTOGRAMS:
            row[f"{name}_emulated"] = _text(here[name])
            row[f"{name}_simulated"] = _text(found[0][name])
        rows.append(row)
    table = pd.DataFrame(rows).sort_values(list(_VALUES), ignore_index=True)
    return Beside(table, results, modelled(results, model_of))


def _median(orders: Sequence[Mapping[str, Any]]) -> dict[str, list[int] | list[float]]:
    """Each entry of each series."""
    return {name: np.median([each[name] for each in orders], axis=0).tolist() for name in orders[0]}


def _worst_waf(emulated: Mapping[str, Any], orders: Sequence[Mapping[str, Any]]) -> float:
    modelled = np.median([order[_WAF] for order in orders], axis=0)
    ratios = np.asarray(emulated[_WAF]) / modelled
    return float(ratios[np.abs(np.log(ratios)).argmax()])


def _text(counts: Any) -> str:
    whole = [int(n) for n in counts]
    while whole and whole[-1] == 0:
        whole.pop()
    return " ".join(map(str, whole))


@dataclass(frozen=True)
class _Pace:
    """The server's own time of one join, in s of the clock."""

    partition_s: float
    join_s: float


def _measured_pace(project: Project, point: Mapping[str, Any]) -> _Pace:
    """That of the same server here, its temporary files on a file system in memory: medians."""
    cell = replace(
        Cell.read(point),
        device="file",
        trim="none",
        preallocation_bytes=0,
        give_back=False,
        repetitions=1,
        page_cache_bytes=1 << 30,
        dirty_ratio=0.2,
        commit_s=5.0,
    )
    found = []
    with memory_bench() as bench:
        for _ in range(_IN_MEMORY):
            run = real.run_point(cell, bench, project.raw)
            if run.block_trace is not None:
                run.block_trace.unlink()
            found.append(_Pace(float(run.metrics["partition_s"]), float(run.metrics["join_s"])))
    return _Pace(
        partition_s=statistics.median(run.partition_s for run in found),
        join_s=statistics.median(run.join_s for run in found),
    )


def _simulated(
    project: Project, devices: dict[str, str], point: Mapping[str, Any], pace: _Pace
) -> tuple[pd.DataFrame, list[Mapping[str, Any]]]:
    """The point's metrics and series in virtual time, for each order of tuples.

    In the device's time the server is `slowdown` times faster than by the clock.
    """
    cell = replace(
        Cell.read(point), size_ratio_to_paper=1.0, shared_buffers_bytes=0, occupied_ratio=0.0
    )
    host = _host(project, devices[cell.device], point, pace)
    with SimulatedBench(project.profiles, devices, str(host)) as bench:
        machine = bench.stack(DeviceRequest(device=cell.device))
        results = [
            model.simulate(
                machine,
                cell,
                bench.cancel,
                settle=True,
                seed=seed,
                slowdown=float(point["slowdown"]),
            )
            for seed in range(_ORDERS)
        ]
    runs = [model.queries(result) for result in results]
    rows = [model.metrics(run, result, cell) for run, result in zip(runs, results, strict=True)]
    return pd.DataFrame(rows), [model.series(run, cell) for run in runs]


def _host(project: Project, device: str, point: Mapping[str, Any], pace: _Pace) -> Path:
    """A host profile of this machine, for a drive of that profile."""
    scale = float(point["scale_factor"])
    slowdown = float(point["slowdown"])
    rows = scale * (hash_batches.ORDERS.rows + hash_batches.LINEITEM.rows) * slowdown
    partition_ns = pace.partition_s * 1e9 / rows
    join_ns = pace.join_s * 1e9 / rows
    cache_bytes = int(point["page_cache_bytes"])
    memory_bytes = cache_bytes + int(point["work_mem_bytes"])
    commit_s = max(round(float(point["commit_s"]) * slowdown), 1) / slowdown

    return write_profile(
        project,
        f"hash-join-{point['point']}",
        title="This machine, as PostgreSQL's hash join sees it",
        memory=f"{memory_bytes} B",
        dirty_ratio=float(point["dirty_ratio"]) * cache_bytes / memory_bytes,
        device=device,
        copy_cpu=plain("0 ns"),
        sections={
            "hash_join": {
                "partition_tuple_cpu": plain(f"{round(partition_ns)} ns"),
                "build_tuple_cpu": plain(f"{round(join_ns)} ns"),
                "probe_tuple_cpu": plain(f"{round(join_ns)} ns"),
                "reopen_cpu": plain("0 ns"),
                "heap_rate": plain("100 GB/s"),
            },
            "ext4": {
                "discard": plain("asynchronous"),
                "recent_allocator": plain(True),
                "commit_interval": plain(f"{round(commit_s * 1000)} ms"),
                "journal": plain("64 MiB"),
            },
        },
    )


AGREEMENT: Final = JudgedAgreement(compare, 0.2, beside)
