"""Pages of a database and the transactions of ext4 that their first and last block went to.

Columns: time_ns since boot, inode, page (of 16 KiB, in its file), first_transaction,
last_transaction.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from harness.probes.probe import Probe, integers

PROBE: Final = Probe(
    __file__,
    "pages of a database that two of ext4's transactions share, with data=journal",
    pa.schema(integers("time_ns", "inode", "page", "first_transaction", "last_transaction")),
)
