"""Into how many batches PostgreSQL cuts a hash join that does not fit into work_mem.

From its source (ExecChooseHashTableSize in nodeHash.c, 12 to 17). Of its optimisation for skewed
keys, which TPC-H's have not, only the memory that it sets aside in any case. 18 weighs the batches'
own buffers, too: not modelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from harness.errors import BadParameter

BLOCK_BYTES: Final = 8192
"""Of a batch file: what is written and read at once."""

_TUPLE_OVERHEAD_BYTES: Final = 16 + 16
"""In the hash table: HashJoinTupleData, and a minimal tuple's header."""

_POINTER_BYTES: Final = 8
_SKEW_BUCKET_BYTES: Final = 8 * _POINTER_BYTES + 4 + 16
_SKEW_PERCENT: Final = 2
_LEAST_BUCKETS: Final = 1024


@dataclass(frozen=True)
class Table:
    """A TPC-H table of scale factor 1 as PostgreSQL 12 to 17 store it.

    `width_bytes`: of a row's data, without headers, on average.
    """

    rows: int
    heap_bytes: int
    width_bytes: float


# Measured on a loaded table of scale factor 1: count(*), pg_relation_size, avg(pg_column_size(t.*))
# less its header of 24 bytes.
ORDERS: Final = Table(1_500_000, 213_729_280, 103.6)
LINEITEM: Final = Table(6_001_215, 922_288_128, 119.6)


def batches(rows: int, width_bytes: float, work_mem_bytes: int) -> int:
    """Batches for `rows` inner tuples of that average width of data, as the planner sees it.

    1: it fits. Raises BadParameter.
    """
    if rows < 1 or width_bytes <= 0 or work_mem_bytes < 64 << 10:
        raise BadParameter("hash join: needs rows, a width, and at least 64 KiB of work_mem")
    tuple_bytes = _TUPLE_OVERHEAD_BYTES + _aligned(math.ceil(width_bytes))
    inner_bytes = rows * tuple_bytes
    table_bytes = work_mem_bytes - _skew_bytes(tuple_bytes, work_mem_bytes)
    most_pointers = 1 << int(math.log2(table_bytes // _POINTER_BYTES))
    buckets = 1 << math.ceil(math.log2(max(min(rows, most_pointers), _LEAST_BUCKETS)))
    if inner_bytes + buckets * _POINTER_BYTES <= table_bytes:
        return 1
    fitting = table_bytes // (tuple_bytes + _POINTER_BYTES)
    buckets = min(1 << math.ceil(math.log2(fitting)), most_pointers)
    needed = math.ceil(inner_bytes / (table_bytes - buckets * _POINTER_BYTES))
    return max(2, 1 << math.ceil(math.log2(needed)))


def of_orders(scale_factor: float, work_mem_bytes: int) -> int:
    """Batches of a join whose inner side is TPC-H's orders. Raises as `batches`."""
    rows = max(int(ORDERS.rows * scale_factor), 1)
    return batches(rows, ORDERS.width_bytes, work_mem_bytes)


def _skew_bytes(tuple_bytes: int, work_mem_bytes: int) -> int:
    each = tuple_bytes + _SKEW_BUCKET_BYTES
    return work_mem_bytes // each * _SKEW_PERCENT // 100 * each


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // 8) * 8
