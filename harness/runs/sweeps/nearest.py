"""Which machines come nearest to all published numbers: approximate Bayesian computation.

Machines are drawn from the prior, the unknowns' ranges; those whose results are nearest to what was
observed stand for the posterior (Pritchard et al., 1999), moved to where they would be if theirs
were the same (local linear regression: Beaumont, Zhang and Balding, 2002). What was held back is in
no distance; it judges what the other claims have chosen, as each claim does that is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from harness.errors import BadParameter
from harness.runs.claims import Claim
from harness.runs.sweeps.recorded import Recorded, wilson, with_chance_of_any

Floats = NDArray[np.float64]

_EDGE: Final = 1e-3
_OPEN: Final = 0.1
_SAME: Final = 0.9
_FEWEST: Final = 5
_SEED: Final = 1
NEAREST_RATIO: Final = 0.1
"""Of the machines: so many are called near."""


@dataclass(frozen=True)
class Posterior:
    """Accepted machines: `indices` int64 (n,) into the sample, `shares` float64 (n, unknowns), 0 to
    1, after the regression, and their `weights` (n,), which add up to 1.

    An interval says where one machine more lies. Of n draws and it, it is the lowest as often as
    each other: beyond the outermost draws, up to the range's ends, lies 1 of n + 1 (n: Kish's
    effective number, for draws that have weights).
    """

    indices: NDArray[np.int64]
    shares: Floats
    weights: Floats

    def interval(self, ratio: float = 0.9) -> Floats:
        """Lowest and highest of each unknown: float64 (unknowns, 2), by weighted quantiles."""
        tails = ((1 - ratio) / 2, (1 + ratio) / 2)
        return np.array([[self._quantile(column, t) for t in tails] for column in self.shares.T])

    def _quantile(self, column: Floats, below: float) -> float:
        order = np.argsort(column, kind="stable")
        middles = np.cumsum(self.weights[order]) - self.weights[order] / 2
        count = _effective(self.weights)
        reached = np.concatenate([[0.0], (count * middles + 0.5) / (count + 1), [1.0]])
        return float(np.interp(below, reached, np.concatenate([[0.0], column[order], [1.0]])))


def posterior(
    shares: Floats, results: Floats, observed: Floats, accept_ratio: float = NEAREST_RATIO
) -> Posterior:
    """What is left of the unknowns: `shares` float64 (machines, unknowns), 0 to 1; `results`
    (machines, numbers), in any units; `observed` (numbers,). Raises BadParameter for too few.
    """
    count = max(round(len(shares) * accept_ratio), _FEWEST)
    if len(shares) < 2 * count:
        raise BadParameter(f"{len(shares)} machines: too few to choose {count} from")
    scaled, target = _scaled(results, observed)
    away = np.sqrt(((scaled - target) ** 2).mean(axis=1))
    order = np.argsort(away, kind="stable")
    indices, width = order[:count], max(float(away[order[count]]), 1e-12)
    weights = np.maximum(1 - (away[indices] / width) ** 2, 1e-6)  # Epanechnikov's
    weights /= weights.sum()
    moved = _moved(shares[indices], scaled[indices] - target, weights)
    return Posterior(indices.astype(np.int64), moved, weights)


def _scaled(results: Floats, observed: Floats) -> tuple[Floats, Floats]:
    """In units of each number's median absolute deviation."""
    deviation = scipy.stats.median_abs_deviation(results, axis=0)
    spread = np.where(deviation > 0, deviation, np.ptp(results, axis=0))
    spread = np.where(spread > 0, spread, 1.0)
    return results / spread, observed / spread


def _moved(shares: Floats, away: Floats, weights: Floats) -> Floats:
    """To where they would be with the observed results, on a scale that none can leave."""
    inside = np.clip(shares, _EDGE, 1 - _EDGE)
    free = np.log(inside / (1 - inside))
    if len(shares) <= away.shape[1] + 2:
        return inside
    root = np.sqrt(weights)[:, None]
    design = np.column_stack([np.ones(len(away)), away])
    smoother = np.linalg.pinv(design * root) * root.T
    slopes = smoother @ free
    corrected = free - away @ slopes[1:]
    # What was fitted to few lies too near to the fit, and the fit itself is not known better than
    # they say: a new machine's variance is the residuals', by their degrees of freedom, and its.
    middle, effective = weights @ corrected, _effective(weights)
    freedom = max(effective - design.shape[1], 1.0)
    wider = np.sqrt(effective / freedom * (1 + (smoother[0] ** 2).sum()))
    moved: Floats = 1 / (1 + np.exp(-(middle + wider * (corrected - middle))))
    return moved


def _effective(weights: Floats) -> float:
    """To how many equal ones weights that add up to 1 amount (Kish)."""
    return 1 / float((weights**2).sum())


def planted(recorded: Recorded, names: Sequence[str], trials: int = 100) -> pd.DataFrame:
    """How well the method finds a machine again whose results it is given, of these claims' values.

    Each of the first `trials` drawn machines in turn is the one to be found, by all others. A
    row per trial and unknown: `machine`, `unknown`, `planted` (its place in the range, 0 to 1),
    `lowest` and `highest` of the posterior's 90 % interval, `found`: whether it lies there, or a
    choice's part of the range does in part.
    """
    there = recorded.shares.reindex(recorded.drawn)
    results = recorded.by_claim[list(names)].reindex(recorded.drawn).to_numpy(dtype=np.float64)
    shares = there.to_numpy(dtype=np.float64)
    if not np.isfinite(results).all():
        raise BadParameter("a claim has no finite value on some machines: choose others")
    rows = []
    for trial in range(min(trials, len(shares))):
        others = np.arange(len(shares)) != trial
        interval = posterior(shares[others], results[others], results[trial]).interval()
        for unknown, place, (low, high) in zip(there.columns, shares[trial], interval, strict=True):
            choices = recorded.unknowns.unknowns[unknown].choices
            part = 1 / len(choices) if choices else 0.0
            rows.append(
                {
                    "machine": int(there.index[trial]),
                    "unknown": unknown,
                    "planted": place,
                    "lowest": low,
                    "highest": high,
                    "found": bool(low <= place + part / 2 and high >= place - part / 2),
                }
            )
    return pd.DataFrame(rows)


def gaps(recorded: Recorded, names: Sequence[str]) -> pd.DataFrame:
    """How far each machine is outside of claims' ranges, 0 inside: the logarithm of 1 and more, in
    what machines differ by (median absolute deviation), or in what the claim itself is as wide as,
    if that is more: of numbers that hardly differ any other would else be infinitely far. Index and
    columns as `by_claim`.
    """
    return pd.DataFrame({n: _gap(recorded.claims[n], recorded.by_claim[n]) for n in names})


def _gap(claim: Claim, values: pd.Series) -> pd.Series:
    low, high = claim.expected
    outside = (low - values).clip(lower=0) + (values - high).clip(lower=0)
    differ = float(scipy.stats.median_abs_deviation(values[np.isfinite(values)]))
    unit = max(differ, _width(claim)) or 1.0
    return pd.Series(np.log1p(outside / unit), index=values.index)


def _width(claim: Claim) -> float:
    """Of the range that is expected; of one that is open, a tenth of its end."""
    ends = [abs(end) for end in claim.expected if np.isfinite(end)]
    return claim.expected[1] - claim.expected[0] if len(ends) > 1 else _OPEN * sum(ends)


def used(recorded: Recorded) -> list[str]:
    """Claims that may choose machines: judged on all of them, and not held back."""
    return [name for name in recorded.judged if name not in recorded.unknowns.held_back]


def ranked(recorded: Recorded, names: Sequence[str] | None = None) -> pd.DataFrame:
    """All drawn machines, the nearest first: `machine`, `distance`, in how many of these claims
    it is inside (`inside`, of `of`), and its values. Raises BadParameter for a claim held back.
    """
    chosen = list(used(recorded) if names is None else names)
    if back := set(chosen) & set(recorded.unknowns.held_back):
        raise BadParameter(f"{min(back)} was held back: no machine is chosen by it")
    away = gaps(recorded, chosen).reindex(recorded.drawn)
    table = recorded.sample[list(recorded.unknowns.unknowns)].copy()
    table.insert(0, "of", len(chosen))
    table.insert(0, "inside", (away == 0).sum(axis=1))
    table.insert(0, "distance", np.sqrt((away**2).mean(axis=1)))
    return table.sort_values(
        ["distance", "inside"], ascending=[True, False], kind="stable"
    ).reset_index()


def near(recorded: Recorded, names: Sequence[str] | None = None) -> NDArray[np.int64]:
    """Numbers of the nearest tenth, at least five: int64."""
    table = ranked(recorded, names)
    count = max(round(len(table) * NEAREST_RATIO), min(_FEWEST, len(table)))
    numbers: NDArray[np.int64] = table.machine.to_numpy(dtype=np.int64)
    return numbers[:count]


def left_out(recorded: Recorded) -> pd.DataFrame:
    """Whether the machines that the other claims choose are better at one that has not chosen them.

    A row per claim that is judged: `claim`, `held_back`, its `share_ratio` among all machines, and
    among the nearest by all others (`near_ratio`, of `near` machines, with its 95 % interval,
    `near_lowest_ratio` to `near_highest_ratio`, Wilson); `chance`: how likely they differ so much
    from the others if they were chosen by lot (Fisher's exact test), and `chance_of_any`: that any
    of the claims looks so by chance (at most; Bonferroni). A claim whose numbers go with its own
    over the machines (Spearman's correlation above 0.9) is it once more, and does not choose
    either: `same` says which.
    """
    chosen, rows = used(recorded), []
    together = recorded.by_claim[recorded.judged].corr("spearman").abs()
    for name in recorded.judged:
        same = [n for n in chosen if n != name and together.at[n, name] > _SAME]
        others = [other for other in chosen if other not in (name, *same)]
        if not others:  # nothing is left that could choose machines
            continue
        numbers = near(recorded, others)
        there = recorded.holds[name].reindex(recorded.drawn)
        is_near = there.index.isin(numbers)
        holds, rest = there[is_near], there[~is_near]
        low, high = wilson(int(holds.sum()), len(holds))
        counts = [[int((part == held).sum()) for part in (holds, rest)] for held in (0, 1)]
        rows.append(
            {
                "claim": name,
                "held_back": name in recorded.unknowns.held_back,
                "share_ratio": float(there.mean()),
                "near_ratio": float(holds.mean()),
                "near_lowest_ratio": low,
                "near_highest_ratio": high,
                "near": len(numbers),
                "chance": float(scipy.stats.fisher_exact(counts).pvalue),
                "same": " ".join(same),
            }
        )
    columns = ["claim", "held_back", "share_ratio", "near_ratio", "near_lowest_ratio"]
    columns += ["near_highest_ratio", "near", "chance", "same"]
    return with_chance_of_any(pd.DataFrame(rows, columns=columns), len(rows), "same")


def in_common(recorded: Recorded) -> pd.DataFrame:
    """What the nearest machines have in common: a row per unknown, the clearest first.

    `unknown`, `nearest` and `rest` (median of a range, most frequent choice), `chance`: how likely
    two sets are so different if the unknown does not matter (of ranges Kolmogorov and Smirnov's
    test, of choices chi-squared of the counts, by permutations), and `chance_of_any`: that any of
    the unknowns looks so by chance (at most; Bonferroni).
    """
    is_near = recorded.sample.index.isin(near(recorded))
    rows = []
    for name, unknown in recorded.unknowns.unknowns.items():
        column, choices = recorded.sample[name], bool(unknown.choices)
        places = recorded.shares[name].reindex(recorded.drawn).to_numpy()
        chance = (
            _chance_of_counts(pd.crosstab(is_near, column))
            if choices
            else float(scipy.stats.ks_2samp(places[is_near], places[~is_near]).pvalue)
        )
        rows.append(
            {
                "unknown": name,
                "nearest": _middle(column[is_near], choices=choices),
                "rest": _middle(column[~is_near], choices=choices),
                "chance": chance,
                "chance_of_any": min(chance * len(recorded.unknowns.unknowns), 1.0),
            }
        )
    return pd.DataFrame(rows).sort_values("chance", kind="stable", ignore_index=True)


def _chance_of_counts(counts: pd.DataFrame) -> float:
    """That rows have counts so different in proportion; few counts need the permutations."""
    if counts.shape[1] < 2:
        return 1.0
    method = scipy.stats.PermutationMethod(rng=np.random.default_rng(_SEED))
    return float(scipy.stats.chi2_contingency(counts, correction=False, method=method).pvalue)


def _middle(column: pd.Series, *, choices: bool) -> str:
    return str(column.mode().iloc[0] if choices else f"{column.median():.4g}")
