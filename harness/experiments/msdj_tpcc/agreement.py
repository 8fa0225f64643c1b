"""TPC-C in MS-DJ's modes, simulated against emulated: InnoDB, ext4's journal and drive as models.

What is compared is what the drive was written and made of it: write amplification, whose bytes they
were, and how they spread over tables and pages. The simulated host has the settings of the server
that was really run, and a processor that makes it as fast as that was, since neither the paper's
machine nor this one's load is what the drive's models are asked about: TpmC is no result here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from harness.experiments import kernel
from harness.experiments.base import Measurement, Runs
from harness.experiments.beside import Beside, JudgedAgreement, here_or_published, modelled
from harness.experiments.msdj_tpcc import model
from harness.experiments.msdj_tpcc.grid import Cell
from harness.experiments.msdj_tpcc.pages import SHARES, TABLES
from harness.tiers.simulated import SimulatedBench

_VALUES: Final = ("device", "variant", "mode", "journal_bytes", "seed")
_PLACES: Final = ("journal", "doublewrite", "redo", "home")

_SERVER: Final = {"file_sync": "fdatasync", "flush_age": "0.1"}
"""MariaDB's since 10.5: os_file_sync_posix; innodb_adaptive_flushing_lwm, 10 %. The profile of the
simulated tier has those of the paper's time."""

_SOFTWARE: Final = model.Software(kernel.EMULATED, redo_block_bytes=512, file_pages_age=True)
"""MariaDB since 10.8 writes its log past the page cache, in the drive's blocks (log_t::write_size;
through a data journal the page cache makes 4 KiB of it)."""

_LEAST_CPU_NS: Final = 100_000
_MOST_CPU_NS: Final = 200_000_000
_HALVINGS: Final = 7
_PACE_RATIO: Final = 0.02

_GIVEN: Final = ("tpmc", "transactions", "new_orders")
"""Metrics that follow from the pace."""

Series = Mapping[str, Sequence[float]]


def compare(runs: Runs, **options: Any) -> pd.DataFrame:
    """One row per emulated point that has been run here, or else that is published.

    Compared: `waf` at the end of the measured interval; `written_per_transaction`, the bytes that
    the host wrote; of these the shares of PLACES; `concentration`, the share of writes that go to a
    tenth of the written pages; of the pages written home the share of each table. A share that is
    0 on either side has no ratio. `tpmc` of both is there to show that they ran at the same pace;
    what a transaction then costs the simulated processor is `transaction_cpu_ms`. See
    `agreement.compare`.
    """
    return beside(runs, **options).table


def beside(runs: Runs, **options: Any) -> Beside:
    """That, and the model's results but for TpmC, which it was given.

    Raises BadParameter if there is nothing.
    """
    with runs.open("emulated", **options) as session:
        results, bench = session.results, session.bench
        devices = {name: bench.profile_name(name) for name in bench.devices}
        overrides = bench.overrides
    results = here_or_published(runs, results)
    profiles, host = runs.project.profiles, runs.host_name()
    rows, model_of = [], {}
    with SimulatedBench(profiles, devices, host, overrides) as simulated:
        for point in results.table.to_dict("records"):
            # ext4 has put the files past the region that was aged.
            cell = replace(Cell.read(point), aged_under_files=False)
            cpu_ns, found = _as_fast(cell, float(point["tpmc"]), simulated)
            model_of[str(point["point"])] = cell, found
            emulated = compared(point, results.series[str(point["point"])])
            rows.append(
                {name: point[name] for name in _VALUES}
                | {"transaction_cpu_ms": cpu_ns / 1e6}
                | _beside(emulated, compared(found.metrics, found.series))
                | {"tpmc_emulated": point["tpmc"], "tpmc_simulated": found.metrics["tpmc"]}
            )
    table = pd.DataFrame(rows).sort_values(list(_VALUES), ignore_index=True)
    return Beside(table, results, modelled(results, model_of, given=_GIVEN))


def _as_fast(cell: Cell, tpmc: float, bench: SimulatedBench) -> tuple[int, Measurement]:
    """The point with the transaction's processor time (ns) that gives this throughput.

    Bisection of its logarithm. A drive that bounds throughput leaves it below.
    """
    least, most = _LEAST_CPU_NS, _MOST_CPU_NS
    for _ in range(_HALVINGS):
        cpu_ns = round(math.sqrt(least * most))
        server = {**_SERVER, "transaction_cpu": f"{cpu_ns} ns"}
        found = model.run_point(cell, server, bench, _SOFTWARE)
        ratio = found.metrics["tpmc"] / tpmc
        if abs(ratio - 1) <= _PACE_RATIO:
            break
        least, most = (cpu_ns, most) if ratio > 1 else (least, cpu_ns)
    return cpu_ns, found


def compared(metrics: Mapping[str, Any], series: Series) -> dict[str, float]:
    """What of a point's results is laid beside the other tier's."""
    host = float(metrics["host_written_bytes"])
    pages = dict(zip(TABLES, series["table_written_pages"], strict=True))
    home = sum(pages.values())
    return {
        "waf": float(metrics["waf_ratio"]),
        "written_per_transaction": host / float(metrics["transactions"]),
        **{f"{place}_share": float(metrics[f"{place}_written_bytes"]) / host for place in _PLACES},
        "concentration": float(series["home_write_concentration"][SHARES.index(0.1)]),
        **{f"{name}_pages_share": count / home for name, count in pages.items()},
    }


def _beside(emulated: Mapping[str, float], simulated: Mapping[str, float]) -> dict[str, float]:
    row: dict[str, float] = {}
    for name, value in emulated.items():
        row |= {f"{name}_emulated": value, f"{name}_simulated": simulated[name]}
        if value and simulated[name]:
            row[f"{name}_ratio"] = value / simulated[name]
    return row


AGREEMENT: Final = JudgedAgreement(compare, 0.15, beside)
