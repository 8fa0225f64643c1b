"""The compiled core of the harness: device models, join engine, storage."""

from collections.abc import Sequence
import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray


sources: str = ...

class HddParameters:
    """Everything that makes one disk; see the profile schema."""

    def __init__(self, **kwargs: object) -> None:
        """Keyword arguments only; raises BadParameter for a wrong one."""

class SsdParameters:
    """Everything that makes one flash drive; see the profile schema."""

    def __init__(self, **kwargs: object) -> None:
        """Keyword arguments only; raises BadParameter for a wrong one."""

class JobParameters:
    """A stream of requests, as fio would make it."""

    def __init__(self, **kwargs: object) -> None:
        """Keyword arguments only; raises BadParameter for a wrong one."""

class Device:
    """A device model in virtual time, without a host above it."""

    def __init__(self, parameters: HddParameters | SsdParameters) -> None: ...

    @property
    def now_ns(self) -> int: ...

    @property
    def capacity_bytes(self) -> int: ...

    @property
    def queue_depth(self) -> int: ...

    def run(self, jobs: Sequence[JobParameters], *, rows: bool, interval_ns: int, cancel: Cancel) -> list:
        """Runs jobs side by side; a dictionary for each. Releases the GIL."""

    def trim(self, ranges: Sequence[tuple[int, int]]) -> int:
        """One command; ranges are (begin, end) bytes. Latency in ns."""

    def begin_trace(self, *, depth: int, rows: bool, interval_ns: int, as_submitted: bool = False) -> None: ...

    def feed_trace(self, *, time_ns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], op: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], lba: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], sectors: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], stream: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], fua: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], cancel: Cancel) -> None: ...

    def end_trace(self, cancel: Cancel) -> dict: ...

    def idle(self, length_ns: int) -> None: ...

    def power_cut(self) -> object:
        """Begins and ends (LBA, int64) of the extents in doubt, in turn."""

    def in_doubt(self) -> object:
        """The same, of a power cut that does not happen."""

    def set_trim_policy(self, name: str) -> None: ...

    @property
    def trim_policy(self) -> str: ...

    def slow_die(self, die: int, factor: float) -> None: ...

    def save(self) -> bytes: ...

    def restore(self, saved: bytes) -> None: ...

    def counters(self) -> dict:
        """As of now."""

    def reset_counters(self) -> None: ...

    def precondition(self, *, fill_ratio: float, overwrites: float, seed: int) -> None: ...

    def to_steady_state(self, seed: int) -> None: ...

    def stream_shares(self) -> list: ...

    def range_shares(self) -> list: ...

    @property
    def ranges(self) -> list: ...

    def set_ranges(self, ranges: Sequence[tuple[str, int, int, int]]) -> None:
        """(name, begin and end in bytes, stream): counted apart from now on."""

    @property
    def spare_factor(self) -> float: ...

    def block_erases(self) -> object: ...

    def mapping(self) -> object: ...

class HostParameters:
    """The machine above the device; see the host profiles."""

    def __init__(self, *, cores: int, submit_cpu_ns: int, complete_cpu_ns: int, max_request_bytes: int, io_scheduler: str, threads_per_core: int = 1, smt_gain_ratio: float = 0.0) -> None: ...

class Cancel:
    """Raised by one thread, obeyed by the long call that another is in."""

    def __init__(self) -> None: ...

    def set(self) -> None:
        """Raises it."""

class Storage:
    """What a join runs on."""

    @property
    def capacity_bytes(self) -> int: ...

    @property
    def block_bytes(self) -> int: ...

class ChunkPool:
    """Memory that the storages of one sweep pass on."""

    def __init__(self) -> None: ...

class VirtualStorage(Storage):
    """A device model and the host above it, in virtual time."""

    def __init__(self, device: HddParameters | SsdParameters, host: HostParameters, *, cell_bytes: int = 512, kept_bytes: int = 512, pool: ChunkPool | None = None) -> None: ...

    def mount(self, offset_bytes: int, cells: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Puts prepared cells (uint8, kept_bytes of each) on the device without a copy.
        """

    def counters(self) -> dict: ...

    def set_ranges(self, ranges: Sequence[tuple[str, int, int, int]]) -> None:
        """(name, begin and end in bytes, stream): counted apart from now on."""

    def range_shares(self) -> list: ...

    @property
    def now_ns(self) -> int: ...

    @property
    def device_busy_ns(self) -> int: ...

    @property
    def device_requests(self) -> int: ...

class FileStorage(Storage):
    """A file or block device, O_DIRECT."""

    def __init__(self, path: str, slowdown: int = 1) -> None:
        """`slowdown`: all times are divided by it."""

    def write(self, offset_bytes: int, data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None:
        """Lets the file go; nothing else may be called any more."""

    @staticmethod
    def has_io_uring() -> bool: ...

class MemoryStorage(Storage):
    """Memory that answers at once."""

    def __init__(self, capacity_bytes: int, block_bytes: int = 512) -> None: ...

    def write(self, offset_bytes: int, data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

def capacity_bytes(device: HddParameters | SsdParameters) -> int:
    """Builds the device; raises BadParameter if no such device can exist."""

def replay(device: HddParameters | SsdParameters, op: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], lba: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], sectors: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arrival_ns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], depth: int, cancel: Cancel) -> dict:
    """
    Requests (op uint8: 0 read, 1 write, 2 trim, 3 flush; lba and sectors int64, 512 B; arrival int64 ns) straight to a device model. Returns submitted_ns and completed_ns (int64 arrays) and the device's counters.
    """

class Algorithm(enum.Enum):
    grace = 0

    hybrid = 1

class JoinSpec:
    """What a join is asked to do."""

    def __init__(self, *, algorithm: Algorithm, read_buffer_bytes: int, write_buffer_bytes: int, input_io_bytes: int, memory_budget_bytes: int = 0, queue_depth: int = 1, hash_seed: int = 0, partition_cpu_ns: int = 0, build_cpu_ns: int = 0, probe_cpu_ns: int = 0, match_cpu_ns: int = 0, trace: bool = False) -> None: ...

class UserJob:
    """One user's inputs on the device, and its space for partitions."""

    def __init__(self, *, build_offset_bytes: int, build_records: int, probe_offset_bytes: int, probe_records: int, scratch_begin_bytes: int, scratch_end_bytes: int) -> None: ...

def run_joins(storage: Storage, spec: JoinSpec, jobs: Sequence[UserJob], cancel: Cancel) -> list:
    """
    Runs one join per job, side by side; one result dictionary per job. Releases the GIL.
    """

def scratch_bytes_needed(spec: JoinSpec, build_records: int, probe_records: int, block_bytes: int) -> int: ...

def join_memory_bytes(spec: JoinSpec, build_records: int, block_bytes: int) -> int:
    """Memory of one user's join: all buffers and the hash table."""

def partitions_for(records: int, capacity_records: int) -> int: ...

def record_signatures(key: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], row: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], first: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], second: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> object:
    """uint64 signatures of records with these columns (join/record.hpp)."""

def merge_plan(name: str, order: int, runs: int) -> tuple:
    """
    The plan (polyphase, balanced) of a sort that merges `order` runs at once. Returns the tape of each initial run, and the merges in their order: (tapes that one run each is taken of, tape that the result goes to, whether it is the last). Raises BadParameter.
    """

class PageCacheParameters:
    """The kernel's page cache; see core/host/page_cache.hpp."""

    def __init__(self, *, memory_bytes: int, block_bytes: int = 8192, read_ahead_bytes: int = 131072, dirty_background_ratio: float = 0.1, dirty_ratio: float = 0.2, queue_limit: int = 128, allocation_bytes: int = 8388608, segment_bytes: int = 1073741824, begin_bytes: int = 0, copy_cpu_ns: int = 0) -> None: ...

class SortedTable:
    """A table to be sorted; see core/dbms/sort_merge_join.hpp."""

    def __init__(self, *, tuples: int, heap_bytes: int, tuple_bytes: int, first_run_tuples: int, second_run_tuples: int, run_tuples: int, merge_memory_bytes: int, write_memory_bytes: int = 0, share_unit_bytes: int = 1) -> None: ...

class SortMergeJoinSpec:
    """The sorts and the join; see core/dbms/sort_merge_join.hpp."""

    def __init__(self, *, tables: Sequence[SortedTable], merge: str, merge_order: int, burst: bool, refill: str, payload_bytes: int, reserve_block: bool, scan_cpu_ns: int, compare_cpu_ns: int, copy_cpu_ns: int, join_cpu_ns: int, table_rate_bytes_per_s: int, ahead: bool = False, piece_blocks: int = 1, seed: int = 0) -> None:
        """
        `tables` in the order in which they are sorted; merge: polyphase, balanced; burst: runs are formed in memory and written whole; refill: all, one (of the merges before the last). CPU times are per tuple.
        """

def run_sort_merge_joins(device: HddParameters | SsdParameters, host: HostParameters, cache: PageCacheParameters, spec: SortMergeJoinSpec, clients: int, cancel: Cancel) -> dict:
    """
    The same sort-merge join by each of `clients`, side by side in virtual time. Returns dicts: `clients` (a list), `cache`, `device`. Raises BadParameter, DiskFull, Interrupted.
    """

class Ext4Parameters:
    """ext4 under temporary files; see core/host/ext4/ext4.hpp."""

    def __init__(self, *, cache_block_bytes: int = 8192, discard: str = 'none', commit_ns: int = 5000000000, preallocation_bytes: int = 0, journal_bytes: int = 134217728, occupied_bytes: int = 0, recent: bool = False, stream_goals: int = 1) -> None:
        """discard: none, synchronous, asynchronous."""

class JoinInput:
    """One side of a hash join; see dbms/hash_join.hpp."""

    def __init__(self, *, tuples: int, heap_bytes: int, temp_tuple_bytes: float) -> None: ...

class HashJoinSpec:
    """The join; see core/dbms/hash_join.hpp."""

    def __init__(self, *, inner: JoinInput, outer: JoinInput, batches: int, repetitions: int = 1, scan_cpu_ns: int, build_cpu_ns: int, probe_cpu_ns: int, open_cpu_ns: int = 0, open_files: int = 990, table_rate_bytes_per_s: int, settle: bool = False, trim_after: bool = False, traced: int = -1, trace_every: int = 1, seed: int = 0) -> None:
        """CPU times are per tuple."""

def run_hash_joins(device: HddParameters | SsdParameters, host: HostParameters, cache: PageCacheParameters, files: Ext4Parameters, spec: HashJoinSpec, cancel: Cancel) -> dict:
    """
    The same hash join, again and again on one drive and file system. Returns a dict: `runs` (per repetition: times, `files` and `device` with counters since the first), totals, `trace`. Raises BadParameter, DiskFull, Interrupted.
    """

class TpccSpec:
    """TPC-C on InnoDB; see core/dbms/tpcc_run.hpp."""

    def __init__(self, **kwargs: object) -> None: ...

def run_tpcc(device: SsdParameters, host: HostParameters, spec: TpccSpec, fill_ratio: float, cancel: Cancel) -> dict:
    """
    TPC-C on a drive whose first `fill_ratio` was written before. Returns a dict: `samples` (of the measured interval, with `device` counters and the `shares` of journal, doublewrite, redo and the rest), `response_us` (by kind), `writes_of_page` and `table_of_page`. Raises BadParameter, DiskFull, Interrupted.
    """

class LiveDevice:
    """A device model against the real clock, with data."""

    def __init__(self, parameters: HddParameters | SsdParameters, *, store_fd: int, visible_bytes: int) -> None:
        """`store_fd` is taken over."""

    def sync(self) -> None: ...

    def set_pace(self, pace: str, *, slowdown: int = 1, constant_ns: int = 0) -> None:
        """
        real: replies at the model's times, `slowdown` times slower; virtual: at once, the model gets one request after the other; none: at once, without the model; constant: after a fixed time. Waits until nothing is in flight.
        """

    def set_path_cost(self, op: str, *, base_ns: int, ns_per_byte: float) -> None:
        """Taken off the time for which a reply is held back."""

    def set_streams(self, ranges: Sequence[tuple[int, int, int]]) -> None:
        """(begin, end) in bytes and the stream of writes that begin there."""

    def set_ranges(self, ranges: Sequence[tuple[str, int, int, int]]) -> None:
        """(name, begin and end in bytes, stream): counted apart from now on."""

    def set_honest_flush(self, honest: bool) -> None: ...

    def add_fault(self, op: str, *, begin_bytes: int, end_bytes: int, times: int) -> None: ...

    def clear_faults(self) -> None: ...

    def power_cut(self, seed: int, *, stay_off: bool) -> dict: ...

    def power_on(self) -> None: ...

    def set_trim_policy(self, name: str) -> None: ...

    def slow_die(self, die: int, factor: float) -> None: ...

    def precondition(self, *, fill_ratio: float, overwrites: float, seed: int) -> None: ...

    def to_steady_state(self, seed: int) -> None: ...

    def save(self, *, then_record: bool) -> bytes:
        """
        The model's state, when nothing is in flight; `then_record`: from here on, all requests are recorded.
        """

    def restore(self, saved: bytes) -> None: ...

    def take_records(self) -> dict:
        """What was recorded since the last call: equally long columns."""

    def snapshot(self, *, then_reset: bool = False) -> dict:
        """
        Counters of the model (device) and of the host side (live), ranges and shares by range (flash), lateness, model time: all of one moment; `then_reset`: those of the host side count from 0 then.
        """

    def end_record(self) -> dict:
        """
        Waits until nothing is in flight, ends the record, and takes a snapshot.
        """

class FuseFile:
    """A live device as a file that the kernel sees."""

    def __init__(self, device: LiveDevice, path: str, *, source: str, threads: int) -> None:
        """
        Mounts over `path`, an existing file; `source` is what the mount table shows.
        """

    def close(self) -> None:
        """Unmounts; waits until nobody has the file open."""

    @staticmethod
    def available() -> bool: ...

def probe_path(path: str, op: str, *, size_bytes: int, span_bytes: int, count: int, depth: int = 1) -> tuple:
    """
    Random O_DIRECT I/Os: their latencies (int64, ns) and the time of all together (ns).
    """
