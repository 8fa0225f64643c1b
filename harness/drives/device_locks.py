"""The lock by which udev and other runs leave a device alone (systemd, BLOCK_DEVICE_LOCKING).

udev itself holds it for as long as it looks at a device that somebody has just written to.
"""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import Final

from harness.errors import TargetError

UDEV_PATIENCE_S: Final = 15.0
_POLL_S: Final = 0.05


def take(fd: int, path: Path, patience_s: float) -> None:
    """Locks what is open at `path`, until the descriptor is closed. Raises TargetError."""
    end_s = time.monotonic() + patience_s
    while not _lock(fd, path):
        if time.monotonic() >= end_s:
            raise TargetError(f"{path} is locked by another run: wait for it")
        time.sleep(_POLL_S)


def _lock(fd: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise TargetError(f"{path} cannot be locked: {error.strerror}") from error
    return True
