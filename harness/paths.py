"""Where things lie in a checkout. The one place that knows folder names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import DataFolderError

_MARKERS = ("dvc.yaml", "params.yaml", "pyproject.toml")


@dataclass(frozen=True)
class Project:
    """A checkout of the package.

    `root` is absolute; every other folder follows from it.
    """

    root: Path

    @property
    def params(self) -> Path:
        """The parameters of all experiments."""
        return self.root / "params.yaml"

    @property
    def notebooks(self) -> Path:
        """One notebook per paper."""
        return self.root / "notebooks"

    @property
    def profiles(self) -> Path:
        """Device and host profiles."""
        return self.root / "hardware" / "profiles"

    @property
    def published(self) -> Path:
        """The papers' numbers and claims."""
        return self.root / "data" / "published"

    @property
    def journal(self) -> Path:
        """Finished points, local to this checkout."""
        return self.root / "data" / "journal"

    @property
    def raw(self) -> Path:
        """Inputs and traces."""
        return self.root / "data" / "raw"

    @property
    def results(self) -> Path:
        """One table per experiment and tier."""
        return self.root / "data" / "results"

    @property
    def figures(self) -> Path:
        """Figures, one folder per experiment."""
        return self.root / "data" / "figures"

    @property
    def metrics(self) -> Path:
        """Numbers that DVC compares between versions."""
        return self.root / "data" / "metrics"

    @property
    def code(self) -> Path:
        """What each study's results depend on, as digests."""
        return self.root / "data" / "code"

    @property
    def build(self) -> Path:
        """Everything that is made and not kept."""
        return self.root / "build"

    @property
    def report(self) -> Path:
        """Executed notebooks and the HTML report."""
        return self.build / "report"


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
