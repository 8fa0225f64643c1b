"""hardware/README.md's table: what the device models say that each study writes on a drive."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from harness.paths import Project
from harness.runs import hardware_plan, roles
from harness.runs.made_part import MadePart
from harness.units import format_bytes, format_seconds

HEADINGS: Final = ("experiment", "drive", "points", "writes", "takes")


def rows(project: Project) -> list[list[str]]:
    """Under `HEADINGS`, as params.yaml is now; simulates every point, which takes minutes."""
    table = hardware_plan.expectations(project, roles.examples())
    return [_row(row) for row in table.itertuples()]


def _row(row: Any) -> list[str]:
    written, time = format_bytes(float(row.written_bytes)), format_seconds(float(row.time_s))
    return [str(row.experiment), str(row.device), str(row.points), written, time]


def in_markdown(found: list[list[str]]) -> str:
    """The table as it stands in the page."""
    lines = [list(HEADINGS), ["---"] * len(HEADINGS), *found]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def part(project: Project) -> MadePart:
    """Where it stands."""
    page: Path = project.root / "hardware" / "README.md"
    return MadePart(page, "harness hardware expect --document")
