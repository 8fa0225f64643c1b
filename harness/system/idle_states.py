"""Processors that do not sleep, while something is measured that would wait for them to wake up.

A processor that halts takes 20 to 60 us to come back on a virtual machine, 50 to 200 us from the
deepest state of a real one; a request's way wakes several. Whoever holds this file open with a
bound of 0 us has all idle processors wait awake, at full power; the kernel forgets the bound with
the file, whatever ends its holder. Linux, Documentation/power/pm_qos_interface.rst.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_BOUND: Final = Path("/dev/cpu_dma_latency")


@contextlib.contextmanager
def awake() -> Iterator[bool]:
    """No processor sleeps while the block runs; says whether this machine lets us have that."""
    try:
        held = os.open(_BOUND, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        os.write(held, struct.pack("=i", 0))
        yield True
    finally:
        os.close(held)
