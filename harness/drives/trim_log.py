"""The statistics that a drive with delayed TRIM gives in its vendor log page.

page = Path("trim.bin").read_bytes()    # nvme get-log /dev/nvme0 -i 0xc5 -l 512 -b > trim.bin
read_trim_log(page).blocks_kept
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Self, get_type_hints

from harness.errors import DeviceError, InvalidRun

U16 = Annotated[int, "H"]
U32 = Annotated[int, "I"]
U64 = Annotated[int, "Q"]

LOG_BYTES: Final = 512
_MAGIC: Final = 0x4D525444  # "DTRM"
_VERSION: Final = 1

_COUNTS: Final[Mapping[str, str]] = {
    "trim_ranges": "trim_ranges",
    "trim_slices": "slices_applied",
    "trim_idle_slices": "slices_applied_idle",
    "trim_drained_slices": "slices_applied_drain",
    "trim_forced_slices": "slices_applied_forced",
    "trim_merged_ranges": "merged_ranges",
    "trim_writes_while_pending": "writes_while_pending",
    "trim_writes_noted": "writes_noted",
    "trim_blocks_kept": "blocks_kept",
    "trim_reads_of_pending": "reads_of_pending",
    "trim_list_lookups": "slice_lookups",
    "trim_list_probes": "entries_probed",
    "trim_yields": "yields",
    "trim_drains": "drains",
    "trim_forgotten_blocks": "blocks_forgotten",
}
"""The page's fields by the names that the device model has for the same; all of them only grow."""

_STATES: Final[Mapping[str, str]] = {
    "trim_pending_ranges": "pending_ranges",
    "trim_list_entries": "write_entries",
}
"""The same for what is so now."""


@dataclass(frozen=True)
class TrimLog:
    """`dtrim_statistics` of harness/core/flash/trim/delayed_trim.h, which says what each field is.

    Fields in the order of the page, which ends with reserved bytes. Blocks are logical blocks of
    the namespace, slices are `blocks_per_slice` of them; all counts since the last reset.
    """

    magic: U32
    version: U16
    bytes: U16
    pending_ranges: U32
    pending_ranges_high: U32
    write_entries: U32
    write_entries_high: U32
    longest_chain: U32
    range_capacity: U32
    write_capacity: U32
    blocks_per_slice: U32
    pending_blocks: U64
    pending_blocks_high: U64
    trim_commands: U64
    trim_ranges: U64
    trim_blocks: U64
    partial_blocks: U64
    merged_ranges: U64
    superseded_blocks: U64
    writes_while_pending: U64
    writes_noted: U64
    writes_shortening: U64
    reads_of_pending: U64
    slices_applied: U64
    slices_applied_idle: U64
    slices_applied_drain: U64
    slices_applied_forced: U64
    batches_applied: U64
    slices_kept: U64
    blocks_invalidated: U64
    blocks_kept: U64
    slice_lookups: U64
    entries_probed: U64
    ranges_applied: U64
    yields: U64
    resumes: U64
    drains: U64
    list_full_splits: U64
    list_full_forced: U64
    ranges_full_oldest: U64
    ranges_full_forced: U64
    blocks_forgotten: U64
    turns_exhausted: U64
    resets: U64

    @classmethod
    def layout(cls) -> dict[str, tuple[int, int]]:
        """Offset and size in bytes of each field of the page."""
        places = {}
        offset = 0
        for name, kind in get_type_hints(cls, include_extras=True).items():
            size = struct.calcsize(f"<{kind.__metadata__[0]}")
            places[name] = (offset, size)
            offset += size
        return places

    @classmethod
    def of(cls, page: memoryview) -> Self:
        """What a page says, whatever it is."""
        return cls(
            **{
                name: int.from_bytes(page[offset : offset + size], "little")
                for name, (offset, size) in cls.layout().items()
            }
        )


def is_trim_log(page: bytes) -> bool:
    """Whether a page has the mark of these statistics: other makers have other pages at C5h."""
    return page[:4] == _MAGIC.to_bytes(4, "little")


def read_trim_log(page: bytes) -> TrimLog:
    """The statistics in a log page, of which later versions may have more behind them.

    Raises DeviceError if the bytes are not such a page.
    """
    again = f"read it with: nvme get-log DEVICE --log-id=0xc5 --log-len={LOG_BYTES} --raw-binary"
    if len(page) < LOG_BYTES:
        raise DeviceError(f"TRIM log page: {len(page)} bytes, not {LOG_BYTES}; {again}")
    log = TrimLog.of(memoryview(page))
    if log.magic != _MAGIC:
        raise DeviceError(f"TRIM log page: no statistics of a delayed TRIM in it; {again}")
    if log.version < _VERSION or log.bytes < LOG_BYTES:
        raise DeviceError(
            f"TRIM log page: version {log.version} with {log.bytes} bytes is not known; "
            "this program and the firmware must have the same delayed_trim.h"
        )
    return log


def counted_between(before: TrimLog | None, after: TrimLog | None) -> dict[str, int]:
    """What two readings say, by the device model's names: counts since the first, the state now.

    Of a drive without such a page (None) nothing. Raises InvalidRun if the statistics came, went
    or were reset in between.
    """
    if before is None and after is None:
        return {}
    if before is None or after is None or before.resets != after.resets:
        raise InvalidRun("the statistics of the drive's delayed TRIM were reset: measure again")
    changed = {n: getattr(after, f) - getattr(before, f) for n, f in _COUNTS.items()}
    if back := [name for name, count in changed.items() if count < 0]:
        raise InvalidRun(f"{back[0]} of the drive's delayed TRIM ran backwards: measure again")
    return changed | {name: getattr(after, field) for name, field in _STATES.items()}
