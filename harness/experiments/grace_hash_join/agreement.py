"""The Grace join, simulated against emulated.

The emulated tier runs the real engine over a real block device whose times come from the device
model; the simulated tier runs the same engine over the same model and a model of the host. What the
host's CPU costs is measured here, in memory, so that what is left to compare is the models of
host and device.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import yaml

from harness import _core
from harness.experiments.base import Results, Runs
from harness.experiments.beside import Beside, JudgedAgreement, in_its_place, not_run
from harness.experiments.this_machine import write_bare_profile
from harness.paths import Project
from harness.tiers.base import DATA_OFFSET_BYTES
from harness.tiers.on_device import write_records
from harness.workloads.records import RECORD_BYTES
from harness.workloads.tpch import (
    JoinInputs,
    expected_join,
    join_inputs,
    scale_factor,
)

_PHASES: Final = ("elapsed_s", "partition_s", "join_s")
_RUNS: Final = 5
_READ_BUFFER: Final = 16 << 20
_UNIT: Final = 64 << 10
_ALIGN_BYTES: Final = 1 << 20
_OPS: Final = ("read", "write")


def measured_host(project: Project, scale: str, slowdown: float) -> Path:
    """A host profile of this machine: the engine's CPU time per record, and no I/O costs.

    The engine runs in memory. On a device whose time is slowed down the CPU is so many times
    faster. Kernel and path are not in it: a live device takes them off. Returns the file.
    """
    inputs = join_inputs(project.raw, scale)
    partition_ns, join_ns = _cpu_per_record(project, inputs, scale)
    why = f"the engine in memory, median of {_RUNS} runs, here"

    def time(ns: float) -> dict[str, str]:
        return {"value": f"{round(ns / slowdown)} ns", "fitted": why}

    return write_bare_profile(
        project,
        f"measured-{slowdown:g}",
        title="This machine, as the join engine sees it",
        sections={
            "join_cpu": {
                "partition_cpu": time(partition_ns),
                "build_cpu": time(join_ns),
                "probe_cpu": time(join_ns),
                "match_cpu": time(0.0),
            }
        },
    )


def compare(runs: Runs, **options: Any) -> pd.DataFrame:
    """One row per emulated point that has been run here: phases, I/O counts, latencies of both.

    Columns: the point's values; for each phase NAME_emulated, NAME_simulated (s) and NAME_ratio;
    ios_compared and ios_differ (I/O and byte counts of engine and device, and how many of them are
    not equal); for traced points the median latency of reads and writes as the engine saw them.
    Raises BadParameter if nothing has been run.
    """
    return beside(runs, **options).table


def beside(runs: Runs, **options: Any) -> Beside:
    """That, and the model's results. Raises BadParameter if nothing has been run."""
    with runs.open("emulated", **options) as session:
        emulated = session.results
        scale = str(session.parameters.model_dump()["scale"])
        values = session.parameters.model_dump(mode="json")
    if emulated.table.empty:
        raise not_run(runs)
    settings = {name: yaml.safe_dump(value) for name, value in values.items() if value}
    frames, tables = [], []
    series: dict[str, Mapping[str, Sequence[float]]] = {}
    for slowdown, table in emulated.table.groupby("slowdown"):
        host = measured_host(runs.project, scale, float(slowdown))
        with runs.open("simulated", settings=settings, host=str(host)) as simulated:
            wanted = set(table.point)
            simulated.points = [p for p in simulated.points if p.id in wanted]
            found = simulated.run()
            frames.append(_beside(Results("emulated", table, {}, emulated.trace_of), found))
            tables.append(found.table)
            series |= found.series
    rows = pd.concat(frames, ignore_index=True).sort_values(list(_VALUES), ignore_index=True)
    return Beside(
        rows, emulated, in_its_place(emulated, pd.concat(tables, ignore_index=True), series)
    )


def _beside(emulated: Results, simulated: Results) -> pd.DataFrame:
    both = emulated.table.merge(simulated.table, on="point", suffixes=("_emulated", "_simulated"))
    out = pd.DataFrame({name: both[f"{name}_emulated"] for name in _VALUES})
    out["slowdown"] = both["slowdown"]
    for phase in _PHASES:
        out[f"{phase}_emulated"] = both[f"{phase}_emulated"]
        out[f"{phase}_simulated"] = both[f"{phase}_simulated"]
        out[f"{phase}_ratio"] = both[f"{phase}_emulated"] / both[f"{phase}_simulated"]
    counts = [c.removesuffix("_emulated") for c in both if _is_count(c)]
    differ = [both[f"{c}_emulated"] != both[f"{c}_simulated"] for c in counts]
    out["ios_compared"] = len(counts)
    out["ios_differ"] = np.sum(differ, axis=0)
    for op in _OPS:
        here = [_latency_ns(emulated, point, op) for point in both.point]
        there = [_latency_ns(simulated, point, op) for point in both.point]
        out[f"{op}_latency_emulated_ns"] = here
        out[f"{op}_latency_simulated_ns"] = there
        out[f"{op}_latency_ratio"] = np.asarray(here) / np.asarray(there)
    return out


def _latency_ns(results: Results, point: str, op: str) -> float:
    """Median latency of the engine's I/Os of a traced point; NaN if it was not traced."""
    trace = results.trace_of(point)
    if trace is None:
        return float("nan")
    rows = trace[trace.op == _OPS.index(op)]
    return float((rows.completed_ns - rows.submitted_ns).median())


_VALUES: Final = (
    "device",
    "algorithm",
    "nominal_read_buffer_bytes",
    "write_buffer_bytes",
    "users",
    "queue_depth",
    "repetition",
)


def _is_count(column: str) -> bool:
    name = column.removesuffix("_emulated")
    return name != column and name.endswith(("_ios", "_bytes")) and name.startswith(_COUNTED)


_COUNTED: Final = (
    *(f"{phase}_{op}" for phase in ("partition", "join", "repartition") for op in _OPS),
    *(f"device_{op}_{what}" for op in _OPS for what in ("ios", "bytes")),
)


def _cpu_per_record(project: Project, inputs: JoinInputs, scale: str) -> tuple[float, float]:
    records = len(inputs.orders) + len(inputs.lineitem)
    expected = expected_join(project.raw, inputs)
    storage, job = _in_memory(inputs)
    spec = _core.JoinSpec(
        algorithm=_core.Algorithm["grace"],
        read_buffer_bytes=_UNIT * max(int(_READ_BUFFER * scale_factor(scale)) // _UNIT, 1),
        write_buffer_bytes=_UNIT,
        input_io_bytes=1 << 20,
        queue_depth=1,
        hash_seed=0,
        partition_cpu_ns=0,
        build_cpu_ns=0,
        probe_cpu_ns=0,
        match_cpu_ns=0,
        trace=False,
    )
    runs: list[dict[str, Any]] = []
    for _ in range(_RUNS):
        [user] = _core.run_joins(storage, spec, [job], _core.Cancel())
        assert (user["matches"], user["checksum"]) == expected
        runs.append(dict(user))
    return (
        statistics.median(run["partition_ns"] for run in runs) / records,
        statistics.median(run["join_ns"] for run in runs) / records,
    )


def _in_memory(inputs: JoinInputs) -> tuple[_core.MemoryStorage, _core.UserJob]:
    """Storage with both inputs, and the job that joins them."""
    orders, lineitem = len(inputs.orders), len(inputs.lineitem)
    lineitem_at = DATA_OFFSET_BYTES + _aligned(orders * RECORD_BYTES)
    scratch = lineitem_at + _aligned(lineitem * RECORD_BYTES)
    end = scratch + _aligned((orders + lineitem) * RECORD_BYTES * 11 // 10)
    storage = _core.MemoryStorage(end)
    write_records(storage, DATA_OFFSET_BYTES, inputs.orders)
    write_records(storage, lineitem_at, inputs.lineitem)
    job = _core.UserJob(
        build_offset_bytes=DATA_OFFSET_BYTES,
        build_records=orders,
        probe_offset_bytes=lineitem_at,
        probe_records=lineitem,
        scratch_begin_bytes=scratch,
        scratch_end_bytes=end,
    )
    return storage, job


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGN_BYTES) * _ALIGN_BYTES


AGREEMENT: Final = JudgedAgreement(compare, 0.1, beside)
