"""The run of one point in virtual time: PostgreSQL's sorts over the modelled kernel and drive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness import _core
from harness.devices.profiles import HddProfile, HostProfile
from harness.errors import BadParameter
from harness.experiments import kernel
from harness.experiments.base import Measurement, Point
from harness.experiments.sort_merge_join import postgres_sort
from harness.experiments.sort_merge_join.grid import Cell, Parameters, Tables, Variant
from harness.experiments.sort_merge_join.postgres_sort import Relation
from harness.tiers.base import DeviceRequest
from harness.tiers.simulated import TRACE_ROWS, ModelledStack, SimulatedBench
from harness.units import parse_bytes

_PAGE_BYTES: Final = 8192
_PAGE_HEADER_BYTES: Final = 24
_TUPLE_BYTES: Final = 24 + 4
"""Of a row in the heap: its header, and its entry in the page."""

_SECTOR_BYTES: Final = 512
_LEAST_JOURNAL_BYTES: Final = 4 << 20
_KERNEL: Final[kernel.Version] = (3, 19)
"""Of the paper's Ubuntu 14.04.3, as its media install it: a prior, the paper does not say."""

_NO_VARIANT: Final = Variant(why="")


@dataclass(frozen=True)
class Query:
    """What each client runs: its tables in the order in which they are sorted, and the rules."""

    version: str
    relations: Sequence[Relation]
    work_mem_bytes: int
    variant: Variant = field(default_factory=lambda: _NO_VARIANT)

    @property
    def merge_order(self) -> int:
        """Runs merged at once. A variant's holds as long as two blocks of each fit into memory."""
        own = postgres_sort.rules(self.version).merge_order(self.work_mem_bytes)
        if self.variant.merge_order is None:
            return own
        fitting = self.work_mem_bytes // (2 * postgres_sort.BLOCK_BYTES)
        return max(own, min(self.variant.merge_order, fitting))


def relations(tables: Tables, size_ratio: float) -> list[Relation]:
    """The small and the large table at a fraction of the paper's size."""
    return [
        _relation(tables, parse_bytes(size), size_ratio) for size in (tables.small, tables.large)
    ]


def _relation(tables: Tables, heap_bytes: int, size_ratio: float) -> Relation:
    per_page = int((_PAGE_BYTES - _PAGE_HEADER_BYTES) / (tables.data_width_bytes + _TUPLE_BYTES))
    pages = max(int(heap_bytes * size_ratio / _PAGE_BYTES), 1)
    return Relation(
        rows=pages * per_page,
        heap_bytes=pages * _PAGE_BYTES,
        data_width_bytes=tables.data_width_bytes,
        wide_ratio=tables.wide_ratio,
    )


def run(point: Point, parameters: Parameters, bench: SimulatedBench, raw: Path) -> Measurement:
    """All clients once, side by side."""
    del raw
    return run_point(Cell.of(point), parameters, bench)


def run_point(
    v: Cell,
    parameters: Parameters,
    bench: SimulatedBench,
    overrides: Mapping[str, str] | None = None,
) -> Measurement:
    """See `run`. `overrides`: profile parameters, below the variant's."""
    if parameters.tables is None:
        raise BadParameter("sort_merge_join: the simulated tier needs `tables`")
    variant = parameters.variants.get(v.variant, _NO_VARIANT)
    stack = bench.stack(
        DeviceRequest(
            device=v.device,
            overrides={**(overrides or {}), **variant.overrides},
            seed=v.repetition,
        )
    )
    query = Query(
        version=variant.version or parameters.version,
        relations=relations(parameters.tables, v.size_ratio_to_paper),
        work_mem_bytes=v.work_mem_bytes,
        variant=variant,
    )
    result = simulate(stack, query, v, bench.cancel)
    return Measurement(metrics(result), trace=result["trace"])


def simulate(
    stack: ModelledStack,
    query: Query,
    v: Cell,
    cancel: _core.Cancel,
    page_cache_bytes: int = 0,
    slowdown: float = 1.0,
    version: kernel.Version = _KERNEL,
    file_system_bytes: int = 0,
    setup: kernel.Setup = kernel.PLAIN,
) -> dict[str, Any]:
    """`_core.run_sort_merge_joins` of that many clients on that stack.

    Of the cell count clients, size_ratio_to_paper (memory shrinks with the tables) and repetition.
    The page cache is what the host profile says, less what the clients take, unless it is given.
    `slowdown`: of a device to whose time all is; the kernel's timers are as much faster.
    `version`: of the kernel. `file_system_bytes`: from the device's beginning on; 0: all of it.
    `setup`: what else is not as it is by default.
    Raises BadParameter if the host profile does not say what a sort costs, or memory is used up.
    """
    host = stack.host
    if host.page_cache is None or host.sort is None:
        raise BadParameter(f"host profile {host.title}: needs page_cache and sort for this study")
    rules = postgres_sort.rules(query.version)
    sort, variant = host.sort, query.variant
    spec = _core.SortMergeJoinSpec(
        tables=[
            _core.SortedTable(**rules.table(relation, query.work_mem_bytes))
            for relation in query.relations
        ],
        merge=variant.merge or rules.merge,
        merge_order=query.merge_order,
        burst=rules.burst,
        refill=rules.refill,
        payload_bytes=rules.payload_bytes,
        reserve_block=rules.reserve_block,
        scan_cpu_ns=sort.scan_cpu.value,
        compare_cpu_ns=sort.compare_cpu.value,
        copy_cpu_ns=sort.copy_tuple_cpu.value,
        join_cpu_ns=sort.output_cpu.value,
        table_rate_bytes_per_s=sort.table_rate.value,
        ahead=variant.ahead,
        piece_blocks=variant.piece_blocks,
        trace_rows=TRACE_ROWS,
        seed=v.repetition,
    )
    memory_bytes = page_cache_bytes or _left_bytes(stack, query, v)
    # Write-back takes as many rounds in a sort as at the paper's size.
    second_s = v.size_ratio_to_paper / slowdown
    cache = _page_cache(stack, memory_bytes, second_s, version, setup)
    return _core.run_sort_merge_joins(
        stack.device_core,
        host.to_core(),
        cache,
        spec,
        v.clients,
        cancel,
        _file_system(stack, v.size_ratio_to_paper, second_s, file_system_bytes, setup),
    )


def _left_bytes(stack: ModelledStack, query: Query, v: Cell) -> int:
    """What the clients leave of the memory for files."""
    cache = stack.host.page_cache
    assert cache is not None
    size_ratio = v.size_ratio_to_paper
    # Each sort keeps its memory until the join has ended.
    sorts_bytes = len(query.relations) * query.work_mem_bytes
    each_bytes = sorts_bytes + int(cache.client_memory.value * size_ratio)
    left_bytes = int(cache.memory.value * size_ratio) - v.clients * each_bytes
    if left_bytes < 64 * _PAGE_BYTES:
        raise BadParameter(f"{v.clients} clients leave no memory for the page cache")
    return left_bytes


def _begin_bytes(stack: ModelledStack) -> int:
    """Where on the device the sorts' blocks begin: of no meaning on a flash drive."""
    if not isinstance(stack.device, HddProfile):
        return 0
    assert stack.host.page_cache is not None
    begin_ratio = stack.host.page_cache.file_system_begin.value
    capacity_bytes = stack.device.parameters.capacity.value
    return int(capacity_bytes * begin_ratio) // _SECTOR_BYTES * _SECTOR_BYTES


def _file_system(
    stack: ModelledStack, size_ratio: float, second_s: float, size_bytes: int, setup: kernel.Setup
) -> _core.Ext4Parameters | None:
    """ext4, if the host's profile says what it does there.

    The journal and the time between two of its commits shrink with the tables: they take a part of
    the sort's time.
    """
    ext4 = stack.host.ext4
    if ext4 is None:
        return None
    recent = ext4.recent_allocator.value
    size_bytes = size_bytes or stack.device.parameters.capacity.value
    return _core.Ext4Parameters(
        cache_block_bytes=postgres_sort.BLOCK_BYTES,
        discard=ext4.discard.value,
        commit_ns=max(int(ext4.commit_interval.value * size_ratio), 1),
        second_ns=int(second_s * 1e9),
        journal_bytes=max(int(ext4.journal.value * size_ratio), _LEAST_JOURNAL_BYTES),
        size_bytes=size_bytes,
        occupied_bytes=_begin_bytes(stack),
        times=True,
        fua=setup.uses_fua(stack.device),
        inode_table_bytes=setup.inode_table_bytes(size_bytes),
        recent=recent,
        stream_goals=(
            kernel.stream_goals(size_bytes, stack.host.parameters.cores.value, recent=recent)
        ),
    )


def _page_cache(
    stack: ModelledStack,
    memory_bytes: int,
    second_s: float,
    version: kernel.Version,
    setup: kernel.Setup,
) -> _core.PageCacheParameters:
    """`second_s`: how long one of the kernel's lasts."""
    cache = stack.host.page_cache
    assert cache is not None
    return _core.PageCacheParameters(
        memory_bytes=memory_bytes,
        block_bytes=postgres_sort.BLOCK_BYTES,
        read_ahead_bytes=cache.read_ahead.value,
        dirty_background_ratio=cache.dirty_background.value,
        dirty_ratio=cache.dirty.value,
        strict_limit=setup.strict_limit,
        round_ns=int(kernel.WRITE_BACK_ROUND_S * second_s * 1e9),
        second_ns=int(second_s * 1e9),
        queue_limit=cache.queue_limit.value,
        allocation_bytes=cache.allocation.value,
        segment_bytes=cache.segment.value,
        copy_cpu_ns=cache.copy_cpu.value,
        begin_bytes=_begin_bytes(stack),
        **kernel.page_cache_rules(version),
    )


def metrics(result: Mapping[str, Any]) -> dict[str, int | float]:
    """The flat record of one run; names and meanings as on the tiers with a real server."""
    clients = result["clients"]

    def mean(values: Sequence[float]) -> float:
        return float(sum(values)) / len(values)

    def total_bytes(name: str) -> int:
        return int(sum(c[name] for c in clients)) * postgres_sort.BLOCK_BYTES

    elapsed_s = [c["ended_ns"] / 1e9 for c in clients]
    cache, reads = result["cache"], result["join_reads"]
    requests = max(reads["join_read_requests"], 1)
    return {
        "elapsed_s": mean(elapsed_s),
        "elapsed_min_s": min(elapsed_s),
        "elapsed_max_s": max(elapsed_s),
        "sort_s": mean([c["sorted_ns"] / 1e9 for c in clients]),
        "join_s": mean([(c["ended_ns"] - c["sorted_ns"]) / 1e9 for c in clients]),
        "sort_utilisation_ratio": mean([c["busy_sorted_ns"] / c["sorted_ns"] for c in clients]),
        "join_utilisation_ratio": mean(
            [
                (c["busy_ended_ns"] - c["busy_sorted_ns"]) / (c["ended_ns"] - c["sorted_ns"])
                for c in clients
            ]
        ),
        "runs": clients[0]["runs"],
        "merges": clients[0]["merges"],
        "merged_bytes": sum(c["merged_bytes"] for c in clients),
        "temp_read_bytes": total_bytes("temp_blocks_read"),
        "temp_written_bytes": total_bytes("temp_blocks_written"),
        "temp_file_bytes": total_bytes("temp_file_blocks"),
        "read_wait_s": cache["read_wait_ns"] / 1e9 / len(clients),
        "write_wait_s": cache["write_wait_ns"] / 1e9 / len(clients),
        "join_read_jump_ratio": reads["join_read_jumps"] / requests,
        "join_read_mean_bytes": reads["join_read_bytes"] / requests,
        "device_requests": result["device_requests"],
        **{f"device_{name}": value for name, value in result["device"].items()},
    }


def host_cpu_s(host: HostProfile, query: Query) -> float:
    """CPU time in seconds of one client that never waits: what is left of a run besides waiting.

    Counted by hand from the plan, without the simulator: run formation and the last merge of every
    table, and the join's output; merges in between are not in it. Raises BadParameter.
    """
    if host.sort is None:
        raise BadParameter(f"host profile {host.title}: has no sort")
    sort = host.sort
    per_row = sort.scan_cpu.value + 2 * sort.copy_tuple_cpu.value + sort.output_cpu.value
    return sum(r.rows for r in query.relations) * per_row / 1e9
