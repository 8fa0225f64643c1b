"""The files that a sweep has published, read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd

ELSEWHERE: Final = "elsewhere.parquet"
ANSWERS: Final = "answers"
"""What is made of a sweep's tables, or beside them, and is of its machines: names in its folder."""


def read(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """What `Sweep.publish` has written there: machines, claims' values, about.json.

    Raises OSError or ValueError where that is not all there.
    """
    machines = pd.read_parquet(folder / "machines.parquet")
    values = pd.read_parquet(folder / "claims.parquet")
    return machines, values, json.loads((folder / "about.json").read_text())


def unchanged(about: Mapping[str, Any], asked: Mapping[str, str]) -> set[str]:
    """Claims that ask for what they asked when this was recorded (see `kept.claims_digests`)."""
    then = about.get("claims")
    if not isinstance(then, dict):  # an earlier version's
        return set()
    return {name for name, digest in then.items() if asked.get(name) == digest}


def of_default(values: pd.DataFrame) -> dict[str, float]:
    """The default machine's values by claim, without those that it has none of."""
    mine = values[values.machine == 0].dropna()
    return dict(zip(mine.claim, mine.value.astype(float), strict=True))
