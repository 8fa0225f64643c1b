"""What of a run of TPC-C is laid beside the other tier's."""

from __future__ import annotations

import pytest
from test_msdj_tpcc_model import bench
from test_msdj_tpcc_model import cell as point_cell

from harness.experiments.msdj_tpcc import agreement as msdj_tpcc
from harness.experiments.msdj_tpcc import model
from harness.experiments.msdj_tpcc.pages import SHARES, TABLES

METRICS = {
    "host_written_bytes": 1000,
    "journal_written_bytes": 500,
    "doublewrite_written_bytes": 0,
    "redo_written_bytes": 100,
    "home_written_bytes": 400,
    "waf_ratio": 2.0,
    "transactions": 10,
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
    assert found["concentration"] == 0.1
    assert found["warehouse_pages_share"] == 0.0
    assert sum(found[f"{name}_pages_share"] for name in TABLES) == pytest.approx(1.0)


def test_what_is_nothing_on_one_side_has_no_ratio() -> None:
    one = msdj_tpcc.compared(METRICS, SERIES)
    other = {name: 2 * value for name, value in one.items()}
    row = msdj_tpcc._beside(one, other)
    assert row["waf_emulated"] == 2.0
    assert row["waf_simulated"] == 4.0
    assert row["waf_ratio"] == 0.5
    assert row["doublewrite_share_emulated"] == 0.0
    assert "doublewrite_share_ratio" not in row


def test_the_simulated_server_runs_at_the_other_ones_pace() -> None:
    """Both slower and faster than its profile's processor is."""
    cell = point_cell("oj_dwb")
    own = model.run_point(cell, {}, bench()).metrics["tpmc"]
    for tpmc in (0.9 * own, 0.3 * own):
        cpu_ns, found = msdj_tpcc._as_fast(cell, tpmc, bench())
        assert found.metrics["tpmc"] == pytest.approx(tpmc, rel=0.05)
        assert 1e5 < cpu_ns < 2e8
        assert found.metrics["journal_written_bytes"] == 0  # as MariaDB: no inode is committed
