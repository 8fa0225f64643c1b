"""The run of one point on a live or a real device: fio writes, trims and reads it.

fio and the kernel are not slowed down with a live drive, so its times are the clock's over the
slowdown; TRIM's parts are the drive's own counters, as the paper's come from the device core's
clock counter: a real drive tells no times, and then there are none, but a board with the firmware
of hardware/openssd tells how much of TRIM it did when. A TRIM is one BLKDISCARD, which fio's engine
`psync` sends for `trim`. A real drive's policy is its own (grid.OWN).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from harness.errors import BadParameter, TargetError
from harness.experiments.base import Measurement, Point
from harness.experiments.delayed_trim.grid import (
    OWN,
    AtOnceCell,
    Cell,
    Parameters,
    Table1Cell,
    TailsCell,
    UnitsCell,
)
from harness.experiments.delayed_trim.model import later_us, parts_us, until_answered_us
from harness.tiers.base import DATA_OFFSET_BYTES, Bench, DeviceRequest, DeviceUnderTest
from harness.workloads import fio
from harness.workloads.fio import FioOp

_Job = dict[str, str | int]
"""fio's options by name."""

_QUANTILES: Final = ("p50", "p90", "p99", "p999", "max")
_FILL_BYTES: Final = 1 << 20
_DEPTH: Final = 32  # at most so many of an open loop's requests wait
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.05


def needed_bytes(cell: Cell) -> int:
    """What is written, at most: the store keeps it in memory. Of other kinds, nothing is.

    And a header before it: some targets begin with one.
    """
    written = _written_bytes(cell)
    return written + DATA_OFFSET_BYTES if written else 0


def _written_bytes(cell: Cell) -> int:
    match cell:
        case TailsCell():
            return 2 * cell.region_bytes
        case AtOnceCell():
            return cell.written_bytes + cell.trimmed_bytes
        case Table1Cell():
            return cell.written_bytes
        case UnitsCell():
            return cell.file_bytes
    return 0


def run(point: Point, parameters: Parameters, bench: Bench, raw: Path) -> Measurement:
    """One drive through one kind of experiment."""
    del parameters, raw
    return run_point(Cell.of(point), bench)


def run_point(cell: Cell, bench: Bench) -> Measurement:
    """Runs it on a new device. Raises HarnessError; InvalidRun where replies left late."""
    policy = cell.policy
    if (bench.tier == "hardware") != (policy == OWN):
        raise BadParameter(f"delayed_trim: policy {policy!r} is not for tier {bench.tier}")
    if type(cell) not in _KINDS:
        raise BadParameter(f"delayed_trim: {cell.kind} runs on tier simulated only")
    with bench.open_device(
        DeviceRequest(
            device=cell.device,
            needed_bytes=needed_bytes(cell),
            overrides={} if policy == OWN else {"trim": policy},
            size_bytes=cell.device_bytes if isinstance(cell, TailsCell) else 0,
            each_kind=True,
        )
    ) as device:
        metrics = _KINDS[type(cell)](cell, device)
        return Measurement({**metrics, **device.counters()})


def _table1(v: Table1Cell, device: DeviceUnderTest) -> dict[str, float]:
    """Times are sums of latencies: fio sends one request at a time."""
    unit = v.unit_bytes
    device.begin()
    write_ms = _total_ms(_in_order(device, "write", unit, v.written_bytes), device)
    trimmed = v.trimmed_bytes
    trim_ms = _total_ms(_in_order(device, "trim", unit, trimmed), device) if trimmed else 0.0
    times = {"write_ms": write_ms, "trim_ms": trim_ms, "total_ms": write_ms + trim_ms}
    _, later = _own_us(_settled(device))
    return {**times, **later}


def _at_once(v: AtOnceCell, device: DeviceUnderTest) -> dict[str, float]:
    """Two of fio's threads, each one request at a time; what is trimmed was written before."""
    unit, trimmed = v.unit_bytes, v.trimmed_bytes // v.unit_bytes * v.unit_bytes
    _in_order(device, "write", unit, trimmed)
    device.begin()
    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(_in_order, device, "write", unit, v.written_bytes, trimmed)
        trimming = pool.submit(_in_order, device, "trim", unit, trimmed)
        write_ms, trim_ms = (_total_ms(each.result(), device) for each in (writing, trimming))
    _, later = _own_us(_settled(device))
    return {
        "write_ms": write_ms,
        "trim_ms": trim_ms,
        "total_ms": max(write_ms, trim_ms),
        **later,
    }


def _units(v: UnitsCell, device: DeviceUnderTest) -> dict[str, float]:
    file, unit = v.file_bytes, v.unit_bytes
    device.begin()
    _in_order(device, "write", max(unit, _FILL_BYTES), file)
    trim = _in_order(device, "trim", unit, file)
    parts, later = _own_us(_settled(device))
    answered = {"trim_mean_us": trim.latency_mean_ns / device.slowdown / 1e3}
    if not parts:
        return {**answered, "trim_us": answered["trim_mean_us"] * trim.ios}
    return {**parts, **until_answered_us(parts, later), **later, **answered}


def _tails(v: TailsCell, device: DeviceUnderTest) -> dict[str, float]:
    """Reads of one region and writes of the next at random moments, TRIMs of the rest."""
    region, unit = v.region_bytes, v.unit_bytes
    _in_order(device, "write", _FILL_BYTES, 2 * region)
    trims_per_s = v.trim_rate_bytes_per_s / unit
    jobs: dict[str, _Job] = {
        "read": {
            **_arriving(v, device, "randread", v.read_bytes, v.reads_per_s),
            **_within(0, region),
        },
        "write": {
            **_arriving(v, device, "randwrite", v.write_bytes, v.writes_per_s),
            **_within(region, region),
        },
        "trim": {
            **_timed(v, device, "trim", unit, _by_clock(trims_per_s, device)),
            **_within(2 * region, device.size_bytes // unit * unit - 2 * region),
        },
    }
    sizes = {"read": 0, "write": round(v.writes_per_s * v.duration_s) * v.write_bytes, "trim": 0}
    device.begin()
    with ThreadPoolExecutor(len(jobs)) as pool:
        started = {op: pool.submit(_run, device, job, sizes[op]) for op, job in jobs.items()}
        ran = {op: future.result() for op, future in started.items()}
    parts, later = _own_us(_settled(device))
    found = {f"{op}s": float(each.ios) for op, each in ran.items()}
    for op, each in ran.items():
        found |= _latencies_us(op, each, device.slowdown)
    return {**found, **parts, **later}


def _in_order(device: DeviceUnderTest, op: str, unit: int, total: int, begin: int = 0) -> FioOp:
    """So many bytes of the device, a unit at a time and one at a time."""
    size = total // unit * unit
    job: _Job = {"rw": op, "bs": unit, "direct": 1, "ioengine": "psync", "thread": 1}
    return _run(device, {**job, **_within(begin, size)}, size)


def _within(begin: int, length: int) -> _Job:
    return {"offset": begin, "size": length}


def _timed(v: TailsCell, device: DeviceUnderTest, op: str, block: int, per_s: int) -> _Job:
    """For a time, of the device's; so many per second of the clock."""
    return {
        "rw": op,
        "bs": block,
        "ioengine": "psync",
        "direct": 1,
        "thread": 1,
        "time_based": 1,
        "runtime": f"{round(v.duration_s * device.slowdown * 1e3)}ms",
        "rate_iops": per_s,
    }


def _by_clock(per_s: float, device: DeviceUnderTest) -> int:
    """What fio takes for a rate per second of the device's time."""
    return max(1, round(per_s / device.slowdown))


def _arriving(v: TailsCell, device: DeviceUnderTest, op: str, block: int, per_s: float) -> _Job:
    """At random moments, whatever the device does.

    From as many users as may have one request each: together they are all but independent of what
    is under way, though each waits for its own. One with many requests is not: before fio (3.33)
    sleeps until the next is due, it waits for all under way (io_u_quiesce() in rate_ddir()), and
    sends at once what has become due meanwhile; with threads that send for it
    (io_submit_mode=offload) one run in seven does not end.
    """
    whole = _by_clock(per_s, device)
    of_each = -(-whole // _DEPTH)
    return {
        **_timed(v, device, op, block, of_each),
        "rate_process": "poisson",
        "randrepeat": 1,
        "numjobs": max(1, round(whole / of_each)),
        "group_reporting": 1,
    }


def _run(device: DeviceUnderTest, job: _Job, size: int) -> FioOp:
    """`size`: of all that it reads, writes or trims."""
    op = str(job["rw"]).removeprefix("rand")
    if op != "read":
        device.permit(f"have fio {op}", size if op == "write" else 0)
    return fio.run(device.path, job).busiest


def _total_ms(op: FioOp, device: DeviceUnderTest) -> float:
    return op.latency_mean_ns * op.ios / device.slowdown / 1e6


def _latencies_us(op: str, found: FioOp, slowdown: int) -> dict[str, float]:
    times = {name: getattr(found, f"latency_{name}_ns") for name in ("mean", *_QUANTILES)}
    return {f"{op}_{name}_us": value / slowdown / 1e3 for name, value in times.items()}


def _own_us(counters: Mapping[str, int]) -> tuple[dict[str, float], dict[str, float]]:
    """TRIM's parts, and what of them was later, by the drive; a real one counts no times."""
    if "firmware_trim_command_ns" not in counters:
        return {}, {}
    return parts_us(counters), later_us(counters)


def _settled(device: DeviceUnderTest) -> dict[str, int]:
    """The drive's counters when nothing is pending any more."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        counters = device.counted()
        if not counters.get("trim_pending_ranges", 0):
            return counters
        if time.monotonic() > deadline:
            raise TargetError("the drive still has TRIMs pending: use a smaller slowdown")
        time.sleep(_LOOK_S)  # the drive's own time has to pass


_KINDS: Final[dict[type[Cell], Callable[[Any, DeviceUnderTest], dict[str, float]]]] = {
    Table1Cell: _table1,
    AtOnceCell: _at_once,
    UnitsCell: _units,
    TailsCell: _tails,
}
