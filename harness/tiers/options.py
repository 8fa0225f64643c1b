"""What a user may ask of a tier, as one flat record, and what each tier makes of it.

A tier refuses what it has not: a model needs no target, a drive has no profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from harness.errors import BadParameter

Slowdown = Annotated[int, Field(ge=0, le=1000)]
"""How many times slower than the clock an emulated device runs; 0: as this machine can."""


class BenchParameters(BaseModel):
    """Section `bench` of an experiment's tier in params.yaml.

    `devices` maps the experiment's names for its devices to profiles; `host`: the profile of the
    simulated host; `slowdown`: of all emulated devices, or of each by its name (0 for others);
    `overrides`: single profile parameters.
    """

    model_config = ConfigDict(extra="forbid")
    devices: dict[str, str] = {}
    host: str = ""
    slowdown: Slowdown | dict[str, Slowdown] = 0
    overrides: dict[str, str] = {}


class Asked(BaseModel):
    """What a user may ask of a tier besides params.yaml, as on the command line.

    `devices` replaces the profiles behind device names, `overrides` single profile parameters,
    `host` the profile of the simulated host (a name, or a path that ends in .yaml). Of the hardware
    tier: `drives` are claimed drives, by the experiment's names for its devices,
    `write_budget_bytes` what each of them may be written (0: guard.BUDGET_DRIVE_WRITES times its
    size), `queue` settings of their queues in sysfs, `journals` claimed namespaces for journals
    with a stream of their own; or `target`, a file or loop device, with `cached` also on a file
    system that has no O_DIRECT.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    devices: dict[str, str] = {}
    overrides: dict[str, str] = {}
    host: str = ""
    target: Path | None = None
    cached: bool = False
    drives: dict[str, str] = {}
    write_budget_bytes: int = 0
    queue: dict[str, str] = {}
    journals: dict[str, str] = {}


@dataclass(frozen=True)
class SimulatedOptions:
    """Profiles by the experiment's names, the host's profile, and what is not as they say."""

    devices: Mapping[str, str]
    host: str
    overrides: Mapping[str, str]

    @classmethod
    def of(cls, asked: Asked, parameters: BenchParameters) -> Self:
        """Raises BadParameter for a target, or a device that the experiment has not."""
        devices = _profiles("simulated", asked, parameters)
        overrides = {**parameters.overrides, **asked.overrides}
        return cls(devices, asked.host or parameters.host, overrides)


@dataclass(frozen=True)
class EmulatedOptions:
    """Profiles by the experiment's names, what is not as they say, and how slow they run."""

    devices: Mapping[str, str]
    overrides: Mapping[str, str]
    slowdown: int | Mapping[str, int]

    @classmethod
    def of(cls, asked: Asked, parameters: BenchParameters) -> Self:
        """Raises BadParameter for a target, or a device that the experiment has not."""
        devices = _profiles("emulated", asked, parameters)
        slowdown = parameters.slowdown
        if isinstance(slowdown, dict) and (unknown := set(slowdown) - set(devices)):
            raise BadParameter(f"slowdown: unknown device {min(unknown)!r}")
        return cls(devices, {**parameters.overrides, **asked.overrides}, slowdown)


@dataclass(frozen=True)
class HardwareOptions:
    """Claimed drives and namespaces for their journals, or a target; see `Asked`.

    Raises BadParameter for both or none of them, and for a journal without its drive.
    """

    target: Path | None
    drives: Mapping[str, str]
    write_budget_bytes: int
    queue: Mapping[str, str]
    journals: Mapping[str, str]
    cached: bool = False

    def __post_init__(self) -> None:
        if (self.target is None) == (not self.drives):
            raise BadParameter(
                "tier hardware needs a target: --drive NAME=CLAIMED for each device of the "
                "experiment (see `harness hardware list`), or --file PATH (a new file, or a loop "
                "device)"
            )
        if unknown := set(self.journals) - set(self.drives):
            raise BadParameter(f"--journal {min(unknown)}=...: there is no --drive of that name")

    @classmethod
    def of(cls, asked: Asked) -> Self:
        """Raises BadParameter for what only a model has, too."""
        made = cls(
            asked.target,
            asked.drives,
            asked.write_budget_bytes,
            asked.queue,
            asked.journals,
            asked.cached,
        )
        if asked.devices or asked.overrides:
            raise BadParameter(
                "a real device has no profile: --device and --override are for simulated"
            )
        return made


def _profiles(tier: str, asked: Asked, parameters: BenchParameters) -> dict[str, str]:
    if asked.target is not None or asked.drives:
        raise BadParameter(f"--file and --drive are for tier hardware: tier {tier} needs no target")
    if unknown := set(asked.devices) - set(parameters.devices):
        known = ", ".join(parameters.devices)
        raise BadParameter(f"unknown device {sorted(unknown)[0]!r}; known: {known}")
    return {**parameters.devices, **asked.devices}
