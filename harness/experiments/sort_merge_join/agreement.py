"""The sort-merge join, simulated against emulated: PostgreSQL's sorts beside the model of them.

What a tuple costs the CPU is measured here, by the same server with its temporary files in memory;
what is left to compare is the model of sort, page cache, block layer and drive. Tables, page cache
and slowdown are those of each emulated run. Both sides are medians: the run's over its repetitions,
the model's over as many orders of tuples as decide which page is evicted and where the arm stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import scipy

from harness.experiments import kernel
from harness.experiments.base import Measurement, Runs
from harness.experiments.beside import Beside, JudgedAgreement, here_or_published, modelled
from harness.experiments.sort_merge_join import model, real
from harness.experiments.sort_merge_join.grid import Cell
from harness.experiments.sort_merge_join.model import Query
from harness.experiments.sort_merge_join.postgres_sort import Relation
from harness.experiments.this_machine import SETUP, ext4_of, memory_bench, plain, write_profile
from harness.paths import Project
from harness.system.ext4_spec import COMMIT_S
from harness.tiers.base import DeviceRequest
from harness.tiers.simulated import SimulatedBench

_TEMP_FILES: Final = ("temp_read_bytes", "temp_written_bytes", "temp_file_bytes")
_COMPARED: Final = ("elapsed_s", "sort_s", "join_s", *_TEMP_FILES)
_VALUES: Final = ("device", "clients", "work_mem_bytes", "size_ratio_to_paper", "slowdown")
_ORDERS: Final = 9
"""Of tuples."""

_IN_MEMORY: Final = 3
"""Runs in memory, of which the median counts."""

_COMPARE_NS: Final = 15.0
"""ns of one comparison, on a processor of 2020: a prior. How many there are does not depend on
work_mem, so in memory they cannot be told from what else a tuple costs once."""

_COPY_NS: Final = 100.0
"""ns of a copy of a tuple to or from a tape, only to see how many copies the model has."""

_FAST: Final = "samsung_980_1tb"
"""A drive of which the model of a server in memory sees nothing."""

_BLOCK_CPU_NS: Final = 1500
"""Of a system call for a block, its copy, and the loop device's part."""


def compare(runs: Runs, **options: Any) -> pd.DataFrame:
    """One row per emulated cell that has been run here, or else that is published.

    What the emulated tier measures does not depend on the model beside it. See `agreement.compare`.
    Columns *_emulated and *_simulated are medians over `repetitions` runs and over orders of
    tuples; *_emulated_low, *_emulated_high, *_low and *_high the least and the most of each.
    """
    return beside(runs, **options).table


def beside(runs: Runs, **options: Any) -> Beside:
    """That, and the model's results. Raises BadParameter if there is nothing."""
    with runs.open("emulated", **options) as session:
        results, bench = session.results, session.bench
        devices = {name: bench.profile_name(name) for name in bench.devices}
    emulated = here_or_published(runs, results, {"cpu", "cpus", "kernel"})
    project = runs.project
    cpu = _measured_cpu(project, emulated.table)
    rows, model_of = [], {}
    for values, repetitions in emulated.table.groupby(list(_VALUES)):
        orders = _simulated(project, devices, repetitions, cpu)
        median = Measurement(orders.median().to_dict())
        for point in repetitions.to_dict("records"):
            model_of[str(point["point"])] = Cell.read(point), median
        row = dict(zip(_VALUES, values, strict=True)) | {"repetitions": len(repetitions)}
        for name in _COMPARED:
            row |= _laid(name, repetitions[name], orders[name])
        rows.append(row)
    table = pd.DataFrame(rows).sort_values(list(_VALUES), ignore_index=True)
    return Beside(table, emulated, modelled(emulated, model_of))


def _laid(name: str, emulated: pd.Series[float], simulated: pd.Series[float]) -> dict[str, float]:
    here, there = float(emulated.median()), float(simulated.median())
    return {
        f"{name}_emulated": here,
        f"{name}_emulated_low": float(emulated.min()),
        f"{name}_emulated_high": float(emulated.max()),
        f"{name}_simulated": there,
        f"{name}_low": float(simulated.min()),
        f"{name}_high": float(simulated.max()),
        f"{name}_ratio": here / there,
    }


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
    project: Project, devices: dict[str, str], repetitions: pd.DataFrame, cpu: dict[str, float]
) -> pd.DataFrame:
    """The cell's metrics in virtual time, a row for each order of tuples.

    In the device's time the CPU is `slowdown` times faster. The page cache is as large as it was on
    average in the runs.
    """
    point = repetitions.iloc[0].to_dict()
    cell, query, slowdown = Cell.read(point), _query(point), float(point["slowdown"])
    size_bytes = real.needed_bytes(cell)
    faster = {name: ns / slowdown for name, ns in cpu.items()}
    cache_bytes = round(repetitions.page_cache_filled_mean_bytes.mean())
    dirty_ratio = min(cell.dirty_ratio * cell.page_cache_bytes / cache_bytes, 1.0)
    name, device = f"{slowdown:g}-{point['point']}", devices[cell.device]
    ext4 = ext4_of(size_bytes=size_bytes, discard="none", commit_s=COMMIT_S, slowdown=slowdown)
    host = _host(project, faster, name, device, dirty_ratio, ext4)
    with SimulatedBench(project.profiles, devices, str(host)) as bench:
        machine = bench.stack(DeviceRequest(device=cell.device))
        results = [
            model.simulate(
                machine,
                query,
                replace(cell, repetition=order, size_ratio_to_paper=1.0),
                bench.cancel,
                cache_bytes,
                slowdown,
                kernel.EMULATED,
                size_bytes,
                SETUP,
            )
            for order in range(_ORDERS)
        ]
    return pd.DataFrame([model.metrics(result) for result in results])


def _measured_cpu(project: Project, table: pd.DataFrame) -> dict[str, float]:
    """CPU time in ns per tuple of scanning, copying and joining, measured without a device.

    One client with each work_mem: the server with its files in memory, and the model of it with
    those times at 0. The differences are what they must be: a scan of each tuple, and as many
    copies as its runs take, which is what differs between the work_mems (least squares, none
    negative).
    """
    points = table.drop_duplicates("work_mem_bytes").to_dict("records")
    here = pd.DataFrame([_in_memory(project, point) for point in points])
    none = {"scan_cpu": 0.0, "output_cpu": 0.0, "copy_tuple_cpu": 0.0}
    base = {**none, "compare_cpu": _COMPARE_NS, "copy_cpu": float(_BLOCK_CPU_NS)}
    bare = _in_virtual_memory(project, points, base)
    copying = _in_virtual_memory(project, points, {**base, "copy_tuple_cpu": _COPY_NS})
    rows = np.array([sum(each.rows for each in _query(point).relations) for point in points])
    copies = (copying.sort_s - bare.sort_s).to_numpy() * 1e9 / _COPY_NS
    counts = np.column_stack([rows, copies])
    (scan_ns, copy_ns), _ = scipy.optimize.nnls(counts, (here.sort_s - bare.sort_s) * 1e9)
    found = {**base, "scan_cpu": float(scan_ns), "copy_tuple_cpu": float(copy_ns)}
    joining = (here.join_s - _in_virtual_memory(project, points, found).join_s).to_numpy()
    return {**found, "output_cpu": max(float((joining * 1e9 / rows).mean()), 0.0)}


def _in_virtual_memory(
    project: Project, points: Sequence[Mapping[str, Any]], cpu: Mapping[str, float]
) -> pd.DataFrame:
    """The model's metrics of each point with one client and files that it always finds in memory.

    `cpu`: as `_measured_cpu` returns it.
    """
    host = _host(project, cpu, "without", _FAST)
    found = []
    with SimulatedBench(project.profiles, {"memory": _FAST}, str(host)) as bench:
        machine = bench.stack(DeviceRequest(device="memory"))
        for point in points:
            query = _query(point)
            one = replace(Cell.read(point), clients=1, repetition=0, size_ratio_to_paper=1.0)
            plenty_bytes = 8 * sum(each.heap_bytes for each in query.relations)
            result = model.simulate(machine, query, one, bench.cancel, plenty_bytes)
            found.append(model.metrics(result))
    return pd.DataFrame(found)


def _in_memory(project: Project, point: Mapping[str, Any]) -> dict[str, float]:
    """The real server, one client, its temporary files on a file system in memory.

    Each number is the median of some runs.
    """
    cell = replace(
        Cell.read(point),
        device="file",
        clients=1,
        page_cache_bytes=1 << 30,
        dirty_ratio=0.2,
        repetition=0,
    )
    with memory_bench() as bench:
        runs = [real.run_point(cell, bench, project.raw).metrics for _ in range(_IN_MEMORY)]
    return {str(name): float(value) for name, value in pd.DataFrame(runs).median().items()}


def _host(
    project: Project,
    cpu: Mapping[str, float],
    name: str,
    device: str,
    dirty_ratio: float = 1.0,
    ext4: Mapping[str, object] | None = None,
) -> Path:
    """A host profile of this machine, with these CPU times (ns), and a file system if given."""

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
            },
            **({"ext4": ext4} if ext4 else {}),
        },
    )


AGREEMENT: Final = JudgedAgreement(compare, 0.2, beside, frozenset(_TEMP_FILES))
