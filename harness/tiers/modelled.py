"""What the benches of modelled drives have in common: profiles behind the experiment's names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from harness.devices.profiles import HddProfile
from harness.errors import UnknownName
from harness.tiers.base import Cancel

_SEEDS_PER_REVOLUTION: Final = 16


class ModelledBench:
    """`devices` maps the names by which an experiment calls its devices to profiles.

    Nothing is there before a device is opened, and nothing is left behind.
    """

    remarks: Mapping[str, str] = {}

    def __init__(
        self, profiles: Path, devices: Mapping[str, str], overrides: Mapping[str, str] | None
    ) -> None:
        self.cancel = Cancel()
        self._profiles = profiles
        self._names = dict(devices)
        self._overrides = dict(overrides or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @property
    def devices(self) -> list[str]:
        """The experiment's names for its devices."""
        return list(self._names)

    @property
    def overrides(self) -> Mapping[str, str]:
        """Profile parameters that are not the profile's."""
        return dict(self._overrides)

    def profile_name(self, device: str) -> str:
        """The profile behind one of the experiment's names. Raises UnknownName."""
        if device not in self._names:
            raise UnknownName("device", device, self._names)
        return self._names[device]

    def check_placement(self, device: str, overrides: Mapping[str, str]) -> None:
        """A model places writes by their address, if it is told to."""


def start_angle_ns(profile: HddProfile, seed: int) -> int:
    """At which angle a disk's platters stand when a repetition begins, as time of a revolution."""
    revolution_ns = 60_000_000_000 // profile.parameters.rpm.value
    return seed % _SEEDS_PER_REVOLUTION * revolution_ns // _SEEDS_PER_REVOLUTION
