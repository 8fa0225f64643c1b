"""A paper with claims about one number, and results of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pandas as pd

from harness.experiments.base import Results
from harness.paths import Project

PAPER: Final = """
grace_hash_join:
  title: t
  reference: r
  relation: SELECT * FROM results WHERE variant = $variant
    AND ($repetition IS NULL OR repetition = $repetition)
  claims:
"""
"""What stands before its claims, about `x` of relation `r`."""


def project_of(root: Path, claims: str) -> Project:
    """A project with that file of claims, and nothing else."""
    (root / "data" / "published").mkdir(parents=True)
    (root / "data" / "published" / "claims.yaml").write_text(claims)
    return Project(root)


def results(*values: float) -> Results:
    """A repetition of one point each."""
    rows = [{"variant": "paper", "repetition": i, "x": x} for i, x in enumerate(values)]
    return Results("simulated", pd.DataFrame(rows), {}, lambda _: None)
