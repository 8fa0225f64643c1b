"""Front ends: the ways in which a live device becomes a block device of the host's, by name.

`base` says what one is; each has a file of its own and a line in the table.
"""

from __future__ import annotations

from typing import Final

from harness.devices.live.front.base import Front
from harness.devices.live.front.fuse_loop import FuseLoop
from harness.devices.live.front.ublk import Ublk
from harness.errors import UnknownName

FRONTS: Final[dict[str, Front]] = {"fuse_loop": FuseLoop(), "ublk": Ublk()}
DEFAULT: Final = "fuse_loop"


def named(name: str) -> Front:
    """The front end of that name. Raises UnknownName."""
    if name not in FRONTS:
        raise UnknownName("front end", name, FRONTS)
    return FRONTS[name]
