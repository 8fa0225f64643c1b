"""The trim x fallocate matrix, simulated against emulated: the modelled ext4 beside the real one.

What is compared is what the file system decides: into how many extents the temporary files fall,
how many TRIMs their end costs, and what the drive's flash makes of it. Software's own time decides
when the journal commits; it is taken from each emulated run, phase by phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from harness.experiments.base import Agreement, Runs
from harness.experiments.beside import here_or_published
from harness.experiments.this_machine import plain, write_profile
from harness.experiments.trim_fallocate import hash_batches, model
from harness.experiments.trim_fallocate.grid import Cell
from harness.paths import Project
from harness.tiers.base import DeviceRequest
from harness.tiers.simulated import SimulatedBench

_COMPARED: Final = ("extents_per_file", "trim_commands", "trim_bytes", "temp_written_bytes")
_AMPLIFICATION: Final = ("waf_ratio", "last_waf_ratio")
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
    trimmed there is no ratio of TRIMs. Columns extent_length_histogram_* and
    trim_length_histogram_* have the distributions as texts, counts by power of two of 4 KiB.
    """
    with runs.open("emulated", **options) as session:
        results, bench = session.results, session.bench
        devices = {name: bench.profile_name(name) for name in bench.devices}
    results = here_or_published(runs, results)
    table, project = results.table, runs.project
    rows = []
    for point in table[table.workload == "hash_join"].to_dict("records"):
        metrics, found = _simulated(project, devices, point)
        row = {name: point[name] for name in _VALUES}
        for name in (*_COMPARED, *_AMPLIFICATION):
            row |= {f"{name}_emulated": point[name], f"{name}_simulated": metrics[name]}
            if metrics[name]:
                row[f"{name}_ratio"] = point[name] / metrics[name]
        for name in _HISTOGRAMS:
            row[f"{name}_emulated"] = _text(results.series[str(point["point"])][name])
            row[f"{name}_simulated"] = _text(found[name])
        rows.append(row)
    return pd.DataFrame(rows).sort_values(list(_VALUES), ignore_index=True)


def _text(counts: Any) -> str:
    whole = [int(n) for n in counts]
    while whole and whole[-1] == 0:
        whole.pop()
    return " ".join(map(str, whole))


def _simulated(
    project: Project, devices: dict[str, str], point: Mapping[str, Any]
) -> tuple[dict[str, int | float], dict[str, list[int] | list[float]]]:
    """The point's metrics and series in virtual time."""
    cell = replace(
        Cell.read(point), size_ratio_to_paper=1.0, shared_buffers_bytes=0, occupied_ratio=0.0
    )
    with SimulatedBench(project.profiles, devices, str(_host(project, point))) as bench:
        machine = bench.stack(DeviceRequest(device=str(point["device"])))
        result = model.simulate(machine, cell, bench.cancel, settle=True)
    found = model.queries(result)
    return model.metrics(found, result, cell), model.series(found, cell)


def _host(project: Project, point: Mapping[str, Any]) -> Path:
    """A host profile of this machine, as fast as the server was in this point."""
    scale = float(point["scale_factor"])
    rows = scale * (hash_batches.ORDERS.rows + hash_batches.LINEITEM.rows)
    partition_ns = float(point["partition_s"]) * 1e9 / rows
    join_ns = float(point["join_s"]) * 1e9 / rows
    slowdown = float(point["slowdown"])
    memory_bytes = int(point["page_cache_mean_bytes"]) + int(point["work_mem_bytes"])
    commit_s = max(round(float(point["commit_s"]) * slowdown), 1) / slowdown

    return write_profile(
        project,
        f"hash-join-{point['point']}",
        title="This machine, as PostgreSQL's hash join sees it",
        memory=f"{memory_bytes} B",
        dirty_ratio=float(point["dirty_ratio"]),
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


AGREEMENT: Final = Agreement(compare, goal_ratio=0.2)
