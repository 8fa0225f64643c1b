"""What-ifs of several experiments: cells that are run with other parameters of a profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Variant(Protocol):
    """A what-if, by the profile's parameters that it changes: name -> value as in a profile."""

    @property
    def overrides(self) -> Mapping[str, str]: ...


class Varied(Protocol):
    """A cell that says which variant it is of."""

    @property
    def variant(self) -> str: ...


def overrides_of(cell: Varied, variants: Mapping[str, Variant]) -> dict[str, str]:
    """The profile parameters that a cell's variant changes; none where nothing is varied."""
    return dict(variants[cell.variant].overrides) if cell.variant in variants else {}
