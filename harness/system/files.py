"""Files that are whole, or not there."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """The whole file or, after a crash, the old one. Threads may write the same one at a time."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
