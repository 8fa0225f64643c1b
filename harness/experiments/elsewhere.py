"""What others measured on a study's device: checks of its model that no fit has seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from harness.devices.profiles import DeviceProfile


@dataclass(frozen=True)
class Elsewhere:
    """One measurement of others.

    `device`: the study's name for it. `source`: where it was published, `statement` what is
    compared, `published` what was found, `expected` the range that agrees, `why` it is that.
    `measure` gives the same number of the model. It raises BadParameter where such a device cannot
    be asked.
    """

    id: str
    device: str
    source: str
    statement: str
    published: str
    expected: tuple[float, float]
    why: str
    measure: Callable[[DeviceProfile], float]


@runtime_checkable
class Checked(Protocol):
    """A study whose device others have measured, too."""

    elsewhere: Sequence[Elsewhere]
