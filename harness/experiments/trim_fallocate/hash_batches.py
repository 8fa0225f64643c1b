"""Into how many batches PostgreSQL cuts a hash join that does not fit into work_mem.

From its source (ExecChooseHashTableSize in nodeHash.c, 12 to 17) without its optimisation for
skewed keys, which TPC-H's have not. 18 weighs the batches' own buffers, too: not modelled.
"""

from __future__ import annotations

import math
from typing import Final

from harness.errors import BadParameter

BLOCK_BYTES: Final = 8192
"""Of a batch file: what is written and read at once."""

_TUPLE_OVERHEAD_BYTES: Final = 16 + 16
"""In the hash table: HashJoinTupleData, and a minimal tuple's header."""

_POINTER_BYTES: Final = 8
_LEAST_BUCKETS: Final = 1024


def batches(rows: int, width_bytes: float, work_mem_bytes: int) -> int:
    """Batches for `rows` inner tuples of that average width of data, as the planner sees it.

    1: it fits. Raises BadParameter.
    """
    if rows < 1 or width_bytes <= 0 or work_mem_bytes < 64 << 10:
        raise BadParameter("hash join: needs rows, a width, and at least 64 KiB of work_mem")
    tuple_bytes = _TUPLE_OVERHEAD_BYTES + _aligned(math.ceil(width_bytes))
    inner_bytes = rows * tuple_bytes
    most_pointers = 1 << int(math.log2(work_mem_bytes // _POINTER_BYTES))
    buckets = 1 << math.ceil(math.log2(max(min(rows, most_pointers), _LEAST_BUCKETS)))
    if inner_bytes + buckets * _POINTER_BYTES <= work_mem_bytes:
        return 1
    fitting = work_mem_bytes // (tuple_bytes + _POINTER_BYTES)
    buckets = min(1 << math.ceil(math.log2(fitting)), most_pointers)
    needed = math.ceil(inner_bytes / (work_mem_bytes - buckets * _POINTER_BYTES))
    return max(2, 1 << math.ceil(math.log2(needed)))


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // 8) * 8
