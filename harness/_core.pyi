"""The compiled core of the harness: device models, join engine, storage."""

from collections.abc import Sequence
import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray


sources: str = ...

class Field:
    """A keyword of a class of parameters; see core/base/describe.hpp."""

    @property
    def keyword(self) -> str:
        """With the unit at its end."""

    @property
    def name(self) -> str:
        """Without it, as in a profile."""

    @property
    def kind(self) -> str:
        """
        size, rate, time, rotation, count, ratio, number, name, switch, group or other.
        """

    @property
    def type(self) -> str:
        """Of the argument, as in the stub."""

    @property
    def doc(self) -> str: ...

    @property
    def required(self) -> bool: ...

    @property
    def in_profile(self) -> bool:
        """False: given by whoever builds the thing."""

    @property
    def default(self) -> object:
        """None where it is required, too."""

def policy_names(parameter: str) -> list[str]:
    """
    What the parameter of this name can be set to (trim, gc_policy, scheduler ...), in the table's order. Raises BadParameter.
    """

class HddParameters:
    """Everything that makes one disk."""

    def __init__(self, *, capacity_bytes: int, rpm: int, heads: int, zones: int, outer_rate_bytes_per_s: int, inner_rate_bytes_per_s: int, head_switch_ns: int, track_to_track_seek_ns: int, average_seek_ns: int, full_stroke_seek_ns: int, write_settle_ns: int, link_rate_bytes_per_s: int, command_overhead_ns: int, cache_bytes: int, read_segments: int, write_cache: bool, write_share_ratio: float = 0.0, destage_idle_ns: int, queue_depth: int, scheduler: str, start_angle_ns: int) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        capacity_bytes: what the host sees; rounded up to whole cylinders
        rpm: of the platters
        heads: one per surface
        zones: of equal width, each with its own sectors per track
        outer_rate_bytes_per_s: sustained, that is with the switching between tracks
        inner_rate_bytes_per_s: the same, of the innermost zone
        head_switch_ns: to another head of the same cylinder
        track_to_track_seek_ns: to the next cylinder
        average_seek_ns: over a third of the full stroke
        full_stroke_seek_ns: from the outermost to the innermost cylinder
        write_settle_ns: a write waits until the head is surely on its track
        link_rate_bytes_per_s: to the host
        command_overhead_ns: controller time of every command, before it can be served
        cache_bytes: read segments and write cache share it
        read_segments: that the cache is divided into for reads
        write_cache: a write is acknowledged when its data is in the cache
        write_share_ratio: writes' part of the cache, reads have the rest; 0: all of it for each
        destage_idle_ns: quiet time after which dirty data is written back
        queue_depth: commands that the drive takes at once (NCQ)
        scheduler: which of the queued commands is served next
        start_angle_ns: phase of the platter at time 0: what repetitions vary
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

class SsdParameters:
    """Everything that makes one flash drive."""

    def __init__(self, *, capacity_bytes: int, overprovision_ratio: float, page_bytes: int, map_unit_bytes: int, planes: int, pages_per_block: int, channels: int, dies_per_channel: int, allocation: str, read_page_ns: int, program_page_ns: int, erase_block_ns: int, slc_program_page_ns: int, channel_rate_bytes_per_s: int, jitter_ratio: float = 0.0, link_rate_bytes_per_s: int, command_time_ns: int, write_command_time_ns: int | None = None, read_latency_ns: int, write_latency_ns: int, write_buffer_bytes: int, power_loss_protection: bool, slc_cache_bytes: int, slc: str = 'fixed', slc_dynamic_ratio: float = 0.0, slc_fold_first: bool = False, gc_policy: str, gc_choices: int = 10, gc_placement: str, gc_pace: str, reserve_blocks: int, streams: int, placement: str, trim: str, trim_command_time_ns: int, trim_range_time_ns: int, trim_buffer_time_ns: int, trim_map_time_ns: int, trim_slice_bytes: int, trim_queued: bool, trim_max_ranges: int, trim_list_time_ns: int = 0, trim_pending_ranges: int = 1024, trim_list_entries: int = 2048, trim_merge: bool = False, trim_step: int = 1, trim_batch_map_ratio: float = 1.0, background_gc: bool, background_idle_ns: int, background_target: int = 4, queue_depth: int, seed: int = 0, ranges: Sequence[tuple[str, int, int, int]] = ()) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        capacity_bytes: what the host sees
        overprovision_ratio: physical over logical size, minus 1; rounded up to blocks
        page_bytes: of one plane
        map_unit_bytes: what the map maps: one logical page
        planes: of a die, programmed at once
        pages_per_block: of one plane
        channels: that dies share for their transfers
        dies_per_channel: that work side by side
        allocation: what blocks are striped over: one die (per_die), or all
        read_page_ns: tR: cells to page register
        program_page_ns: tPROG, all planes of a die at once
        erase_block_ns: tBERS, all planes of a die at once
        slc_program_page_ns: of a page in the SLC cache
        channel_rate_bytes_per_s: between the dies and the controller
        jitter_ratio: each operation on the cells takes 1 +- this, uniformly
        link_rate_bytes_per_s: to the host
        command_time_ns: of the firmware, for every command; one after another
        write_command_time_ns: for a write, which also needs a place; else the same
        read_latency_ns: of every read, on top: occupies nothing
        write_latency_ns: from the last byte over the link to the acknowledgement
        write_buffer_bytes: RAM for what is not programmed yet
        power_loss_protection: what was acknowledged survives a power cut
        slc_cache_bytes: written first and at SLC speed; emptied when idle
        slc: how large the SLC cache is, and what leaves it when
        slc_dynamic_ratio: of dynamic: for each byte that holds no data, so much is added to slc_cache
        slc_fold_first: of dynamic: a full cache makes room and the host waits; else it writes past it
        gc_policy: which closed block of a group is collected next
        gc_choices: the d of d_choices; the others take no notice
        gc_placement: where a collection puts what it copies
        gc_pace: how much of a collection is done before it must be
        reserve_blocks: free blocks per group that are kept for collections
        streams: that the drive can keep apart
        placement: which stream a write belongs to
        trim: what the drive does with data that is no longer needed
        trim_command_time_ns: of the firmware, per command
        trim_range_time_ns: ... per range
        trim_buffer_time_ns: ... per slice, to look it up in the buffer
        trim_map_time_ns: ... per slice, to clear its map entry
        trim_slice_bytes: what a range is handled in
        trim_queued: false: SATA's non-NCQ command, alone in the drive, as its flush then is
        trim_max_ranges: of one command
        trim_list_time_ns: of delayed: a search of what is pending, or of one place in the write list
        trim_pending_ranges: of delayed: that the table holds
        trim_list_entries: of delayed: that the write list holds
        trim_merge: of delayed: ranges that touch or overlap become one
        trim_step: of delayed: slices at once, which no command interrupts; a power of two
        trim_batch_map_ratio: of delayed: of trim_map_time, for each slice of a step but its first
        background_gc: the drive collects when it is idle
        background_idle_ns: quiet time after which the drive works for itself
        background_target: free blocks per group that it then aims at, above the reserve
        queue_depth: commands that the drive takes at once
        seed: of jitter and of the random choices of policies
        ranges: (name, begin and end in bytes, stream), ascending and disjoint: counted apart
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

class JobParameters:
    """A stream of requests, as fio would make it."""

    def __init__(self, *, pattern: str, read_ratio: float, trim_ratio: float, block_bytes: int, begin_bytes: int, end_bytes: int, queue_depth: int, requests: int, duration_ns: int, interval_ns: int, poisson: bool, hot_data_ratio: float, hot_access_ratio: float, zipf_theta: float, stream: int, fua: bool, flush_every: int, seed: int) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        pattern: sequential, random, hot_cold, zipf
        read_ratio: of all requests
        trim_ratio: of all requests; the rest are writes
        block_bytes: of each request
        begin_bytes: requests stay behind it
        end_bytes: ... and before it
        queue_depth: requests outstanding (closed loop)
        requests: 0: until `duration`
        duration_ns: 0: until `requests`
        interval_ns: above 0: open loop, one request every so often, whatever the depth
        poisson: ... with exponentially distributed gaps of that mean
        hot_data_ratio: hot_cold: the first part of the span ...
        hot_access_ratio: ... gets this share of the requests
        zipf_theta: zipf: skew, below 1 (Gray et al., SIGMOD 1994)
        stream: of writes
        fua: of writes
        flush_every: a flush after so many requests; 0: never
        seed: of all that is drawn
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

class Device:
    """A device model in virtual time, without a host above it."""

    def __init__(self, parameters: HddParameters | SsdParameters) -> None: ...

    def set_ranges(self, ranges: Sequence[tuple[str, int, int, int]]) -> None:
        """(name, begin and end in bytes, stream): counted apart from now on."""

    def set_trim_policy(self, name: str) -> None:
        """What was put off is done before."""

    def slow_die(self, die: int, factor: float) -> None:
        """The cells of this die take so many times as long from now on."""

    def precondition(self, *, fill_ratio: float, overwrites: float, seed: int) -> None: ...

    def to_steady_state(self, seed: int) -> None: ...

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

    @property
    def trim_policy(self) -> str: ...

    def save(self) -> bytes: ...

    def restore(self, saved: bytes) -> None:
        """A state that does not fit leaves the device as it was."""

    def counters(self) -> dict:
        """As of now."""

    def reset_counters(self) -> None: ...

    def stream_shares(self) -> list: ...

    def range_shares(self) -> list: ...

    @property
    def ranges(self) -> list: ...

    @property
    def spare_factor(self) -> float: ...

    def block_erases(self) -> object: ...

    def mapping(self) -> object: ...

class HostParameters:
    """The machine above the device."""

    def __init__(self, *, cores: int, submit_cpu_ns: int, complete_cpu_ns: int, max_request_bytes: int, io_scheduler: str, threads_per_core: int = 1, smt_gain_ratio: float = 0.0) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        cores: of the machine
        submit_cpu_ns: system call, block layer and driver, per transfer
        complete_cpu_ns: interrupt and wake-up, per transfer
        max_request_bytes: larger transfers are split
        io_scheduler: which of the waiting requests goes to the device next
        threads_per_core: hardware threads
        smt_gain_ratio: what a core's second thread adds, as a share of the first
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

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

    def __init__(self, device: HddParameters | SsdParameters, host: HostParameters, *, cell_bytes: int = 512, kept_bytes: int = 512, pool: ChunkPool | None = None, has_contents: bool = True) -> None: ...

    def set_ranges(self, ranges: Sequence[tuple[str, int, int, int]]) -> None:
        """(name, begin and end in bytes, stream): counted apart from now on."""

    def mount(self, offset_bytes: int, cells: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Puts prepared cells (uint8, kept_bytes of each) on the device without a copy.
        """

    def counters(self) -> dict: ...

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

    def __init__(self, *, algorithm: Algorithm, read_buffer_bytes: int, write_buffer_bytes: int, input_io_bytes: int, memory_budget_bytes: int = 0, queue_depth: int = 1, hash_seed: int = 0, partition_cpu_ns: int = 0, build_cpu_ns: int = 0, probe_cpu_ns: int = 0, match_cpu_ns: int = 0, trace: bool = False) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        algorithm: of the join
        read_buffer_bytes: a build partition must fit; holds it in the join phase
        write_buffer_bytes: the unit in which partitions are written and read back
        input_io_bytes: the unit in which the inputs are read
        memory_budget_bytes: for all buffers of one user; 0: as much as the plan wants
        queue_depth: transfers in flight per user; 1 is the paper's synchronous engine
        hash_seed: of the hash function
        partition_cpu_ns: per record: hash, copy to a write buffer
        build_cpu_ns: per record: hash, insert
        probe_cpu_ns: per record: hash, look up
        match_cpu_ns: per pair found
        trace: all transfers are recorded
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

class UserJob:
    """One user's inputs on the device, and its space for partitions."""

    def __init__(self, *, build_offset_bytes: int, build_records: int, probe_offset_bytes: int, probe_records: int, scratch_begin_bytes: int, scratch_end_bytes: int) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        build_offset_bytes: of the smaller input on the device
        build_records: of the smaller input
        probe_offset_bytes: of the other input on the device
        probe_records: of the other input
        scratch_begin_bytes: of the space for partitions
        scratch_end_bytes: ... and its end
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

class JoinTranscript:
    """What synchronous joins did, without their data."""

    def __init__(self) -> None: ...

def run_joins(storage: Storage, spec: JoinSpec, jobs: Sequence[UserJob], cancel: Cancel, transcript: JoinTranscript | None = None) -> list:
    """
    Runs one join per job, side by side; one result dictionary per job. Releases the GIL.

    `transcript`: is made of it. Raises BadParameter for one if queue_depth is not 1.
    """

def repeat_joins(storage: Storage, spec: JoinSpec, jobs: Sequence[UserJob], cancel: Cancel, transcript: JoinTranscript) -> list:
    """
    What run_joins would give, of the steps of a transcript: on a storage without contents. Releases the GIL.

    Raises BadParameter for a storage with contents, or if the joins differ from the transcript's in more than CPU times and `trace`.
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
    """The kernel's page cache; see core/kernel/page_cache.hpp."""

    def __init__(self, *, memory_bytes: int, block_bytes: int = 8192, read_ahead_bytes: int = 131072, dirty_background_ratio: float = 0.1, dirty_ratio: float = 0.2, strict_limit: bool = False, round_ns: int = 0, second_ns: int = 1000000000, queue_limit: int = 128, allocation_bytes: int = 8388608, segment_bytes: int = 1073741824, begin_bytes: int = 0, copy_cpu_ns: int = 0, refaults: bool = False, writes_are_uses: bool = False, dirty_go_active: bool = False, dirty_tail_is_flushed: bool = False, misses_open_windows: bool = False, turns_end_with_scan: bool = False) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        memory_bytes: what the cache may hold
        block_bytes: what everything is counted in: what the reader reads
        read_ahead_bytes: the largest window; one block: none
        dirty_background_ratio: of memory: write-back begins
        dirty_ratio: of memory: as much is dirty at most
        strict_limit: the device's own: steered to the middle of both
        round_ns: of write-back, before it looks at the ratio again
        second_ns: of the kernel's clock, by which writers keep their pace
        queue_limit: nr_requests
        allocation_bytes: of space on the device, at a time
        segment_bytes: a file is split into files of this size
        begin_bytes: where the file system begins on the device
        copy_cpu_ns: system call and copy, per block
        refaults: a block that comes back soon is active, since Linux 3.15
        writes_are_uses: as reads are, until Linux 4.7
        dirty_go_active: where the oldest block is dirty, since Linux 4.11; to the young end before
        dirty_tail_is_flushed: all that is dirty is, where only such blocks are found, since Linux 4.11
        misses_open_windows: of read-ahead, and continue none, since Linux 6.11
        turns_end_with_scan: a file's turn in write-back, not where nothing new is found, since Linux 5.8
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

class Ext4Parameters:
    """ext4 under temporary files; see core/kernel/ext4/ext4.hpp."""

    def __init__(self, *, cache_block_bytes: int = 8192, discard: str = 'none', commit_ns: int = 5000000000, second_ns: int = 1000000000, preallocation_bytes: int = 0, preallocate_again: bool = False, journal_bytes: int = 134217728, size_bytes: int = 0, inode_table_bytes: int = 2097152, backups: bool = True, occupied_bytes: int = 0, fua: bool = False, times: bool = False, occupied_piece_bytes: int = 0, recent: bool = False, stream_goals: int = 1) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        cache_block_bytes: the page cache's: a multiple of 4 KiB
        discard: none, synchronous, asynchronous
        commit_ns: the mount option
        second_ns: of the kernel's clock: timers go off at whole ones
        preallocation_bytes: of each new file; 0: none
        preallocate_again: a file that has used up what it was given is given as much again
        journal_bytes: in the middle of the device
        size_bytes: from the device's beginning on; 0: as large as that
        inode_table_bytes: of a group; mke2fs: an inode for each 16 KiB
        backups: of the superblock, in some groups (sparse_super)
        occupied_bytes: other files, from the beginning on, which stay
        fua: the kernel has the commit record durable by itself, without a flush
        times: a write changes its file's times: the next commit has its inode
        occupied_piece_bytes: these lie everywhere instead, in pieces of this size; 0: in one
        recent: as of Linux 6.18
        stream_goals: since 6.17 files share so many: the lower of CPUs and a quarter of the groups
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

class SortedTable:
    """A table to be sorted; see core/dbms/sort_merge_join.hpp."""

    def __init__(self, *, tuples: int, heap_bytes: int, tuple_bytes: int, first_run_tuples: int, second_run_tuples: int, run_tuples: int, merge_memory_bytes: int, write_memory_bytes: int = 0, share_unit_bytes: int = 1) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        tuples: of the table
        heap_bytes: as stored, and read once
        tuple_bytes: on tape, one of them
        first_run_tuples: of the first initial run
        second_run_tuples: of the second
        run_tuples: of all others
        merge_memory_bytes: of tape that the memory for reading holds, all tapes together
        write_memory_bytes: taken off that for each tape that is written in the same pass
        share_unit_bytes: a tape's share of it is a multiple of them: what a block holds, since PostgreSQL 10
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

class SortMergeJoinSpec:
    """The sorts and the join; see core/dbms/sort_merge_join.hpp."""

    def __init__(self, *, tables: Sequence[SortedTable], merge: str, merge_order: int, burst: bool, refill: str, payload_bytes: int, reserve_block: bool, piece_blocks: int = 1, scan_cpu_ns: int, compare_cpu_ns: int, copy_cpu_ns: int, join_cpu_ns: int, table_rate_bytes_per_s: int, ahead: bool = False, trace_rows: int = 0, seed: int = 0) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        tables: in the order in which they are sorted
        merge: the plan: polyphase, balanced
        merge_order: runs that are merged at once
        burst: runs are formed in memory and written whole, not tuple by tuple
        refill: when one tape's memory is used up in a merge before the last: all are read, or one
        payload_bytes: of a block
        reserve_block: a tape takes its next block when it writes one (15), not when it needs it
        piece_blocks: free space is taken in pieces of at least so many blocks, as long as there are any; 1: the lowest free block, however alone it lies
        scan_cpu_ns: per tuple: reading it from its table and forming the one to be sorted
        compare_cpu_ns: one comparison
        copy_cpu_ns: per tuple: to a tape or from one
        join_cpu_ns: per tuple, after the sorts: the join, its output, the client
        table_rate_bytes_per_s: of the disk that the tables lie on, all clients together
        ahead: the next share of the tape that is refilled is read ahead
        trace_rows: of the device's requests that are recorded, at most: every n-th; an even number
        seed: of all that is drawn
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

def run_sort_merge_joins(device: HddParameters | SsdParameters, host: HostParameters, cache: PageCacheParameters, spec: SortMergeJoinSpec, clients: int, cancel: Cancel, files: Ext4Parameters | None = None) -> dict:
    """
    The same sort-merge join by each of `clients`, side by side in virtual time. `files` is the file system; without one, files get the device's space in turn. Returns dicts: `clients` (a list), `join_reads`, `cache`, `device`, `trace`. Raises BadParameter, DiskFull, Interrupted.
    """

class JoinInput:
    """One side of a hash join; see core/dbms/hash_join.hpp."""

    def __init__(self, *, tuples: int, heap_bytes: int, temp_tuple_bytes: float) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        tuples: of the table
        heap_bytes: as stored, and read once
        temp_tuple_bytes: of one in a batch's file
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

class HashJoinSpec:
    """The join; see core/dbms/hash_join.hpp."""

    def __init__(self, *, inner: JoinInput, outer: JoinInput, batches: int, buckets: int, repetitions: int = 1, scan_cpu_ns: int, build_cpu_ns: int, probe_cpu_ns: int, open_cpu_ns: int = 0, open_files: int = 990, table_rate_bytes_per_s: int, settle: bool = False, trim_after: bool = False, give_back: bool = False, traced: int = -1, trace_rows: int = 0, seed: int = 0) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        inner: the table that the hash table is built of
        outer: the other one
        batches: that the join is cut into; a power of two
        buckets: of the hash table; a power of two
        repetitions: one after the other on the same drive
        scan_cpu_ns: per tuple: reading it from its table, hashing, writing it to its batch
        build_cpu_ns: per tuple: from the inner file into the hash table
        probe_cpu_ns: per tuple: from the outer file: look up, join, give the result away
        open_cpu_ns: per file: closing it and opening another one
        open_files: that a server has at most (max_files_per_process)
        table_rate_bytes_per_s: of the disk that the tables lie on
        settle: a repetition ends with all it has freed committed and discarded
        trim_after: fstrim after each repetition
        give_back: files are cut to their ends when their side is partitioned, not when they go
        traced: the repetition that is recorded; -1: none
        trace_rows: of its requests, at most: every n-th; an even number
        seed: of all that is drawn
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

def run_hash_joins(device: HddParameters | SsdParameters, host: HostParameters, cache: PageCacheParameters, files: Ext4Parameters, spec: HashJoinSpec, cancel: Cancel) -> dict:
    """
    The same hash join, again and again on one drive and file system. Returns a dict: `runs` (per repetition: times, `files` and `device` with counters since the first), totals, `trace`. Raises BadParameter, DiskFull, Interrupted.
    """

class TpccSpec:
    """TPC-C on InnoDB; see core/dbms/tpcc_run.hpp."""

    def __init__(self, *, warehouses: int, connections: int, rows_per_page: dict[str, int], redo_update_bytes: int, redo_line_bytes: int, redo_insert_bytes: int, redo_commit_bytes: int, undo_pages: int, undo_bytes_per_update: int, undo_bytes_per_insert: int, page_bytes: int, most_pages: int, extent_pages: int = 0, seed: int, buffer_pool_bytes: int, flush_batch_pages: int, lru_scan_depth: int, most_dirty_ratio: float, flush_age_ratio: float, old_blocks_ns: int = 1000000000, file_pages_age: bool = False, data_journal: bool, doublewrite: bool, doublewrite_elsewhere: bool, redo_elsewhere: bool, sync_commits_inode: bool, tick_ns: int = 4000000, redo_bytes: int, redo_block_bytes: int = 4096, doublewrite_bytes: int, page_cache_bytes: int, page_copy_cpu_ns: int, other_drive_rate_bytes_per_s: int, other_drive_latency_ns: int, journal_bytes: int, journal_stream: int, commit_ns: int, dirty_expire_ns: int, flusher_interval_ns: int = 1000000000, home_in_same_sync: bool = False, ring_per_transaction: int = 4, transaction_cpu_ns: int, touch_cpu_ns: int, warm_up_ns: int, measured_ns: int, sample_ns: int, aged_bytes: int, aged_block_bytes: int, aged_begin_bytes: int = 0, trace_rows: int = 0) -> None:
        """
        Raises BadParameter for a keyword that is missing, unknown or wrong.

        warehouses: of the database
        connections: each with its next transaction when the last has ended
        rows_per_page: after the load, by table
        redo_update_bytes: logged for a row that is changed, undo included
        redo_line_bytes: ... for a new row of order_line
        redo_insert_bytes: ... for another new row
        redo_commit_bytes: of a transaction that has changed something
        undo_pages: of all rollback segments
        undo_bytes_per_update: of a changed row's undo record
        undo_bytes_per_insert: ... of a new one's
        page_bytes: of the database
        most_pages: what the database may grow to
        extent_pages: by which tables grow while they are loaded; 0: each lies in one piece
        seed: of all that is drawn
        buffer_pool_bytes: memory for pages
        flush_batch_pages: that the doublewrite buffer takes at once
        lru_scan_depth: pages of the LRU list's end that are kept clean
        most_dirty_ratio: of the pool
        flush_age_ratio: of the redo log: from there on the cleaner flushes
        old_blocks_ns: from a page's first use on: no use before makes it young (innodb_old_blocks_time)
        file_pages_age: using a page that says what a file's pages hold keeps it not in the pool: MariaDB
        data_journal: pages become durable through ext4's data journal
        doublewrite: ... or through the doublewrite buffer
        doublewrite_elsewhere: on a drive of its own
        redo_elsewhere: on that drive
        sync_commits_inode: fsync, which commits the times that a write has changed; else fdatasync
        tick_ns: of the kernel's clock, which says what a file's times are
        redo_bytes: size of the log, written round and round
        redo_block_bytes: of which a write of the log is a multiple: without data_journal, if past the page cache less than 4 KiB
        doublewrite_bytes: written round and round
        page_cache_bytes: what the kernel keeps of the database with data_journal
        page_copy_cpu_ns: a page from or to the page cache
        other_drive_rate_bytes_per_s: of what lies elsewhere
        other_drive_latency_ns: the same
        journal_bytes: of the ring, with its superblock
        journal_stream: of what goes to the ring
        commit_ns: a transaction takes what happens within it
        dirty_expire_ns: how long a block may be dirty
        flusher_interval_ns: the kernel looks for such blocks so often
        home_in_same_sync: who syncs a file whose data is journaled writes home what that commits; before Linux 6.4 what the file's sync before has committed
        ring_per_transaction: over which a transaction is as large as it may be: 4, since Linux 6.11 3
        transaction_cpu_ns: parsing, locking, commit
        touch_cpu_ns: finding a row and working on it
        warm_up_ns: before anything is counted
        measured_ns: that is counted
        sample_ns: how often to look
        aged_bytes: the region that was overwritten at random before
        aged_block_bytes: ... in writes of this size
        aged_begin_bytes: where it begins; 0: below journal, redo log and the first tables
        trace_rows: of the requests that are counted, recorded at most: every n-th; an even number
        """

    @staticmethod
    def fields() -> list[Field]:
        """The keywords of the constructor, in their order."""

def run_tpcc(device: SsdParameters, host: HostParameters, spec: TpccSpec, fill_ratio: float, cancel: Cancel) -> dict:
    """
    TPC-C on a drive whose first `fill_ratio` was written before. Returns a dict: `samples` (of the measured interval, with `device` counters and the `shares` of journal, doublewrite, redo and the rest), `response_us` (by kind), `writes_of_page`, `table_of_page` and `trace`. Raises BadParameter, DiskFull, Interrupted.
    """

class LiveDevice:
    """A device model against the real clock, with data."""

    def __init__(self, parameters: HddParameters | SsdParameters, *, store_fd: int, visible_bytes: int) -> None:
        """`store_fd` is taken over."""

    def sync(self) -> None: ...

    def assume_stored(self) -> None:
        """
        The model takes what the store holds for data from long ago, from the next `set_pace` on.
        """

    def set_ranges(self, ranges: Sequence[tuple[str, int, int, int]]) -> None:
        """(name, begin and end in bytes, stream): counted apart from now on."""

    def set_trim_policy(self, name: str) -> None:
        """What was put off is done before."""

    def slow_die(self, die: int, factor: float) -> None:
        """The cells of this die take so many times as long from now on."""

    def precondition(self, *, fill_ratio: float, overwrites: float, seed: int) -> None: ...

    def to_steady_state(self, seed: int) -> None: ...

    def set_pace(self, pace: str, *, slowdown: int = 1, constant_ns: int = 0) -> None:
        """
        real: replies at the model's times, `slowdown` times slower; virtual: at once, the model gets one request after the other; none: at once, without the model; constant: after a fixed time. Waits until nothing is in flight.
        """

    def set_path_cost(self, op: str, *, base_ns: int, ns_per_byte: float) -> None:
        """Taken off the time for which a reply is held back."""

    def set_streams(self, ranges: Sequence[tuple[int, int, int]]) -> None:
        """(begin, end) in bytes and the stream of writes that begin there."""

    def set_watch(self, ahead_ns: int) -> None:
        """
        So much before a reply is due, the pacing thread wakes up and watches the clock; 0: it only sleeps.
        """

    def set_honest_flush(self, honest: bool) -> None: ...

    def add_fault(self, op: str, *, begin_bytes: int, end_bytes: int, times: int) -> None: ...

    def clear_faults(self) -> None: ...

    def power_cut(self, seed: int, *, stay_off: bool) -> dict: ...

    def power_on(self) -> None: ...

    def save(self, *, then_record: bool) -> bytes:
        """
        The model's state, when nothing is in flight; `then_record`: from here on, all requests are recorded.
        """

    def restore(self, saved: bytes) -> None:
        """A state that does not fit leaves the device as it was."""

    def take_records(self) -> dict:
        """What was recorded since the last call: equally long columns."""

    def snapshot(self, *, then_reset: bool = False) -> dict:
        """
        Counters of the model (device) and of the host side (live), ranges and shares by range (flash), times (lateness and model_latency, by kind of request), model time: all of one moment; `then_reset`: those of the host side count from 0 then.
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
        """
        Ends the connection, then unmounts: whoever still has the file open gets errors.
        """

    @staticmethod
    def available() -> bool: ...

class Ublk:
    """A live device as a block device of the driver ublk."""

    def __init__(self, device: LiveDevice, *, mark: int, rotational: bool, depth: int, largest_bytes: int, discard_bytes: int, recoverable: bool = False, again: int | None = None) -> None:
        """
        Makes it, with the kernel's limits for its queue; `mark` is what it is found by.

        A recoverable one stays when its process dies; `again` is the number of one that has stayed, and is served from now on.
        """

    @property
    def number(self) -> int:
        """Of /dev/ublkb0, ublkb1, ..."""

    def take(self) -> None:
        """
        Takes the block device from the host; what is asked of it from then on fails.
        """

    def close(self) -> None:
        """Takes it from the host, ends serving, and removes it from the kernel."""

    @staticmethod
    def available() -> bool: ...

    @staticmethod
    def mark_of(number: int) -> int | None:
        """The mark of the device with that number, if there is one."""

    @staticmethod
    def is_recoverable(number: int) -> bool:
        """Whether the device with that number stays when its process dies."""

    @staticmethod
    def take_other(number: int, mark: int) -> None:
        """Takes a device of any process from the host, if it has that mark."""

    @staticmethod
    def remove_other(number: int, mark: int) -> None:
        """Removes a device of any process, if it has that mark."""

def probe_path(path: str, op: str, *, size_bytes: int, span_bytes: int, count: int, depth: int = 1) -> tuple:
    """
    Random O_DIRECT I/Os: their latencies (int64, ns) and the time of all together (ns).
    """
