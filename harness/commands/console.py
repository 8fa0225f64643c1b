"""What the commands have in common: where they print, and how they read NAME=VALUE."""

from __future__ import annotations

import sys

from rich.console import Console

from harness.errors import BadParameter


def terminal(width_without: int = 120) -> Console:
    """As wide as the terminal; wide enough for the tables (in columns) where there is none."""
    return Console(width=None if sys.stdout.isatty() else width_without)


def say(line: str) -> None:
    """A line as it is, however long, and whatever a name in it looks like."""
    terminal().print(line, soft_wrap=True, highlight=False, markup=False)


def pairs(texts: list[str] | None, option: str, *, once: bool = False) -> dict[str, str]:
    """Texts such as NAME=VALUE, as given with an option; of a name the last counts, or, `once`, a
    second is refused: a value that is a mapping would be gone as a whole. Raises BadParameter.
    """
    found = {}
    for text in texts or []:
        name, separator, value = text.partition("=")
        if not separator or not name or not value:
            raise BadParameter(f"{option} {text!r}: write it as NAME=VALUE")
        if once and name.strip() in found:
            raise BadParameter(f"{option} {text!r}: {name.strip()} is given twice")
        found[name.strip()] = value.strip()
    return found
