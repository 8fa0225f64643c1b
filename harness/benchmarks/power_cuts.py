"""Power cuts under load, and what of it must still be there: two hosts that keep books.

The first one is ours: threads write blocks that say where they belong and which generation they
are, note what was acknowledged, and that all of that is durable when a later fdatasync has
returned. The second is fio: every block of a dsync job that its log has must be there.

A cut lasts until both have noticed: a host with a cut drive is cut, too.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.devices.live import LiveDevice
from harness.system.programs import find_program

_BLOCK: Final = 4096
_STAMP: Final = struct.Struct("<QQ")  # the block's number and its generation
_WRITERS: Final = 4
_BLOCKS_EACH: Final = 512
_LARGEST: Final = 8
_FLUSH_EVERY: Final = 12
_TRIM_SHARE: Final = 0.15
_BLKDISCARD: Final = 0x1277
_FIO_BYTES: Final = 64 << 20
_SAFE_JOBS: Final = 2
_FIO_BEGUN_BYTES: Final = 32 * _BLOCK
_POLL_S: Final = 0.01


@dataclass
class Losses:
    """What was found after power cuts; blocks of 4 KiB.

    `lost`: older than what a flush had made durable. `garbage`: never written there. `undone`:
    acknowledged without a flush and gone, which a volatile cache may do. `durable`: blocks that had
    to be there.
    """

    cuts: int = 0
    durable: int = 0
    lost: int = 0
    garbage: int = 0
    undone: int = 0
    fio_durable: int = 0
    fio_lost: int = 0
    unanswered: int = 0

    def __iadd__(self, other: Losses) -> Losses:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self


@dataclass
class _Block:
    """Generations of one block, in order; 0 if it was trimmed. Indexes into them."""

    issued: list[int] = field(default_factory=lambda: [0])
    answered: int = 0
    durable: int = 0

    def issue(self, generation: int) -> None:
        """Another one is on its way: nothing before the last durable one may come back."""
        self.issued.append(generation)

    def answer(self) -> None:
        """The last one has been acknowledged."""
        self.answered = len(self.issued) - 1

    def latest(self, generation: int) -> int:
        """Index of the last time that it had this generation; -1: never."""
        later = self.issued[::-1]
        return len(later) - 1 - later.index(generation) if generation in later else -1


class Writer:
    """Writes and trims its part of a device, and keeps a book of it.

    With `every_write_is_durable` (power-loss protection) an acknowledgement is enough.
    """

    def __init__(
        self,
        device: Path,
        first: int,
        blocks: int,
        seed: int,
        *,
        every_write_is_durable: bool = False,
    ) -> None:
        self._device = device
        self._first = first
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._protected = every_write_is_durable
        self._book = [_Block() for _ in range(blocks)]
        self._trims = (Path("/sys/block") / device.name / "queue/discard_max_bytes").read_text()
        self._generation = 0

    def run(self, requests: int | None = None) -> None:
        """Until the first error, or so many requests."""
        with direct(self._device) as fd, mmap.mmap(-1, _LARGEST * _BLOCK) as buffer:
            left = requests if requests is not None else sys.maxsize
            try:
                while left > 0:
                    for _ in range(self._random.randrange(1, _FLUSH_EVERY)):
                        self._change(fd, buffer)
                        left -= 1
                    self._flush(fd)
            except OSError:
                if requests is not None:
                    raise

    def _change(self, fd: int, buffer: mmap.mmap) -> None:
        length = self._random.randrange(1, _LARGEST + 1)
        begin = self._random.randrange(len(self._book) - length + 1)
        blocks = self._book[begin : begin + length]
        if int(self._trims) and self._random.random() < _TRIM_SHARE:
            for block in blocks:
                block.issue(0)
            discard(fd, (self._first + begin) * _BLOCK, length * _BLOCK)
        else:
            self._write(fd, buffer, begin, blocks)
        for block in blocks:
            block.answer()
            if self._protected:
                block.durable = block.answered

    def _write(self, fd: int, buffer: mmap.mmap, begin: int, blocks: list[_Block]) -> None:
        self._generation += 1
        for i, block in enumerate(blocks):
            content = _content(self._first + begin + i, self._generation)
            buffer[i * _BLOCK : (i + 1) * _BLOCK] = content
            block.issue(self._generation)
        with memoryview(buffer)[: len(blocks) * _BLOCK] as part:
            os.pwritev(fd, [part], (self._first + begin) * _BLOCK)

    def _flush(self, fd: int) -> None:
        os.fdatasync(fd)
        for block in self._book:  # this thread alone writes them, one request after another
            block.durable = block.answered

    def check(self) -> Losses:
        """Compares, and takes what is there for what was there from the beginning."""
        found = Losses()
        data = read(self._device, self._first * _BLOCK, len(self._book) * _BLOCK)
        for i, block in enumerate(self._book):
            content = data[i * _BLOCK : (i + 1) * _BLOCK]
            number, generation = _STAMP.unpack_from(content)
            ours = not any(content) or (
                number == self._first + i and content == _content(number, generation)
            )
            at = block.latest(generation) if ours else -1
            found.durable += block.durable > 0
            found.garbage += at < 0
            found.lost += 0 <= at < block.durable
            found.undone += 0 <= at < block.answered
            self._book[i] = _Block([generation])
        return found


class Fio:
    """Jobs that write every block of their range at most once; all but one with O_DSYNC."""

    def __init__(self, device: Path, begin_bytes: int, folder: Path) -> None:
        self._device = device
        self._begin = begin_bytes
        self._log = folder / "fio"
        self._mark = 0

    def start(self, mark: int) -> subprocess.Popen[bytes]:
        """Begins to write: `mark`, and its own offset, into every block."""
        for log in self._logs():
            log.unlink()
        self._mark = mark
        common = [f"--filename={self._device}", "--direct=1", "--rw=randwrite", f"--bs={_BLOCK}"]
        common += [f"--size={_FIO_BYTES}", "--verify=pattern", "--do_verify=0", "--thread"]
        common += ["--verify_state_save=0"]
        common += [f"--verify_pattern=0x{mark:08x}%o", f"--randseed={mark}", "--log_offset=1"]
        common += ["--ioengine=libaio", "--iodepth=4", f"--write_lat_log={self._log}"]
        command = [find_program("fio"), *common]
        for job in range(_SAFE_JOBS + 1):
            command += [f"--name=job{job}", f"--offset={self._begin + job * _FIO_BYTES}"]
            command += ["--sync=dsync"] if job < _SAFE_JOBS else ["--sync=none"]
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._log.parent
        )

    def wait_until_it_writes(self, process: subprocess.Popen[bytes]) -> None:
        """As its log will have: on a loaded machine it may need seconds to begin."""
        while process.poll() is None:
            if process_writes(process.pid) >= _FIO_BEGUN_BYTES:
                return
            time.sleep(_POLL_S)

    def check(self) -> Losses:
        """Compares the blocks that the dsync jobs' logs have."""
        found = Losses()
        for job in range(1, _SAFE_JOBS + 1):
            begin = self._begin + (job - 1) * _FIO_BYTES
            data = read(self._device, begin, _FIO_BYTES)
            for offset in self._acknowledged(job):
                at = offset - begin
                found.fio_durable += 1
                found.fio_lost += data[at : at + _BLOCK] != self._content(offset)
        return found

    def _acknowledged(self, job: int) -> list[int]:
        log = self._log.with_name(f"{self._log.name}_clat.{job}.log")
        if not log.exists():
            return []
        lines = [line.split(",") for line in log.read_text().splitlines()]
        return [int(fields[4]) for fields in lines if int(fields[2]) == 1]

    def _content(self, offset: int) -> bytes:
        pattern = self._mark.to_bytes(4, "big") + offset.to_bytes(8, "little")
        return (pattern * (_BLOCK // len(pattern) + 1))[:_BLOCK]

    def _logs(self) -> list[Path]:
        return list(self._log.parent.glob(f"{self._log.name}_*.log"))


def cut_often(
    device: LiveDevice,
    cuts: int,
    folder: Path,
    *,
    seed: int,
    every_write_is_durable: bool = False,
    longest_s: float = 0.6,
) -> Losses:
    """Cuts the power so often at random moments while both write, and compares each time."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    begin = _WRITERS * _BLOCKS_EACH
    writers = [
        Writer(
            device.path,
            i * _BLOCKS_EACH,
            _BLOCKS_EACH,
            chance.getrandbits(32),
            every_write_is_durable=every_write_is_durable,
        )
        for i in range(_WRITERS)
    ]
    fio = Fio(device.path, begin * _BLOCK, folder)
    found = Losses()
    for cut in range(cuts):
        found += _cut_once(device, writers, fio, cut + 1, chance, longest_s)
        for writer in writers:
            found += writer.check()
        found += fio.check()
    return found


def _cut_once(
    device: LiveDevice,
    writers: list[Writer],
    fio: Fio,
    mark: int,
    chance: random.Random,
    longest_s: float,
) -> Losses:
    under_way = threading.Event()
    process = fio.start(mark)
    with ThreadPoolExecutor(len(writers)) as pool:
        running = [pool.submit(writer.run) for writer in writers]
        fio.wait_until_it_writes(process)
        under_way.wait(chance.uniform(0.2, 0.2 + longest_s))  # nobody sets it: a random moment
        try:
            cut = device.power_cut(chance.getrandbits(32), stay_off=True)
        finally:
            if process.poll() is None:  # its jobs end by their errors
                process.wait(60)
        for writer in running:
            writer.result()
    device.power_on()
    return Losses(cuts=1, unanswered=cut["unanswered"])


def process_writes(pid: int) -> int:
    """Bytes that a process has caused to be written to devices; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


def discard(fd: int, begin_bytes: int, length_bytes: int) -> None:
    """Trims a range of a block device."""
    fcntl.ioctl(fd, _BLKDISCARD, struct.pack("QQ", begin_bytes, length_bytes))


@contextmanager
def direct(device: Path) -> Iterator[int]:
    """A descriptor past the kernel's page cache."""
    fd = os.open(device, os.O_RDWR | os.O_DIRECT)
    try:
        yield fd
    finally:
        os.close(fd)


def read(device: Path, begin_bytes: int, length_bytes: int) -> bytes:
    """What is on the device itself."""
    with direct(device) as fd, mmap.mmap(-1, length_bytes) as buffer:
        at = 0
        while at < length_bytes:
            with memoryview(buffer)[at:] as rest:
                at += os.preadv(fd, [rest], begin_bytes + at)
        return bytes(buffer)


def _content(block: int, generation: int) -> bytes:
    return _STAMP.pack(block, generation) * (_BLOCK // _STAMP.size)
