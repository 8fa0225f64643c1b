"""What ext4 allocates, frees and discards, one row each.

Columns: event (allocate, free, discard, mballoc), time_ns since boot, inode, then blocks of the
file system, goal and flags as the kernel has them; null where an event has no such thing.
`harness.probes.extents` makes files of it.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from harness.probes.probe import WORD, EventProbe, integers

_NUMBERS: Final = ("time_ns", "inode", "logical_block", "block", "blocks", "goal", "flags")

PROBE: Final = EventProbe(
    __file__,
    "ext4: blocks allocated, freed, discarded",
    pa.schema([pa.field("event", WORD), *integers(*_NUMBERS)]),
    events=("", "allocate", "free", "discard", "mballoc"),
)
