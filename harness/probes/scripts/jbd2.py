"""The journal of ext4: commits with their phases, checkpoints.

Columns: event, time_ns since boot, transaction, value (see jbd2.bt), durations in jiffies, counts;
null where an event has no such thing.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from harness.probes.probe import WORD, EventProbe, integers

_EVENTS: Final = ("commit_begin", "commit_end", "commit_stats", "checkpoint", "checkpoint_stats")
_NUMBERS: Final = (
    *("time_ns", "transaction", "value", "wait_jiffies", "request_delay_jiffies"),
    *("running_jiffies", "locked_jiffies", "flushing_jiffies", "logging_jiffies"),
    *("handles", "blocks", "blocks_logged"),
)

PROBE: Final = EventProbe(
    __file__,
    "ext4's journal: commits, checkpoints",
    pa.schema([pa.field("event", WORD), *integers(*_NUMBERS)]),
    events=("", *_EVENTS),
)
