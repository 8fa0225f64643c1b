"""What is put on a device that is measured by the clock, before its clock begins to count."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness import _core
from harness.system import mounts
from harness.workloads.records import RECORD_BYTES, expand

_CHUNK_RECORDS: Final = 1 << 16


def write_records(
    storage: _core.FileStorage | _core.MemoryStorage,
    offset_bytes: int,
    contents: NDArray[np.void],
) -> None:
    """Writes records (dtype records.CONTENT) in the form in which the engine reads them."""
    for at in range(0, len(contents), _CHUNK_RECORDS):
        data = expand(contents[at : at + _CHUNK_RECORDS], storage.block_bytes)
        storage.write(offset_bytes + at * RECORD_BYTES, data)


def sync(storage: _core.FileStorage | None, folder: Path | None) -> None:
    """What was written either way, by the engine or through a file system, is on the device."""
    if storage is not None:
        storage.sync()
    if folder is not None:
        mounts.sync(folder)
