"""What an ext4 is asked to be: data, which makes and mounts nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from harness.errors import BadParameter, TargetError, UnknownName
from harness.units import format_bytes

COMMIT_S: Final = 5
"""How often ext4 commits its journal, if it is not told otherwise."""

JOURNAL_MODES: Final = ("ordered", "journal")
"""What the journal holds: metadata, with data written home before it; or data, too."""

INODES: Final = 4096
"""How many files there may be, if nobody asks for more."""

INODE_BYTES: Final = 256
"""Of each; mke2fs writes them all."""

BLOCK_BYTES: Final = 4096
"""Of a file-system block, if nobody asks for larger ones."""

_MOST_CHOSEN_JOURNAL_BYTES: Final = 64 << 20
JOURNAL_BLOCKS: Final = (1024, 10_240_000)
"""The fewest and the most that mke2fs allows (mke2fs(8), -J size)."""

_MIB: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Ext4Spec:
    """How an ext4 is made and mounted.

    `size_bytes` 0: as large as the device. `dirty_bytes`: how much that is not written yet the
    kernel may hold of it, half of that before it begins to write in the background (`limited` in
    system/writeback); 0: as much as it likes. `discard`: the device is told what was deleted, after
    the next commit. `inodes`: how many files there may be. `commit_s`: how often its journal
    commits; ext4 takes whole seconds of the clock, at least one. `journal_mode`: one of
    JOURNAL_MODES; with `journal`, O_DIRECT is buffered. `journal_bytes`: whole MiB; 0: a 16th of
    the file system, 4 to 64 MiB. `block_bytes`: of a file-system block, which not every kernel can
    mount if it is larger than a page of memory.

    Raises UnknownName (the mode), BadParameter (a journal size that mke2fs does not allow).
    """

    size_bytes: int = 0
    dirty_bytes: int = 0
    discard: bool = False
    inodes: int = INODES
    commit_s: float = COMMIT_S
    journal_mode: str = "ordered"
    journal_bytes: int = 0
    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        if self.journal_mode not in JOURNAL_MODES:
            raise UnknownName("journal mode", self.journal_mode, JOURNAL_MODES)
        if self.journal_bytes:
            check_journal(self.journal_bytes, self.block_bytes)

    def sized(self, whole_bytes: int) -> Ext4Spec:
        """The same, of `whole_bytes` if it has no size of its own."""
        return replace(self, size_bytes=self.size_bytes or whole_bytes)

    @property
    def mount_options(self) -> tuple[str, ...]:
        """What mount(8) is told."""
        return (
            f"commit={max(round(self.commit_s), 1)}",
            "discard" if self.discard else "nodiscard",
            f"data={self.journal_mode}",
        )

    def journal_bytes_in(self, whole_bytes: int) -> int:
        """The journal's size in a file system of that size: whole MiB, as mke2fs wants them.

        Raises TargetError if it does not fit.
        """
        if self.journal_bytes == 0:
            least = JOURNAL_BLOCKS[0] * self.block_bytes
            chosen = min(max(whole_bytes // 16, least), _MOST_CHOSEN_JOURNAL_BYTES)
            return chosen // _MIB * _MIB
        if self.journal_bytes > whole_bytes // 2:
            raise TargetError(
                f"a journal of {format_bytes(self.journal_bytes)} does not fit into a file system "
                f"of {format_bytes(whole_bytes)}, at most half of it does: choose a smaller "
                "journal or a larger device"
            )
        return self.journal_bytes


PLAIN: Final = Ext4Spec()
"""As large as its device, and as mke2fs and the kernel would have it."""


def check_journal(journal_bytes: int, block_bytes: int) -> None:
    """Raises BadParameter for a journal that mke2fs does not make."""
    fewest, most = (blocks * block_bytes for blocks in JOURNAL_BLOCKS)
    if journal_bytes % _MIB or not fewest <= journal_bytes <= most:
        raise BadParameter(
            f"journal_bytes {journal_bytes}: must be whole MiB, {format_bytes(fewest)} to "
            f"{format_bytes(most)}"
        )
