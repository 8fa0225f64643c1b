"""The run of one cell in virtual time: PostgreSQL's hash join over the modelled ext4 and drive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness import _core
from harness.devices import scaling
from harness.devices.profiles import HostProfile, SsdProfile
from harness.errors import BadParameter
from harness.experiments import kernel
from harness.experiments.base import Measurement, Point
from harness.experiments.trim_fallocate import hash_batches
from harness.experiments.trim_fallocate.grid import Cell, Parameters
from harness.experiments.trim_fallocate.hash_batches import LINEITEM, ORDERS, Table
from harness.experiments.trim_fallocate.hash_buckets import buckets
from harness.experiments.variants import overrides_of
from harness.tiers.base import DeviceRequest
from harness.tiers.simulated import TRACE_ROWS, ModelledStack, SimulatedBench

_STEP_BYTES: Final = 2 * hash_batches.BLOCK_BYTES
"""The simulation's unit: two of a batch file's blocks at once. With single ones extents and TRIMs
are 3 to 5 % more, times within 3 % (tests/experiments/test_trim_fallocate.py), and it takes twice
as long."""

_KERNEL: Final[kernel.Version] = (3, 10)
"""Of the paper's CentOS 7.9, as its name has it: a prior, what was backported is not counted."""

_RESERVED_FILES: Final = 18
"""Of max_files_per_process: 10 are kept back and 4 open before the first query (what PostgreSQL 15
says at its start, at level debug2), and a backend has sockets, a latch and the table it reads."""

FILE_TUPLE_BYTES: Final = {ORDERS: 4 + 16 + 109.5, LINEITEM: 4 + 16 + 120.3}
"""Of a row in a batch file: the hash value, a minimal tuple's header, and its data as a loaded
table of scale factor 1 has it (avg(pg_column_size(t.*)) less 24). The planner, by whose width there
are so many batches and buckets, does not see what alignment adds."""


@dataclass(frozen=True)
class Run:
    """One query, or several one after the other, in differences to what was before. Times in s."""

    partition_s: float
    join_s: float
    settle_s: float
    files: Mapping[str, Any]
    device: Mapping[str, int]

    @property
    def elapsed_s(self) -> float:
        """Without the settling."""
        return self.partition_s + self.join_s

    @classmethod
    def of(cls, parts: Sequence[Run]) -> Run:
        """All of them together."""
        return cls(
            partition_s=sum(part.partition_s for part in parts),
            join_s=sum(part.join_s for part in parts),
            settle_s=sum(part.settle_s for part in parts),
            files=_sum([part.files for part in parts]),
            device=_sum([part.device for part in parts]),
        )

    @property
    def waf_ratio(self) -> float:
        """Bytes programmed over bytes written by the host."""
        return self.device["nand_write_bytes"] / max(self.device["write_bytes"], 1)


def run(point: Point, parameters: Parameters, bench: SimulatedBench, raw: Path) -> Measurement:
    """All repetitions of one cell, on one drive and one file system."""
    del raw
    return run_point(Cell.of(point), overrides_of(Cell.of(point), parameters.variants), bench)


def run_point(v: Cell, overrides: Mapping[str, str], bench: SimulatedBench) -> Measurement:
    """All repetitions of one cell. Raises BadParameter, DiskFull, Interrupted."""
    if v.workload != "hash_join":
        raise BadParameter(f"{v.workload}: the simulated tier models the hash join only")
    stack = bench.stack(DeviceRequest(device=v.device, overrides=overrides))
    result = simulate(stack, v, bench.cancel)
    found = queries(result)
    return Measurement(metrics(found, result, v), series(found, v), trace=result["trace"])


def simulate(
    stack: ModelledStack,
    v: Cell,
    cancel: _core.Cancel,
    *,
    settle: bool = False,
    seed: int = 0,
    slowdown: float = 1.0,
    setup: kernel.Setup = kernel.PLAIN,
) -> dict[str, Any]:
    """`_core.run_hash_joins` of a cell's values on that stack. Raises as `run_point`.

    `settle`: each query waits until all that it has freed is committed and discarded; else the next
    one begins at once, as the paper's did, and finds the drive busy with it. `seed`: of the tuples'
    order. `slowdown`: of a device to whose time all is; the kernel's timers are as much faster.
    `setup`: what else is not as it is by default.
    """
    host = stack.host
    if host.page_cache is None or host.hash_join is None or host.ext4 is None:
        raise BadParameter(
            f"host profile {host.title}: needs page_cache, hash_join and ext4 for this study"
        )
    cpu, ext4 = host.hash_join, host.ext4
    batches = batches_of(v)
    discard = ext4.discard.value if v.trim == "discard" else "none"
    drive, recent = _device(stack, v), ext4.recent_allocator.value
    size_bytes = drive.parameters.capacity.value
    # Write-back takes as many rounds in a join as at the paper's size.
    second_ns = int(1e9 / slowdown * _ratio(v))
    result = _core.run_hash_joins(
        drive.to_core(),
        host.to_core(),
        _page_cache(
            host,
            v,
            second_ns,
            kernel.EMULATED if recent else _KERNEL,
            strict_limit=setup.strict_limit,
        ),
        _core.Ext4Parameters(
            cache_block_bytes=_STEP_BYTES,
            discard=discard,
            # As many commits in a join as at the paper's size: it takes a part of that time.
            commit_ns=int(ext4.commit_interval.value * _ratio(v)),
            second_ns=second_ns,
            preallocation_bytes=v.preallocation_bytes,
            preallocate_again=v.preallocate_again,
            journal_bytes=max(int(ext4.journal.value * _ratio(v)), 4 << 20),
            occupied_bytes=int(size_bytes * v.occupied_ratio),
            occupied_piece_bytes=v.occupied_piece_bytes,
            times=True,
            fua=setup.uses_fua(drive),
            inode_table_bytes=setup.inode_table_bytes(size_bytes),
            recent=recent,
            stream_goals=(
                kernel.stream_goals(size_bytes, host.parameters.cores.value, recent=recent)
            ),
        ),
        _core.HashJoinSpec(
            inner=_input(ORDERS, v),
            outer=_input(LINEITEM, v),
            batches=batches,
            buckets=buckets(ORDERS.width_bytes, v.work_mem_bytes),
            repetitions=v.repetitions * v.queries_per_repetition,
            scan_cpu_ns=cpu.partition_tuple_cpu.value,
            build_cpu_ns=cpu.build_tuple_cpu.value,
            probe_cpu_ns=cpu.probe_tuple_cpu.value,
            open_cpu_ns=cpu.reopen_cpu.value * (_STEP_BYTES // hash_batches.BLOCK_BYTES),
            open_files=_open_files(v),
            table_rate_bytes_per_s=cpu.heap_rate.value,
            settle=settle,
            trim_after=v.trim == "fstrim",
            give_back=v.give_back,
            traced=0,
            trace_rows=TRACE_ROWS,
            seed=seed,
        ),
        cancel,
    )
    return {**result, "device_bytes": size_bytes}


def batches_of(v: Cell) -> int:
    """What PostgreSQL cuts the join into. Raises BadParameter if it fits into memory."""
    batches = hash_batches.of_orders(v.scale_factor, v.work_mem_bytes)
    if batches == 1:
        raise BadParameter("the hash table fits into work_mem: no temporary file is written")
    return batches


def server_buffers_bytes(v: Cell) -> int:
    """A batch's file has a block of the server's own memory while it is there (buffile.c)."""
    return 2 * batches_of(v) * hash_batches.BLOCK_BYTES


def _ratio(v: Cell) -> float:
    return v.size_ratio_to_paper


def _open_files(v: Cell) -> int:
    return max(int((v.max_files - _RESERVED_FILES) * _ratio(v)), 2)


def _input(table: Table, v: Cell) -> _core.JoinInput:
    scale = v.scale_factor
    return _core.JoinInput(
        tuples=max(int(table.rows * scale), 1),
        heap_bytes=max(int(table.heap_bytes * scale), 8192),
        temp_tuple_bytes=FILE_TUPLE_BYTES[table],
    )


def _device(stack: ModelledStack, v: Cell) -> SsdProfile:
    """The drive, or a smaller one that behaves like it."""
    profile = stack.device
    if not isinstance(profile, SsdProfile):
        raise BadParameter(f"{profile.title}: a disk has no TRIM; choose a flash drive")
    size_bytes = v.device_bytes or max(
        int(profile.parameters.capacity.value * _ratio(v)), scaling.least_bytes(profile)
    )
    if size_bytes == profile.parameters.capacity.value:
        return profile
    return scaling.scaled_to(profile, -(-size_bytes >> 20) << 20)


def _page_cache(
    host: HostProfile, v: Cell, second_ns: int, version: kernel.Version, *, strict_limit: bool
) -> _core.PageCacheParameters:
    cache = host.page_cache
    assert cache is not None
    # The hash table's share of the memory, as at the paper's size: work_mem itself is not scaled.
    memory_bytes = int((cache.memory.value - v.work_mem_bytes) * _ratio(v)) - int(
        v.shared_buffers_bytes + server_buffers_bytes(v)
    )
    if memory_bytes < 64 * _STEP_BYTES:
        raise BadParameter("shared_buffers and work_mem leave no memory for the page cache")
    return _core.PageCacheParameters(
        memory_bytes=memory_bytes,
        block_bytes=_STEP_BYTES,
        read_ahead_bytes=cache.read_ahead.value,
        dirty_background_ratio=cache.dirty_background.value,
        dirty_ratio=cache.dirty.value,
        strict_limit=strict_limit,
        round_ns=int(kernel.WRITE_BACK_ROUND_S * second_ns),
        second_ns=second_ns,
        queue_limit=cache.queue_limit.value,
        segment_bytes=cache.segment.value,
        copy_cpu_ns=cache.copy_cpu.value * (_STEP_BYTES // hash_batches.BLOCK_BYTES),
        **kernel.page_cache_rules(version),
    )


def queries(result: Mapping[str, Any]) -> list[Run]:
    """The queries' own shares of counters that go on from one to the next."""
    runs: list[Run] = []
    before: Mapping[str, Any] = {"files": {}, "device": {}}
    for run in result["runs"]:
        runs.append(
            Run(
                partition_s=(run["partitioned_ns"] - run["begun_ns"]) / 1e9,
                join_s=(run["joined_ns"] - run["partitioned_ns"]) / 1e9,
                settle_s=(run["settled_ns"] - run["joined_ns"]) / 1e9,
                files=_difference(run["files"], before["files"]),
                device=_difference(run["device"], before["device"]),
            )
        )
        before = run
    return runs


def repetitions(found: Sequence[Run], v: Cell) -> list[Run]:
    """The queries of each repetition together."""
    each = v.queries_per_repetition
    return [Run.of(found[first : first + each]) for first in range(0, len(found), each)]


def _sum(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    def added(values: Sequence[Any]) -> Any:
        if not isinstance(values[0], list):
            return sum(values)
        return [sum(column) for column in zip(*values, strict=True)]

    return {name: added([part[name] for part in parts]) for name in parts[0]}


def _difference(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [a - b for a, b in zip(value, before.get(name, [0] * len(value)), strict=True)]
        if isinstance(value, list)
        else value - before.get(name, 0)
        for name, value in now.items()
    }


def metrics(found: Sequence[Run], result: Mapping[str, Any], v: Cell) -> dict[str, int | float]:
    """The flat record; names and meanings as on the tiers with a real server.

    Means are of repetitions, but for temporary files and bytes, which are of queries.
    """
    runs = repetitions(found, v)

    def mean(values: Sequence[float]) -> float:
        return float(sum(values)) / len(values)

    def whole(name: str) -> int:
        return int(sum(run.files[name] for run in runs))

    files = max(whole("files"), 1)
    written = sum(run.device["write_bytes"] for run in runs)
    capacity_bytes = int(result["device_bytes"])
    return {
        "batches": batches_of(v),
        "elapsed_s": mean([run.elapsed_s for run in runs]),
        "partition_s": mean([run.partition_s for run in runs]),
        "join_s": mean([run.join_s for run in runs]),
        "settle_s": mean([run.settle_s for run in runs]),
        "first_elapsed_s": runs[0].elapsed_s,
        "last_elapsed_s": runs[-1].elapsed_s,
        "first_join_s": runs[0].join_s,
        "first_partition_s": runs[0].partition_s,
        "first_query_s": found[0].elapsed_s,
        "last_query_s": found[-1].elapsed_s,
        "first_query_partition_s": found[0].partition_s,
        "first_query_join_s": found[0].join_s,
        "drive_writes_per_repetition": written / len(runs) / capacity_bytes,
        "waf_ratio": sum(run.device["nand_write_bytes"] for run in runs) / max(written, 1),
        "first_waf_ratio": runs[0].waf_ratio,
        "last_waf_ratio": runs[-1].waf_ratio,
        "temp_files": files / len(found),
        "extents_per_file": whole("extents") / files,
        "trim_commands": whole("discards") / len(runs),
        "trim_bytes": whole("discarded_blocks") * 4096 / len(runs),
        "trim_wait_s": whole("discard_wait_ns") / 1e9 / len(runs),
        "first_extents_per_file": runs[0].files["extents"] / max(runs[0].files["files"], 1),
        "temp_written_bytes": result["temp_blocks"] * _STEP_BYTES,
        "temp_read_bytes": result["read_blocks"] * _STEP_BYTES / len(found),
        "given_back_bytes": whole("given_back_blocks") * 4096 / len(runs),
        "read_wait_s": result["read_wait_ns"] / 1e9 / len(runs),
        "write_wait_s": result["write_wait_ns"] / 1e9 / len(runs),
        "device_requests": result["device_requests"],
        **{f"device_{n}": sum(run.device[n] for run in runs) for n in runs[0].device},
    }


def series(found: Sequence[Run], v: Cell) -> dict[str, list[int] | list[float]]:
    """Per repetition; and how long extents and TRIMs were, all repetitions together."""
    runs = repetitions(found, v)

    def lengths(name: str) -> list[int]:
        return [sum(column) for column in zip(*(run.files[name] for run in runs), strict=True)]

    return {
        "repetition_elapsed_s": [run.elapsed_s for run in runs],
        "repetition_partition_s": [run.partition_s for run in runs],
        "repetition_join_s": [run.join_s for run in runs],
        "repetition_settle_s": [run.settle_s for run in runs],
        "repetition_waf_ratio": [run.waf_ratio for run in runs],
        "repetition_written_bytes": [int(run.device["write_bytes"]) for run in runs],
        **{
            f"repetition_{name}_bytes": [int(run.device[f"nand_{name}_bytes"]) for run in runs]
            for name in ("copied", "folded", "padded")
        },
        "repetition_first_query_s": [run.elapsed_s for run in found[:: v.queries_per_repetition]],
        "repetition_first_join_s": [run.join_s for run in found[:: v.queries_per_repetition]],
        "repetition_first_partition_s": [
            run.partition_s for run in found[:: v.queries_per_repetition]
        ],
        "repetition_trim_commands": [int(run.files["discards"]) for run in runs],
        "repetition_trim_bytes": [int(run.files["discarded_blocks"]) * 4096 for run in runs],
        "repetition_extents": [int(run.files["extents"]) for run in runs],
        "repetition_files": [int(run.files["files"]) for run in runs],
        "trim_length_histogram": lengths("discard_lengths"),
        "extent_length_histogram": lengths("extent_lengths"),
    }
