"""A mail server's writes on ext4: nothing is lost or held twice, each kind goes where it lives."""

from __future__ import annotations

import numpy as np
import pytest

from harness.errors import BadParameter
from harness.workloads.mail_server import BLOCK_BYTES, Kind, MailServer
from harness.workloads.traces import Chunk, Op

GB = 10**9
JOURNAL_BYTES = 5 << 20


def server(seed: int = 0, filled: float = 0.85) -> MailServer:
    return MailServer(GB, filled_ratio=filled, journal_bytes=JOURNAL_BYTES, seed=seed)


def blocks(chunk: Chunk, kind: Kind) -> tuple[np.ndarray, np.ndarray]:
    of = chunk.stream == kind
    return chunk.lba[of] // 8, chunk.sectors[of] // 8


def test_every_block_in_use_belongs_to_one_file() -> None:
    mail = server()
    for _ in mail.run(GB):
        held = np.zeros(mail.data.blocks, np.int64)
        at = mail.first
        while len(at):
            np.add.at(held, at, 1)
            at = mail.next[at]
            at = at[at >= 0]
        np.testing.assert_array_equal(held, ~mail.free)
        assert held.sum() == -(-mail.size_bytes // BLOCK_BYTES).sum()


def test_files_keep_their_size_of_16_kib_and_fill_the_drive() -> None:
    mail = server()
    for _ in mail.run(3 * GB):
        pass
    assert mail.size_bytes.mean() == pytest.approx(16384, rel=0.02)
    assert (~mail.free).sum() * BLOCK_BYTES / GB == pytest.approx(0.85, rel=0.02)


def test_the_journal_is_written_from_end_to_end_and_all_else_in_its_region() -> None:
    mail = server()
    regions = {
        Kind.DATA: mail.data,
        Kind.JOURNAL: mail.journal,
        Kind.INODES: mail.inodes,
        Kind.DIRECTORY: mail.directory,
        Kind.BITMAPS: mail.bitmaps,
    }
    expected = 0
    for chunk in mail.run(GB // 10):
        assert (chunk.op == Op.WRITE).all()
        for kind, region in regions.items():
            begin, length = blocks(chunk, kind)
            assert (length > 0).all()
            assert (begin >= region.begin).all()
            assert (begin + length <= region.end).all()
        begin, length = blocks(chunk, Kind.JOURNAL)
        at = expected + np.cumsum(length) - length
        np.testing.assert_array_equal(begin - mail.journal.begin, at % mail.journal.blocks)
        expected += int(length.sum())
    assert expected > 2 * mail.journal.blocks


def test_what_is_in_the_journal_comes_home_once_in_a_while() -> None:
    """At least the inodes of 64 files for each four transactions."""
    mail = server()
    in_ring = home = 0
    for chunk in mail.run(GB):
        in_ring += int(blocks(chunk, Kind.JOURNAL)[1].sum())
        home += int(sum(blocks(chunk, k)[1].sum() for k in (Kind.INODES, Kind.DIRECTORY)))
    assert 0.3 < home / in_ring < 0.9  # bitmaps and often used blocks stay, descriptors are no data


def test_what_a_later_transaction_has_is_not_written_home_before() -> None:
    """A block goes home once it has left three quarters of the ring, with its last change."""
    mail = server()
    for _ in range(400):
        begins, lengths, kinds = mail.transactions()
        home = np.isin(kinds, (Kind.BITMAPS, Kind.INODES, Kind.DIRECTORY))
        pairs = zip(begins[home], lengths[home], strict=True)
        written = [block for begin, length in pairs for block in range(begin, begin + length)]
        kept = np.concatenate([blocks for _, blocks in mail._kept])
        assert not np.isin(written, kept).any()
    assert len(written) > 0


def test_data_is_as_much_as_filebench_writes() -> None:
    """Up to 16 KiB at a time: 2.5 blocks of a new file, 3 of an appended one."""
    mail = server()
    written = sum(int(blocks(chunk, Kind.DATA)[1].sum()) for chunk in mail.run(GB))
    syncs = 64 * mail._batch
    # An append begins in a block that is not full but for one in 4,096 times.
    assert written / syncs == pytest.approx((2.5 + 3.0) / 2, rel=0.03)


def test_all_is_written_once_before() -> None:
    mail = server()
    chunk = mail.laid_out()
    assert chunk.sectors.sum() * 512 == (
        mail.data.begin * BLOCK_BYTES + int((~mail.free).sum()) * BLOCK_BYTES
    )
    ends = chunk.lba + chunk.sectors
    np.testing.assert_array_equal(np.sort(chunk.lba)[1:], np.sort(ends)[:-1])


def test_the_same_seed_gives_the_same_writes() -> None:
    same = [next(iter(server(seed).run(GB // 100))) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(same[0].lba, same[1].lba)
    assert len(same[0]) != len(same[2]) or (same[0].lba != same[2].lba).any()


def test_a_drive_without_room_is_refused() -> None:
    for filled in (0.0, 1.0):
        with pytest.raises(BadParameter, match="filled_ratio"):
            server(filled=filled)
    with pytest.raises(BadParameter, match="no room"):
        server(filled=0.99)
    with pytest.raises(BadParameter, match="journal of"):
        MailServer(GB, filled_ratio=0.5, journal_bytes=1 << 20)
    mail = server()
    mail._free_blocks = 0
    with pytest.raises(BadParameter, match="full"):
        mail.transactions()
