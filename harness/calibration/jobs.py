"""The jobs of a calibration: what each one asks of a drive, and what it writes at most.

Where jobs lie and how much they write is in shares of the drive, so a plan for a smaller drive is
the same plan: the fit runs it on a small model of a large drive.

A flash drive is taken through three states: `blank` (all of it discarded), `full` (written once in
order), `steady` (then overwritten once at random). A disk has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from harness.errors import BadParameter, UnknownName
from harness.units import format_bytes

KINDS: Final = ("hdd", "sata_ssd", "nvme_ssd")
"""Classes of drives, each with a generic profile to begin with."""

State = Literal["any", "blank", "full", "steady"]

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
_CACHED_BYTES: Final = 64 * _KIB
_BLOCK: Final = 4 * _KIB
_STREAM_BLOCK: Final = 128 * _KIB
_FILL_BLOCK: Final = 512 * _KIB
_FILL_DEPTH: Final = 8
_LEAST_BYTES: Final = 960 << 20
_DEEP: Final = {"hdd": 31, "sata_ssd": 32, "nvme_ssd": 128}
# The first pieces are short: an SLC cache may be some per cent of the drive, and where it ends is
# seen in the piece in which it does.
_PIECES: Final = tuple(
    part / 128 for part in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 120, 128)
)
_MOST_REQUESTS: Final = 60_000
_TRIM_BYTES: Final = 1 << 30


@dataclass(frozen=True, kw_only=True)
class DriveJob:
    """A fio job on a drive in a state, and the figure that is taken from it.

    `op` mixed: reads and writes, of which `read_ratio` are reads. `pattern` backward: in order
    from the end to the begin, each request before the one that was read last; ends: at random, in
    the first or the last hundredth. `begin_ratio`, `end_ratio`: shares of the drive; with
    `span_bytes`, so many bytes from the begin on. `figure`: median latency in s (which a busy host
    hardly changes), or rate in bytes/s. `held_out`: not for the fit, which predicts it.
    """

    name: str
    op: Literal["read", "write", "trim", "mixed"]
    pattern: Literal["sequential", "random", "backward", "ends"]
    block_bytes: int
    requests: int
    figure: Literal["median latency", "rate"]
    queue_depth: int = 1
    begin_ratio: float = 0.0
    end_ratio: float = 1.0
    span_bytes: int = 0
    state: State = "any"
    read_ratio: float = 0.7
    held_out: bool = False

    @property
    def unit(self) -> str:
        """Of the figure."""
        return "bytes/s" if self.figure == "rate" else "s"

    @property
    def waits_for_flash(self) -> bool:
        """Whether its requests queue for programs: each takes milliseconds."""
        streams = self.op == "write" and self.pattern == "sequential"
        return streams or (self.op == "write" and self.state == "steady")

    @property
    def writes(self) -> bool:
        """Whether it changes what lies on the drive; a TRIM does, too."""
        return self.op != "read"

    @property
    def written_bytes(self) -> int:
        """At most."""
        if self.op in ("read", "trim"):
            return 0
        return self.requests * self.block_bytes

    def range_bytes(self, size_bytes: int) -> tuple[int, int]:
        """Where it works on a drive of that size, [begin, end), in whole blocks of its own."""
        begin = int(size_bytes * self.begin_ratio) // self.block_bytes * self.block_bytes
        end = int(size_bytes * self.end_ratio) // self.block_bytes * self.block_bytes
        return begin, begin + self.span_bytes if self.span_bytes else end


@dataclass(frozen=True)
class Phase:
    """Jobs that follow one another in one call of fio, on a drive that `prepare` has readied.

    `prepare` overwrite: `prepared_bytes` of random 4 KiB writes first, which are not measured.
    `joined`: its jobs are pieces of one job, from the first one's begin to the last one's end, so
    that the drive has no pause between them.
    """

    name: str
    jobs: tuple[DriveJob, ...]
    prepare: Literal["", "discard", "overwrite"] = ""
    prepared_bytes: int = 0
    joined: bool = False

    @property
    def written_bytes(self) -> int:
        """At most, with what prepares it."""
        return self.prepared_bytes + sum(job.written_bytes for job in self.jobs)

    @property
    def repeatable(self) -> bool:
        """Whether it leaves the drive in the state in which it found it, or nearly so."""
        return not any(job.op == "write" and job.pattern == "sequential" for job in self.jobs)


@dataclass(frozen=True)
class JobPlan:
    """A calibration's phases in their order, for a drive of `size_bytes`."""

    kind: str
    size_bytes: int
    phases: tuple[Phase, ...]

    @property
    def jobs(self) -> tuple[DriveJob, ...]:
        """All jobs, in their order."""
        return tuple(job for phase in self.phases for job in phase.jobs)

    @property
    def written_bytes(self) -> int:
        """What it writes at most."""
        return sum(phase.written_bytes for phase in self.phases)


def join(jobs: Sequence[DriveJob]) -> DriveJob:
    """The job of which these are the pieces, in their order."""
    requests = sum(job.requests for job in jobs)
    return replace(jobs[0], end_ratio=jobs[-1].end_ratio, requests=requests)


def rates_of(jobs: Sequence[DriveJob], done_s: NDArray[np.float64]) -> dict[str, float]:
    """Each piece's rate in bytes/s, from the time at which each request of the whole was done.

    The first piece counts from its first request's end on.
    """
    assert len(done_s) == sum(job.requests for job in jobs), "a request is missing"
    done_s = np.sort(done_s)
    rates, last = {}, 0
    for job in jobs:
        end = last + job.requests - (last == 0)
        elapsed_s = done_s[end] - done_s[last]
        rates[job.name] = float((end - last) * job.block_bytes / elapsed_s)
        last = end
    return rates


def plan_for(kind: str, size_bytes: int, *, discards: bool = True) -> JobPlan:
    """The jobs for a drive of that class and size; without those that need TRIM if it has none.

    Raises UnknownName, or BadParameter for a drive that is too small for them.
    """
    if kind not in KINDS:
        raise UnknownName("kind of drive", kind, KINDS)
    if size_bytes < _LEAST_BYTES:
        raise BadParameter(
            f"a calibration needs {format_bytes(_LEAST_BYTES)}, the target has "
            f"{format_bytes(size_bytes)}: choose a larger one"
        )
    phases = _disk() if kind == "hdd" else _flash(size_bytes, _DEEP[kind], discards=discards)
    return JobPlan(kind, size_bytes, tuple(phases))


def _flash(size_bytes: int, deep: int, *, discards: bool) -> Iterator[Phase]:
    few = max(2048, min(size_bytes // 1024 // _BLOCK, _MOST_REQUESTS))
    if discards:  # no flash is read then: what is left is the drive's own work for each command
        alone, many = (
            _random("read of what holds nothing", "read", requests, depth, state="blank")
            for requests, depth in ((2000, 1), (20_000, deep))
        )
        yield Phase("reads of a blank drive", (alone,), "discard")
        yield Phase(many.name, (many,))
    # No write may come before: the first ones go to a new drive, or to its SLC cache.
    for requests, depth in ((few // 4, 1), (few, 4), (few, deep)):
        job = _random("random write", "write", requests, depth, state="blank", held_out=depth == 4)
        yield Phase(job.name, (job,))
    yield Phase("sequential fill", tuple(_pieces(size_bytes)), joined=True)
    yield from (Phase(job.name, (job,)) for job in _reads_of_a_full_drive(deep))
    for share, depth, held_out in ((0.7, 8, False), (0.5, 4, True)):
        job = _random(f"random, {share:.0%} reads", "mixed", 2048, depth, state="full")
        mixed = replace(job, read_ratio=share, held_out=held_out)
        yield Phase(mixed.name, (mixed,))
    steady = max(4096, size_bytes // 16 // _BLOCK)
    job = _random("steady random write", "write", steady, deep, state="steady")
    yield Phase(job.name, (job,), "overwrite", size_bytes // _BLOCK * _BLOCK)
    if discards:
        yield from (Phase(job.name, (job,)) for job in _trims(size_bytes))


def _reads_of_a_full_drive(deep: int) -> Iterator[DriveJob]:
    yield _random("random read", "read", 2000, 1, state="full")
    yield _random("random read", "read", 4000, 4, state="full")
    yield _random("random read", "read", 6000, 8, state="full", held_out=True)
    yield _random("random read", "read", 10_000, 16, state="full")
    yield _random("random read", "read", 20_000, deep, state="full")
    yield DriveJob(
        name="sequential read",
        op="read",
        pattern="sequential",
        block_bytes=_STREAM_BLOCK,
        requests=4000,
        figure="rate",
        queue_depth=8,
        end_ratio=0.5,
        state="full",
    )


def _pieces(size_bytes: int) -> Iterator[DriveJob]:
    for number, (begin, end) in enumerate(pairwise(_PIECES), start=1):
        piece = DriveJob(
            name=f"sequential write, piece {number} of {len(_PIECES) - 1}",
            op="write",
            pattern="sequential",
            block_bytes=_FILL_BLOCK,
            requests=0,
            figure="rate",
            queue_depth=_FILL_DEPTH,
            begin_ratio=begin,
            end_ratio=end,
            state="blank",
        )
        first, last = piece.range_bytes(size_bytes)
        yield replace(piece, requests=(last - first) // _FILL_BLOCK)


def _trims(size_bytes: int) -> Iterator[DriveJob]:
    for size, held_out in ((_BLOCK, False), (_MIB, False), (4 * _MIB, True), (16 * _MIB, False)):
        yield DriveJob(
            name=f"TRIM of {format_bytes(size)}",
            op="trim",
            pattern="sequential",
            block_bytes=size,
            requests=min(100, min(_TRIM_BYTES, size_bytes // 2) // size),
            figure="median latency",
            state="steady",
            held_out=held_out,
        )


def _random(
    name: str,
    op: Literal["read", "write", "mixed"],
    requests: int,
    depth: int = 1,
    *,
    state: State = "any",
    held_out: bool = False,
    span: tuple[float, float] = (0.0, 1.0),
    pattern: Literal["random", "ends"] = "random",
) -> DriveJob:
    return DriveJob(
        name=f"{name}, depth {depth}",
        op=op,
        pattern=pattern,
        block_bytes=_BLOCK,
        requests=requests,
        figure="median latency" if depth == 1 else "rate",
        queue_depth=depth,
        begin_ratio=span[0],
        end_ratio=span[1],
        state=state,
        held_out=held_out,
    )


def _disk() -> Iterator[Phase]:
    for job in _disk_jobs():
        yield Phase(job.name, (job,))


def _disk_jobs() -> Iterator[DriveJob]:
    yield _stream("sequential read, outside", 0.0)
    yield _stream("sequential read, inside", 0.99)
    yield _stream("sequential read, middle", 0.5, held_out=True)
    yield DriveJob(
        name="read backwards",
        op="read",
        pattern="backward",
        block_bytes=_BLOCK,
        requests=300,
        figure="rate",  # of revolutions: a late answer is made up for by a shorter wait
        end_ratio=1 / 4096,
    )
    yield DriveJob(
        name="read of what was read ahead",
        op="read",
        pattern="sequential",
        block_bytes=_BLOCK,
        requests=2000,
        figure="median latency",
        begin_ratio=0.25,
    )
    yield DriveJob(
        name="read again, 64 KiB",
        op="read",
        pattern="sequential",
        block_bytes=_CACHED_BYTES,
        requests=400,
        figure="median latency",
        begin_ratio=0.25,
        span_bytes=_CACHED_BYTES,
    )
    # One is served and one waits: the arm never waits for the host, and has no choice.
    yield _random("random read, one thousandth", "read", 4000, 2, span=(0.3, 0.301))
    yield _random("random read, one eighth", "read", 1000, 2, span=(0.3, 0.425))
    yield _random("random read, everywhere", "read", 1000, 2)
    yield _random("random read, both ends", "read", 1000, 2, pattern="ends")
    yield _random("random read, inner half", "read", 700, 2, span=(0.5, 1.0), held_out=True)
    yield _random("random read, everywhere", "read", 800, 4, held_out=True)


def _stream(name: str, begin: float, *, held_out: bool = False) -> DriveJob:
    return DriveJob(
        name=name,
        op="read",
        pattern="sequential",
        block_bytes=_FILL_BLOCK,
        requests=384,
        figure="rate",
        queue_depth=4,
        begin_ratio=begin,
        end_ratio=begin + 0.01,
        held_out=held_out,
    )
