"""Device models to experiment with: build one from a profile, run jobs or a trace, look at results.

    folder = find_project().profiles
    device = Device.from_profile(folder, "samsung_980_1tb", {"overprovision": "0.2"})
    device.to_steady_state()
    run = device.run(Job(op="write", pattern="random", block_bytes=4096, queue_depth=32,
                         requests=1_000_000))
    run.iops, run.latency_ns("write", 0.99), device.waf
    run.to_frame()

Time is virtual and nothing is stored: a model knows when its device would answer, not what. The
drive lives on between calls, with everything that it has been through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness import _core
from harness.devices.profiles import (
    DeviceProfile,
    NamedRange,
    SsdProfile,
    core_parameters,
    load_device,
)
from harness.errors import BadParameter

OPS: Final = ("read", "write", "trim", "flush")
"""The operations, in the order of their codes 0 to 3."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A stream of requests, as fio would make it.

    `op` fixes the operation; `read_ratio` and `trim_ratio` (shares of all requests) mix instead.
    The job ends after `requests` or `duration_s` of virtual time, whichever is given and comes
    first. It keeps `queue_depth` requests outstanding, or, with `interval_s` above 0, sends one
    every so often on average whatever happens (`poisson`: with exponential gaps).

    Patterns: `sequential` (starts again at the span's end), `random`, `hot_cold` (the first
    `hot_data_ratio` of the span gets `hot_access_ratio` of the requests), `zipf` (Gray et al.,
    SIGMOD 1994).
    """

    op: Literal["read", "write", "trim"] = "write"
    read_ratio: float | None = None
    trim_ratio: float = 0.0
    pattern: str = "random"
    block_bytes: int = 4096
    begin_bytes: int = 0
    end_bytes: int | None = None
    queue_depth: int = 1
    requests: int = 0
    duration_s: float = 0.0
    interval_s: float = 0.0
    poisson: bool = False
    hot_data_ratio: float = 0.1
    hot_access_ratio: float = 0.9
    zipf_theta: float = 0.99
    stream: int = 0
    fua: bool = False
    flush_every: int = 0
    seed: int = 0

    def to_core(self, capacity_bytes: int) -> _core.JobParameters:
        """The core's parameters on a device of that size. Raises BadParameter."""
        mixed = self.read_ratio is not None or self.trim_ratio > 0
        end = capacity_bytes if self.end_bytes is None else self.end_bytes
        return _core.JobParameters(
            pattern=self.pattern,
            read_ratio=(self.read_ratio or 0.0) if mixed else float(self.op == "read"),
            trim_ratio=self.trim_ratio if mixed else float(self.op == "trim"),
            block_bytes=self.block_bytes,
            begin_bytes=self.begin_bytes,
            end_bytes=end,
            queue_depth=self.queue_depth,
            requests=self.requests,
            duration_ns=round(self.duration_s * 1e9),
            interval_ns=round(self.interval_s * 1e9),
            poisson=self.poisson,
            hot_data_ratio=self.hot_data_ratio,
            hot_access_ratio=self.hot_access_ratio,
            zipf_theta=self.zipf_theta,
            stream=self.stream,
            fua=self.fua,
            flush_every=self.flush_every,
            seed=self.seed,
        )


@dataclass(frozen=True)
class OpStats:
    """What one operation did in a run. Latencies are known to 0.8 %; mean, min and max exactly."""

    ios: int
    bytes: int
    latency_mean_ns: float
    latency_min_ns: int
    latency_max_ns: int
    _buckets_ns: Ints = field(repr=False)
    _counts: Ints = field(repr=False)

    def latency_ns(self, quantile: float) -> float:
        """The latency that this share of the requests did not exceed. Raises BadParameter."""
        if not 0.0 <= quantile <= 1.0:
            raise BadParameter(f"quantile {quantile}: must lie between 0 and 1")
        if self.ios == 0:
            return float("nan")
        if quantile == 1.0:
            return float(self.latency_max_ns)
        below = np.cumsum(self._counts)
        at = int(np.searchsorted(below, max(1.0, np.ceil(quantile * self.ios))))
        return float(self._buckets_ns[at])


@dataclass(frozen=True)
class Run:
    """What a job or a trace did to the device."""

    begin_ns: int
    end_ns: int
    ops: Mapping[str, OpStats]
    rows: pd.DataFrame
    """Per request, if recorded, by completion: submitted_ns, latency_ns, op, lba, sectors."""
    intervals: pd.DataFrame
    """Per interval, if recorded: begin_s, ios, bytes, latency_mean_ns, latency_max_ns."""
    counters: Mapping[str, int]
    """What the device counted meanwhile (all jobs that ran side by side)."""

    @property
    def elapsed_s(self) -> float:
        """From the start to the last completion, in virtual time."""
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def ios(self) -> int:
        """Requests of all kinds."""
        return sum(op.ios for op in self.ops.values())

    @property
    def iops(self) -> float:
        """Requests per second."""
        return self.ios / self.elapsed_s

    @property
    def bytes_per_s(self) -> float:
        """Bytes read, written and trimmed per second."""
        return sum(op.bytes for op in self.ops.values()) / self.elapsed_s

    @property
    def waf(self) -> float:
        """Write amplification meanwhile: bytes programmed per byte that the host wrote."""
        return waf_of(self.counters)

    def latency_ns(self, op: str, quantile: float) -> float:
        """A quantile of an operation's latency."""
        return self.ops[op].latency_ns(quantile)

    def to_frame(self) -> pd.DataFrame:
        """One row per operation that occurred: ios, bytes, iops, bytes_per_s, latencies in ns."""
        rows = []
        for name, op in self.ops.items():
            if op.ios == 0:
                continue
            rows.append(
                {
                    "op": name,
                    "ios": op.ios,
                    "bytes": op.bytes,
                    "iops": op.ios / self.elapsed_s,
                    "bytes_per_s": op.bytes / self.elapsed_s,
                    "latency_mean_ns": op.latency_mean_ns,
                    "latency_min_ns": op.latency_min_ns,
                    "latency_p50_ns": op.latency_ns(0.5),
                    "latency_p99_ns": op.latency_ns(0.99),
                    "latency_p999_ns": op.latency_ns(0.999),
                    "latency_max_ns": op.latency_max_ns,
                }
            )
        return pd.DataFrame(rows)


class TraceChunk(Protocol):
    """Equally long 1-D arrays: a piece of a trace (harness.workloads.traces.Chunk)."""

    @property
    def time_ns(self) -> npt.NDArray[np.int64]: ...
    @property
    def op(self) -> npt.NDArray[np.uint8]: ...
    @property
    def lba(self) -> npt.NDArray[np.int64]: ...
    @property
    def sectors(self) -> npt.NDArray[np.int64]: ...
    @property
    def stream(self) -> npt.NDArray[np.uint16]: ...
    @property
    def fua(self) -> npt.NDArray[np.bool_]: ...


class Device:
    """A device model in virtual time. Instances share nothing; calls release the GIL."""

    def __init__(
        self, profile: DeviceProfile, *, seed: int = 0, ranges: Sequence[NamedRange] = ()
    ) -> None:
        self.profile = profile
        self.cancel = _core.Cancel()
        self._core = _core.Device(core_parameters(profile, seed=seed, ranges=ranges))

    @classmethod
    def from_profile(
        cls,
        folder: Path,
        name: str,
        overrides: Mapping[str, str] | None = None,
        *,
        seed: int = 0,
        ranges: Sequence[NamedRange] = (),
    ) -> Device:
        """The drive of a profile, new. Overrides are written as in the profile: {'page': '8 KiB'}.

        `ranges` are counted apart (`shares`). Raises UnknownName, BadProfile or BadParameter.
        """
        return cls(load_device(folder, name, overrides), seed=seed, ranges=ranges)

    @property
    def capacity_bytes(self) -> int:
        """What the host sees."""
        return self._core.capacity_bytes

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self._core.now_ns / 1e9

    @property
    def now_ns(self) -> int:
        """The same, exactly."""
        return self._core.now_ns

    @property
    def spare_factor(self) -> float:
        """1 - logical / physical size, as laid out in whole blocks."""
        return self._core.spare_factor

    def run(self, *jobs: Job, rows: bool = False, interval_s: float = 0.0) -> Run:
        """Runs jobs side by side; returns what they did together. See `run_all` for each.

        `rows` records every request, `interval_s` a time series.
        """
        runs = self.run_all(*jobs, rows=rows, interval_s=interval_s)
        return runs[0] if len(runs) == 1 else _together(runs)

    def run_all(self, *jobs: Job, rows: bool = False, interval_s: float = 0.0) -> list[Run]:
        """Runs jobs side by side until all have ended; one result for each."""
        if not jobs:
            raise BadParameter("run: give at least one Job")
        before = self.counters
        specs = [job.to_core(self.capacity_bytes) for job in jobs]
        interval_ns = round(interval_s * 1e9)
        raw = self._core.run(specs, rows=rows, interval_ns=interval_ns, cancel=self.cancel)
        counters = _difference(before, self.counters)
        return [_run_of(one, interval_s, counters) for one in raw]

    def trim(self, ranges: Sequence[tuple[int, int]]) -> int:
        """One TRIM command of several ranges, (begin, end) in bytes, alone; its latency in ns.

        Raises BadParameter for more ranges than the device takes, or one outside of it.
        """
        return self._core.trim(list(ranges))

    def replay(
        self,
        chunks: Iterable[TraceChunk],
        *,
        queue_depth: int = 0,
        until_ns: int | None = None,
        as_submitted: bool = False,
        rows: bool = False,
        interval_s: float = 0.0,
    ) -> Run:
        """Runs a trace, piece by piece in bounded memory.

        With `queue_depth` 0 each request arrives at its time; otherwise its time is ignored and so
        many requests are kept outstanding. After the last one, time passes up to `until_ns` of the
        trace's clock. Raises BadParameter for a request outside of the device or a time that runs
        backwards.

        The submissions of a device that was driven elsewhere, each at its time, on a device in the
        state from which that one started, do what they did there: the counters are the same to the
        last one if `until_ns` is when they were read, with nothing outstanding. With `as_submitted`
        they are not held back, even if that device took more at once than it announces.
        """
        start_ns = self._core.now_ns
        before = self.counters
        self._core.begin_trace(
            depth=queue_depth,
            rows=rows,
            interval_ns=round(interval_s * 1e9),
            as_submitted=as_submitted,
        )
        try:
            for chunk in chunks:
                self._core.feed_trace(
                    time_ns=chunk.time_ns,
                    op=chunk.op,
                    lba=chunk.lba,
                    sectors=chunk.sectors,
                    stream=chunk.stream,
                    fua=chunk.fua,
                    cancel=self.cancel,
                )
        except BaseException:  # the device lives on: its trace must not
            with suppress(BadParameter):  # it has ended if the device found the fault
                self._core.end_trace(_core.Cancel())
            raise
        raw = self._core.end_trace(self.cancel)
        if until_ns is not None:
            self._core.idle(max(0, start_ns + until_ns - self._core.now_ns))
        return _run_of(raw, interval_s, _difference(before, self.counters))

    def precondition(
        self, *, fill_ratio: float = 1.0, overwrites: float = 0.0, seed: int = 0
    ) -> None:
        """Fills the start of a flash drive in order, then overwrites it so many times at random.

        Takes no virtual time and leaves the counters at 0. Raises BadParameter for a disk.
        """
        self._core.precondition(fill_ratio=fill_ratio, overwrites=overwrites, seed=seed)

    def to_steady_state(self, seed: int = 0) -> None:
        """A full flash drive whose write amplification under uniform random writes is steady.

        Takes no virtual time and leaves the counters at 0; the drive must be new.
        """
        self._core.to_steady_state(seed)

    def idle(self, seconds: float) -> None:
        """Lets time pass; the drive may work for itself."""
        self._core.idle(round(seconds * 1e9))

    def power_cut(self) -> Ints:
        """Cuts the power now. Returns the extents in doubt: LBA, int64, (n, 2): begin, end."""
        return np.asarray(self._core.power_cut(), dtype=np.int64).reshape(-1, 2)

    def in_doubt(self) -> Ints:
        """What `power_cut` would return now. Nothing happens."""
        return np.asarray(self._core.in_doubt(), dtype=np.int64).reshape(-1, 2)

    @property
    def trim_policy(self) -> str:
        """How a flash drive handles TRIM now. Raises BadParameter for a disk."""
        return self._core.trim_policy

    def set_trim_policy(self, name: str) -> None:
        """How a flash drive handles TRIM from now on; what it had put off is done before.

        Part of the saved state. Raises BadParameter for an unknown name or a disk.
        """
        self._core.set_trim_policy(name)

    @property
    def ranges(self) -> tuple[NamedRange, ...]:
        """The ranges that are counted apart now."""
        return tuple(NamedRange(*each) for each in self._core.ranges)

    def set_ranges(self, ranges: Sequence[NamedRange]) -> None:
        """Other ranges to count apart from now on; what was counted before goes to the rest.

        With placement `range` their streams are followed from now on, too. Part of the saved state.
        Raises BadParameter for ranges or streams that the drive cannot have, or a disk.
        """
        self._core.set_ranges([(r.name, r.begin_bytes, r.end_bytes, r.stream) for r in ranges])

    def slow_die(self, die: int, factor: float) -> None:
        """A fault: the cells of this die take `factor` times as long from now on (1: as new).

        The factor is rounded to thousandths. What the die has begun is finished as it was. Raises
        BadParameter for a disk, a die that is not there, or a factor that is not in 1 to 1000.
        """
        self._core.slow_die(die, factor)

    def save(self) -> bytes:
        """All state, ranges included, for `restore` on a device of the same profile and seed."""
        return self._core.save()

    def restore(self, saved: bytes) -> None:
        """Back to a saved state, exactly. Raises BadParameter where it does not fit."""
        self._core.restore(saved)

    @property
    def counters(self) -> dict[str, int]:
        """Everything that the model counts, by name with unit."""
        return dict(self._core.counters())

    @property
    def waf(self) -> float:
        """Write amplification since the counters were last 0."""
        return waf_of(self.counters)

    def shares(self) -> pd.DataFrame:
        """Who caused what is on flash: one row per stream and one per named range (and the rest).

        Columns: kind (stream, range, cause), name, host_bytes, copied_bytes, padded_bytes,
        folded_bytes, coalesced_bytes (written, never programmed), waf. Rows of kind `stream` plus
        the row `cause/fold` (which belongs to nobody) sum to all bytes programmed; so do the rows
        of kind `range` plus it.
        """
        unit = self._unit_bytes
        names = [r.name for r in self.ranges] + ["(rest)"]
        rows = [
            ("stream", str(i), *share) for i, share in enumerate(self._core.stream_shares())
        ] + [
            ("range", name, *share)
            for name, share in zip(names, self._core.range_shares(), strict=True)
        ]
        parts = ["host_bytes", "copied_bytes", "padded_bytes", "coalesced_bytes"]
        frame = pd.DataFrame(rows, columns=["kind", "name", *parts])
        frame[parts] *= unit
        frame.insert(5, "folded_bytes", 0)
        folded = self.counters["nand_folded_bytes"]
        frame.loc[len(frame)] = ["cause", "fold", 0, 0, 0, folded, 0]
        programmed = frame[[*parts[:3], "folded_bytes"]].sum(axis=1)
        written = frame.host_bytes + frame.coalesced_bytes
        frame["waf"] = programmed / written.where(written > 0)
        return frame

    def block_erases(self) -> npt.NDArray[np.uint32]:
        """Erase count of every block."""
        return np.asarray(self._core.block_erases(), dtype=np.uint32)

    def mapping(self) -> Ints:
        """The slot of every logical page (int64), -1 where it holds nothing: for tests."""
        return np.asarray(self._core.mapping(), dtype=np.int64)

    @property
    def _unit_bytes(self) -> int:
        assert isinstance(self.profile, SsdProfile)
        return self.profile.parameters.map_unit.value


def waf_of(counters: Mapping[str, int]) -> float:
    """Bytes programmed per byte that the host wrote; NaN if it wrote none.

    A write of less than a unit of the drive's map counts with its bytes, not with the unit.
    """
    written = counters["write_bytes"]
    return counters["nand_write_bytes"] / written if written else float("nan")


def _difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {name: value - before[name] for name, value in after.items()}


def _run_of(raw: Mapping[str, Any], interval_s: float, counters: Mapping[str, int]) -> Run:
    rows = pd.DataFrame(raw["rows"])
    rows["op"] = pd.Categorical.from_codes(rows["op"].to_numpy(), categories=list(OPS))
    series = pd.DataFrame(raw["intervals"])
    series.insert(0, "begin_s", np.arange(len(series)) * interval_s)
    series["latency_mean_ns"] = series.pop("latency_sum_ns") / series["ios"].where(series.ios > 0)
    return Run(
        begin_ns=raw["begin_ns"],
        end_ns=raw["end_ns"],
        ops={name: _stats(raw[name]) for name in OPS},
        rows=rows,
        intervals=series,
        counters=counters,
    )


def _stats(raw: Mapping[str, Any]) -> OpStats:
    ios = raw["ios"]
    return OpStats(
        ios=ios,
        bytes=raw["bytes"],
        latency_mean_ns=raw["latency_sum_ns"] / ios if ios else float("nan"),
        latency_min_ns=raw["latency_min_ns"],
        latency_max_ns=raw["latency_max_ns"],
        _buckets_ns=raw["latency_ns"],
        _counts=raw["latency_count"],
    )


def _together(runs: Sequence[Run]) -> Run:
    return Run(
        begin_ns=min(r.begin_ns for r in runs),
        end_ns=max(r.end_ns for r in runs),
        ops={name: _sum([r.ops[name] for r in runs]) for name in OPS},
        rows=pd.concat([r.rows for r in runs], keys=range(len(runs)), names=["job", None]),
        intervals=pd.concat(
            [r.intervals for r in runs], keys=range(len(runs)), names=["job", None]
        ),
        counters=runs[0].counters,
    )


def _sum(parts: Sequence[OpStats]) -> OpStats:
    ios = sum(p.ios for p in parts)
    merged = pd.concat([pd.Series(p._counts, index=p._buckets_ns) for p in parts])
    merged = merged.groupby(level=0).sum()
    busy = [p for p in parts if p.ios]
    return OpStats(
        ios=ios,
        bytes=sum(p.bytes for p in parts),
        latency_mean_ns=sum(p.latency_mean_ns * p.ios for p in busy) / ios if ios else float("nan"),
        latency_min_ns=min((p.latency_min_ns for p in busy), default=0),
        latency_max_ns=max((p.latency_max_ns for p in busy), default=0),
        _buckets_ns=merged.index.to_numpy(dtype=np.int64),
        _counts=merged.to_numpy(dtype=np.int64),
    )
