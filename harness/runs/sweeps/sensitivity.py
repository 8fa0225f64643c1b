"""Which unknown decides a claim's number: shares of its variance, with intervals (SALib).

Of a claim's numbers the ranks are taken: a ratio over next to nothing would else be all of the
variance. A sample that fills the space gives first-order effects, what an unknown does alone, by
random balance designs (Tarantola, Gatelli and Mara, 2006; EASI: Plischke, 2010); a design for total
effects gives first and total ones, with what it does together with others (Saltelli et al., 2010).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import Any, Final

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray
from SALib.analyze import rbd_fast, sobol

from harness.runs.sweeps.recorded import Recorded

MATERIAL_RATIO: Final = 0.05
"""Of a twentieth of the variance and less nobody would say that it decides."""

_SEED: Final = 1
_FEWEST: Final = 24
_RESAMPLES: Final = 60
_HARMONICS: Final = (3, 10)
_MACHINES_PER_HARMONIC: Final = 16
_OF_HALF: Final = 0.5**0.5
"""SALib's resamples for RBD-FAST have half as many machines as there are: what m of n machines
deviate by is sqrt(n / m) times what n do.
"""
_TOGETHER: Final = 3.0
_LEAST_TOGETHER: Final = 0.1
_CHANCE_DRAWS: Final = 20_000
_CHANCE_LEVEL: Final = 0.99


@lru_cache(maxsize=512)
def of_claim(recorded: Recorded, claim: str) -> pd.DataFrame:
    """A row per unknown, the strongest first: `unknown`, `first_ratio` and `total_ratio` of the
    variance, with half of their 95 % intervals (`first_half_width`, `total_half_width`), and
    `chance_ratio`: what the first ratio of no unknown reaches by chance, but of one claim in 100.

    Without a design for total effects `total_ratio` is NaN, with one `chance_ratio` is. Empty if
    the machines are too few, or the number is the same on all.
    """
    of_totals = recorded.about["design"] == "totals"
    table = (_total if of_totals else _given)(recorded, claim)
    columns = ["unknown", "first_ratio", "first_half_width", "total_ratio", "total_half_width"]
    frame = pd.DataFrame(table, columns=[*columns, "chance_ratio"])
    by = "total_ratio" if of_totals else "first_ratio"
    return frame.sort_values(by, ascending=False, kind="stable", ignore_index=True)


def deciding(recorded: Recorded, claim: str) -> list[str]:
    """The unknowns that decide: those that make more of the variance than MATERIAL_RATIO, alone
    and more than chance gives, or in a design for total effects with others, by their interval.
    """
    table = of_claim(recorded, claim)
    alone = table.first_ratio > table.chance_ratio.clip(lower=MATERIAL_RATIO)
    with_others = table.total_ratio - table.total_half_width > MATERIAL_RATIO
    return [str(name) for name in table.unknown[alone | with_others]]


def entangled(recorded: Recorded) -> pd.DataFrame:
    """Pairs of unknowns whose places go together over the machines that were drawn: of one nobody
    can tell what the other does. An even sample of few machines has some by its pattern, and one of
    which the model refuses many by what it refuses.

    `first`, `second`, `correlation`: Pearson's of their places in the ranges, at least three times
    what unknowns that are drawn each by itself have (1 over the root of the machines' number), and
    at least 0.1; the largest first.
    """
    least = (
        max(_TOGETHER / len(recorded.drawn) ** 0.5, _LEAST_TOGETHER) if len(recorded.drawn) else 1.0
    )
    places = recorded.shares.reindex(recorded.drawn)
    together = places.loc[:, places.nunique() > 1].corr()
    rows = [
        {"first": first, "second": second, "correlation": float(together.at[first, second])}
        for first, second in combinations(together.columns, 2)
    ]
    frame = pd.DataFrame(rows, columns=["first", "second", "correlation"])
    frame = frame[frame.correlation.abs() >= least]
    return frame.sort_values(
        "correlation", key=lambda each: -each.abs(), kind="stable", ignore_index=True
    )


def _given(recorded: Recorded, claim: str) -> list[dict[str, Any]]:
    values = recorded.by_claim[claim].dropna()
    if len(values) < _FEWEST or values.nunique() < 2:
        return []
    shares = recorded.shares.loc[values.index]
    names = list(shares.columns)
    harmonics = int(np.clip(len(values) // _MACHINES_PER_HARMONIC, *_HARMONICS))
    found = rbd_fast.analyze(
        _problem(names),
        _unpatterned(shares.to_numpy()),
        _ranks(values.to_numpy()),
        M=harmonics,
        num_resamples=_RESAMPLES,
        seed=_SEED,
    )
    found["S1_conf"] = [_OF_HALF * each for each in found["S1_conf"]]
    return _rows(names, found, chance_ratio(len(values), harmonics, len(names)))


def _unpatterned(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks of each unknown's places, with ties, and the two of each pair of neighbours, in a
    random order: float64, as `shares` (machines, unknowns).

    RBD-FAST takes every other machine on its way up an unknown's range, and the rest on its way
    down. In a Sobol' sample every other machine is in the lower half of another unknown, whose
    doing would be this one's: of a product of two unknowns, which neither does alone, one would
    have three quarters.
    """
    random = np.random.default_rng(_SEED)
    found = np.empty_like(shares)
    for column, places in enumerate(shares.T):
        mixed = random.permutation(len(places))
        order = mixed[np.argsort(places[mixed], kind="stable")]
        pairs = order[: len(order) // 2 * 2].reshape(-1, 2)  # a view
        pairs[:] = random.permuted(pairs, axis=1)
        found[order, column] = np.arange(len(order))
    return found


@lru_cache(maxsize=64)
def chance_ratio(machines: int, harmonics: int, unknowns: int) -> float:
    """What the largest first ratio of so many unknowns that nobody has is below, in 99 of 100
    claims: seeded draws of one such unknown against ranks.

    99 %, as a sweep has up to 31 claims: of three sweeps in four none of theirs is decided by
    nothing.
    """
    random = np.random.default_rng(_SEED)
    ranks = np.arange(1.0, machines + 1)
    drawn = [
        rbd_fast.compute_first_order(
            rbd_fast.permute_outputs(random.random(machines), ranks), harmonics
        )
        for _ in range(_CHANCE_DRAWS)
    ]
    found = rbd_fast.unskew_S1(np.array(drawn), harmonics, machines)
    return float(np.quantile(found, _CHANCE_LEVEL ** (1 / unknowns)))


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


def _rows(names: list[str], found: Any, chance: float = float("nan")) -> list[dict[str, Any]]:
    unasked = [float("nan")] * len(names)
    return [
        {
            "unknown": name,
            "first_ratio": float(found["S1"][number]),
            "first_half_width": float(found["S1_conf"][number]),
            "total_ratio": float(found.get("ST", unasked)[number]),
            "total_half_width": float(found.get("ST_conf", unasked)[number]),
            "chance_ratio": chance,
        }
        for number, name in enumerate(names)
    ]
