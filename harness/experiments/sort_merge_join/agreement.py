"""The sort-merge join, simulated against emulated: PostgreSQL's sorts beside the model of them.

What a tuple costs the CPU is measured here, by the same server with its temporary files in memory;
what is left to compare is the model of sort, page cache, block layer and drive. Tables, page cache
and slowdown are those of each emulated run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from harness.experiments import kernel
from harness.experiments.base import Measurement, Runs
from harness.experiments.beside import Beside, JudgedAgreement, here_or_published, modelled
from harness.experiments.sort_merge_join import model, real
from harness.experiments.sort_merge_join.grid import Cell
from harness.experiments.sort_merge_join.model import Query
from harness.experiments.sort_merge_join.postgres_sort import Relation
from harness.experiments.this_machine import memory_bench, plain, write_profile
from harness.paths import Project
from harness.tiers.base import DeviceRequest
from harness.tiers.simulated import SimulatedBench

_COMPARED: Final = (
    *("elapsed_s", "sort_s", "join_s"),
    *("temp_read_bytes", "temp_written_bytes", "temp_file_bytes"),
)
_VALUES: Final = ("device", "clients", "work_mem_bytes", "size_ratio_to_paper", "slowdown")
_SPLIT: Final = {"compare_cpu": 15, "copy_tuple_cpu": 100}
"""ns of one comparison and of one copy of a tuple, on a processor of 2020: priors. What a sort
costs in all is measured, this only says how it depends on the number of runs."""

_FAST: Final = "samsung_980_1tb"
"""A drive of which the model of a server in memory sees nothing."""

_BLOCK_CPU_NS: Final = 1500
"""Of a system call for a block, its copy, and the loop device's part."""


def compare(runs: Runs, **options: Any) -> pd.DataFrame:
    """One row per emulated point that has been run here, or else that is published.

    What the emulated tier measures does not depend on the model beside it. See `agreement.compare`.
    """
    return beside(runs, **options).table


def beside(runs: Runs, **options: Any) -> Beside:
    """That, and the model's results. Raises BadParameter if there is nothing."""
    with runs.open("emulated", **options) as session:
        results, bench = session.results, session.bench
        devices = {name: bench.profile_name(name) for name in bench.devices}
    emulated = here_or_published(runs, results)
    project = runs.project
    cpu = _measured_cpu(project, emulated.table.iloc[0])
    rows, model_of = [], {}
    for point in emulated.table.to_dict("records"):
        found = _simulated(project, devices, point, cpu)
        model_of[str(point["point"])] = Cell.read(point), found
        row = {name: point[name] for name in _VALUES}
        for name in _COMPARED:
            row |= {
                f"{name}_emulated": point[name],
                f"{name}_simulated": found.metrics[name],
                f"{name}_ratio": point[name] / found.metrics[name],
            }
        rows.append(row)
    table = pd.DataFrame(rows).sort_values(list(_VALUES), ignore_index=True)
    return Beside(table, emulated, modelled(emulated, model_of))


def _relations(point: Mapping[str, Any]) -> list[Relation]:
    """As the server had them, in the order in which it sorts: the outer one first."""
    return [
        Relation(
            rows=int(point[f"{side}_rows"]),
            heap_bytes=int(point[f"{side}_heap_bytes"]),
            data_width_bytes=float(point[f"{side}_data_width_bytes"]),
            wide_ratio=0.0,
        )
        for side in ("outer", "inner")
    ]


def _query(point: Mapping[str, Any]) -> Query:
    version = str(int(point["server_version"]) // 10000)
    return Query(version, _relations(point), int(point["work_mem_bytes"]))


def _simulated(
    project: Project, devices: dict[str, str], point: Mapping[str, Any], cpu: dict[str, float]
) -> Measurement:
    """The point in virtual time, in the device's time: there the CPU is `slowdown` times faster."""
    slowdown = float(point["slowdown"])
    faster = {name: ns / slowdown for name, ns in cpu.items()}
    cache_bytes = int(point["page_cache_mean_bytes"])
    dirty_ratio = float(point["dirty_ratio"]) * int(point["page_cache_bytes"]) / cache_bytes
    name = f"{slowdown:g}-{point['point']}"
    device = devices[str(point["device"])]
    host = _host(project, faster, name, device, min(dirty_ratio, 1.0))
    with SimulatedBench(project.profiles, devices, str(host)) as bench:
        machine = bench.stack(DeviceRequest(device=str(point["device"])))
        cell = replace(Cell.read(point), repetition=0, size_ratio_to_paper=1.0)
        result = model.simulate(
            machine, _query(point), cell, bench.cancel, cache_bytes, slowdown, kernel.EMULATED
        )
    return Measurement(model.metrics(result))


def _measured_cpu(project: Project, point: Mapping[str, Any]) -> dict[str, float]:
    """CPU time in ns per tuple of scanning and of joining, measured without a device.

    One client, twice: the server with its files in memory, and the model of it with those times at
    0. The difference is what they must be.
    """
    query = _query(point)
    base = {"scan_cpu": 0.0, "output_cpu": 0.0, **_SPLIT, "copy_cpu": float(_BLOCK_CPU_NS)}
    here = _in_memory(project, point)
    host = _host(project, base, "without", _FAST)
    with SimulatedBench(project.profiles, {"memory": _FAST}, str(host)) as bench:
        machine = bench.stack(DeviceRequest(device="memory"))
        one = replace(Cell.read(point), clients=1, repetition=0, size_ratio_to_paper=1.0)
        plenty = 8 * sum(r.heap_bytes for r in query.relations)
        bare = model.metrics(model.simulate(machine, query, one, bench.cancel, plenty))
    rows = sum(relation.rows for relation in query.relations)
    return {
        **base,
        "scan_cpu": max(here["sort_s"] - bare["sort_s"], 0.0) * 1e9 / rows,
        "output_cpu": max(here["join_s"] - bare["join_s"], 0.0) * 1e9 / rows,
    }


def _in_memory(project: Project, point: Mapping[str, Any]) -> dict[str, int | float]:
    """The real server, one client, its temporary files on a file system in memory."""
    cell = replace(
        Cell.read(point),
        device="file",
        clients=1,
        page_cache_bytes=1 << 30,
        dirty_ratio=0.2,
        repetition=0,
    )
    with memory_bench() as bench:
        return real.run_point(cell, bench, project.raw).metrics


def _host(
    project: Project,
    cpu: Mapping[str, float],
    name: str,
    device: str,
    dirty_ratio: float = 1.0,
) -> Path:
    """A host profile of this machine, with these CPU times (ns)."""

    def measured(key: str) -> dict[str, str]:
        return {"value": f"{round(cpu[key])} ns", "fitted": "to this machine, without a device"}

    return write_profile(
        project,
        f"sort-{name}",
        title="This machine, as PostgreSQL's sort sees it",
        memory="1 GiB",
        dirty_ratio=dirty_ratio,
        device=device,
        copy_cpu=measured("copy_cpu"),
        sections={
            "sort": {
                "scan_cpu": measured("scan_cpu"),
                "compare_cpu": measured("compare_cpu"),
                "copy_tuple_cpu": measured("copy_tuple_cpu"),
                "output_cpu": measured("output_cpu"),
                "table_rate": plain("100 GB/s"),
            }
        },
    )


AGREEMENT: Final = JudgedAgreement(compare, 0.2, beside)
