"""What the Linux kernel does alike on every machine, for models of it."""

from __future__ import annotations

from typing import Final

WRITE_BACK_ROUND_S: Final = 0.1
"""After which write-back looks at the dirty ratio: HZ/10 in writeback_sb_inodes() of
fs/fs-writeback.c, 3.10 to 6.18."""

_GROUP_BYTES: Final = 128 << 20
"""Of an ext4 with blocks of 4 KiB."""

_GROUPS_PER_GOAL: Final = 4


def stream_goals(device_bytes: int, cpus: int) -> int:
    """How many places to look from ext4 keeps for large files, since Linux 6.17; before it, one.

    `cpus`: that the kernel may ever have. fs/ext4/mballoc.c, ext4_mb_init().
    """
    groups = -(-device_bytes // _GROUP_BYTES)
    return min(cpus, -(-groups // _GROUPS_PER_GOAL))
