"""Where things lie in a checkout. The one place that knows folder names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import DataFolderError

_MARKERS = ("dvc.yaml", "params.yaml", "pyproject.toml")


class _Below:
    """A place in a checkout, by its path below the root."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, project: Project, _: type[Project]) -> Path:
        return project.root / self._path


@dataclass(frozen=True)
class Project:
    """A checkout of the package.

    `root` is absolute; every other folder follows from it.
    """

    root: Path

    params = _Below("params.yaml")
    """The parameters of all experiments."""

    notebooks = _Below("notebooks")
    """One notebook per paper."""

    profiles = _Below("hardware/profiles")
    """Device and host profiles."""

    published = _Below("data/published")
    """The papers' numbers and claims."""

    journal = _Below("data/journal")
    """Finished points, local to this checkout."""

    raw = _Below("data/raw")
    """Inputs and traces."""

    results = _Below("data/results")
    """One table per experiment and tier."""

    figures = _Below("data/figures")
    """Figures, one folder per experiment."""

    executed = _Below("data/notebooks")
    """Notebooks that measured something, as they were executed."""

    metrics = _Below("data/metrics")
    """Numbers that DVC compares between versions."""

    code = _Below("data/code")
    """What each study's results depend on, as digests."""

    readme = _Below("README.md")
    """The first page."""

    validation = _Below("docs/validation.md")
    """What the evidence is, with all claims."""

    build = _Below("build")
    """Everything that is made and not kept."""

    report = _Below("build/report")
    """Executed notebooks and the HTML report."""


def find_project(start: Path | None = None) -> Project:
    """The checkout that `start` (by default the working directory) lies in.

    Raises DataFolderError outside of a checkout.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if all((folder / marker).is_file() for marker in _MARKERS):
            return Project(folder)
    raise DataFolderError(
        f"{here} is not inside a checkout of the package (no {_MARKERS[0]}): change into one"
    )
