"""The part of a page that a command makes, between two lines that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import DataFolderError
from harness.system.files import write_atomically


@dataclass(frozen=True)
class MadePart:
    """Of a page in Markdown; `command` is what makes it."""

    page: Path
    command: str

    @property
    def begin(self) -> str:
        """The line before it."""
        return f"<!-- begin: made by {self.command} -->\n"

    @property
    def end(self) -> str:
        """The line after it."""
        return f"<!-- end: made by {self.command} -->\n"

    def read(self) -> str:
        """What stands there now. Raises DataFolderError if the page has no such part."""
        return self._split()[1]

    def write(self, text: str) -> None:
        """In the place of what stands there. Raises DataFolderError if there is no such part."""
        before, _, after = self._split()
        write_atomically(self.page, f"{before}{self.begin}{text}{self.end}{after}".encode())

    def _split(self) -> tuple[str, str, str]:
        text = self.page.read_text(encoding="utf-8")
        if text.count(self.begin) != 1 or text.count(self.end) != 1:
            raise DataFolderError(f"{self.page.name}: the lines around what is made are not there")
        before, _, rest = text.partition(self.begin)
        made, _, after = rest.partition(self.end)
        return before, made, after


def row(cells: Sequence[str]) -> str:
    """A line of a table in Markdown."""
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
