"""The sweeps' journal: as that of runs, but a batch's points are synced together."""

from __future__ import annotations

from collections.abc import Sequence

from harness.paths import Project
from harness.runs.journal import Entry, Journal, _format
from harness.system.files import told


class SweepJournal(Journal):
    """The finished points of a study's sweeps, whatever machine they are of."""

    def append_all(self, entries: Sequence[Entry]) -> None:
        """Records points that have no traces, all with one sync. Raises DiskFull."""
        with told(self._folder):
            self._append_line("\n".join(map(_format, entries)))


def of_study(project: Project, study: str) -> SweepJournal:
    """Beside the journals of runs, which no sweep writes to."""
    return SweepJournal(project.journal / "sweeps" / study)
