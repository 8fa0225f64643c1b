"""Of each claim: in how many of the plausible machines it holds, what decides, what excludes it."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Final

import pandas as pd
import scipy

from harness.runs.sweeps import sensitivity
from harness.runs.sweeps.recorded import Recorded, side, wilson, with_chance_of_any

ROBUST: Final = "robust"
FRAGILE: Final = "fragile"
OUT_OF_REACH: Final = "out of reach"
NOT_REACHED: Final = "not reached"
"""On none of the machines, which are too few to say more, or most cannot be asked."""
UNDECIDED: Final = "undecided"
"""On so many of too few machines that it may be robust, or most cannot be asked."""
NOT_JUDGED: Final = "not judged"
ANOTHER_SCALE: Final = "of another scale"
"""The default machine says something else at a larger scale: nothing of the machines' own."""

_ROBUST_RATIO: Final = 0.8
_ASKED_RATIO: Final = 0.5
_OUT_OF_REACH_RATIO: Final = 0.05
_DECIDING: Final = 2


def shares(recorded: Recorded) -> pd.DataFrame:
    """A row per claim: `machines` that have a value, of so many (`of`) that were drawn, `holds`,
    `share_ratio` with its 95 % interval `lowest_ratio` to `highest_ratio` (Wilson), the default
    machine's `default_value` and `default_holds` (None: it has none), its `larger_value` at the
    larger scale (`at_larger`), whether that is on another side of the range (`another_scale`),
    `fitted` and `held_back`.

    An evenly spread sample's share is nearer to the truth than a random one's: the interval is on
    the safe side.
    """
    rows = []
    for name, claim in recorded.claims.items():
        column = recorded.holds[name].reindex(recorded.drawn).dropna()
        count, total = int(column.sum()), len(column)
        low, high = wilson(count, total)
        value = recorded.default.get(name)
        rows.append(
            {
                "claim": name,
                "place": claim.place,
                "machines": total,
                "of": len(recorded.drawn),
                "holds": count,
                "share_ratio": count / total if total else float("nan"),
                "lowest_ratio": low,
                "highest_ratio": high,
                "default_value": value,
                "default_holds": None if value is None else side(claim, value) == 0,
                "larger_value": recorded.larger.get(name),
                "at_larger": recorded.at_larger,
                "another_scale": name in recorded.of_another_scale,
                "fitted": claim.fitted,
                "held_back": name in recorded.unknowns.held_back,
            }
        )
    return pd.DataFrame(rows)


def verdict(share: pd.Series) -> str:
    """Of a row of `shares`: robust, undecided, fragile, not reached, out of reach, not judged, of
    another scale.
    """
    if not share.machines:
        return NOT_JUDGED
    if share.another_scale:
        return ANOTHER_SCALE
    is_asked = share.machines >= _ASKED_RATIO * share.of
    if not share.holds:
        is_far = share.highest_ratio <= _OUT_OF_REACH_RATIO
        return OUT_OF_REACH if is_far and is_asked else NOT_REACHED
    if share.lowest_ratio >= _ROBUST_RATIO:
        return ROBUST if is_asked else UNDECIDED
    return FRAGILE if share.highest_ratio < _ROBUST_RATIO else UNDECIDED


def lines(recorded: Recorded) -> pd.DataFrame:
    """A row per claim: `claim`, `verdict`, and `line`, which says it with numbers and reasons."""
    table = shares(recorded)
    rows = []
    for _, share in table.iterrows():
        found = verdict(share)
        on = (
            sensitivity.deciding(recorded, str(share.claim))[:_DECIDING] if found == FRAGILE else []
        )
        rows.append({"claim": share.claim, "verdict": found, "line": _line(share, found, on)})
    return pd.DataFrame(rows)


def _line(share: pd.Series, found: str, on: list[str]) -> str:
    if found in (NOT_JUDGED, ANOTHER_SCALE):
        return f"{found}: {_why_not(share, found)}"
    if not share.holds:
        most = _percent(share.highest_ratio)
        return f"{found}: in none of {share.machines} machines (at most {most})"
    asked = f" that can be asked, of {share.of} in all" if share.machines < share.of else ""
    where = (
        f"in {_percent(share.share_ratio)} ({_percent(share.lowest_ratio)} to "
        f"{_percent(share.highest_ratio)}) of {share.machines} machines{asked}"
    )
    if found in (ROBUST, UNDECIDED):
        return f"{found}: holds {where}"
    what = " and ".join(on) if on else "none of the unknowns alone, as far as can be seen"
    return f"fragile: holds {where}; its number follows {what}"


def _why_not(share: pd.Series, found: str) -> str:
    """Why the machines say nothing of a claim."""
    larger = None if pd.isna(share.larger_value) else f"{share.larger_value:.4g} {share.at_larger}"
    if found == NOT_JUDGED:
        why = "the points or the scale that it needs are not in this sweep"
        return why if larger is None else f"{why}; on the default machine {larger}"
    if larger is None:
        return "the default machine of the time said something else at a larger one"
    return (
        f"on the default machine {share.default_value:.4g} here, {larger}, on another side of the "
        "claim's bounds"
    )


def _percent(ratio: float) -> str:
    return f"{ratio:.0%}"


def exclusions(recorded: Recorded) -> pd.DataFrame:
    """Pairs of claims that each hold somewhere, and nowhere both: a row per pair. Claims of another
    scale are in none.

    `first`, `second`, in how many machines each holds, `expected`: in how many both would, if they
    knew nothing of each other; `chance`: how likely none is then (Fisher's exact test, one-sided);
    `chance_of_any`: at most how likely that is of any of the pairs that were looked at, those of
    two claims that each hold somewhere (Bonferroni); `highest_ratio`: the share that both may have
    all the same (95 %, Wilson). The most surprising first.
    """
    own = recorded.holds.drop(columns=recorded.of_another_scale)
    there = own.reindex(recorded.drawn)
    looked_at = 0
    rows = []
    for first, second in combinations(there.columns, 2):
        both = there[[first, second]].dropna()
        a, b = both[first] > 0, both[second] > 0
        if not a.any() or not b.any():
            continue
        looked_at += 1
        if (a & b).any():
            continue
        counts = [[0, int(a.sum())], [int(b.sum()), int((~a & ~b).sum())]]
        rows.append(
            {
                "first": first,
                "second": second,
                "machines": len(both),
                "first_holds": int(a.sum()),
                "second_holds": int(b.sum()),
                "expected": float(a.mean() * b.mean() * len(both)),
                "chance": float(scipy.stats.fisher_exact(counts, alternative="less").pvalue),
                "highest_ratio": wilson(0, len(both))[1],
            }
        )
    columns = ["first", "second", "machines", "first_holds", "second_holds", "expected"]
    frame = pd.DataFrame(rows, columns=[*columns, "chance", "highest_ratio"])
    frame = with_chance_of_any(frame, looked_at, "highest_ratio")
    return frame.sort_values(["chance", "first", "second"], ignore_index=True)


def map_of(recorded: Recorded, claim: str, across: str, up: str, parts: int = 3) -> pd.DataFrame:
    """Where a claim holds over two unknowns: a row per field with machines.

    Ranges are cut into `parts`, of equal likelihood, choices stay. Columns: `across`, `up` (as
    texts), `machines`, `holds`, `share_ratio`.
    """
    column = recorded.holds[claim].reindex(recorded.drawn).dropna()
    fields = pd.DataFrame(
        {
            place: _fields(recorded, name, parts).reindex(column.index)
            for place, name in (("across", across), ("up", up))
        }
    ).assign(held=column)
    grouped = fields.groupby(["across", "up"], sort=False, observed=True).held
    table = grouped.agg(machines="size", holds="sum").reset_index()
    return table.assign(holds=table.holds.astype(int), share_ratio=table.holds / table.machines)


def _fields(recorded: Recorded, name: str, parts: int) -> pd.Series:
    """The part of an unknown's range that each finished machine lies in, as an ordered text."""
    unknown = recorded.unknowns.unknowns[name]
    if unknown.choices:
        values = recorded.finished.set_index("machine")[name]
        return values.astype(pd.CategoricalDtype(list(unknown.choices), ordered=True))
    edges = [unknown.at(number / parts) for number in range(parts + 1)]
    texts = [f"{a:.4g} to {b:.4g}" for a, b in pairwise(edges)]
    inside = (recorded.shares[name] * parts).astype(int).clip(0, parts - 1)
    return inside.map(dict(enumerate(texts))).astype(pd.CategoricalDtype(texts, ordered=True))
