"""A smaller drive that behaves like a larger one.

Dies, channels, pages, times and buffers stay, so speed and latency stay. What depends on how full
the drive is stays in proportion: spare area and SLC cache shrink with it. Blocks become fewer and,
where there would be too few of them to choose from, shorter, with an erase time in proportion, so
that erasing costs as much per byte.

A drive with many streams keeps blocks open for each of them, a larger share of a small drive: its
write amplification is not that of the large one (PM953 of 6 and 16 GiB differ by more than 6 %).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from harness.devices.profiles import SsdProfile
from harness.errors import BadParameter
from harness.units import format_bytes

_FEWEST_BLOCKS: Final = 128
_SHORTEST_BLOCK: Final = 8
_LEAST_SPARE: Final = 0.01
_SECTOR: Final = 512
_BLOCK: Final = 4096
"""Of a live device: it is a whole number of these, as it is of its own."""


def scaled_to(profile: SsdProfile, capacity_bytes: int) -> SsdProfile:
    """The profile with that capacity, at most its own.

    Raises BadParameter for more than it has, or for less than its dies can be laid out in.
    """
    p = profile.parameters
    whole = p.capacity.value
    if capacity_bytes > whole:
        raise BadParameter(
            f"the profile's drive holds {format_bytes(whole)}, {format_bytes(capacity_bytes)} were "
            "asked for: choose a smaller --size"
        )
    if capacity_bytes % p.map_unit.value:
        raise BadParameter(
            f"size {capacity_bytes} B is not a multiple of the drive's block of "
            f"{format_bytes(p.map_unit.value)}: "
            f"{capacity_bytes // p.map_unit.value * p.map_unit.value} B would be"
        )
    pages = _pages_per_block(profile, capacity_bytes)
    slc = p.slc_cache.value * capacity_bytes // whole // _SECTOR * _SECTOR
    return _with_values(
        profile,
        {
            "capacity": capacity_bytes,
            "pages_per_block": pages,
            "erase_block": p.erase_block.value * pages // p.pages_per_block.value,
            "slc_cache": slc,
        },
    )


def smallest_bytes(profile: SsdProfile) -> int:
    """The smallest capacity that `scaled_to` takes, in bytes: a multiple of the drive's block."""
    p = profile.parameters
    unit = math.lcm(p.map_unit.value, _BLOCK)
    units = int(least_bytes(profile) / (1.0 + p.overprovision.value)) // unit
    while _room_for_pages(profile, units * unit) < _SHORTEST_BLOCK:
        units += 1
    return units * unit


def least_bytes(profile: SsdProfile) -> int:
    """A capacity that is enough for the profile's dies even without spare area, in bytes."""
    p = profile.parameters
    dies = p.channels.value * p.dies_per_channel.value
    return dies * p.planes.value * p.page.value * _fewest_blocks(profile) * _SHORTEST_BLOCK


def _pages_per_block(profile: SsdProfile, capacity_bytes: int) -> int:
    p = profile.parameters
    dies = p.channels.value * p.dies_per_channel.value
    pages = min(p.pages_per_block.value, _room_for_pages(profile, capacity_bytes))
    if pages < _SHORTEST_BLOCK:
        raise BadParameter(
            f"{format_bytes(capacity_bytes)} are too few for {dies} dies: choose at least "
            f"{smallest_bytes(profile)} B"
        )
    return pages


def _room_for_pages(profile: SsdProfile, capacity_bytes: int) -> int:
    """Pages that there is room for in each block, if a die has the fewest blocks."""
    p = profile.parameters
    dies = p.channels.value * p.dies_per_channel.value
    physical = capacity_bytes * (1.0 + p.overprovision.value)
    pages_per_die = int(physical / (dies * p.planes.value * p.page.value))
    return pages_per_die // _fewest_blocks(profile)


def _fewest_blocks(profile: SsdProfile) -> int:
    """Of a die: enough to choose from, and twice as many spare ones as are open or reserved."""
    p = profile.parameters
    spare_ratio = p.overprovision.value / (1.0 + p.overprovision.value)
    taken = p.streams.value + p.reserve_blocks.value + 2
    return max(_FEWEST_BLOCKS, math.ceil(2 * taken / max(spare_ratio, _LEAST_SPARE)))


def _with_values(profile: SsdProfile, values: Mapping[str, Any]) -> SsdProfile:
    changed = profile.parameters.with_values(values)
    return profile.model_copy(update={"parameters": changed})
