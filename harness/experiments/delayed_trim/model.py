"""The run of one point in virtual time: a new drive through one kind of experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.devices.model import Device, Job, Run, waf_of
from harness.devices.profiles import SsdProfile
from harness.errors import BadParameter
from harness.experiments.base import Measurement, Point
from harness.experiments.delayed_trim.grid import (
    BLOCK_BYTES,
    AtOnceCell,
    Cell,
    IdleCell,
    IdlePhaseCell,
    Parameters,
    ScenarioCell,
    SharesCell,
    Table1Cell,
    TailsCell,
    UnitsCell,
    WriteListCell,
)
from harness.tiers.base import Bench
from harness.tiers.simulated import TRACE_ROWS

_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
_PARTS: Final = ("command", "buffer", "map")
_FIRMWARE: Final = (
    "firmware_command_ns",
    *(f"firmware_trim_{part}_ns" for part in (*_PARTS, "list")),
)
"""What keeps the firmware busy; its other counters say when, of the same time."""
_LONG_S: Final = 100.0  # until whatever was put off is done
# The whole drive takes seconds to fill. A small one behaves like it as long as a die has many
# blocks beside the open ones; so blocks shrink, too.
_SMALL: Final = {"capacity": "8 GiB", "pages_per_block": "32"}
_TABLES: Final = ("writes_noted", "full_tables", "forced_slices", "forgotten_blocks")
_SEED: Final = 1
_FILES: Final = 8  # that take turns
_DEPTH: Final = 32  # enough for the firmware never to wait for the host


_Make = Callable[..., Device]
"""Gives a new drive of the point's policy; takes parameters to be replaced in its profile."""


def run(point: Point, parameters: Parameters, bench: Bench, raw: Path) -> Measurement:
    """One new drive through one kind of experiment."""
    del parameters, raw
    return run_point(Cell.of(point), bench)


def run_point(cell: Cell, bench: Bench, overrides: Mapping[str, str] | None = None) -> Measurement:
    """The same for a cell. `overrides`: of the drive's profile.

    Raises BadParameter for a tier without models.
    """
    models = bench.models
    if models is None:
        raise BadParameter("delayed_trim: only tier simulated has models")

    def make(**changes: str) -> Device:
        changed = {"trim": cell.policy, **(overrides or {}), **changes}
        return models.new_model(cell.device, overrides=changed, seed=_SEED)

    return _KINDS[type(cell)](cell, make)


def _table1(v: Table1Cell, make: _Make) -> Measurement:
    """One request at a time, as fio's engine `sync` does; TRIMs of what was written first."""
    drive = make()
    unit = v.unit_bytes
    runs = [drive.run(_in_order("write", unit, v.written_bytes), rows=True)]
    if v.trimmed_bytes:
        runs.append(drive.run(_in_order("trim", unit, v.trimmed_bytes), rows=True))
    spent_ms = [run.elapsed_s * 1e3 for run in runs]
    times = {"write_ms": spent_ms[0], "trim_ms": sum(spent_ms[1:])}
    metrics = {**times, "total_ms": sum(spent_ms), **_later_us(drive)}
    return Measurement(metrics, trace=_trace(runs))


def _at_once(v: AtOnceCell, make: _Make) -> Measurement:
    """Two users, each one request at a time: one writes, the other trims what was there before.

    `write_ms` and `trim_ms` are the sums of each user's latencies, `total_ms` the time until the
    last answer.
    """
    drive = make()
    unit, trimmed = v.unit_bytes, v.trimmed_bytes // v.unit_bytes * v.unit_bytes
    drive.run(_in_order("write", unit, trimmed))
    run = drive.run(
        _in_order("write", unit, v.written_bytes, trimmed),
        _in_order("trim", unit, trimmed),
        rows=True,
    )
    times = {
        f"{op}_ms": run.ops[op].latency_mean_ns * run.ops[op].ios / 1e6 for op in ("write", "trim")
    }
    metrics = {**times, "total_ms": run.elapsed_s * 1e3, **_later_us(drive)}
    return Measurement(metrics, trace=_trace([run]))


def _shares(v: SharesCell, make: _Make) -> Measurement:
    """One command of ranges with as much between them."""
    drive = make()
    unit, ranges = v.unit_bytes, v.ranges
    drive.run(_in_order("write", unit, 2 * unit * ranges))
    latency_ns = drive.trim([(2 * i * unit, (2 * i + 1) * unit) for i in range(ranges)])
    later = _later_us(drive)
    parts = parts_us(drive.counters)
    whole = sum(parts.values())
    shares = {f"{name}_share_ratio": parts[f"{name}_us"] / whole for name in _PARTS}
    return Measurement({"latency_us": latency_ns / 1e3, **parts, **shares, **later})


def _units(v: UnitsCell, make: _Make) -> Measurement:
    """A file that was written and is trimmed, a unit at a time."""
    drive = make()
    file, unit = v.file_bytes, v.unit_bytes
    drive.run(_in_order("write", max(unit, 1 << 20), file))
    run = drive.run(_in_order("trim", unit, file), rows=True)
    later = _later_us(drive)
    parts = parts_us(drive.counters)
    metrics = {**parts, **until_answered_us(parts, later), **later}
    return Measurement(metrics, trace=_trace([run]))


def _scenario(v: ScenarioCell, make: _Make) -> Measurement:
    """The paper's example: TRIM of 200 blocks at 100, and a write of 50 blocks of them.

    `after`: the write comes before any of the TRIM was applied. `during`: half of it was.
    `between`: a second TRIM comes after it and covers half of what it wrote. The series are the
    blocks' states after each step, numbered: 1 where the drive holds something. A slice costs a
    hundred times as much as on the board, so that what comes first is still to be seen.
    """
    slow = {"trim_buffer_time": "50 us", "trim_map_time": "50 us"}
    blocks = {"capacity": "1 GiB", "map_unit": f"{BLOCK_BYTES} B", "pages_per_block": "16"}
    drive = make(**slow, **blocks)
    drive.run(_in_order("write", BLOCK_BYTES, 400 * BLOCK_BYTES))
    story = _Story(drive)
    story.trim(100, 200)
    if v.scenario == "during":
        story.half(200)
        story.write(175, 50)
    else:
        story.write(150, 50)
    if v.scenario == "between":
        story.trim(175, 50)
    story.rest()
    return Measurement(story.outcome(), story.series)


class _Story:
    """Requests one after another, what they left, and what the host may expect of that."""

    def __init__(self, drive: Device) -> None:
        self._drive = drive
        self._wanted = np.ones(400, dtype=bool)
        self._started_ns = drive.now_ns
        self._times_us: list[float] = []
        self.series: dict[str, list[int] | list[float]] = {"step_us": self._times_us}
        self._note("written")

    def trim(self, block: int, blocks: int) -> None:
        self._drive.trim([(block * BLOCK_BYTES, (block + blocks) * BLOCK_BYTES)])
        self._wanted[block : block + blocks] = False
        self._note(f"TRIM {block}-{block + blocks - 1}")

    def write(self, block: int, blocks: int) -> None:
        size = blocks * BLOCK_BYTES
        self._drive.run(_in_order("write", size, size, block * BLOCK_BYTES))
        self._wanted[block : block + blocks] = True
        self._note(f"write {block}-{block + blocks - 1}")

    def half(self, blocks: int) -> None:
        """Idles until half of that many blocks are gone."""
        before = self._held().sum()
        while before - self._held().sum() < blocks // 2:
            self._drive.idle(5e-5)
        self._note("idle, interrupted")

    def rest(self) -> None:
        self._drive.idle(_LONG_S)
        self._note("idle")

    def outcome(self) -> dict[str, int | float]:
        """Blocks that the host has written last and are gone, and that it trimmed and are not."""
        held = self._held()
        lost = int((self._wanted & ~held).sum())
        return {"lost_blocks": lost, "left_blocks": int((held & ~self._wanted).sum())}

    def _held(self) -> Any:
        return self._drive.mapping()[:400] >= 0

    def _note(self, step: str) -> None:
        self.series[f"{len(self._times_us)} {step}"] = self._held().astype(int).tolist()
        self._times_us.append((self._drive.now_ns - self._started_ns) / 1e3)


def _tails(v: TailsCell, make: _Make) -> Measurement:
    """Reads of one region, writes of the next, TRIMs of the empty rest: nothing is collected, so
    nothing but TRIM is in the way.
    """
    drive = make(**{**_SMALL, "capacity": f"{v.device_bytes} B"})
    region = v.region_bytes
    drive.precondition(fill_ratio=2 * region / drive.capacity_bytes)
    duration_s = v.duration_s
    unit = v.unit_bytes
    arriving = Job(poisson=True, duration_s=duration_s)
    reads = replace(
        arriving,
        op="read",
        block_bytes=v.read_bytes,
        end_bytes=region,
        interval_s=1 / v.reads_per_s,
        seed=_SEED,
    )
    writes = replace(
        arriving,
        block_bytes=v.write_bytes,
        begin_bytes=region,
        end_bytes=2 * region,
        interval_s=1 / v.writes_per_s,
        seed=_SEED + 1,
    )
    trims = Job(
        op="trim",
        pattern="sequential",
        block_bytes=unit,
        begin_bytes=2 * region,
        duration_s=duration_s,
        interval_s=unit / v.trim_rate_bytes_per_s,
    )
    run = drive.run(reads, writes, trims, rows=True)
    busy = sum(run.counters.get(name, 0) for name in _FIRMWARE)
    later = _later_us(drive)
    return Measurement(
        {
            **_latencies_us(run),
            "reads": run.ops["read"].ios,
            "writes": run.ops["write"].ios,
            "trims": run.ops["trim"].ios,
            **parts_us(drive.counters),
            **later,
            "firmware_busy_ratio": min(busy / 1e9 / run.elapsed_s, 1.0),
        },
        trace=_trace([run]),
    )


def _write_list(v: WriteListCell, make: _Make) -> Measurement:
    """Random writes of a slice each, into what pending TRIMs are about."""
    tables = {
        "trim_pending_ranges": str(v.pending_ranges),
        "trim_list_entries": str(v.list_entries),
    }
    drive = make(**tables, **_SMALL)
    drive.precondition(fill_ratio=0.5)
    unit, pending = v.unit_bytes, v.pending
    drive.run(replace(_in_order("trim", unit, unit * pending), queue_depth=_DEPTH))
    before = drive.counters
    run = drive.run(
        Job(
            block_bytes=_slice_bytes(drive),
            end_bytes=unit * pending,
            queue_depth=_DEPTH,
            requests=v.writes,
            seed=_SEED,
        ),
        rows=True,
    )
    after = drive.counters
    change = {name: after[name] - before[name] for name in after}
    return Measurement(
        {
            **_latencies_us(run),
            "per_write_us": change.get("firmware_trim_forced_ns", 0) / run.ios / 1e3,
            **{f"{name}": change.get(f"trim_{name}", 0) for name in _TABLES},
            "list_high": after.get("trim_list_entries_high", 0),
            "pending_high": after.get("trim_pending_ranges_high", 0),
            **_later_us(drive),
        },
        trace=_trace([run]),
    )


def _idle(v: IdleCell, make: _Make) -> Measurement:
    """Files that come and go beside data that is written again at random, on a full drive.

    A round writes a file in one of the files' places and trims it; after a pause, half as much of
    the other data is written. The first time that each place is used is not counted.
    """
    drive = make(**_SMALL)
    drive.precondition(fill_ratio=1.0, overwrites=1.0, seed=_SEED)
    file, unit, rounds = v.file_bytes, v.unit_bytes, v.rounds
    needed_s = file / _slice_bytes(drive) * _slice_s(drive)
    pause_s = v.pause_ratio * needed_s
    writes: list[Run] = []
    before: Mapping[str, int] = {}
    for number in range(_FILES + rounds):
        if number == _FILES:
            before = drive.counters
        begin = number % _FILES * file
        new = drive.run(_in_order("write", 128 << 10, file, begin))
        drive.run(_in_order("trim", unit, file, begin))
        drive.idle(pause_s)
        old = drive.run(_at_random(drive, file // 2, _FILES * file, number))
        writes += [new, old] if number >= _FILES else []
    after = drive.counters
    change = {name: after[name] - before[name] for name in after}
    slices = max(change["trim_slices"], 1)
    return Measurement(
        {
            "pause_ms": pause_s * 1e3,
            "needed_ms": needed_s * 1e3,
            "write_ms": sum(run.elapsed_s for run in writes) / rounds * 1e3,
            "write_p999_us": max(run.latency_ns("write", 0.999) for run in writes) / 1e3,
            "write_max_us": max(run.latency_ns("write", 1.0) for run in writes) / 1e3,
            "drain_ms": change.get("firmware_trim_drain_ns", 0) / rounds / 1e6,
            "drained_ratio": change.get("trim_drained_slices", 0) / slices,
            "waf_ratio": waf_of(change),
        }
    )


def _at_random(drive: Device, total_bytes: int, begin_bytes: int, seed: int) -> Job:
    """Writes of a slice each, behind the files' places."""
    return Job(
        block_bytes=_slice_bytes(drive),
        begin_bytes=begin_bytes,
        queue_depth=4,
        requests=total_bytes // _slice_bytes(drive),
        seed=_SEED + seed,
    )


def _idle_phase(v: IdlePhaseCell, make: _Make) -> Measurement:
    """A file that is trimmed, and what the drive does about it later, with reads in between."""
    habit = {"trim_step": str(v.step), "trim_merge": str(v.merged).lower()}
    drive = make(**habit, **_SMALL)
    drive.precondition(fill_ratio=0.5)
    file, unit = v.file_bytes, v.unit_bytes
    waits: list[Run] = []
    trims_s = 0.0
    for number in range(v.files):
        begin = number % _FILES * file
        trims_s += _trim_file(drive, v.pattern, begin, file, unit)
        waits.append(drive.run(_beside(drive, v, number), rows=True))
    drive.idle(_LONG_S)
    parts = parts_us(drive.counters)
    later = _later_us(drive)
    files = v.files
    latencies = np.concatenate([run.rows.latency_ns.to_numpy() for run in waits])
    return Measurement(
        {
            "trim_us": trims_s / files * 1e6,
            **{name: value / files for name, value in {**parts, **later}.items()},
            "slices": drive.counters["trim_slices"] / files,
            "merged_ranges": drive.counters.get("trim_merged_ranges", 0) / files,
            "read_p50_us": float(np.quantile(latencies, 0.5)) / 1e3,
            "read_p999_us": float(np.quantile(latencies, 0.999)) / 1e3,
            "read_max_us": float(latencies.max()) / 1e3,
        },
        trace=_trace(waits),
    )


def _trim_file(drive: Device, pattern: str, begin: int, file: int, unit: int) -> float:
    """Trims a file in a pattern; returns the commands' time in s."""
    if pattern == "units":
        return drive.run(_in_order("trim", unit, file, begin)).elapsed_s
    ends = range(begin + unit, begin + file + 1, unit)
    return sum(drive.trim([(begin, end)]) for end in ends) / 1e9


def _beside(drive: Device, v: IdlePhaseCell, seed: int) -> Job:
    """Reads of other data, for as long as the slowest way to apply a file's TRIMs takes."""
    longest_s = 2 * v.file_bytes / _slice_bytes(drive) * _slice_s(drive)
    return Job(
        op="read",
        begin_bytes=drive.capacity_bytes // 4,
        end_bytes=drive.capacity_bytes // 2,
        interval_s=1 / v.reads_per_s,
        poisson=True,
        duration_s=longest_s,
        seed=_SEED + seed,
    )


def _in_order(op: Any, unit_bytes: int, total_bytes: int, begin_bytes: int = 0) -> Job:
    """So many bytes of the drive, a unit at a time and one at a time."""
    return Job(
        op=op,
        pattern="sequential",
        block_bytes=unit_bytes,
        begin_bytes=begin_bytes,
        end_bytes=begin_bytes + total_bytes // unit_bytes * unit_bytes,
        requests=total_bytes // unit_bytes,
    )


def _trace(runs: Sequence[Run]) -> dict[str, NDArray[Any]]:
    """Every n-th request of these runs, as they were submitted: submitted_ns, latency_ns, lba,
    sectors, op (0 read, 1 write, 2 TRIM, 3 flush).
    """
    rows = pd.concat([run.rows for run in runs]).sort_values("submitted_ns", kind="stable")
    rows = rows.iloc[:: -(-len(rows) // TRACE_ROWS)]
    return {
        **{name: rows[name].to_numpy() for name in rows if name != "op"},
        "op": rows["op"].cat.codes.to_numpy(),
    }


def _parameters(drive: Device) -> Any:
    assert isinstance(drive.profile, SsdProfile)
    return drive.profile.parameters


def _slice_bytes(drive: Device) -> int:
    return int(_parameters(drive).trim_slice.value)


def _slice_s(drive: Device) -> float:
    """What applying a slice costs while no write is noted."""
    p = _parameters(drive)
    return float(p.trim_buffer_time.value + p.trim_map_time.value) / 1e9


def parts_us(counters: Mapping[str, int]) -> dict[str, float]:
    """The three parts of TRIM's cost, whenever they were paid."""
    return {f"{part}_us": counters[f"firmware_trim_{part}_ns"] / 1e3 for part in _PARTS}


def _later_us(drive: Device) -> dict[str, float]:
    """The same of `later_us`, after waiting until nothing is pending."""
    drive.idle(_LONG_S)
    return later_us(drive.counters)


def later_us(counters: Mapping[str, int]) -> dict[str, float]:
    """What was paid later than with the command.

    `list`: of the Check Write List and of the search of what is pending. `idle`, `drain`, `forced`:
    when no command wanted the firmware, before a collection, in the way of a command that needed
    room in the tables, a note in the list, or a slice that was pending. `later`: the first two.
    """
    names = ("list", "idle", "drain", "forced")
    times = {f"{name}_us": counters.get(f"firmware_trim_{name}_ns", 0) / 1e3 for name in names}
    return {**times, "later_us": times["idle_us"] + times["drain_us"]}


def until_answered_us(parts: Mapping[str, float], later: Mapping[str, float]) -> dict[str, float]:
    """What was done before the answers: handling the commands, and the rest of the work."""
    rest = parts["buffer_us"] + parts["map_us"] + later["list_us"] - later["later_us"]
    return {
        "handling_us": parts["command_us"],
        "rest_us": rest,
        "trim_us": parts["command_us"] + rest,
    }


def _latencies_us(run: Run) -> dict[str, float]:
    """Mean and quantiles of every operation that occurred."""
    metrics = {}
    for name, op in run.ops.items():
        if op.ios:
            metrics[f"{name}_mean_us"] = op.latency_mean_ns / 1e3
            metrics |= {
                f"{name}_{q}_us": op.latency_ns(share) / 1e3 for q, share in _QUANTILES.items()
            }
    return metrics


_KINDS: Final[dict[type[Cell], Callable[[Any, _Make], Measurement]]] = {
    Table1Cell: _table1,
    AtOnceCell: _at_once,
    SharesCell: _shares,
    UnitsCell: _units,
    ScenarioCell: _scenario,
    TailsCell: _tails,
    WriteListCell: _write_list,
    IdleCell: _idle,
    IdlePhaseCell: _idle_phase,
}
