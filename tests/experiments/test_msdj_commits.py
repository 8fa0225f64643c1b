"""The journal's commits over time, from records of the probe jbd2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.experiments.msdj_tpcc import commits

S = 10**9
BEGIN, END = 100 * S, 130 * S


def recorded(path: Path, spans: list[tuple[int, int, int]]) -> Path:
    """A record of commits: begin and end in ns, blocks logged; transactions are numbered."""
    rows: list[dict[str, Any]] = []
    for number, (begin, end, blocks) in enumerate(spans):
        rows += [
            {"event": "commit_begin", "time_ns": begin, "transaction": number},
            {
                "event": "commit_stats",
                "time_ns": end,
                "transaction": number,
                "blocks_logged": blocks,
            },
            {"event": "commit_end", "time_ns": end, "transaction": number},
        ]
    pd.DataFrame(rows, columns=["event", "time_ns", "transaction", "blocks_logged"]).to_parquet(
        path
    )
    return path


def test_the_course_is_of_what_began_in_the_interval_in_the_device_s_time(tmp_path: Path) -> None:
    spans = [
        (BEGIN - 1, BEGIN + S, 99),  # before
        (BEGIN, BEGIN + S // 10, 4),
        (BEGIN + S // 2, BEGIN + S, 8),
        (END - 1, END + S, 6),
        (END, END + S, 99),  # after
    ]
    metrics, series = commits.course(recorded(tmp_path / "t", spans), BEGIN, END, slowdown=2)
    assert metrics["commit_mean_blocks"] == pytest.approx(6)
    assert metrics["commit_mean_ms"] == pytest.approx((50 + 250 + 500) / 3)
    assert series["commits_per_s"] == [4, *[0] * 28, 2]
    assert series["commit_blocks"] == [6, *[0] * 28, 6]
    assert series["commit_time_s"][0] == pytest.approx(0.5)
    assert series["commit_time_s"][-1] == pytest.approx(15)
    assert sum(series["commits_per_s"]) * 0.5 == 3


@pytest.mark.parametrize("spans", [[], [(BEGIN - 2, BEGIN - 1, 3)]])
def test_without_commits_there_is_nothing(tmp_path: Path, spans: list[Any]) -> None:
    assert commits.course(recorded(tmp_path / "t", spans), BEGIN, END, 1) == ({}, {})


def test_a_commit_that_was_not_seen_whole_is_left_out(tmp_path: Path) -> None:
    path = recorded(tmp_path / "t", [(BEGIN, BEGIN + 1, 3), (BEGIN + 5, BEGIN + 6, 5)])
    events = pd.read_parquet(path)
    events[events.index != 5].to_parquet(path)
    assert commits.course(path, BEGIN, END, 1)[0]["commit_mean_blocks"] == 3
