"""Tiers, by name: each provides the bench that a point runs on."""

from __future__ import annotations

from typing import Final

from harness.errors import UnknownName

_NAMES: Final = ("simulated", "emulated", "hardware")


def names() -> list[str]:
    """Names of all tiers."""
    return list(_NAMES)


def check(name: str) -> str:
    """The name itself. Raises UnknownName if there is no such tier."""
    if name not in _NAMES:
        raise UnknownName("tier", name, _NAMES)
    return name
