"""What the kernel may hold of a block device unwritten, bounded for that device alone.

A device is named by its number, as in '7:3'. The bound stays with the number when what lies below a
loop device has gone, so whoever ends such a device lifts it. Linux,
Documentation/ABI/testing/sysfs-class-bdi.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.errors import MissingTool
from harness.system import block_queue

_BDI: Final = Path("/sys/class/bdi")


@contextlib.contextmanager
def limited(number: str, limit_bytes: int) -> Iterator[None]:
    """Bounds it while the block runs; 0: does nothing.

    Writing in the background begins at the same share of the limit as everywhere on this machine
    (dirty_background_ratio of dirty_ratio: a half, unless changed). Raises MissingTool on kernels
    before 6.2, which cannot.
    """
    if not limit_bytes:
        yield
        return
    place = _place(number)
    if not (place / "max_bytes").exists():
        raise MissingTool("the kernel cannot bound a device's dirty pages: use Linux 6.2 or newer")
    try:
        (place / "strict_limit").write_text("1")
        (place / "max_bytes").write_text(str(limit_bytes))
        yield
    finally:
        lift(number)


def lift(number: str) -> None:
    """As it was made: whatever the kernel's settings for all devices allow."""
    place = _place(number)
    with contextlib.suppress(OSError):  # the device may be gone, or the kernel too old
        (place / "max_ratio").write_text("100")
        (place / "strict_limit").write_text("0")


def _place(number: str) -> Path:
    """A partition has its drive's; that of a device which has gone is there no more."""
    drive = block_queue.folder_of(number)
    return _BDI / ((drive / "dev").read_text().strip() if drive.exists() else number)
