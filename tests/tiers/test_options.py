"""What a user may ask of a tier, and what each tier refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness import tiers
from harness.errors import BadParameter, UnknownName
from harness.tiers import emulated, hardware, simulated
from harness.tiers.options import (
    Asked,
    BenchParameters,
    EmulatedOptions,
    HardwareOptions,
    SimulatedOptions,
)

PARAMETERS = BenchParameters(
    devices={"ssd": "a", "hdd": "b"}, host="own", slowdown=8, overrides={"x": "1", "y": "2"}
)
TARGET = Path("/nowhere/file")


def test_every_tier_has_what_opens_its_bench() -> None:
    assert tiers.names() == ["simulated", "emulated", "hardware"]
    found = [tiers.find(name) for name in tiers.names()]
    assert found == [simulated.open_bench, emulated.open_bench, hardware.open_bench]
    with pytest.raises(UnknownName, match="emulated, hardware, simulated"):
        tiers.find("real")


def test_what_is_asked_for_replaces_what_params_has() -> None:
    asked = Asked(devices={"hdd": "c"}, overrides={"y": "3"}, host="other")
    modelled = SimulatedOptions.of(asked, PARAMETERS)
    assert modelled.devices == {"ssd": "a", "hdd": "c"}
    assert modelled.overrides == {"x": "1", "y": "3"}
    assert modelled.host == "other"
    assert SimulatedOptions.of(Asked(), PARAMETERS).host == "own"
    assert EmulatedOptions.of(asked, PARAMETERS).devices == modelled.devices
    assert EmulatedOptions.of(asked, PARAMETERS).slowdown == 8


def test_a_pace_of_each_device() -> None:
    own = PARAMETERS.model_copy(update={"slowdown": {"hdd": 1}})
    assert EmulatedOptions.of(Asked(), own).slowdown == {"hdd": 1}
    wrong = PARAMETERS.model_copy(update={"slowdown": {"tape": 1}})
    with pytest.raises(BadParameter, match="slowdown: unknown device 'tape'"):
        EmulatedOptions.of(Asked(), wrong)
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        BenchParameters(devices={"hdd": "b"}, slowdown={"hdd": -1})


@pytest.mark.parametrize("options", [SimulatedOptions, EmulatedOptions])
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"target": TARGET}, "--file and --drive are for tier hardware: tier .* needs no target"),
        ({"drives": {"ssd": "mine"}}, "--file and --drive are for tier hardware"),
        ({"devices": {"tape": "a"}}, "unknown device 'tape'; known: ssd, hdd"),
    ],
)
def test_a_modelled_tier_refuses(
    options: type[SimulatedOptions | EmulatedOptions], asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadParameter, match=said):
        options.of(Asked(**asked), PARAMETERS)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "tier hardware needs a target: --drive NAME=CLAIMED .* or --file PATH"),
        ({"target": TARGET, "drives": {"ssd": "mine"}}, "tier hardware needs a target"),
        ({"target": TARGET, "devices": {"ssd": "a"}}, "a real device has no profile"),
        ({"target": TARGET, "overrides": {"x": "1"}}, "a real device has no profile"),
        (
            {"drives": {"ssd": "mine"}, "journals": {"hdd": "its"}},
            "--journal hdd=...: there is no --drive of that name",
        ),
    ],
)
def test_the_hardware_tier_refuses(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(BadParameter, match=said):
        HardwareOptions.of(Asked(**asked))


def test_the_hardware_tier_takes_a_file_or_drives() -> None:
    assert HardwareOptions.of(Asked(target=TARGET)).target == TARGET
    drives = Asked(drives={"ssd": "mine"}, journals={"ssd": "its"}, write_budget_bytes=1)
    assert HardwareOptions.of(drives).journals == {"ssd": "its"}
