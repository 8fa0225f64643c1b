"""Tiers, by name: each provides the bench that a point runs on."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast

from harness.errors import UnknownName

if TYPE_CHECKING:
    from harness.paths import Project
    from harness.tiers.base import Bench
    from harness.tiers.options import Asked, BenchParameters

_TABLE: Final = {
    "simulated": "harness.tiers.simulated",
    "emulated": "harness.tiers.emulated",
    "hardware": "harness.tiers.hardware",
}
"""Each has an `open_bench`; none is imported before it is asked for."""


class OpenBench(Protocol):
    """What a tier's module has to have."""

    def __call__(
        self, asked: Asked, parameters: BenchParameters, project: Project
    ) -> AbstractContextManager[Bench]:
        """The bench that a user asked for, with what params.yaml says of it.

        Raises HarnessError for what this tier has not, before anything is written.
        """
        ...


def names() -> list[str]:
    """Names of all tiers."""
    return list(_TABLE)


def check(name: str) -> str:
    """The name itself. Raises UnknownName if there is no such tier."""
    if name not in _TABLE:
        raise UnknownName("tier", name, _TABLE)
    return name


def module(name: str) -> str:
    """The tier's module, by its full name. Raises UnknownName."""
    return _TABLE[check(name)]


def find(name: str) -> OpenBench:
    """What opens a bench of that tier. Raises UnknownName."""
    return cast("OpenBench", import_module(module(name)).open_bench)
