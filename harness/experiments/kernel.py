"""What the Linux kernel does alike on every machine, for models of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.devices.profiles import DeviceProfile, SsdProfile

Version = tuple[int, int]
"""Of a kernel: (3, 10)."""

EMULATED: Final[Version] = (6, 18)
"""Under which the emulated results that are published were measured. Between 4.11 and this one
nothing has changed that the models look at, but for ext4's allocator and, in 6.11, read-ahead and
the journal's largest transaction."""

WRITE_BACK_ROUND_S: Final = 0.1
"""After which write-back looks at the dirty ratio: HZ/10 in writeback_sb_inodes() of
fs/fs-writeback.c, 3.10 to 6.18."""

TICK_S: Final = 1 / 250
"""Of the clock by which files have their times (current_fs_time(), since 4.9 current_time()):
CONFIG_HZ=250 of Ubuntu's and Debian's kernels. A rate, which does not shrink with sizes: as many
syncs fall into one at any size."""


@dataclass(frozen=True)
class Setup:
    """Of kernel and file system, what whoever set up the machine decided.

    `fua`: whether it is used of the drive; None: as of such a drive (`kernel.fua`).
    `strict_limit`: what may be dirty is the device's own bound. `inodes`: of an ext4; None: one for
    each 16 KiB, mke2fs's default.
    """

    fua: bool | None = None
    strict_limit: bool = False
    inodes: int | None = None

    def uses_fua(self, profile: DeviceProfile) -> bool:
        """Whether the commit record is durable by itself on this drive."""
        return fua(profile) if self.fua is None else self.fua

    def inode_table_bytes(self, file_system_bytes: int) -> int:
        """Of a group, of an ext4 of that size."""
        if self.inodes is None:
            return _GROUP_BYTES // _BYTES_PER_INODE * _INODE_BYTES
        each = -(-self.inodes // -(-file_system_bytes // _GROUP_BYTES))
        return -(-each * _INODE_BYTES // _BLOCK_BYTES) * _BLOCK_BYTES


PLAIN: Final = Setup()
"""As the papers' machines are taken to be."""

_BLOCK_BYTES: Final = 4096
_BYTES_PER_INODE: Final = 16_384
_INODE_BYTES: Final = 256

_GROUP_BYTES: Final = 128 << 20
"""Of an ext4 with blocks of 4 KiB."""

_GROUPS_PER_GOAL: Final = 4


def stream_goals(device_bytes: int, cpus: int, *, recent: bool = True) -> int:
    """How many places to look from ext4 keeps for large files.

    `cpus`: that the kernel may ever have. `recent`: since Linux 6.17 (fs/ext4/mballoc.c,
    ext4_mb_init()); before it there is one.
    """
    if not recent:
        return 1
    groups = -(-device_bytes // _GROUP_BYTES)
    return min(cpus, -(-groups // _GROUPS_PER_GOAL))


def fua(profile: DeviceProfile) -> bool:
    """Whether the kernel asks this drive that a write be durable by itself; else a flush follows.

    NVMe's drives it does. SATA's it does not, unless somebody says libata.fua=1
    (drivers/ata/libata-core.c). Profiles do not name the interface: a TRIM that queues is NVMe's.
    """
    return isinstance(profile, SsdProfile) and profile.parameters.trim_queued.value


def page_cache_rules(version: Version) -> dict[str, bool]:
    """Of `_core.PageCacheParameters`: what becomes active besides what is read twice, and how
    misses are read ahead of.

    Until 4.7 a write is a use as a read is (bbddabe2e436, "only do access activations on reads").
    Since 3.15 a page that comes back soon after it was evicted is active (a528910e12ec, "thrash
    detection-based file cache sizing"), since 4.11 a dirty one that would be evicted (c55e8d035b28,
    "move dirty pages out of the way until they're flushed"), and who looks for room and finds none
    but dirty ones has all that is dirty written (726d061fbd36, "kick flushers when we encounter
    dirty pages on the LRU"). Since 6.11 a miss opens a window of its own ("readahead: disentangle
    async and sync readahead"; 6.12's mm/readahead.c). Since 5.8 ext4 does not look once more
    whether a file has something new to be written back ("ext4: avoid unnecessary transaction
    starts during writeback").
    """
    return {
        "refaults": version >= (3, 15),
        "writes_are_uses": version < (4, 7),
        "dirty_go_active": version >= (4, 11),
        "dirty_tail_is_flushed": version >= (4, 11),
        "misses_open_windows": version >= (6, 11),
        "turns_end_with_scan": version >= (5, 8),
    }


def data_journal_rules(version: Version) -> dict[str, bool]:
    """Of `_core.TpccSpec`: when journaled data goes home by syncing its file.

    ext4_sync_file() writes the file's pages back before it commits. Until 6.3 that finds what the
    sync before has committed; since 6.4 ext4_writepages() commits first (fs/ext4/inode.c, "data=
    journal mode ... run the writeback loop to checkpoint them"), so that it finds everything.
    """
    return {"home_in_same_sync": version >= (6, 4)}


def journal_rules(version: Version) -> dict[str, int]:
    """Of `_core.TpccSpec`: the ring over the largest transaction.

    jbd2_journal_get_max_txn_bufs(): a quarter, as j_max_transaction_buffers was before it; a third
    since 6.11 (a794c9ad026f, "jbd2: increase maximum transaction size").
    """
    return {"ring_per_transaction": 3 if version >= (6, 11) else 4}
