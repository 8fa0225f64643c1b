"""Figures of what is published, drawn again from its tables and traces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness import experiments, plots
from harness.errors import BadParameter
from harness.experiments.obtaining import no_results
from harness.paths import Project
from harness.runs import places, published
from harness.system.files import publication


@dataclass(frozen=True)
class Redrawn:
    """Files that are as they were; those that are not, or were not there; and those that are there
    and were not drawn.
    """

    same: list[Path]
    other: list[Path]
    left: list[Path]


def redraw(project: Project, name: str, tier: str) -> Redrawn:
    """Draws all figures of a study's published results on a tier. Raises BadParameter without."""
    study, place = experiments.find(name), places.published(project, name, tier)
    results = published.results(project, name, tier)
    if results.table.empty:
        raise BadParameter(no_results(name, tier))
    found = {
        path: data
        for figure, drawn in study.figures(results).items()
        for path, data in plots.files(drawn, place.figures / figure).items()
    }
    same = [p for p, data in found.items() if p.is_file() and p.read_bytes() == data]
    other = [path for path in found if path not in same]
    left = sorted(path for path in place.figures.glob("*.[ps][nv]g") if path not in found)
    with publication() as files:
        for path in other:
            files.write(path, found[path], make_folder=True)
    return Redrawn(same, other, left)
