"""Can a claim fail? What its metric reads is changed within reason, and the claim is judged again.

A number of the results is wrong by half, or a quarter, in one part of the grid: a device, a mode,
a repetition. A claim whose verdict no such change can change says nothing, and counts nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, combinations, product
from typing import Any, Final

import numpy as np
import pandas as pd

from harness import experiments
from harness.experiments.base import Cell, Results
from harness.paths import Project
from harness.runs import claims

GROSS: Final = (0.5, 1.5)
MILD: Final = (0.75, 1.25, 0.9, 1.1)
"""How wrong a number may reasonably be."""

_MOST_VALUES: Final = 24
"""Of a parameter: one with more is no name for a part of the grid."""


@dataclass(frozen=True)
class Mutation:
    """A metric or series times `factor`, in the points of which `part` says some parameters.

    `number`: of a series, only its first quarter (0) or its last (-1), one entry or more; None:
    all. `factor` None: what is counted and was never met has been met once.
    """

    name: str
    part: Mapping[str, Any]
    factor: float | None
    number: int | None = None

    def __str__(self) -> str:
        """'waf_ratio x 0.75 where mode = dj', or 'lost_blocks 1 for 0'."""
        said = ", ".join(f"{name} = {value}" for name, value in self.part.items())
        where = f" where {said}" if said else ""
        which = {None: "", 0: " at the beginning", -1: " at the end"}[self.number]
        how = "1 for 0" if self.factor is None else f"x {self.factor:g}"
        return f"{self.name} {how}{which}{where}"

    def of(self, results: Results) -> Results:
        """The results with this changed."""
        table = results.table
        rows = _rows(table, self.part)
        if self.name in table:
            changed = table.astype({self.name: float})
            changed.loc[rows, self.name] = self._wrong(changed.loc[rows, self.name])
            return replace(results, table=changed)
        points = set(table.loc[rows, "point"])
        series = {
            point: self._changed(own) if point in points and self.name in own else own
            for point, own in results.series.items()
        }
        return replace(results, series=series)

    def _changed(self, own: Any) -> Any:
        values = np.array(own[self.name], dtype=float)
        quarter = max(len(values) // 4, 1)
        which = {None: slice(None), 0: slice(quarter), -1: slice(-quarter, None)}[self.number]
        values[which] = self._wrong(values[which])
        return {**own, self.name: values.tolist()}

    def _wrong(self, values: Any) -> Any:
        return np.where(values == 0, 1, values) if self.factor is None else values * self.factor


def can_fail(project: Project, experiment: str, results: Results) -> pd.DataFrame:
    """One row per claim: id, verdict, `reads` (what its value depends on), `changes` (a mutation
    that changes the verdict; empty: none does), `counts` (whether it is in the count).
    """
    all_claims = {claim.id: claim for claim in claims.load(project)[experiment].claims}
    with claims.Judge(project, experiment, results) as judge:
        before = {name: _Judged(claim, judge) for name, claim in all_claims.items()}
        reads = _reads(judge, experiment, results, before)
        parts = list(_parts(experiment, results))
        # One that is not judged stays so, and would have everything tried.
        judged = {n: each for n, each in before.items() if each.verdict != claims.NOT_JUDGED}
        names = set().union(*(reads[n] for n in judged))
        # Of all pairs, also of parts that change no value alone: in a double ratio two may cancel.
        for mutation in chain(
            _of_parts([{}, *parts], results, names), _of_pairs(parts, results, names)
        ):
            waiting = [each for n, each in judged.items() if mutation.name in reads[n]]
            _try(mutation, [each for each in waiting if not each.change], results, judge)
    rows = [(name, each.verdict, sorted(reads[name]), each.change) for name, each in before.items()]
    found = pd.DataFrame(rows, columns=["id", "verdict", "reads", "changes"])
    return found.assign(counts=found.verdict.isin(claims.COULD_FAIL))


class _Judged:
    """A claim as the results say it, before anything is changed.

    `change`: the first mutation that changed its verdict.
    """

    def __init__(self, claim: claims.Claim, judge: claims.Judge) -> None:
        self._claim = claim.model_copy(update={"fitted": False})  # is it in its range all the same?
        self.value = judge.value(claim, claims.BASE, None)
        repeated = judge.repeated(claim)
        self.verdict = claim.verdict(self.value, repeated)
        self._open = self._claim.verdict(self.value, repeated)
        self._alone = self._claim.verdict(self.value)
        self.change = ""

    def look(self, mutation: Mutation, judge: claims.Judge) -> None:
        """After a mutation. Repetitions are asked only if the mean says another verdict."""
        value = judge.value(self._claim, claims.BASE, None)
        if self._claim.verdict(value) != self._alone:
            verdict = self._claim.verdict(value, judge.repeated(self._claim))
            self.change = str(mutation) if verdict != self._open else ""

    def is_other(self, judge: claims.Judge) -> bool:
        """Whether the value is another."""
        return _differs(self.value, judge.value(self._claim, claims.BASE, None))


def _reads(
    judge: claims.Judge, experiment: str, results: Results, before: Mapping[str, _Judged]
) -> dict[str, set[str]]:
    """Of each claim, the metrics and series without which it has another value."""
    found: dict[str, set[str]] = {name: set() for name in before}
    for name in _measured(experiment, results):
        judge.turn_to(_scattered(results, name))
        for claim, each in before.items():
            if each.is_other(judge):
                found[claim].add(name)
    return found


def _differs(one: Any, two: Any) -> bool:
    return bool(pd.isna(one) != pd.isna(two) or (pd.notna(one) and one != two))


def _scattered(results: Results, name: str) -> Results:
    """Every number of a metric or series wrong by a factor of its own."""
    chance = np.random.default_rng(1)
    table = results.table
    if name in table:
        wrong = table[name].astype(float) * chance.uniform(0.5, 1.5, len(table))
        if _is_count(table[name]):
            wrong[table[name] == 0] = chance.integers(1, 9, int((table[name] == 0).sum()))
        return replace(results, table=table.assign(**{name: wrong}))
    series = {}
    for point, own in results.series.items():
        values = np.array(own.get(name, []), dtype=float)
        scattered = (values * chance.uniform(0.5, 1.5, len(values))).tolist()
        series[point] = {**own, name: scattered} if name in own else own
    return replace(results, series=series)


def _try(
    mutation: Mutation, waiting: Sequence[_Judged], results: Results, judge: claims.Judge
) -> None:
    if waiting:
        judge.turn_to(mutation.of(results))
        for each in waiting:
            each.look(mutation, judge)


def _of_parts(
    parts: Sequence[Mapping[str, Any]], results: Results, names: Collection[str]
) -> Iterator[Mutation]:
    """Of these metrics and series in these parts of the grid: the grossest first."""
    for factors in (GROSS, MILD):
        for part, factor, name in product(parts, factors, sorted(names)):
            is_series = name not in results.table
            for number in (None, 0, -1) if is_series else (None,):
                yield Mutation(name, part, factor, number)
    for part, name in product(parts, sorted(set(results.table) & set(names))):
        if _is_count(results.table[name]):
            yield Mutation(name, part, None)


def _of_pairs(
    parts: Sequence[Mapping[str, Any]], results: Results, names: Collection[str]
) -> Iterator[Mutation]:
    """The same in what two parts have in common, but where that is nothing, or has been tried."""
    tried = {_rows(results.table, part).to_numpy().tobytes() for part in ({}, *parts)}
    pairs = []
    for one, two in combinations(parts, 2):
        rows = _rows(results.table, {**one, **two}).to_numpy()
        if one.keys() & two.keys() or not rows.any() or rows.tobytes() in tried:
            continue
        tried.add(rows.tobytes())
        pairs.append({**one, **two})
    return _of_parts(pairs, results, names)


def _rows(table: pd.DataFrame, part: Mapping[str, Any]) -> pd.Series:
    """Which rows are of a part of the grid."""
    rows = pd.Series(True, index=table.index)
    for name, value in part.items():
        rows &= table[name] == value
    return rows


def _parts(experiment: str, results: Results) -> Iterator[dict[str, Any]]:
    """Of the grid of the paper: by one parameter's value."""
    table = results.table
    base = table[table.variant == claims.BASE] if "variant" in table else table
    for name in _parameters(experiment, results):
        values = base[name].dropna().unique()
        if 1 < len(values) <= _MOST_VALUES:
            yield from ({name: value} for value in values)


def _is_count(values: pd.Series) -> bool:
    """Of things that were not met everywhere."""
    return bool((values == 0).any() and (values.dropna() % 1 == 0).all())


def _measured(experiment: str, results: Results) -> list[str]:
    """Names of metrics that are numbers, and of series."""
    parameters = set(_parameters(experiment, results)) | {"point"}
    numbers = results.table.select_dtypes("number").columns
    series = {name for own in results.series.values() for name in own}
    return [*(name for name in numbers if name not in parameters), *sorted(series)]


def _parameters(experiment: str, results: Results) -> list[str]:
    """Columns that say what a point is: fields of the study's cells."""
    package = type(experiments.find(experiment)).__module__
    kinds = [kind for kind in _below(Cell) if kind.__module__.startswith(package)]
    names = {each.name for kind in kinds for each in fields(kind)}
    return [name for name in results.table if name in names]


def _below(kind: type[Cell]) -> Iterator[type[Cell]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)
