"""The paper's tables 3 to 8, as far as they are on file, and our numbers beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pandas as pd
import yaml

from harness.experiments.sort_merge_join.grid import BASE, Calibration
from harness.units import parse_bytes

TIMES: Final = ("elapsed_s", "sort_s", "join_s")
_KEY: Final = ["device", "clients", "work_mem_mb"]
_LEAST_RATIO: Final = 0.9
"""To the paper's size: from here on claims lay times beside its tables (claims.yaml)."""


def cells(published: Path) -> pd.DataFrame:
    """One row per published cell: device, clients, work_mem_mb, then what the tables say.

    elapsed_s, sort_s, join_s in seconds, join_utilisation_percent; and `use`: open, or withheld:
    held back until a model had predicted it, and never to be read by a fit. `published` is the
    folder data/published.
    """
    return pd.read_csv(published / "sort_merge_join.csv")


def for_fits(published: Path) -> pd.DataFrame:
    """The cells that a fit may choose from: none that was withheld."""
    return cells(published).query("use != 'withheld'").drop(columns="use")


def calibration(params: Path) -> Calibration:
    """Which cells the fit may see, as params.yaml (at that path) declares it."""
    everything = yaml.safe_load(params.read_text(encoding="utf-8"))
    simulated = everything["sort_merge_join"]["simulated"]["parameters"]
    return Calibration.model_validate(simulated.get("calibration", {}))


def has_paper_size(table: pd.DataFrame) -> pd.Series[bool]:
    """Of each row, whether its times may lie beside the paper's."""
    return table.size_ratio_to_paper > _LEAST_RATIO


def beside(table: pd.DataFrame, published: Path, seen: Calibration) -> pd.DataFrame:
    """Our cells with the paper's beside them, where they are on file and ours are of its size.

    `table` has one row per point. For each time NAME there are NAME, NAME_paper and NAME_error
    (ours over the paper's, less 1); `fitted` says whether the fit has `seen` the cell, `use` what
    the cell is: fitted, held out, withheld, or nothing where none is on file.
    """
    ours = table[table.variant == BASE].assign(
        work_mem_mb=lambda t: t.nominal_work_mem_bytes // (1 << 20), comparable=has_paper_size
    )
    told = [name for name in ("sort_utilisation_ratio", "join_utilisation_ratio") if name in table]
    wanted = [*TIMES, *told]
    key = [*_KEY, "comparable"]
    ours = ours.groupby(key, as_index=False)[wanted].mean()
    theirs = cells(published).assign(comparable=True)
    both = ours.merge(theirs, on=key, how="left", suffixes=("", "_paper"))
    both = both.drop(columns="comparable")
    for name in TIMES:
        both[f"{name}_error"] = both[name] / both[f"{name}_paper"] - 1.0
    sizes = {parse_bytes(size) >> 20 for size in seen.work_mems}
    both["fitted"] = (
        both.clients.isin(seen.clients) & both.work_mem_mb.isin(sizes) & (both.use == "open")
    )
    names = {"open": "held out", "withheld": "withheld"}
    both["use"] = both.use.map(names).fillna("").mask(both.fitted, "fitted")
    return both
