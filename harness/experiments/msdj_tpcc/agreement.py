"""TPC-C in MS-DJ's modes, simulated against emulated: InnoDB, ext4's journal and drive as models.

What is compared is throughput, and what the drive was written and made of it: write amplification,
whose bytes they were, and how they spread over tables and pages. The simulated host has the
settings of the server that was really run, and a transaction costs it what it was measured to cost,
in time of this machine's processors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from harness.dbms.innodb import LEAST_LRU_SCAN_DEPTH, OLD_BLOCKS_MS
from harness.drives import fingerprint
from harness.experiments import kernel
from harness.experiments.base import Measurement, Runs
from harness.experiments.beside import (
    Beside,
    JudgedAgreement,
    here_or_published,
    modelled,
    ratio_of,
)
from harness.experiments.msdj_tpcc import model
from harness.experiments.msdj_tpcc.grid import Cell
from harness.experiments.msdj_tpcc.pages import SHARES, TABLES
from harness.system.ext4_spec import COMMIT_S
from harness.tiers.simulated import SimulatedBench

_VALUES: Final = ("device", "variant", "mode", "journal_bytes", "seed")
_PLACES: Final = ("journal", "doublewrite", "redo", "home")

_SERVER: Final = {
    "file_sync": "fdatasync",
    "flush_age": "0.1",
    "most_dirty": "0.9",
    "lru_scan_depth": str(LEAST_LRU_SCAN_DEPTH),
}
"""MariaDB's since 10.5: os_file_sync_posix; innodb_adaptive_flushing_lwm, 10 %;
innodb_max_dirty_pages_pct, 90 %. The profile of the simulated tier has those of the paper's time.
And what the tier tells the server (`real`)."""

_SOFTWARE: Final = model.Software(kernel.EMULATED, redo_block_bytes=512, file_pages_age=True)
"""MariaDB since 10.8 writes its log past the page cache, in the drive's blocks (log_t::write_size;
through a data journal the page cache makes 4 KiB of it)."""

Series = Mapping[str, Sequence[float]]


def compare(runs: Runs, **options: Any) -> pd.DataFrame:
    """One row per emulated point that has been run here, or else that is published.

    Compared: `tpmc`; `waf` at the end of the measured interval; `written_per_transaction`, the
    bytes that the host wrote; `pool_reads_per_transaction`, pages that the buffer pool had not;
    `read_per_transaction`, the bytes that the drive was read; `commits_per_transaction` of the
    journal; of what was written the shares of PLACES; `concentration`, the share of writes
    that go to a tenth of the written pages; of the pages written home the share of each table. A
    share that is 0 on both sides has no ratio. The model is given `transaction_cpu_ms`, see
    `transaction_ns`. See `agreement.compare`.
    """
    return beside(runs, **options).table


def beside(runs: Runs, **options: Any) -> Beside:
    """That, and the model's results.

    Raises BadParameter if there is nothing.
    """
    with runs.open("emulated", **options) as session:
        results, bench = session.results, session.bench
        devices = {name: bench.profile_name(name) for name in bench.devices}
        overrides = bench.overrides
    results = here_or_published(runs, results, {"cpus"})
    profiles, host = runs.project.profiles, runs.host_name()
    cpu_ns = transaction_ns(results.table, int(fingerprint.machine()["cpus"]))
    rows, model_of = [], {}
    with SimulatedBench(profiles, devices, host, overrides) as simulated:
        for point in results.table.to_dict("records"):
            # ext4 has put the files past the region that was aged.
            cell = replace(Cell.read(point), aged_under_files=False)
            slowdown = int(point["slowdown"])
            commit_s = commits_every_s(cell, slowdown)
            old_s = OLD_BLOCKS_MS / 1e3 / slowdown
            found = simulated_point(cell, cpu_ns, commit_s, old_s, simulated)
            model_of[str(point["point"])] = cell, found
            emulated = compared(point, results.series[str(point["point"])])
            rows.append(
                {name: point[name] for name in _VALUES}
                | {"transaction_cpu_ms": cpu_ns / 1e6}
                | _beside(emulated, compared(found.metrics, found.series))
            )
    table = pd.DataFrame(rows).sort_values(list(_VALUES), ignore_index=True)
    return Beside(table, results, modelled(results, model_of))


def busy_ns(point: Mapping[str, Any], cpus: int) -> int:
    """For how long a transaction of an emulated run kept the processors busy, all that ran there.

    Of the device's time: to a drive that is slowed down they are that many times faster.
    """
    busy_s = float(point["processor_utilisation_ratio"]) * cpus * float(point["measured_s"])
    return round(busy_s / float(point["transactions"]) * 1e9)


def transaction_ns(table: pd.DataFrame, cpus: int) -> int:
    """What a transaction costs the processors: the least of all points, since whatever else the
    machine computed beside a run was counted as that run's.
    """
    return min(busy_ns(point, cpus) for point in table.to_dict("records"))


def commits_every_s(cell: Cell, slowdown: int) -> float:
    """Of the device's time: the interval is the cell's size of the default, and the kernel's is in
    whole seconds of the clock.
    """
    return max(round(COMMIT_S * cell.size_ratio_to_paper * slowdown), 1) / slowdown


def simulated_point(
    cell: Cell,
    transaction_cpu_ns: int,
    commit_s: float,
    old_blocks_s: float,
    bench: SimulatedBench,
) -> Measurement:
    """The point with MariaDB's settings and this machine's kernel. Times are the device's."""

    def of_paper(time_s: float) -> str:
        """The model takes the cell's share of it, as of all that a smaller size makes shorter."""
        return f"{round(time_s / cell.size_ratio_to_paper * 1e6)} us"

    run = {
        "transaction_cpu": f"{transaction_cpu_ns} ns",
        "row_cpu": "0 ns",
        "commit_interval": of_paper(commit_s),
        "old_blocks_time": of_paper(old_blocks_s),
    }
    return model.run_point(cell, {**_SERVER, **run}, bench, _SOFTWARE)


def _pool_reads(metrics: Mapping[str, Any]) -> float:
    """Pages that the buffer pool had not, wherever they came from."""
    if "page_reads" in metrics:
        return float(metrics["page_reads"]) + float(metrics["cached_reads"])
    return float(metrics["innodb_buffer_pool_reads"])


def compared(metrics: Mapping[str, Any], series: Series) -> dict[str, float]:
    """What of a point's results is laid beside the other tier's."""
    host = float(metrics["host_written_bytes"])
    pages = dict(zip(TABLES, series["table_written_pages"], strict=True))
    home = sum(pages.values())
    transactions = float(metrics["transactions"])
    return {
        "tpmc": float(metrics["tpmc"]),
        "waf": float(metrics["waf_ratio"]),
        "written_per_transaction": host / transactions,
        "pool_reads_per_transaction": _pool_reads(metrics) / transactions,
        "read_per_transaction": float(metrics["device_read_bytes"]) / transactions,
        "commits_per_transaction": float(metrics["journal_commits"]) / transactions,
        **{f"{place}_share": float(metrics[f"{place}_written_bytes"]) / host for place in _PLACES},
        "concentration": float(series["home_write_concentration"][SHARES.index(0.1)]),
        **{f"{name}_pages_share": count / home for name, count in pages.items()},
    }


def _beside(emulated: Mapping[str, float], simulated: Mapping[str, float]) -> dict[str, float]:
    row: dict[str, float] = {}
    for name, value in emulated.items():
        row |= {f"{name}_emulated": value, f"{name}_simulated": simulated[name]}
        if (ratio := ratio_of(value, simulated[name])) is not None:
            row[f"{name}_ratio"] = ratio
    return row


AGREEMENT: Final = JudgedAgreement(compare, 0.15, beside)
