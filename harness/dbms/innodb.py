"""InnoDB: its settings as options of MariaDB or MySQL, its counters, and its pages checked."""

from __future__ import annotations

import math
import os
import re
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.dbms.private import CALL_LIMIT_S, Account
from harness.errors import BadParameter, ServerError
from harness.system import given

MARIADB: Final = "MariaDB"
MYSQL: Final = "MySQL"

_PAGE_BYTES: Final = (4096, 8192, 16384, 32768, 65536)
_FLUSH_METHODS: Final = (
    "fsync",
    "O_DSYNC",
    "O_DIRECT",
    "O_DIRECT_NO_FSYNC",
    "nosync",
    "littlesync",
)
_AT_COMMIT: Final = (0, 1, 2)
_LEAST_BUFFER_POOL_BYTES: Final = 5 << 20
LEAST_REDO_BYTES: Final = 8 << 20
_CAPACITY_SINCE: Final = (8, 0, 30)
_MIB: Final = 1 << 20
_MOST_CHUNKS: Final = 1000
_MISMATCHES: Final = 1_000_000
_CHECKERS: Final = 2


@dataclass(frozen=True)
class Release:
    """A server's product (MariaDB or MySQL) and version."""

    product: str
    version: tuple[int, int, int]

    @property
    def series(self) -> str:
        """What a data folder belongs to: 'MariaDB 10.11'."""
        return f"{self.product} {self.version[0]}.{self.version[1]}"


OLD_BLOCKS_MS: Final = 1000
"""The server's default (MySQL Reference Manual, innodb_old_blocks_time)."""

LRU_SCAN_DEPTH: Final = 1024
"""That of MySQL (the same, innodb_lru_scan_depth); MariaDB's is 1,536 since 10.5."""

LEAST_LRU_SCAN_DEPTH: Final = 100


@dataclass(frozen=True)
class InnodbSettings:
    """How InnoDB uses its memory and its files.

    `doublewrite`: off, on; fast (written, not synced: MariaDB 11.1 on) or detect_only (which pages,
    not what was in them: MySQL 8.0.30 on). MariaDB keeps those pages in the system tablespace,
    MySQL 8.0.20 on in files of their own in the data folder. `redo_folder` None: in the data
    folder. `flush_log_at_commit`: 1 writes and syncs at every commit, 2 writes, 0 neither.
    `old_blocks_ms`: how long after its first use a page has to be used again to become young.
    `lru_scan_depth`: how deep the cleaner looks for pages to write, and how many it keeps free.
    `others`: more options of the server, as it names them. Raises BadParameter.
    """

    doublewrite: str = "on"
    buffer_pool_bytes: int = 128 << 20
    flush_method: str = "O_DIRECT"
    flush_log_at_commit: int = 1
    redo_bytes: int = 96 << 20
    redo_folder: Path | None = None
    page_bytes: int = 16384
    io_capacity_pages_per_s: int = 200
    old_blocks_ms: int = OLD_BLOCKS_MS
    lru_scan_depth: int = LRU_SCAN_DEPTH
    others: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("doublewrite", self.doublewrite, ("off", "on", "fast", "detect_only"))
        _check("flush_method", self.flush_method, _FLUSH_METHODS)
        _check("flush_log_at_commit", self.flush_log_at_commit, _AT_COMMIT)
        _check("page_bytes", self.page_bytes, _PAGE_BYTES)
        _check_least("buffer_pool_bytes", self.buffer_pool_bytes, _LEAST_BUFFER_POOL_BYTES)
        _check_least("redo_bytes", self.redo_bytes, LEAST_REDO_BYTES)
        _check_least("io_capacity_pages_per_s", self.io_capacity_pages_per_s, 100)
        _check_least("old_blocks_ms", self.old_blocks_ms, 0)
        _check_least("lru_scan_depth", self.lru_scan_depth, LEAST_LRU_SCAN_DEPTH)

    def options(self, release: Release) -> dict[str, str]:
        """As options of that server's command line. Raises BadParameter for what it cannot."""
        pairs = {
            "innodb_doublewrite": _doublewrite(self.doublewrite, release),
            "innodb_buffer_pool_size": str(self.buffer_pool_bytes),
            "innodb_flush_method": self.flush_method,
            "innodb_flush_log_at_trx_commit": str(self.flush_log_at_commit),
            "innodb_page_size": str(self.page_bytes),
            "innodb_io_capacity": str(self.io_capacity_pages_per_s),
            "innodb_io_capacity_max": str(2 * self.io_capacity_pages_per_s),
            "innodb_old_blocks_time": str(self.old_blocks_ms),
            "innodb_lru_scan_depth": str(self.lru_scan_depth),
            # What a run reads must not depend on the one before it.
            "innodb_buffer_pool_load_at_startup": "OFF",
            "innodb_buffer_pool_dump_at_shutdown": "OFF",
            **_redo(self.redo_bytes, release),
            **_chunks(self.buffer_pool_bytes, release),
        }
        if self.redo_folder is not None:
            pairs["innodb_log_group_home_dir"] = str(self.redo_folder)
        return {**pairs, **self.others}


def _check(name: str, value: str | int, known: Sequence[str | int]) -> None:
    if value not in known:
        raise BadParameter(f"{name} {value!r}: one of {', '.join(map(str, known))}")


def _check_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise BadParameter(f"{name} {value}: at least {least}")


def _doublewrite(name: str, release: Release) -> str:
    since = {"fast": (MARIADB, (11, 1, 0)), "detect_only": (MYSQL, (8, 0, 30))}
    if name in since:
        product, version = since[name]
        if release.product != product or release.version < version:
            raise BadParameter(
                f"doublewrite {name!r} needs {product} {'.'.join(map(str, version))} or newer, "
                f"this is {release.product} {'.'.join(map(str, release.version))}: use on or off"
            )
    return {"detect_only": "DETECT_ONLY"}.get(name, name.upper())


def _chunks(buffer_pool_bytes: int, release: Release) -> dict[str, str]:
    """MySQL makes a pool of whole chunks, of 128 MiB if nothing is said and at most a thousand."""
    if release.product == MARIADB:
        return {}
    chunk_bytes = math.ceil(buffer_pool_bytes / _MOST_CHUNKS / _MIB) * _MIB
    return {"innodb_buffer_pool_chunk_size": str(chunk_bytes)}


def _redo(redo_bytes: int, release: Release) -> dict[str, str]:
    """MariaDB has one file, MySQL had two, and then as many as it likes."""
    if release.product == MARIADB:
        return {"innodb_log_file_size": str(redo_bytes)}
    if release.version >= _CAPACITY_SINCE:
        return {"innodb_redo_log_capacity": str(redo_bytes)}
    return {"innodb_log_files_in_group": "2", "innodb_log_file_size": str(redo_bytes // 2)}


COUNTERS: Final = {
    "buffer_pool_read_requests": "Innodb_buffer_pool_read_requests",
    "buffer_pool_reads": "Innodb_buffer_pool_reads",
    "buffer_pool_dirty_pages": "Innodb_buffer_pool_pages_dirty",
    "buffer_pool_free_pages": "Innodb_buffer_pool_pages_free",
    "pages_read": "Innodb_pages_read",
    "pages_written": "Innodb_pages_written",
    "doublewrite_pages": "Innodb_dblwr_pages_written",
    "doublewrite_batches": "Innodb_dblwr_writes",
    "data_read_bytes": "Innodb_data_read",
    "data_written_bytes": "Innodb_data_written",
    "data_syncs": "Innodb_data_fsyncs",
    "redo_written_bytes": "Innodb_os_log_written",
    "redo_syncs": "Innodb_os_log_fsyncs",
    "row_lock_waits": "Innodb_row_lock_waits",
    "row_lock_time_ms": "Innodb_row_lock_time",
    "deadlocks": "Innodb_deadlocks",
    "history_list_length": "Innodb_history_list_length",
    "uptime_s": "Uptime",
}
"""Our names, with units, and those of SHOW GLOBAL STATUS. Not every server has all of them."""


def counters(status: Mapping[str, str]) -> dict[str, int]:
    """Of what SHOW GLOBAL STATUS says, by our names."""
    return {ours: int(status[theirs]) for ours, theirs in COUNTERS.items() if theirs in status}


@dataclass(frozen=True)
class BadPage:
    """A page whose checksum is not that of its content: the first page of a file is 0."""

    file: Path
    page: int
    said: str


@dataclass(frozen=True)
class PageCheck:
    """How many files and pages were looked at, and the pages that fail."""

    files: int
    pages: int
    bad: list[BadPage]


@dataclass(frozen=True)
class FileRange:
    """A part [begin_bytes, end_bytes) of a file; the end None: all of it."""

    file: Path
    begin_bytes: int = 0
    end_bytes: int | None = None


def doublewrite_parts(data: Path, page_bytes: int) -> list[FileRange]:
    """Where a server that has started keeps its doublewrite buffer; empty if it has none."""
    parts = [FileRange(file) for file in sorted(data.glob("#ib_*.dblwr"))]
    pages = _doublewrite_pages(data / _SYSTEM, page_bytes)
    return parts + [
        FileRange(data / _SYSTEM, p.start * page_bytes, p.stop * page_bytes) for p in pages
    ]


def redo_files(folder: Path) -> list[Path]:
    """The redo log's files in the folder that a server has it in."""
    return [*sorted(folder.glob("ib_logfile*")), *sorted(folder.glob("#innodb_redo/#ib_redo*"))]


_SYSTEM: Final = "ibdata1"
_TRX_SYS_PAGE: Final = 5
_DOUBLEWRITE_FROM_END: Final = 200
_DOUBLEWRITE_MAGIC: Final = 536853855
_LEAST_EXTENT_PAGES: Final = 64
_BAD: Final = re.compile(r"Fail: page[: ]+(\d+)")
_OF_CONTENT: Final = (
    "match page size",
    "Invalid page size",
    "Page 0 checksum mismatch",
    "First page of the tablespace file should be 0",
    "tablespace flags",
    "Page decompress failed",
    "maximum allowed checksum mismatch",
)
"""What `innochecksum` says of a file of which it can make nothing; all else is no verdict."""
_SHORT: Final = re.compile(r"(?:minimum page size|rest of the page) +of (\d+) bytes")
"""What it says of a file that ends within its first page, and of one that cannot be read."""
_LEAST_BYTES_PER_S: Final = 10e6  # a disk that others use too
_FIRST_BYTES: Final = 1024  # of a file, which it reads by themselves
_CRASHES: Final = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)
"""How it ends at a header that makes no sense: MySQL 9.7's divides by a page size of 0."""


def check_pages(
    data: Path, page_bytes: int, release: Release, checker: str, who: Account
) -> PageCheck:
    """Every page of all tablespaces of a server that is stopped, by its own `innochecksum`.

    Pages of zeros were never written and are no failure, nor are those that were freed, where the
    program can tell (MariaDB's). Copies in the doublewrite buffer do not count, one of them may be
    torn at any time; nor do temporary tablespaces, which are made anew. A file of which the program
    can make nothing fails by its page 0. Raises ServerError if the program has not checked a file,
    whatever kept it from that: what nobody has looked at is neither whole nor damaged.
    """
    freed = ["--skip-freed-pages"] if release.product == MARIADB else []
    # Not --no-defaults: the program reads nobody's option files, and knows no such option.
    command = [checker, *freed, f"--allow-mismatches={_MISMATCHES}"]
    files = sorted(set(_tablespaces(data)))
    with ThreadPoolExecutor(_CHECKERS) as pool:
        ended = list(pool.map(lambda file: who.call([*command, str(file)], _limit_s(file)), files))
    # One that crashes at every file does so for a reason of its own.
    works = any(done.returncode == 0 for done in ended)
    copies = _doublewrite_pages(data / _SYSTEM, page_bytes)
    bad = [
        page
        for file, done in zip(files, ended, strict=True)
        for page in _bad_pages(file, done, works=works)
        if not _is_copy(page, copies)
    ]
    return PageCheck(len(files), sum(f.lstat().st_size // page_bytes for f in files), bad)


def _limit_s(file: Path) -> float:
    return CALL_LIMIT_S + file.lstat().st_size / _LEAST_BYTES_PER_S


def _tablespaces(data: Path) -> Iterator[Path]:
    yield from (p for p in data.rglob("*.ibd") if not p.is_relative_to(data / "#innodb_temp"))
    for pattern in ("ibdata*", "undo[0-9_]*"):
        yield from data.glob(pattern)


def _is_copy(bad: BadPage, copies: Sequence[range]) -> bool:
    return bad.file.name == _SYSTEM and any(bad.page in pages for pages in copies)


def _doublewrite_pages(system: Path, page_bytes: int) -> list[range]:
    """Pages of the system tablespace that hold copies of others; MySQL 8.0.20 on has none there.

    The transaction system's page says where: InnoDB's trx0sys.h, TRX_SYS_DOUBLEWRITE.
    """
    at = _TRX_SYS_PAGE * page_bytes + page_bytes - _DOUBLEWRITE_FROM_END
    try:
        with given.opened(system) as fd:
            _, magic, first, second = struct.unpack(">10sIII", os.pread(fd, 22, at))
    except FileNotFoundError:
        return []
    extent = max((1 << 20) // page_bytes, _LEAST_EXTENT_PAGES)
    is_there = magic == _DOUBLEWRITE_MAGIC
    return [range(at, at + extent) for at in (first, second)] if is_there else []


def _bad_pages(file: Path, done: subprocess.CompletedProcess[str], *, works: bool) -> list[BadPage]:
    """The verdict on a file. `works`: the same program has checked another one to its end."""
    said = (done.stderr + done.stdout).strip().splitlines()
    bad = [BadPage(file, int(found[1]), line) for line in said if (found := _BAD.search(line))]
    if done.returncode == 0:
        return bad
    told = "; ".join(said[:2]) or f"exit code {done.returncode}"
    crashed = works and -done.returncode in _CRASHES
    verdict = next((line for line in said if _is_of_content(line, file)), "")
    if not crashed and not verdict:
        raise ServerError(f"{file} was not checked: {told}")
    return bad or [BadPage(file, 0, verdict or f"ended by signal {-done.returncode}")]


def _is_of_content(line: str, file: Path) -> bool:
    if found := _SHORT.search(line):
        return file.lstat().st_size < _FIRST_BYTES + int(found[1])
    return any(text in line for text in _OF_CONTENT)
