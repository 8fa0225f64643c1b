"""A batch of power cuts under TPC-C on a drive whose write cache is volatile, and what came back.

A cut fails what is in flight, and what was written but not flushed has its old content again, or
not, 4 KiB by 4 KiB at random (harness/core/live/undo_log.hpp): so the four blocks of an InnoDB page
part company. The server is killed, ext4 is unmounted while the drive is off, and both start again.

Every cut has a new file system with a copy of the loaded database, so that none suffers from what
nobody saw of an earlier one. Only the load runs at the drive's pace, as only what is written then
can be lost.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow.parquet as pq

from harness.dbms import mysql, page_writes
from harness.dbms.innodb import LEAST_LRU_SCAN_DEPTH, InnodbSettings, PageCheck
from harness.dbms.mysql import Server
from harness.dbms.page_writes import PageWrites
from harness.devices.live import LiveDevice
from harness.devices.profiles import NamedRange
from harness.errors import (
    HarnessError,
    Interrupted,
    InvalidRun,
    ServerError,
    ServerLost,
    TargetError,
)
from harness.experiments.base import Measurement, Point
from harness.experiments.msdj_crashes import outcomes
from harness.experiments.msdj_crashes.grid import Cell, Parameters
from harness.experiments.msdj_crashes.markers import Markers, create
from harness.experiments.msdj_crashes.outcomes import Outcome
from harness.probes.recorder import Recorder
from harness.system import filesystems, mounts
from harness.system.ext4_spec import Ext4Spec
from harness.system.filesystems import NotMounted
from harness.tiers.base import Bench, DeviceRequest
from harness.workloads.tpcc import consistency, driver, loading, scale
from harness.workloads.tpcc.connections import Address, connected, execute
from harness.workloads.tpcc.driver import Job
from harness.workloads.tpcc.population import TABLES, Population

_STREAMS: Final = {"streams": "2", "placement": "range", "gc_placement": "by_stream"}
_BLOCK_SECTORS: Final = 8
_LOADING: Final = InnodbSettings(
    doublewrite="off", buffer_pool_bytes=256 << 20, flush_log_at_commit=0
)
_IO_PAGES_PER_S: Final = 2000
_EAGER: Final = {
    "innodb_max_dirty_pages_pct_lwm": "1",
    "innodb_max_dirty_pages_pct": "10",
    "innodb_lru_scan_depth": str(LEAST_LRU_SCAN_DEPTH),
}
"""Pages are written as soon as they are dirty: so that some always are when the power fails. So
many are kept free: of this small pool the default would be three times all.
"""

_OF_DAMAGE: Final = {errno.EUCLEAN, errno.EBADMSG, errno.EIO, errno.ENOENT}
"""Wrong structure (ext4's EFSCORRUPTED), wrong checksum (EFSBADCRC), unreadable, gone."""

_UNENDING_S: Final = 600.0
_START_LIMIT_S: Final = 60.0
_RECOVERY_LIMIT_S: Final = 600.0
_LOOK_S: Final = 0.05
_LAST_BREATH_S: Final = 1.0
"""A connection is gone some time before its server is."""

_DATA: Final = "data"
_PAGE_FILES: Final = ("*.ibd", "*.ibu", "ibdata*", "undo*")


def run(point: Point, parameters: Parameters, bench: Bench, raw: Path) -> Measurement:
    """A batch of cuts of one mode."""
    del parameters
    return run_point(Cell.of(point), bench, raw)


def run_point(v: Cell, bench: Bench, raw: Path) -> Measurement:
    """Cuts the power so often, and returns what was found each time.

    Where the kernel cannot mount the mode's file-system blocks there are no cuts, and a remark
    `not_run_because`. Raises HarnessError (also without bpftrace); whatever it started has ended
    then.
    """
    mode = page_writes.find(v.mode)
    with bench.open_device(
        DeviceRequest(
            device=v.device,
            needed_bytes=v.device_bytes,
            overrides=_STREAMS if mode.journal_stream else {},
            seed=v.seed,
            size_bytes=v.device_bytes,
        )
    ) as device:
        drive = device.drive
        assert drive is not None, "a real drive's power cannot be cut"
        refused = _refused(drive, mode, v.journal_bytes)
        if refused:
            return Measurement(outcomes.metrics([]), remarks={"not_run_because": refused})
        with _loaded(v.warehouses, raw) as loaded:
            batch = _Batch(v, bench, drive, mode, loaded)
            found = _run(batch, loaded.parent)
    remarks = {"server_version": batch.server_version}
    return Measurement(outcomes.metrics(found), outcomes.series(found), remarks=remarks)


def _run(batch: _Batch, folder: Path) -> list[Outcome]:
    """All cuts; where ext4 journals data, with a record of which pages its commits split."""
    if batch.mode.journal_mode != "journal":
        return batch.run()
    trace = folder / "page_commits.parquet"
    with Recorder(batch.drive.path, trace, "page_commits"):
        found = batch.run()
    pages = pq.read_table(trace).to_pandas()
    return [_with_pages(each, pages, span) for each, span in zip(found, batch.spans, strict=True)]


def _with_pages(outcome: Outcome, pages: pd.DataFrame, span: _Span) -> Outcome:
    """Only of files of pages: a long write of the redo log is four blocks, too."""
    during = (span.begin_ns <= pages.time_ns) & (pages.time_ns < span.end_ns)
    mine = pages[during & pages.inode.isin(span.page_files)]
    split = int((mine.first_transaction != mine.last_transaction).sum())
    return replace(outcome, journaled_pages=len(mine), split_pages=split)


def _refused(drive: LiveDevice, mode: PageWrites, journal_bytes: int) -> str:
    """Why the kernel mounts no file system with such blocks; empty if it does.

    Blocks that are no larger than a page of memory can always be mounted: a failure is an error.
    """
    if mode.file_system_block_bytes <= os.sysconf("SC_PAGE_SIZE"):
        return ""
    spec = _ext4(mode, journal_bytes)
    _make(drive, mode, spec)
    try:
        with filesystems.mounted(drive.path, spec):
            return ""
    except TargetError as error:
        return str(error)


def _ext4(mode: PageWrites, journal_bytes: int) -> Ext4Spec:
    return Ext4Spec(
        journal_mode=mode.journal_mode,
        journal_bytes=journal_bytes,
        block_bytes=mode.file_system_block_bytes,
    )


def _make(drive: LiveDevice, mode: PageWrites, spec: Ext4Spec) -> None:
    """A new file system; the drive learns where its journal lies, if that has a stream."""
    drive.set_speed("none")
    filesystems.make(drive.path, spec)
    if mode.journal_stream:
        extents = filesystems.journal_extents(drive.path)
        drive.set_ranges([NamedRange("journal", b, e, 1) for b, e in sorted(extents)])


@contextmanager
def _loaded(warehouses: int, raw: Path) -> Iterator[Path]:
    """The data folder of a loaded database whose server is stopped: to be copied."""
    with mysql.new_folder(mysql.folder_below(raw)) as folder:
        with mysql.run(folder, _LOADING) as server:
            address = _address(server)
            loading.load(address, Population(scale.reduced(warehouses)), watch=server.check)
            create(address)
        yield folder


def _address(server: Server) -> Address:
    return {**server.address, "database": loading.DATABASE}


@dataclass(frozen=True)
class _Span:
    """In which time (CLOCK_BOOTTIME) the drive took its time, and the inodes of the files that
    InnoDB's pages were in.
    """

    begin_ns: int
    end_ns: int
    page_files: frozenset[int]


def _page_files(data: Path) -> frozenset[int]:
    """Tables, the system's tablespace and undo logs; not the redo log, nor what is temporary."""
    named = (path for pattern in _PAGE_FILES for path in data.rglob(pattern))
    return frozenset(path.stat().st_ino for path in named)


@dataclass
class _Batch:
    """What the cuts of a point run on; `loaded` is the data folder to begin with.

    `spans`: one before each cut. `server_version`: such as 10.11.6, of the last one.
    """

    cell: Cell
    bench: Bench
    drive: LiveDevice
    mode: PageWrites
    loaded: Path

    def __post_init__(self) -> None:
        self._chance = random.Random(self.cell.seed)  # noqa: S311 - no secret
        self.spans: list[_Span] = []
        self.server_version = ""
        self._spec = _ext4(self.mode, self.cell.journal_bytes)
        self._settings = InnodbSettings(
            doublewrite="on" if self.mode.doublewrite else "off",
            buffer_pool_bytes=self.cell.buffer_pool_bytes,
            redo_bytes=self.cell.redo_bytes,
            io_capacity_pages_per_s=_IO_PAGES_PER_S,
            others=_EAGER,
        )

    def run(self) -> list[Outcome]:
        """All cuts, one after the other."""
        return [self._cut() for _ in range(self.cell.cuts_planned)]

    def _cut(self) -> Outcome:
        if self.bench.cancel.is_set:
            raise Interrupted("cancelled: what was finished is kept")
        self._restore()
        bounds_s = self.cell.shortest_load_s, self.cell.longest_load_s
        moment_s = self._chance.uniform(*bounds_s)
        with self._mounted() as folder:
            markers, cut = self._load_until(moment_s, folder / _DATA)
        self.drive.power_on()
        self.drive.set_speed("none")
        return self._recover(
            Outcome(
                moment_s=moment_s,
                doubtful_blocks=cut["doubtful_sectors"] // _BLOCK_SECTORS,
                lost_blocks=cut["changed_sectors"] // _BLOCK_SECTORS,
                unanswered_requests=cut["unanswered"],
                acknowledged_commits=markers.commits,
            ),
            markers,
        )

    def _mounted(self) -> Any:
        return filesystems.mounted(self.drive.path, self._spec)

    def _restore(self) -> None:
        _make(self.drive, self.mode, self._spec)
        with filesystems.mounted(self.drive.path) as folder:  # not by way of the journal
            shutil.copytree(
                self.loaded, folder / _DATA, symlinks=True
            )  # links are nobody's of ours
            mounts.sync(folder)

    def _load_until(self, moment_s: float, data: Path) -> tuple[Markers, dict[str, int]]:
        """Runs the load, cuts the power, and kills the server, which has been cut, too."""
        job = Job(
            self.cell.connections,
            processes=1,
            warm_up_s=0,
            measured_s=_UNENDING_S,
            seed=self._chance.getrandbits(31),
        )
        with mysql.run(data, self._settings) as server, ThreadPoolExecutor(1) as pool:
            self.server_version = ".".join(map(str, server.release.version))
            markers = Markers(_address(server))
            try:
                load = pool.submit(driver.run, _address(server), job, watch=server.check)
                with markers.writing():
                    try:
                        self._wait_for_orders(_address(server), load)
                        page_files = _page_files(data)
                        self.drive.set_speed("real")
                        begin_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                        _go_on(load, moment_s)
                        cut = self.drive.power_cut(self._chance.getrandbits(32), stay_off=True)
                        end_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                    finally:
                        server.kill()
            finally:
                server.kill()
            with suppress(HarnessError):  # how the load's clients meet their server's end
                load.result()
        self.spans.append(_Span(begin_ns, end_ns, page_files))
        return markers, cut

    def _wait_for_orders(self, address: Address, load: Future[Any]) -> None:
        """Until the load is under way: its clients connect first."""
        deadline_s = time.monotonic() + _START_LIMIT_S
        with connected(address) as connection:
            least = _orders(connection) + self.cell.orders_before_load
            while _orders(connection) < least:
                if time.monotonic() > deadline_s:
                    raise InvalidRun(f"too few orders in {_START_LIMIT_S:g} s: choose fewer")
                _go_on(load, _LOOK_S)

    def _recover(self, cut: Outcome, markers: Markers) -> Outcome:
        """Everything starts again; what is there is compared with what was."""
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(self._mounted())
            except NotMounted:  # e2fsck may find nothing: without replaying it sees no journal
                return replace(cut, failed_mounts=1)
            found = self._look(cut, markers, folder / _DATA)
        broken = int(bool(filesystems.check(self.drive.path)))
        return replace(found, file_system_errors=broken)

    def _look(self, cut: Outcome, markers: Markers, data: Path) -> Outcome:
        """At what the mounted file system has; it may have lost its files."""
        torn = self._pages(data)
        if torn is None:
            return replace(cut, failed_starts=1)
        before = replace(
            cut,
            torn_pages=len(torn.bad),
            torn_first_pages=_first_pages(torn),
            pages_checked=torn.pages,
        )
        found = self._start_again(before, markers, data)
        pages = self._pages(data)
        if pages is None:
            return replace(found, failed_checks=1)
        return replace(
            found,
            bad_pages=len(pages.bad),
            bad_first_pages=_first_pages(pages),
            pages_checked=torn.pages + pages.pages,
        )

    def _pages(self, data: Path) -> PageCheck | None:
        """None where ext4 cannot show the files."""
        try:
            return mysql.check_pages(data, self._settings)
        except (OSError, TargetError) as error:
            if not _tells_of_damage(error):
                raise
            return None

    def _start_again(self, cut: Outcome, markers: Markers, data: Path) -> Outcome:
        """The server recovers, answers, and stops; that it cannot is an outcome.

        Not so if somebody has stopped it, or it was too slow.
        """
        found = replace(cut, failed_starts=1)
        try:
            with mysql.run(data, self._settings, start_limit_s=_RECOVERY_LIMIT_S) as server:
                found = replace(cut, failed_checks=1)
                address = _address(server)
                with _told_who_ended_it(server):
                    counted = replace(cut, lost_commits=markers.lost(address), commits_counted=1)
                    found = replace(counted, failed_checks=1)
                    checked = _checked(counted, address)
            found = checked
        except ServerLost:
            raise
        except (ServerError, mysql.NoDataFolder):
            return found
        except (OSError, TargetError) as error:
            if not _tells_of_damage(error):
                raise
        return found


def _checked(cut: Outcome, address: Address) -> Outcome:
    """What the server's answers say of its data. Raises ServerError if it gives none."""
    conditions = consistency.check(address)
    return replace(
        cut,
        violated_conditions=sum(each.violations > 0 for each in conditions),
        corrupt_tables=len(_corrupt_tables(address)),
    )


@contextmanager
def _told_who_ended_it(server: Server) -> Iterator[None]:
    """That a client has lost its server is the data's doing only if nobody has killed that: raises
    ServerLost in the place of the client's error.
    """
    try:
        yield
    except ServerError:
        with suppress(subprocess.TimeoutExpired):  # it answers, if with an error
            server.process.wait(_LAST_BREATH_S)
        server.check()
        raise


def _tells_of_damage(error: OSError | TargetError) -> bool:
    """Whether ext4 says that what it has of a file or folder is wrong, or has it no longer."""
    found = error if isinstance(error, OSError) else error.__cause__
    return isinstance(found, OSError) and found.errno in _OF_DAMAGE


def _first_pages(found: PageCheck) -> int:
    """How many of the bad pages are the first of their files, which describes the file."""
    return sum(each.page == 0 for each in found.bad)


def _corrupt_tables(address: Address) -> set[str]:
    """Those of which CHECK TABLE says anything but OK, notes and warnings aside."""
    with connected(address) as connection:
        rows = execute(connection, f"CHECK TABLE {', '.join(TABLES)} EXTENDED")
    return {
        table
        for table, _, kind, said in rows
        if kind == "error" or (kind == "status" and said != "OK")
    }


def _orders(connection: Any) -> int:
    """A number that grows by one with each order."""
    return int(execute(connection, "SELECT SUM(d_next_o_id) FROM district")[0][0])


def _go_on(load: Future[Any], time_s: float) -> None:
    """The load runs on for so long. Raises what ended it, if something did."""
    wait([load], timeout=time_s)
    if load.done():
        load.result()
        raise InvalidRun("the load ended before the power was cut")
