"""A sweep's answers as tables on file, beside what it has published."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pandas as pd

from harness.runs.sweeps import answers, nearest, sensitivity
from harness.runs.sweeps.recorded import Recorded
from harness.runs.sweeps.tables import ANSWERS
from harness.system.files import publication

_FEWEST: Final = 10


def tables(recorded: Recorded) -> dict[str, pd.DataFrame]:
    """All answers by name: shares, lines, decides (per claim and unknown), entangled, exclude; and,
    if there are ten machines or more with a claim that is judged on all of them, nearest, left_out
    and in_common.
    """
    found = {
        "shares": answers.shares(recorded),
        "lines": answers.lines(recorded),
        "decides": _decides(recorded),
        "entangled": sensitivity.entangled(recorded),
        "exclude": answers.exclusions(recorded),
    }
    if len(recorded.finished) >= _FEWEST and nearest.used(recorded):
        found |= {
            "nearest": nearest.ranked(recorded),
            "left_out": nearest.left_out(recorded),
            "in_common": nearest.in_common(recorded),
        }
    return found


def _decides(recorded: Recorded) -> pd.DataFrame:
    frames = [sensitivity.of_claim(recorded, name).assign(claim=name) for name in recorded.claims]
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1])


def text(table: pd.DataFrame) -> str:
    """As it stands on file: CSV, six digits."""
    made: str = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    return made


def write(recorded: Recorded, folder: Path) -> dict[str, pd.DataFrame]:
    """Writes them as answers/NAME.csv, all or none, and returns them."""
    found = tables(recorded)
    with publication() as files:
        files.empty(folder / ANSWERS)
        for name, table in found.items():
            data = text(table).encode()
            files.write(folder / ANSWERS / f"{name}.csv", data, make_folder=True)
    return found
