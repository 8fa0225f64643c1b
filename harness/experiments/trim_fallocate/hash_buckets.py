"""How many buckets PostgreSQL's hash table has if the join does not fit into work_mem.

By the planner's rule (ExecChooseHashTableSize in nodeHash.c, 12 to 17), as `hash_batches` has it
for batches: the table is to be full with one batch's tuples. Only the model asks: the hash's lowest
bits choose the bucket, those above them the batch.
"""

from __future__ import annotations

import math
from typing import Final

from harness.errors import BadParameter

_TUPLE_OVERHEAD_BYTES: Final = 16 + 16  # HashJoinTupleData, and a minimal tuple's header
_POINTER_BYTES: Final = 8
_SKEW_PERCENT: Final = 2
"""Of the tuples that fit: set aside for skewed keys, which TPC-H's have not."""

_SKEW_BUCKET_BYTES: Final = 8 * _POINTER_BYTES + 4 + 16


def buckets(width_bytes: float, work_mem_bytes: int) -> int:
    """For inner tuples of that average width of data. A power of two. Raises BadParameter."""
    if width_bytes <= 0 or work_mem_bytes < 64 << 10:
        raise BadParameter("hash table: needs a width, and at least 64 KiB of work_mem")
    tuple_bytes = _TUPLE_OVERHEAD_BYTES + math.ceil(math.ceil(width_bytes) / 8) * 8
    skewed_bytes = tuple_bytes + _SKEW_BUCKET_BYTES
    aside = work_mem_bytes // skewed_bytes * _SKEW_PERCENT // 100 * skewed_bytes
    table_bytes = work_mem_bytes - aside
    fitting = table_bytes // (tuple_bytes + _POINTER_BYTES)
    most = 1 << int(math.log2(table_bytes // _POINTER_BYTES))
    return min(1 << math.ceil(math.log2(fitting)), most)
