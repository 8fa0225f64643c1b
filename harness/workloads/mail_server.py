"""A mail server's writes as ext4 sends them to a drive, each with the kind of data that it is.

Filebench's `varmail`: each of 16 threads deletes a file, writes a new one and syncs it, appends to
another one and syncs that. Files are chosen uniformly; what is written at once is uniform up to 16
KiB, so that a file's size is 16 KiB on average. Reads change nothing on the drive and are left out.

ext4 in ordered mode, in blocks of 4 KiB: a sync writes the file's data, then the journal's
transaction, which takes what all threads have dirtied meanwhile: inodes, directory, bitmaps, group
descriptors. What a transaction has is written home when three quarters of the ring have been
written since, unless a later one has it, too. Blocks of deleted files are free after their
transaction and are not discarded. New blocks are the next free ones behind those that were given
out last (the allocator's goal moves on), round the drive.

Left out: write-back by age (30 s: the ring of 128 MiB is full before), the inode tables' order by
group, directories that split, extent trees of files in many pieces.
Source: filebench, workloads/varmail.f and flowop_library.c (appendfilerand); Linux 4.5, fs/ext4,
fs/jbd2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.errors import BadParameter
from harness.workloads.traces import Chunk, Op

THREADS: Final = 16
BLOCK_BYTES: Final = 4096
MOST_WRITTEN_BYTES: Final = 16_384
"""At once, to a new file or to the end of one."""

_MEAN_FILE_BLOCKS: Final = 4.5
"""16 KiB, and half a block that the last one is not filled."""
_BLOCKS_PER_GROUP: Final = 32_768
_INODES_PER_BLOCK: Final = 16
_NAMES_PER_BLOCK: Final = 128
_DESCRIPTORS_PER_BLOCK: Final = 64
_TAGS_PER_BLOCK: Final = 254
_SECTORS: Final = BLOCK_BYTES // 512
_LONGEST: Final = 256
"""Blocks of one request when files are laid out."""
_TRANSACTIONS: Final = 4
"""That are made at once; a ring is many times as long."""
_CHUNK_REQUESTS: Final = 65_536
_NONE: Final = -1

Ints: TypeAlias = NDArray[np.int64]


class Kind(IntEnum):
    """What a write is of; the number of its stream, as FStream parts ext4 (FAST '18)."""

    DATA = 0
    JOURNAL = 1
    INODES = 2
    DIRECTORY = 3
    BITMAPS = 4


@dataclass(frozen=True)
class Region:
    """Blocks that belong together, counted over the drive."""

    begin: int
    blocks: int

    @property
    def end(self) -> int:
        return self.begin + self.blocks


class MailServer:
    """Files, free space and journal; makes one transaction after the other.

    capacity_bytes: of the drive. filled_ratio: of it that mail fills. journal_bytes: of the ring.
    Raises BadParameter for a drive or a ring that is too small.

    Metadata blocks have numbers of their own: bitmaps, inode table and directory one behind the
    other, as they lie on the drive.
    """

    def __init__(
        self, capacity_bytes: int, *, filled_ratio: float, journal_bytes: int, seed: int = 0
    ) -> None:
        if not 0 < filled_ratio < 1:
            raise BadParameter(f"mail server: filled_ratio {filled_ratio}: must be between 0 and 1")
        blocks = capacity_bytes // BLOCK_BYTES
        self.files = int(filled_ratio * blocks / _MEAN_FILE_BLOCKS)
        self._groups = -(-blocks // _BLOCKS_PER_GROUP)
        self.bitmaps = Region(0, 2 * self._groups + -(-self._groups // _DESCRIPTORS_PER_BLOCK))
        self.inodes = Region(self.bitmaps.end, -(-self.files // _INODES_PER_BLOCK))
        self.directory = Region(self.inodes.end, -(-self.files // _NAMES_PER_BLOCK))
        self.journal = Region(self.directory.end, journal_bytes // BLOCK_BYTES)
        self.data = Region(self.journal.end, blocks - self.journal.end)
        self._random = np.random.default_rng(seed)
        self._check()
        self._lay_out()
        self._kept: deque[tuple[int, Ints]] = deque()  # the ring's length before, metadata blocks
        self._last = np.full(self.directory.end, _NONE, np.int64)  # batch that dirtied it last
        self._batch = 0
        self._written_ring = 0  # blocks, ever

    def _check(self) -> None:
        least = 4 * _TRANSACTIONS * THREADS
        if self.files < least or self.journal.blocks < 4 * least:
            raise BadParameter(
                f"mail server: {self.files} files, a journal of {self.journal.blocks} blocks: "
                f"needs at least {least} and {4 * least}"
            )

    def _lay_out(self) -> None:
        """Files as old as after long use: each was appended to as often as it was deleted."""
        appended = self._random.geometric(0.5, self.files)
        most = int(appended.max())
        sizes = self._random.integers(1, MOST_WRITTEN_BYTES, (self.files, most), endpoint=True)
        sizes[np.arange(most) >= appended[:, None]] = 0
        self.size_bytes: Ints = sizes.sum(1)
        blocks = _blocks_of(self.size_bytes)
        used = int(blocks.sum())
        if used + 4 * _TRANSACTIONS * THREADS * _MEAN_FILE_BLOCKS > self.data.blocks:
            raise BadParameter("mail server: the files leave no room on the drive")
        ends = np.cumsum(blocks)
        self.first = ends - blocks  # of each file, of the data region's blocks
        self.last = ends - 1
        self.next = np.arange(1, self.data.blocks + 1)  # in the same file
        self.next[self.last] = _NONE
        self.next[used:] = _NONE
        self.free = np.ones(self.data.blocks, np.bool_)
        self.free[:used] = False
        self._free_blocks = self.data.blocks - used
        self._goal = used
        self._name = self._random.integers(0, self.directory.blocks, self.files)

    def laid_out(self) -> Chunk:
        """Writes all that there is once: metadata, the whole ring, files from first to last."""
        used = Region(self.data.begin, int(np.count_nonzero(~self.free)))
        parts = []
        for kind, region in (
            (Kind.BITMAPS, self.bitmaps),
            (Kind.INODES, self.inodes),
            (Kind.DIRECTORY, self.directory),
            (Kind.JOURNAL, self.journal),
            (Kind.DATA, used),
        ):
            begins = np.arange(region.begin, region.end, _LONGEST)
            parts.append((begins, np.minimum(_LONGEST, region.end - begins), int(kind)))
        return _chunk(
            np.concatenate([begins for begins, _, _ in parts]),
            np.concatenate([blocks for _, blocks, _ in parts]),
            np.concatenate([np.full(len(begins), kind) for begins, _, kind in parts]),
        )

    def run(self, host_bytes: int) -> Iterator[Chunk]:
        """Its writes until that much has been written, in order; time_ns is 0."""
        left = host_bytes // BLOCK_BYTES
        made: list[tuple[Ints, Ints, Ints]] = []
        requests = 0
        while left > 0:
            part = self.transactions()
            made.append(part)
            requests += len(part[0])
            left -= int(part[1].sum())
            if requests >= _CHUNK_REQUESTS or left <= 0:
                yield _chunk(*(np.concatenate(column) for column in zip(*made, strict=True)))
                made, requests = [], 0

    def transactions(self) -> tuple[Ints, Ints, Ints]:
        """The next few: first block, number of blocks and `Kind` of each request."""
        syncs = _TRANSACTIONS * THREADS
        files = self._random.choice(self.files, syncs, replace=False)
        transaction = np.arange(syncs) // THREADS
        new = np.arange(syncs) % 2 == 0  # each thread's two syncs in turn
        freed, freed_in = self._delete(files[new], transaction[new])
        names = self._name[files[new]]
        self._name[files[new]] = self._random.integers(0, self.directory.blocks, len(names))
        blocks, file = self._write(files, new)
        self.free[freed] = True
        self._free_blocks += len(freed)
        dirty = [
            (transaction, self.inodes.begin + files // _INODES_PER_BLOCK),
            (transaction[new], self.directory.begin + names),
            (transaction[new], self.directory.begin + self._name[files[new]]),
            (transaction[new], self._groups + files[new] * self._groups // self.files),
            (transaction[new], np.full(len(names), self.inodes.begin)),  # the directory's own
        ]
        for touched, inside in ((blocks, transaction[file]), (freed, freed_in)):
            group = (self.data.begin + touched) // _BLOCKS_PER_GROUP
            dirty += [
                (inside, group),
                (inside, 2 * self._groups + group // _DESCRIPTORS_PER_BLOCK),
            ]
        keys = np.unique(np.concatenate([t * self.directory.end + b for t, b in dirty]))
        home = self._room_for(keys % self.directory.end)
        data = self._data_requests(blocks, file, transaction)
        ring = self._ring_requests(np.bincount(keys // self.directory.end, minlength=_TRANSACTIONS))
        order = np.argsort(np.concatenate([data[0], ring[0]]), kind="stable")
        begins, lengths, kinds = (
            np.concatenate([a, b])[order] for a, b in zip(data[1:], ring[1:], strict=True)
        )
        return (
            np.concatenate([begins, home[0]]),
            np.concatenate([lengths, home[1]]),
            np.concatenate([kinds, home[2]]),
        )

    def _delete(self, files: Ints, transaction: Ints) -> tuple[Ints, Ints]:
        """Their blocks, and the transaction in which each is freed. Leaves them empty."""
        blocks, inside = [], []
        at = self.first[files]
        while len(at):
            blocks.append(at)
            inside.append(transaction)
            at = self.next[at]
            more = at != _NONE
            at, transaction = at[more], transaction[more]
        self.size_bytes[files] = 0
        return np.concatenate(blocks), np.concatenate(inside)

    def _write(self, files: Ints, new: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """Each file's end: the blocks that are written, and which of `files` each is of."""
        before = self.size_bytes[files]
        after = before + self._random.integers(1, MOST_WRITTEN_BYTES, len(files), endpoint=True)
        self.size_bytes[files] = after
        needed = _blocks_of(after) - _blocks_of(before)
        file = np.repeat(np.arange(len(files)), needed)
        taken = self._take(len(file))
        again = np.flatnonzero(before % BLOCK_BYTES)  # a last block that was not full
        written = np.concatenate([self.last[files[again]], taken])
        of = np.concatenate([again, file])
        order = np.argsort(of, kind="stable")
        grown = np.flatnonzero(needed)
        ends = np.cumsum(needed)[grown]
        begins = ends - needed[grown]
        self.next[taken[:-1]] = taken[1:]
        self.next[taken[ends - 1]] = _NONE
        old = grown[~new[grown]]
        self.next[self.last[files[old]]] = taken[begins[~new[grown]]]
        self.first[files[grown[new[grown]]]] = taken[begins[new[grown]]]
        self.last[files[grown]] = taken[ends - 1]
        return written[order], of[order]

    def _take(self, blocks: int) -> Ints:
        """The next free ones from the goal on, round the drive."""
        taken: list[Ints] = []
        window = 8 * blocks
        self._free_blocks -= blocks
        if self._free_blocks < 0:
            raise BadParameter("mail server: the drive is full")
        while blocks > 0:
            found = self._goal + np.flatnonzero(self.free[self._goal : self._goal + window])
            found = found[:blocks]
            self.free[found] = False
            taken.append(found)
            blocks -= len(found)
            self._goal = int(found[-1]) + 1 if blocks == 0 else self._goal + window
            if self._goal >= self.data.blocks:
                self._goal = 0
        return np.concatenate(taken)

    def _data_requests(
        self, blocks: Ints, file: Ints, transaction: Ints
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Blocks that touch, of one file, are one request: transaction, begin, blocks, kind."""
        starts, lengths = _touching(blocks, file)
        kinds = np.full(len(starts), int(Kind.DATA))
        return transaction[file[starts]], self.data.begin + blocks[starts], lengths, kinds

    def _ring_requests(self, dirty: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Descriptors and blocks, then the commit record, of each transaction."""
        rows = []
        for transaction, blocks in enumerate(dirty):
            for length in (int(blocks) + -(-int(blocks) // _TAGS_PER_BLOCK), 1):
                left = length
                while left > 0:
                    at = self._written_ring % self.journal.blocks
                    now = min(left, self.journal.blocks - at)
                    rows.append((transaction, self.journal.begin + at, now, int(Kind.JOURNAL)))
                    self._written_ring += now
                    left -= now
        transactions, begins, lengths, kinds = np.array(rows, np.int64).T
        return transactions, begins, lengths, kinds

    def _room_for(self, dirty: Ints) -> tuple[Ints, Ints, Ints]:
        """Keeps what is dirtied; writes home what has been in the ring for long, by address."""
        self._batch += 1
        self._last[dirty] = self._batch
        self._kept.append((self._written_ring, np.unique(dirty)))
        home: list[Ints] = []
        while self._written_ring - self._kept[0][0] > self.journal.blocks * 3 // 4:
            batch = self._batch - len(self._kept) + 1
            _, blocks = self._kept.popleft()
            home.append(blocks[self._last[blocks] == batch])
        blocks = np.sort(np.concatenate([*home, np.empty(0, np.int64)]))
        kinds = np.digitize(blocks, [self.inodes.begin, self.directory.begin])
        kinds = np.array([Kind.BITMAPS, Kind.INODES, Kind.DIRECTORY], np.int64)[kinds]
        starts, lengths = _touching(blocks, kinds)
        return blocks[starts], lengths, kinds[starts]


def _touching(blocks: Ints, of: Ints) -> tuple[Ints, Ints]:
    """Where rows of blocks begin that follow each other and are of the same; how long each is."""
    apart = (np.diff(blocks, prepend=_NONE - 1) != 1) | (np.diff(of, prepend=_NONE) != 0)
    starts = np.flatnonzero(apart)
    return starts, np.diff(starts, append=len(blocks))


def _blocks_of(size_bytes: Ints) -> Ints:
    return -(-size_bytes // BLOCK_BYTES)


def _chunk(begins: Ints, blocks: Ints, kinds: Ints) -> Chunk:
    return Chunk(
        time_ns=np.zeros(len(begins), np.int64),
        op=np.full(len(begins), int(Op.WRITE), np.uint8),
        lba=begins * _SECTORS,
        sectors=blocks * _SECTORS,
        stream=kinds.astype(np.uint16),
        fua=np.zeros(len(begins), np.bool_),
        first_line=1,
    )
