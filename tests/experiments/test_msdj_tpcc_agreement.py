"""What of a run of TPC-C is laid beside the other tier's."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest
from test_msdj_tpcc_model import bench
from test_msdj_tpcc_model import cell as point_cell

from harness.experiments.msdj_tpcc import agreement as msdj_tpcc
from harness.experiments.msdj_tpcc import model
from harness.experiments.msdj_tpcc.pages import SHARES, TABLES
from harness.system.ext4_spec import COMMIT_S
from harness.tiers.base import DeviceRequest

METRICS = {
    "tpmc": 600.0,
    "host_written_bytes": 1000,
    "journal_written_bytes": 500,
    "doublewrite_written_bytes": 0,
    "redo_written_bytes": 100,
    "home_written_bytes": 400,
    "waf_ratio": 2.0,
    "transactions": 10,
    "innodb_buffer_pool_reads": 40,
    "device_read_bytes": 2000,
    "journal_commits": 5,
}
SERIES = {
    "table_written_pages": [float(n) for n in range(len(TABLES))],
    "home_write_concentration": list(SHARES),
}


def test_shares_are_of_all_that_was_written() -> None:
    found = msdj_tpcc.compared(METRICS, SERIES)
    parts = ("journal", "doublewrite", "redo", "home")
    assert [found[f"{part}_share"] for part in parts] == [0.5, 0.0, 0.1, 0.4]
    assert found["written_per_transaction"] == 100.0
    assert found["pool_reads_per_transaction"] == 4.0
    assert found["read_per_transaction"] == 200.0
    assert found["commits_per_transaction"] == 0.5
    of_model = {**METRICS, "page_reads": 15, "cached_reads": 5}
    assert msdj_tpcc.compared(of_model, SERIES)["pool_reads_per_transaction"] == 2.0
    assert found["concentration"] == 0.1
    assert found["warehouse_pages_share"] == 0.0
    assert sum(found[f"{name}_pages_share"] for name in TABLES) == pytest.approx(1.0)


def test_what_is_nothing_on_both_sides_has_no_ratio_and_on_one_is_far() -> None:
    one = msdj_tpcc.compared(METRICS, SERIES)
    other = {name: 2 * value for name, value in one.items()}
    row = msdj_tpcc._beside(one, other)
    assert row["waf_emulated"] == 2.0
    assert row["waf_simulated"] == 4.0
    assert row["waf_ratio"] == 0.5
    assert row["doublewrite_share_emulated"] == 0.0
    assert "doublewrite_share_ratio" not in row
    wrong = msdj_tpcc._beside(one, {**other, "journal_share": 0.0})
    assert wrong["journal_share_ratio"] == math.inf
    missing = msdj_tpcc._beside(one, {**other, "doublewrite_share": 0.1})
    assert missing["doublewrite_share_ratio"] == 0.0


def test_a_transaction_costs_the_model_what_it_was_measured_to_cost() -> None:
    """Two processors, a quarter busy for 10 s, 1,000 transactions: 5 ms each."""
    point = {"processor_utilisation_ratio": 0.25, "measured_s": 10.0, "transactions": 1000}
    assert msdj_tpcc.busy_ns(point, 2) == 5_000_000
    assert msdj_tpcc.busy_ns(point, 4) == 10_000_000


def test_the_model_is_told_what_times_kernel_and_server_beside_it_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """5 s of the paper's, at a 300th, would be 17 ms; a drive eight times slower sees 125."""
    cell = replace(point_cell("oj_dwb"), size_ratio_to_paper=1 / 300)
    assert msdj_tpcc.commits_every_s(cell, 8) == 0.125
    assert msdj_tpcc.commits_every_s(replace(cell, size_ratio_to_paper=1.0), 8) == COMMIT_S
    told: list[dict[str, str]] = []
    monkeypatch.setattr(model, "run_point", lambda _, overrides, *__: told.append(overrides))
    msdj_tpcc.simulated_point(cell, 1_000_000, 0.125, 0.25, bench())
    with bench() as simulated:
        stack = simulated.stack(DeviceRequest(device="pm953", overrides=told[0]))
    assert stack.host.ext4 is not None
    assert stack.host.ext4.commit_interval.value / 300 == 125_000_000  # ns, of the model's time
    assert stack.host.innodb is not None
    assert stack.host.innodb.old_blocks_time.value / 300 == 250_000_000


def test_throughput_follows_from_that_where_the_processors_are_what_is_waited_for() -> None:
    cell = point_cell("oj_dwb")
    slow, slower, fast = (
        msdj_tpcc.simulated_point(cell, round(ms * 1e6), COMMIT_S, 1.0, bench()).metrics
        for ms in (100, 200, 0.1)
    )
    assert slow["tpmc"] == pytest.approx(2 * slower["tpmc"], rel=0.1)
    assert slow["tpmc"] < fast["tpmc"] / 2
    assert slow["journal_written_bytes"] < 0.01 * slow["host_written_bytes"]  # as MariaDB


def test_times_of_files_are_committed_at_the_interval_and_the_model_s_numbers_are_compared() -> (
    None
):
    rare, often = (
        msdj_tpcc.simulated_point(point_cell("oj_dwb"), 1_000_000, commit_s, 1.0, bench())
        for commit_s in (COMMIT_S, 0.02)
    )
    assert rare.metrics["journal_commits"] < often.metrics["journal_commits"]
    found = msdj_tpcc.compared(often.metrics, often.series)
    assert 0 < found["journal_share"] < 0.05
    assert found["pool_reads_per_transaction"] > 0
    assert found["read_per_transaction"] > 0


def test_the_model_beside_it_has_todays_kernel_and_server() -> None:
    found = msdj_tpcc.simulated_point(point_cell("dj"), 1_000_000, COMMIT_S, 1.0, bench()).metrics
    by_sync = found["redo_written_bytes"] - found["redo_bytes"]
    assert by_sync == pytest.approx(4096 * found["redo_syncs"], rel=0.25)
    past_the_page_cache = msdj_tpcc.simulated_point(
        point_cell("oj_dwb"), 1_000_000, COMMIT_S, 1.0, bench()
    )
    assert past_the_page_cache.metrics["redo_written_bytes"] % 4096


def test_what_others_computed_beside_a_run_is_no_transaction_s() -> None:
    alone = {"processor_utilisation_ratio": 0.1, "measured_s": 50.0, "transactions": 20_000}
    beside = {"processor_utilisation_ratio": 0.9, "measured_s": 50.0, "transactions": 19_000}
    table = pd.DataFrame([beside, alone])
    assert msdj_tpcc.transaction_ns(table, 2) == 500_000
