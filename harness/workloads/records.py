"""Records as the join engine reads them: 128 bytes (`harness/core/join/record.hpp`).

32 bytes of real columns and the paper's padding, which is zeros and which nobody keeps.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

RECORD_BYTES: Final = 128
"""Width of a record on the device."""

CONTENT: Final = np.dtype(
    [
        ("key", "<i8"),
        ("row", "<u8"),
        ("first", "<u4"),
        ("second", "<u4"),
        ("signature", "<u8"),
    ]
)
"""The part of a record that is not padding: 32 bytes."""


def expand(contents: NDArray[np.void], block_bytes: int) -> NDArray[np.uint8]:
    """Records as they lie on a device: uint8, padded to whole records and then to whole blocks."""
    size = len(contents) * RECORD_BYTES
    out = np.zeros(-(-size // block_bytes) * block_bytes, dtype=np.uint8)
    records = out[:size].reshape(-1, RECORD_BYTES)
    records[:, : CONTENT.itemsize] = contents.view(np.uint8).reshape(-1, CONTENT.itemsize)
    return out
