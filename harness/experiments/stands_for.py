"""Results by what a real drive stands for in its study, in place of what somebody called it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def as_roles(table: pd.DataFrame) -> pd.DataFrame:
    """With what a real drive stands for (`role`) as its name: claims are about what a drive is."""
    return table.assign(device=table.role) if "role" in table else table
