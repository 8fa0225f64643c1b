"""Numbers out of results, asked in SQL: what claims measure, whatever is then said of it.

Apart from what verdicts are, as a recorded sweep's values stand as long as this asks the same.
"""

from __future__ import annotations

from typing import Final, Self

import duckdb
import pandas as pd
import pyarrow

from harness.experiments.base import Results
from harness.experiments.stands_for import as_roles

BASE: Final = "paper"
"""The variant in which nothing is varied."""

REPEATED: Final = "repetition_"
"""How series with an entry per repetition are called."""

TIMES: Final = "_time_s"
"""What a series of times ends with; those of its moments begin as it does."""


class Queries:
    """Queries of a relation over results, one database for all of them.

    `relation` is a SQL query over `results`, `repetitions` and `samples` (see `claims.Paper`), and
    over `published`, if that is not empty. Raises ValueError for results of several scales.
    """

    def __init__(self, relation: str, published: pd.DataFrame, results: Results) -> None:
        _check_one_scale(results)
        self._asks_of = relation
        self._published = published
        self._results = results

    def __enter__(self) -> Self:
        self._db = duckdb.connect()
        if not self._published.empty:
            self._db.register("published", self._published)
        self._show_series()
        self._show_table()
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    @property
    def tier(self) -> str:
        """Where the run that is asked was made."""
        return self._results.tier

    @property
    def scale(self) -> str:
        """How large the run was that is asked."""
        return self._results.scale

    def turn_to(self, results: Results) -> None:
        """From here on, queries over these; quick if their series are those from before."""
        before, self._results = self._results, results
        if results.series is not before.series:
            self._show_series()
        self._show_table()

    def _show_table(self) -> None:
        self._relations: dict[tuple[str, int | None], pyarrow.Table] = {}
        self._values: dict[tuple[str, str, int | None], float | None] = {}
        self._table = as_roles(self._results.table)
        if not self._table.empty:
            self._db.register("results", self._table)

    def _show_series(self) -> None:
        if not self._results.table.empty:
            self._db.register("repetitions", _repetitions(self._results))
            self._db.register("samples", _samples(self._results))

    @property
    def variants(self) -> list[str]:
        """Variants that there are results of."""
        return list(self._table.variant.unique()) if "variant" in self._table else []

    @property
    def repetitions(self) -> list[int]:
        """Repetitions that there are results of."""
        table = self._table
        return sorted(table.repetition.unique().tolist()) if "repetition" in table else []

    def ask(self, query: str, variant: str, repetition: int | None) -> float | None:
        """The number that a query of the relation `r` gives; None if what it needs was not run.

        `repetition`: None is all of them. Raises duckdb.Error for a query that cannot be asked.
        """
        key = (query, variant, repetition)
        if key not in self._values:
            self._values[key] = None if self._table.empty else self._asked(*key)
        return self._values[key]

    def _asked(self, query: str, variant: str, repetition: int | None) -> float | None:
        self._db.register("r", self._relation(variant, repetition))
        found = self._db.execute(query).fetchall()
        value = found[0][0] if found else None
        return None if value is None or pd.isna(value) else float(value)

    def _relation(self, variant: str, repetition: int | None) -> pyarrow.Table:
        key = (variant, repetition)
        if key not in self._relations:
            parameters = {"variant": variant, "repetition": repetition}
            self._relations[key] = self._db.sql(self._asks_of, params=parameters).to_arrow_table()
        return self._relations[key]


def _check_one_scale(results: Results) -> None:
    """What is true of one scale may not be of another."""
    said = set(results.table.scale) if "scale" in results.table else set()
    if len(said) > 1:
        raise ValueError(
            "results of several scales are not judged together "
            f"({', '.join(sorted(map(str, said)))}): run it again at one of them"
        )


def _repetitions(results: Results) -> pd.DataFrame:
    """A row per point and repetition: point, number (from 0), and the series `repetition_...`."""
    frames = [pd.DataFrame({"point": pd.Series(dtype=str), "number": pd.Series(dtype=int)})]
    for point, series in results.series.items():
        own = {
            name.removeprefix(REPEATED): values
            for name, values in series.items()
            if name.startswith(REPEATED)
        }
        if own:
            frame = pd.DataFrame(own)
            frames.append(frame.assign(point=point, number=range(len(frame))))
    return pd.concat(frames[1:] or frames)


def _samples(results: Results) -> pd.DataFrame:
    """A row per point and moment: point, number (from 0), and the series that have times."""
    frames = [pd.DataFrame({"point": pd.Series(dtype=str), "number": pd.Series(dtype=int)})]
    for point, series in results.series.items():
        for clock in (name for name in series if name.endswith(TIMES)):
            of_clock = clock.removesuffix(TIMES) + "_"
            own = {
                name: values
                for name, values in series.items()
                if name.startswith(of_clock) and len(values) == len(series[clock])
            }
            frame = pd.DataFrame(own)
            frames.append(frame.assign(point=point, number=range(len(frame))))
    return pd.concat(frames[1:] or frames)
