"""The files that a sweep has published, read."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd

from harness.system.files import digests_of

ELSEWHERE: Final = "elsewhere.parquet"
ANSWERS: Final = "answers"
"""What is made beside a sweep's tables, of its machines, and what is made of them: names in its
folder.
"""


MACHINES: Final = "machines.parquet"
CLAIMS: Final = "claims.parquet"
ABOUT: Final = "about.json"


def read(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """What `Sweep.publish` has written there: machines, claims' values, about.json.

    Raises OSError or ValueError where that is not all there, or not of one sweep: about.json notes
    the tables' digests, so that a record that was replaced in part is none.
    """
    about = json.loads((folder / ABOUT).read_text())
    found = {name: (folder / name).read_bytes() for name in (MACHINES, CLAIMS)}
    if not isinstance(about, dict) or about.get("files") != digests_of(found):
        raise ValueError(f"{folder}: {ABOUT} is not of the tables beside it")
    machines, values = (pd.read_parquet(io.BytesIO(data)) for data in found.values())
    return machines, values, about


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
