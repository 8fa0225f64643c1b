"""A smaller drive that behaves like a larger one: how small it may be."""

from __future__ import annotations

import math

import pytest
from conftest import REPOSITORY

from harness.devices.profiles import SsdProfile, list_profiles, load_device
from harness.devices.scaling import scaled_to
from harness.errors import BadParameter

PROFILES = REPOSITORY / "hardware" / "profiles"


@pytest.mark.parametrize("name", list_profiles(PROFILES))
def test_the_smallest_drive_is_the_one_that_is_proposed(name: str) -> None:
    """Who is told to choose at least so much can have that, and nothing that is less."""
    profile = load_device(PROFILES, name)
    if not isinstance(profile, SsdProfile):
        pytest.skip("a disk of any size is a part of it")
    with pytest.raises(BadParameter, match=r"are too few for .* at least \d+ B$") as refused:
        scaled_to(profile, 4096 * 256)
    least = int(str(refused.value).split()[-2])
    assert scaled_to(profile, least).parameters.capacity.value == least
    less = least - math.lcm(profile.parameters.map_unit.value, 4096)
    with pytest.raises(BadParameter, match="too few"):
        scaled_to(profile, less)
