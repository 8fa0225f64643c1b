"""Which unknown decides a claim's number: shares of its variance, with intervals (SALib).

Of a claim's numbers the ranks are taken: a ratio over next to nothing would else be all of the
variance. A sample that fills the space gives first-order effects, what an unknown does alone, by
random balance designs (Tarantola, Gatelli and Mara, 2006; EASI: Plischke, 2010); a design for total
effects gives first and total ones, with what it does together with others (Saltelli et al., 2010).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray
from SALib.analyze import rbd_fast, sobol

from harness.runs.sweeps.recorded import Recorded

NOTHING: Final = "(nothing)"
"""An unknown that nobody has: what the method finds of it, it finds by chance."""

_SEED: Final = 1
_FEWEST: Final = 24
_RESAMPLES: Final = 60
_HARMONICS: Final = (3, 10)
_MACHINES_PER_HARMONIC: Final = 16


@lru_cache(maxsize=512)
def of_claim(recorded: Recorded, claim: str) -> pd.DataFrame:
    """A row per unknown, the strongest first: `unknown`, `first_ratio` and `total_ratio` of the
    variance, with half of their 95 % intervals (`first_half_width`, `total_half_width`).

    Without a design for total effects `total_ratio` is NaN, and among the unknowns is NOTHING.
    Empty if the machines are too few, or the number is the same on all.
    """
    of_totals = recorded.about["design"] == "totals"
    table = (_total if of_totals else _given)(recorded, claim)
    columns = ["unknown", "first_ratio", "first_half_width", "total_ratio", "total_half_width"]
    frame = pd.DataFrame(table, columns=columns)
    by = "total_ratio" if of_totals else "first_ratio"
    return frame.sort_values(by, ascending=False, kind="stable", ignore_index=True)


def deciding(recorded: Recorded, claim: str) -> list[str]:
    """The unknowns that decide: those whose interval is above what chance gives."""
    table = of_claim(recorded, claim)
    chance = table[table.unknown == NOTHING]
    above = (chance.first_ratio + chance.first_half_width).max() if len(chance) else 0.0
    first = table.first_ratio - table.first_half_width
    total = table.total_ratio - table.total_half_width
    clear = table[total.fillna(first) > max(float(above), 0.0)]
    return [str(name) for name in clear.unknown]


def _given(recorded: Recorded, claim: str) -> list[dict[str, Any]]:
    values = recorded.by_claim[claim].dropna()
    if len(values) < _FEWEST or values.nunique() < 2:
        return []
    shares = recorded.shares.loc[values.index]
    chance = np.random.default_rng(_SEED).random(len(values))
    names = [*shares.columns, NOTHING]
    found = rbd_fast.analyze(
        _problem(names),
        np.column_stack([shares.to_numpy(), chance]),
        _ranks(values.to_numpy()),
        M=int(np.clip(len(values) // _MACHINES_PER_HARMONIC, *_HARMONICS)),
        num_resamples=_RESAMPLES,
        seed=_SEED,
    )
    return _rows(names, found)


def _total(recorded: Recorded, claim: str) -> list[dict[str, Any]]:
    """Of whole blocks: one machine that was refused takes its block with it."""
    names = list(recorded.unknowns.unknowns)
    size = len(names) + 2
    blocks = int(recorded.machines.machine.max()) // size
    numbers = np.arange(1, blocks * size + 1)
    table = recorded.by_claim[claim].reindex(numbers).to_numpy().reshape(blocks, size)
    whole = table[np.isfinite(table).all(axis=1)]
    if whole.size < _FEWEST or len(whole) < 2 or np.ptp(whole) == 0:
        return []
    found = sobol.analyze(
        _problem(names),
        _ranks(whole.ravel()),
        calc_second_order=False,
        num_resamples=_RESAMPLES,
        seed=_SEED,
    )
    return _rows(names, found)


def _problem(names: list[str]) -> dict[str, Any]:
    return {"num_vars": len(names), "names": names, "bounds": [[0.0, 1.0]] * len(names)}


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(scipy.stats.rankdata(values), dtype=np.float64)


def _rows(names: list[str], found: Any) -> list[dict[str, Any]]:
    unasked = [float("nan")] * len(names)
    return [
        {
            "unknown": name,
            "first_ratio": float(found["S1"][number]),
            "first_half_width": float(found["S1_conf"][number]),
            "total_ratio": float(found.get("ST", unasked)[number]),
            "total_half_width": float(found.get("ST_conf", unasked)[number]),
        }
        for number, name in enumerate(names)
    ]
