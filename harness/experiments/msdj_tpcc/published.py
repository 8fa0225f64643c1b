"""The paper's numbers, as far as they are on file."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

_JOURNALS = ("small", "large")


def numbers(published: Path) -> pd.DataFrame:
    """place, journal, mode, over, metric, value, use: one row per number.

    `journal`: small (128 MB) or large (5 GB). `over`: the mode that a gain is over. `use`: open,
    or withheld: held back until it was predicted. Nothing is fitted to any of them. `published` is
    the folder data/published.
    """
    return pd.read_csv(published / "msdj_tpcc.csv", keep_default_na=False)


def waf(published: Path) -> dict[tuple[str, str], float]:
    """Table 1 by journal and mode; cells that are not on file are not there."""
    cells = numbers(published).query("metric == 'waf_ratio'")
    return {(row.journal, row.mode): float(row.value) for row in cells.itertuples()}


def tpmc(published: Path) -> dict[tuple[str, str], float]:
    """TpmC by journal and mode, as the gains say: none is on file by itself.

    A gain of 7 % that is 1,100 puts DJ at 15,700.
    """
    table = numbers(published)
    found: dict[tuple[str, str], float] = {}
    for journal in _JOURNALS:
        gains = table[(table.journal == journal) & (table["mode"] == "msdj")]
        over = {(row.over, row.metric): float(row.value) for row in gains.itertuples()}
        if ("dj", "tpmc_gain") not in over:
            continue
        found[journal, "dj"] = over["dj", "tpmc_gain"] / over["dj", "tpmc_gain_ratio"]
        found[journal, "msdj"] = found[journal, "dj"] + over["dj", "tpmc_gain"]
        if ("oj_dwb", "tpmc_gain_ratio") in over:
            more = 1 + over["oj_dwb", "tpmc_gain_ratio"]
            found[journal, "oj_dwb"] = found[journal, "msdj"] / more
    return found


def journal_over_rest(published: Path) -> float:
    """Figure 1: accesses per LBA of the journal over those of the rest."""
    return float(numbers(published).set_index("metric").value["journal_over_rest_ratio"])
