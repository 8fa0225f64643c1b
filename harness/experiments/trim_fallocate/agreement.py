"""The trim x fallocate matrix, simulated against emulated: the modelled ext4 beside the real one.

What is compared is what the file system decides: into how many extents the temporary files fall,
how many TRIMs their end costs, what the drive's flash makes of it, and how long it takes. The model
is given for how long the server was runnable in each phase of the run (`partition_runnable_s` and
`join_runnable_s`): what it slept is the drive's, and the model's to tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from harness.errors import BadParameter
from harness.experiments.base import Measurement, Runs
from harness.experiments.beside import (
    Beside,
    JudgedAgreement,
    here_or_published,
    modelled,
    ratio_of,
)
from harness.experiments.this_machine import SETUP, ext4_of, plain, write_profile
from harness.experiments.trim_fallocate import hash_batches, model, real
from harness.experiments.trim_fallocate.grid import Cell
from harness.paths import Project
from harness.tiers.base import DeviceRequest
from harness.tiers.simulated import SimulatedBench

_COMPARED: Final = (
    *("extents_per_file", "trim_commands", "trim_bytes", "temp_written_bytes"),
    *("waf_ratio", "last_waf_ratio", "first_elapsed_s", "last_elapsed_s"),
    *("partition_s", "join_s", "device_write_ios"),
)
_WAF: Final = "repetition_waf_ratio"
_ORDERS: Final = 9
"""Of tuples."""

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
    rows, model_of = [], {}
    for point in points:
        orders, found = _simulated(runs.project, devices, point)
        median = Measurement(orders.median().to_dict(), _median(found))
        model_of[str(point["point"])] = Cell.read(point), median
        row = {name: point[name] for name in _VALUES}
        for name in _COMPARED:
            simulated = orders[name].median()
            row |= {f"{name}_emulated": point[name], f"{name}_simulated": simulated}
            row |= {f"{name}_low": orders[name].min(), f"{name}_high": orders[name].max()}
            if (ratio := ratio_of(point[name], simulated)) is not None:
                row[f"{name}_ratio"] = ratio
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


def _simulated(
    project: Project, devices: dict[str, str], point: Mapping[str, Any]
) -> tuple[pd.DataFrame, list[Mapping[str, Any]]]:
    """The point's metrics and series in virtual time, for each order of tuples."""
    cell = replace(
        Cell.read(point), size_ratio_to_paper=1.0, shared_buffers_bytes=0, occupied_ratio=0.0
    )
    host = _host(project, devices[cell.device], point)
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
                setup=replace(SETUP, inodes=real._INODES),
            )
            for seed in range(_ORDERS)
        ]
    runs = [model.queries(result) for result in results]
    rows = [model.metrics(run, result, cell) for run, result in zip(runs, results, strict=True)]
    return pd.DataFrame(rows), [model.series(run, cell) for run in runs]


def _host(project: Project, device: str, point: Mapping[str, Any]) -> Path:
    """A host profile of this machine as it was in that run, for a drive of that profile.

    Raises BadParameter if the run does not say for how long its server was runnable.
    """
    rows = float(point["scale_factor"]) * (hash_batches.ORDERS.rows + hash_batches.LINEITEM.rows)
    each_query = rows * int(point["queries_per_repetition"])
    partition_ns, join_ns = (
        runnable_s(point, phase) * 1e9 / each_query for phase in ("partition", "join")
    )
    cache_bytes = int(point["page_cache_bytes"])
    server_bytes = model.server_buffers_bytes(Cell.read(point))
    return write_profile(
        project,
        f"hash-join-{point['point']}",
        title="This machine, as PostgreSQL's hash join sees it",
        memory=f"{cache_bytes + int(point['work_mem_bytes'])} B",
        # Of what the model leaves of that, as many bytes as the kernel was told.
        dirty_ratio=float(point["dirty_ratio"]) * cache_bytes / (cache_bytes - server_bytes),
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
            "ext4": ext4_of(
                size_bytes=int(point["device_bytes"]),
                discard="asynchronous",
                commit_s=float(point["commit_s"]),
                slowdown=float(point["slowdown"]),
            ),
        },
    )


def runnable_s(point: Mapping[str, Any], phase: str) -> float:
    """For how long a repetition's server was runnable in that phase, in s of the device's time.

    Raises BadParameter if the run does not say: its kernel does not count it, or it is older.
    """
    found = float(point.get(f"{phase}_runnable_s", math.nan))
    if math.isnan(found):
        raise BadParameter(
            "this run does not say for how long its server was runnable: run it again, on a "
            "kernel that has /proc/self/schedstat (CONFIG_SCHED_INFO)"
        )
    return found


AGREEMENT: Final = JudgedAgreement(compare, 0.2, beside, frozenset({"temp_written_bytes"}))
