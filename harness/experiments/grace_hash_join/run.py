"""The run of one point: inputs on the device, one engine per user, results checked.

On the simulated tier a point may instead repeat a join that was run on another drive or CPU, where
that is exact (join/transcript.hpp): the same steps, without the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness import _core
from harness.errors import DataCorrupted
from harness.experiments.base import Measurement, Point
from harness.experiments.grace_hash_join import theory
from harness.experiments.grace_hash_join.grid import BASE, Cell, Parameters
from harness.tiers.base import DATA_OFFSET_BYTES, Bench, CpuCosts, DeviceRequest, DeviceUnderTest
from harness.workloads.records import RECORD_BYTES
from harness.workloads.tpch import (
    JoinInputs,
    expected_join,
    join_inputs,
    record_bounds,
)

_ALIGN_BYTES: Final = 1 << 20
_PHASES: Final = ("partition", "join", "repartition")
_OPS: Final = ("read", "write")


@dataclass(frozen=True)
class _Layout:
    """Where everything lies on the device, in bytes: the inputs, then one space per user."""

    orders: int
    lineitem: int
    scratch: int
    scratch_each: int
    users: int

    @property
    def total(self) -> int:
        return self.scratch + self.users * self.scratch_each


def needed_bytes(v: Cell) -> int:
    """See GraceHashJoin.needed_bytes."""
    orders, lineitem = record_bounds(v.scale)
    return _layout(orders, lineitem, _spec(v, CpuCosts()), v.users).total


def run(point: Point, parameters: Parameters, bench: Bench, raw: Path) -> Measurement:
    """One join per user, side by side. Raises DataCorrupted if any result is wrong."""
    return run_point(Cell.of(point), parameters, bench, raw)


def run_point(v: Cell, parameters: Parameters, bench: Bench, raw: Path) -> Measurement:
    """The same for a cell."""
    return _run(v, parameters, bench, raw)


def together(points: Sequence[Point]) -> list[list[Point]]:
    """Those together whose joins do the same, whatever their drives, hosts and CPUs.

    A user's synchronous join depends on its records and its buffers alone: several users compete
    for the drive, but what each of them does is the same whoever comes first. With a deeper queue a
    join goes on with what the drive has done first: each of these points stays alone.
    """
    groups: dict[Cell, list[Point]] = {}
    for point in points:
        cell = Cell.of(point)
        alone = cell.queue_depth > 1
        path = cell if alone else replace(cell, device="", variant="")
        groups.setdefault(path, []).append(point)
    return list(groups.values())


def run_together(
    points: Sequence[Point], parameters: Parameters, bench: Bench, raw: Path
) -> Iterator[Measurement]:
    """What `run` gives of each of such points. The first one joins, the others repeat its steps."""
    first, *others = points
    if not others:
        yield run(first, parameters, bench, raw)
        return
    transcript = _core.JoinTranscript()
    yield _run(Cell.of(first), parameters, bench, raw, noted=transcript)
    for point in others:
        measured = _run(Cell.of(point), parameters, bench, raw, repeated=transcript)
        yield replace(measured, about={"repeats": first.id})


def _run(
    v: Cell,
    parameters: Parameters,
    bench: Bench,
    raw: Path,
    *,
    noted: _core.JoinTranscript | None = None,
    repeated: _core.JoinTranscript | None = None,
) -> Measurement:
    """`noted`: is made of the joins; `repeated`: they are those of this transcript."""
    inputs = join_inputs(raw, v.scale)
    records = len(inputs.orders), len(inputs.lineitem)
    layout = _layout(*records, _spec(v, CpuCosts()), v.users)
    variant = parameters.variants.get(v.variant)
    with bench.open_device(
        DeviceRequest(
            device=v.device,
            needed_bytes=layout.total,
            overrides=variant.overrides if variant else {},
            seed=v.repetition,
            trace=_is_traced(v),
            contents=repeated is None,
        )
    ) as device:
        device.place(layout.orders, inputs.orders)
        device.place(layout.lineitem, inputs.lineitem)
        device.begin()
        spec, jobs = _spec(v, device.cpu), _jobs(inputs, layout)
        if repeated is None:
            users = _core.run_joins(device.storage, spec, jobs, bench.cancel, noted)
        else:
            users = _core.repeat_joins(device.storage, spec, jobs, bench.cancel, repeated)
        _check(users, inputs, raw)
        metrics = {**_metrics(users), **device.counters(), **_theory(v, inputs, device)}
        return Measurement(metrics, _histograms(users), _trace(users), device.block_trace)


def _spec(v: Cell, cpu: CpuCosts) -> _core.JoinSpec:
    return _core.JoinSpec(
        algorithm=_core.Algorithm[v.algorithm],
        read_buffer_bytes=v.read_buffer_bytes,
        write_buffer_bytes=v.write_buffer_bytes,
        input_io_bytes=v.input_io_bytes,
        queue_depth=v.queue_depth,
        hash_seed=v.repetition,
        partition_cpu_ns=cpu.partition_ns,
        build_cpu_ns=cpu.build_ns,
        probe_cpu_ns=cpu.probe_ns,
        match_cpu_ns=cpu.match_ns,
        trace=_is_traced(v),
    )


def _is_traced(v: Cell) -> bool:
    """The smallest and the middle read buffer of figure 1, and two users of figure 3."""
    plain = v.repetition == 0 and v.variant == BASE and v.queue_depth == 1
    shown = {(1 << 20, 1), (16 << 20, 1), (4 << 20, 2)}
    setting = (v.nominal_read_buffer_bytes, v.users)
    return plain and v.algorithm == "grace" and v.write_buffer_bytes == 4096 and setting in shown


def _layout(orders: int, lineitem: int, spec: _core.JoinSpec, users: int) -> _Layout:
    def aligned(size_bytes: int) -> int:
        return -(-size_bytes // _ALIGN_BYTES) * _ALIGN_BYTES

    lineitem_at = DATA_OFFSET_BYTES + aligned(orders * RECORD_BYTES)
    scratch_at = lineitem_at + aligned(lineitem * RECORD_BYTES)
    each = aligned(_core.scratch_bytes_needed(spec, orders, lineitem, block_bytes=512))
    return _Layout(DATA_OFFSET_BYTES, lineitem_at, scratch_at, each, users)


def _jobs(inputs: JoinInputs, layout: _Layout) -> list[_core.UserJob]:
    """All users join the same two tables; each has a space of its own for its partitions."""
    return [
        _core.UserJob(
            build_offset_bytes=layout.orders,
            build_records=len(inputs.orders),
            probe_offset_bytes=layout.lineitem,
            probe_records=len(inputs.lineitem),
            scratch_begin_bytes=layout.scratch + user * layout.scratch_each,
            scratch_end_bytes=layout.scratch + (user + 1) * layout.scratch_each,
        )
        for user in range(layout.users)
    ]


def _check(users: Sequence[Mapping[str, Any]], inputs: JoinInputs, raw: Path) -> None:
    """Every user's result is that of an independent join of the same input.

    Of a repetition it is the result of the join that it repeats.
    """
    expected = expected_join(raw, inputs)
    for number, user in enumerate(users):
        found = (user["matches"], user["checksum"])
        if found != expected:
            raise DataCorrupted(
                f"user {number} found {found[0]} matches with checksum {found[1]:#x}, an "
                f"independent join {expected[0]} with {expected[1]:#x}: the run is worthless"
            )


def _metrics(users: Sequence[Mapping[str, Any]]) -> dict[str, int | float]:
    def mean_s(name: str) -> float:
        return float(sum(user[name] for user in users)) / len(users) / 1e9

    metrics: dict[str, int | float] = {
        "elapsed_s": mean_s("elapsed_ns"),
        "elapsed_max_s": max(user["elapsed_ns"] for user in users) / 1e9,
        "partition_s": mean_s("partition_ns"),
        "join_s": mean_s("join_ns"),
        "repartition_s": mean_s("repartition_ns"),
        "partitions": users[0]["partitions"],
        "memory_bytes": users[0]["memory_bytes"],
        "matches": users[0]["matches"],
    }
    for name in ("role_reversals", "overflows", "nested_loops", "resident_records"):
        metrics[name] = sum(user[name] for user in users)
    for phase in _PHASES:
        for op in _OPS:
            counts = [user["io"][phase][op] for user in users]
            ios = sum(c["ios"] for c in counts)
            metrics[f"{phase}_{op}_ios"] = ios
            metrics[f"{phase}_{op}_bytes"] = sum(c["bytes"] for c in counts)
            sequential = sum(c["by_seek_log2"][0] for c in counts)
            metrics[f"{phase}_{op}_sequential_ratio"] = sequential / ios if ios else 0.0
    return metrics


def _histograms(users: Sequence[Mapping[str, Any]]) -> dict[str, list[int] | list[float]]:
    """Counts by power of two: I/O sizes in bytes, seek distances in sectors (0: sequential)."""
    series: dict[str, list[int] | list[float]] = {}
    for phase in _PHASES:
        for op in _OPS:
            for kind in ("by_size_log2", "by_seek_log2"):
                rows = [user["io"][phase][op][kind] for user in users]
                series[f"{phase}_{op}_{kind}"] = [sum(column) for column in zip(*rows, strict=True)]
    return series


def _trace(users: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[np.generic]]:
    """All users' I/Os in order of submission; empty if the point was not traced."""
    columns = {
        name: np.concatenate([user["trace"][name] for user in users]) for name in users[0]["trace"]
    }
    order = np.argsort(columns["submitted_ns"], kind="stable")
    return {name: column[order] for name, column in columns.items()} if len(order) else {}


def _theory(v: Cell, inputs: JoinInputs, device: DeviceUnderTest) -> dict[str, float]:
    """The closed form beside the simulation, where there is a model to compare."""
    if device.profile is None or device.host is None or v.users != 1 or v.queue_depth != 1:
        return {}
    shape = theory.Shape(
        records=(len(inputs.orders), len(inputs.lineitem)),
        read_buffer_bytes=v.read_buffer_bytes,
        write_buffer_bytes=v.write_buffer_bytes,
        input_io_bytes=v.input_io_bytes,
    )
    if v.algorithm != "grace":
        return {}
    partition_s, join_s = theory.predict(shape, device.profile, device.host)
    return {"theory_partition_s": partition_s, "theory_join_s": join_s}
