"""What PostgreSQL's external sort does with work_mem, by version: runs, merge order, buffers.

From its source (tuplesort.c, logtape.c of 9.4 and 15) and its documentation. The mechanism is in
harness/core/dbms; here is what PostgreSQL decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from harness.errors import BadParameter, UnknownName

BLOCK_BYTES: Final = 8192
_SLOT_BYTES: Final = 24
_FIRST_SLOTS: Final = 1024
_TUPLE_HEADER_BYTES: Final = 16
"""Of a minimal tuple with at most 8 columns, or without nulls."""

_TAPE_HEADER_BYTES: Final = 10
"""Beyond a tuple's data on tape: its length, and what of its header is written."""

_TRAILER_BYTES: Final = 16
"""Of a block since 13: the numbers of the blocks before and after it."""

_MERGE_BLOCKS: Final = 32
"""Read at once from each input: what the merge order is made for."""

# Replacement selection makes runs of twice the memory from the third on (Knuth 5.4.1): the first
# is e - 1 memories long, the second e (e - 2). The last two, of what memory holds when the input
# has ended, are the core's (run_lengths()).
_FIRST_RUN: Final = 1.718282
_SECOND_RUN: Final = 1.952492


@dataclass(frozen=True)
class Relation:
    """A table that is sorted: rows, bytes of its heap, and bytes of data in a row.

    `wide_ratio` is the share of rows whose data is longer than 112 bytes: PostgreSQL to 9.4 keeps
    these in twice the memory, since it rounds up to powers of two.
    """

    rows: int
    heap_bytes: int
    data_width_bytes: float
    wide_ratio: float

    @property
    def tape_bytes(self) -> int:
        """A tuple on tape."""
        return round(self.data_width_bytes) + _TAPE_HEADER_BYTES


@dataclass(frozen=True)
class SortRules:
    """A version's way to sort.

    `refill` is of the merges before the last (the last reads the tape that ran dry, always);
    `burst`: runs are formed in memory and written whole. `table` gives the keywords of the core's
    SortedTable.
    """

    merge: str
    burst: bool
    refill: str
    payload_bytes: int
    reserve_block: bool
    merge_order: Callable[[int], int]
    table: Callable[[Relation, int], dict[str, int]]


def rules(version: str) -> SortRules:
    """The rules of a major version: '9.4', or 12 to 18. Raises UnknownName."""
    if version not in _RULES:
        raise UnknownName("PostgreSQL version", version, _RULES)
    return _RULES[version]


def _slots(work_mem_bytes: int, tuple_bytes: float) -> int:
    """Slots of the array of tuples when memory is used up: it doubles, and then grows to fit."""
    slots = _FIRST_SLOTS
    while True:
        used_bytes = (slots - 1) * tuple_bytes + slots * _SLOT_BYTES
        if used_bytes > work_mem_bytes:
            return slots
        if used_bytes > work_mem_bytes / 2:
            return int(slots * work_mem_bytes / used_bytes)
        slots *= 2


def _after(memory_bytes: int, tapes_bytes: int) -> int:
    """What the tapes' buffers leave; where they would leave nothing they are not counted."""
    return memory_bytes - tapes_bytes if tapes_bytes < memory_bytes else memory_bytes


def _order_9_4(work_mem_bytes: int) -> int:
    """A tape takes three blocks, and 32 to read from; at least 6."""
    return max(6, (work_mem_bytes - 3 * BLOCK_BYTES) // ((_MERGE_BLOCKS + 3) * BLOCK_BYTES))


def _table_9_4(relation: Relation, work_mem_bytes: int) -> dict[str, int]:
    """Replacement selection; memory is allocated in powers of two, with a header of 16 bytes."""
    narrow = 1 << (round(relation.data_width_bytes) + _TUPLE_HEADER_BYTES - 1).bit_length()
    if relation.wide_ratio > 0:
        narrow = 128
    tuple_bytes = 16 + narrow * (1 + relation.wide_ratio)
    slots = _slots(work_mem_bytes, tuple_bytes)
    order = _order_9_4(work_mem_bytes)
    left_bytes = _after(work_mem_bytes - slots * _SLOT_BYTES, (order + 1) * 3 * BLOCK_BYTES)
    held = min(slots - 1, int(left_bytes / tuple_bytes))
    if held < order + 1:
        raise BadParameter("work_mem is too small for this table's rows")
    return {
        "tuples": relation.rows,
        "heap_bytes": relation.heap_bytes,
        "tuple_bytes": relation.tape_bytes,
        "first_run_tuples": int(_FIRST_RUN * held),
        "second_run_tuples": int(_SECOND_RUN * held),
        "run_tuples": 2 * held,
        "merge_memory_bytes": held * relation.tape_bytes,
    }


def _order_15(work_mem_bytes: int) -> int:
    """A tape takes a block to read and one to write, and 32 to read from; 6 to 500."""
    return min(max(work_mem_bytes // ((_MERGE_BLOCKS + 2) * BLOCK_BYTES), 6), 500)


def _table_15(chunk_header_bytes: int) -> Callable[[Relation, int], dict[str, int]]:
    def table(relation: Relation, work_mem_bytes: int) -> dict[str, int]:
        """Quicksort of what fits; the first run still has the tapes' memory."""
        aligned = -(-(relation.data_width_bytes + _TUPLE_HEADER_BYTES) // 8) * 8
        tuple_bytes = chunk_header_bytes + aligned
        slots = _slots(work_mem_bytes, tuple_bytes)
        order = _order_15(work_mem_bytes)
        array_bytes = slots * _SLOT_BYTES
        first = min(slots, int((work_mem_bytes - array_bytes) / tuple_bytes) + 1)
        left_bytes = _after(work_mem_bytes - array_bytes, order * BLOCK_BYTES)
        later = int(left_bytes / tuple_bytes) + 1
        runs = 1 + max(-(-(relation.rows - first) // later), 0)
        tapes = min(runs, order)
        slab_bytes = (tapes + 1) * 1024
        heap_bytes = 16 + (1 << (_SLOT_BYTES * tapes - 1).bit_length())
        tape_bytes = _after(work_mem_bytes, order * BLOCK_BYTES) - slab_bytes - heap_bytes
        payload_bytes = BLOCK_BYTES - _TRAILER_BYTES
        return {
            "tuples": relation.rows,
            "heap_bytes": relation.heap_bytes,
            "tuple_bytes": relation.tape_bytes,
            "first_run_tuples": first,
            "second_run_tuples": later,
            "run_tuples": later,
            "merge_memory_bytes": max(tape_bytes, BLOCK_BYTES) * payload_bytes // BLOCK_BYTES,
            "write_memory_bytes": payload_bytes,
            # LogicalTapeRewindForRead() rounds down to blocks since 10; 9.4 has no such buffer.
            # Left out: past 512 blocks ltsReadFillBuffer() has one more, where trailers were.
            "share_unit_bytes": payload_bytes,
        }

    return table


def _quicksort(merge: str, chunk_header_bytes: int) -> SortRules:
    return SortRules(
        merge=merge,
        burst=True,
        refill="one",
        payload_bytes=BLOCK_BYTES - _TRAILER_BYTES,
        reserve_block=True,
        merge_order=_order_15,
        table=_table_15(chunk_header_bytes),
    )


_REPLACEMENT_SELECTION: Final = SortRules(
    merge="polyphase",
    burst=False,
    refill="all",
    payload_bytes=BLOCK_BYTES,
    reserve_block=False,
    merge_order=_order_9_4,
    table=_table_9_4,
)
_RULES: Final = {
    "9.4": _REPLACEMENT_SELECTION,
    **{str(major): _quicksort("polyphase", 16) for major in (12, 13, 14)},
    "15": _quicksort("balanced", 24),
    **{str(major): _quicksort("balanced", 8) for major in (16, 17, 18)},
}
