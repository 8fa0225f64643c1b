"""The grid: points of nine kinds, the paper's tables and figure first, then what we add.

table1     writes with and without TRIMs, one after the other (the paper's table 1)
at_once    the same writes and TRIMs side by side, as the paper says that it ran them
shares     one command of many ranges, its cost by part (table 2)
units      a file that is trimmed in units of one size (figure 2)
scenario   the paper's figure 1: a write after a TRIM, and one between two TRIMs
tails      reads and writes while TRIMs arrive
write_list writes that must be remembered, because TRIMs are pending
idle       rounds of writing, trimming and idling on a full drive: how much idle time is enough
idle_phase how long the work that was put off takes, with larger steps and merged ranges
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.experiments import base
from harness.experiments.base import Point, points_of
from harness.experiments.fields import SizeText
from harness.units import format_bytes, parse_bytes

BOARD: Final = "board"
"""The experiment's name for the OpenSSD board."""

NVME: Final = "nvme"
"""The experiment's name for the drive of table 1."""

BASE: Final = "paper"
"""The variant in which nothing is varied."""

BLOCK_BYTES: Final = 4096
"""A logical block of the paper's firmware."""

UNCHECKED: Final = "delayed_unchecked"
"""The policy without a Check Write List: what the paper's figure 1 warns of."""


OWN: Final = "own"
"""The policy of a real drive: whatever it does."""

Policy = Literal["none", "immediate", "delayed", "own"]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Table1(_Strict):
    """Sequential writes one at a time, then TRIMs of what was written first, one at a time.

    `at_once`: side by side, too; then what is trimmed was written before.
    """

    written: SizeText
    trimmed: SizeText
    unit: SizeText
    at_once: bool = False


class Command(_Strict):
    """One TRIM: so many ranges of so many blocks of 4 KiB, with as much between them."""

    ranges: Count
    blocks_per_range: Count


class Tails(_Strict):
    """Random reads and writes at random moments, while TRIMs arrive by a clock.

    `trim_rate`: bytes trimmed per s, in units of one size; all per s of the device's time.
    `region`: what is read, and as much that is written; `device`: the drive's size.
    """

    units: list[SizeText] = Field(min_length=1)
    device: SizeText = "8 GiB"
    region: SizeText = "2 GiB"
    trim_rate: SizeText
    duration_s: Positive
    reads_per_s: Positive
    read: SizeText
    writes_per_s: Positive
    write: SizeText


class Tables(_Strict):
    """Entries of the module's tables: pending ranges, and the Check Write List."""

    ranges: Count
    entries: Count


class WriteList(_Strict):
    """TRIMs that are pending while writes into what they trimmed come without a pause.

    `writes`: how many of them, each of one slice. `tables`: with large ones, and with some that
    become full.
    """

    unit: SizeText
    pending: Count
    writes: Count
    tables: list[Tables] = Field(min_length=1)


class Idle(_Strict):
    """Rounds on a full drive: a file is written, trimmed, and there is a pause.

    `pause_ratios`: the pause over the time that the work that was put off takes.
    """

    file: SizeText
    unit: SizeText
    rounds: Count
    pause_ratios: list[Annotated[float, Field(ge=0)]]


class IdlePhase(_Strict):
    """Shorter idle work: larger steps, merged ranges, and TRIMs that repeat earlier ones.

    `steps`: slices that are applied at once. Patterns: `units` (one after the other) and `again`
    (each TRIM begins where the first one began and goes further: newer kernels trim the whole free
    run that a freed extent lies in). `reads_per_s`: beside it, to see what waits.
    """

    unit: SizeText
    patterns: list[Literal["units", "again"]]
    steps: list[Count]
    files: Count
    reads_per_s: Positive


class Parameters(BaseModel):
    """The grid. Sizes are texts with units.

    `scale`: `smoke` makes what is measured over time a tenth as long, `small` half. `repetitions`:
    how often each point is run, one after all others; a model gives the same each time. `file` is
    trimmed in units of one of `units`.
    """

    model_config = ConfigDict(extra="forbid")

    scale: Literal["smoke", "small", "paper"] = "paper"
    repetitions: int = Field(1, ge=1, le=1000)
    policies: list[Policy] = Field(min_length=1)
    file: SizeText
    units: list[SizeText]
    table1: Table1 | None = None
    command: Command | None = None
    scenarios: list[Literal["after", "during", "between"]] = []
    tails: Tails | None = None
    write_list: WriteList | None = None
    idle: Idle | None = None
    idle_phase: IdlePhase | None = None

    @property
    def length(self) -> float:
        """What `scale` stands for."""
        return {"smoke": 0.1, "small": 0.5, "paper": 1.0}[self.scale]


@dataclass(frozen=True, kw_only=True)
class Cell(base.Cell):
    """What all kinds have; `kind` is the same for all cells of a record."""

    variant: str = BASE
    repetition: int = 0
    kind: str
    policy: str


@dataclass(frozen=True, kw_only=True)
class Table1Cell(Cell):
    """The paper's table 1; `trimmed_bytes` 0: without TRIM."""

    kind: str = "table1"
    written_bytes: int
    unit_bytes: int
    trimmed_bytes: int


@dataclass(frozen=True, kw_only=True)
class AtOnceCell(Table1Cell):
    """Table 1's writes and TRIMs as two streams, each one request at a time."""

    kind: str = "at_once"


@dataclass(frozen=True, kw_only=True)
class SharesCell(Cell):
    """One command of `ranges` ranges."""

    kind: str = "shares"
    ranges: int
    unit_bytes: int


@dataclass(frozen=True, kw_only=True)
class UnitsCell(Cell):
    """A file that is trimmed in units of one size."""

    kind: str = "units"
    file_bytes: int
    unit_bytes: int


@dataclass(frozen=True, kw_only=True)
class ScenarioCell(Cell):
    """One of the paper's figure 1."""

    kind: str = "scenario"
    scenario: str


@dataclass(frozen=True, kw_only=True)
class TailsCell(Cell):
    """Reads, writes and TRIMs at rates, all per s of the device's time."""

    kind: str = "tails"
    unit_bytes: int
    trim_rate_bytes_per_s: int
    device_bytes: int
    region_bytes: int
    duration_s: float
    reads_per_s: float
    read_bytes: int
    writes_per_s: float
    write_bytes: int


@dataclass(frozen=True, kw_only=True)
class WriteListCell(Cell):
    """Writes into what `pending` TRIMs are about, with tables of such sizes."""

    kind: str = "write_list"
    unit_bytes: int
    pending: int
    writes: int
    pending_ranges: int
    list_entries: int


@dataclass(frozen=True, kw_only=True)
class IdleCell(Cell):
    """Rounds with a pause, as a ratio of what the work that was put off takes."""

    kind: str = "idle"
    file_bytes: int
    unit_bytes: int
    rounds: int
    pause_ratio: float


@dataclass(frozen=True, kw_only=True)
class IdlePhaseCell(Cell):
    """Files that are trimmed in a pattern, `step` slices of them applied at once."""

    kind: str = "idle_phase"
    file_bytes: int
    unit_bytes: int
    files: int
    reads_per_s: float
    pattern: str
    step: int
    merged: bool


KINDS: Final = {
    kind.kind: kind
    for kind in (
        *(Table1Cell, AtOnceCell, SharesCell, UnitsCell, ScenarioCell),
        *(TailsCell, WriteListCell, IdleCell, IdlePhaseCell),
    )
}


def read(values: Mapping[str, Any]) -> Cell:
    """A cell of whichever kind a row of the table has."""
    return KINDS[str(values["kind"])].read(values)


def points(parameters: Parameters, devices: Sequence[str]) -> list[Point]:
    """Every setting, as often as it is repeated, in a fixed order."""
    return points_of(_repeated(parameters, devices), _label)


def _repeated(p: Parameters, devices: Sequence[str]) -> Iterator[Cell]:
    for repetition in range(p.repetitions):
        yield from (replace(cell, repetition=repetition) for cell in _settings(p, devices))


def _settings(p: Parameters, devices: Sequence[str]) -> Iterator[Cell]:
    makers = {NVME: [_table1], BOARD: [_shares, _units, _scenarios, _tails, _list, _idle, _phase]}
    for device in devices:
        # A drive that is neither, such as one of the user's own, is taken for both.
        for make in makers.get(device, [_table1, _shares, _units, _tails]):
            yield from make(p, device)


def _delaying(p: Parameters) -> list[str]:
    return [policy for policy in p.policies if policy != "none"]


def _table1(p: Parameters, device: str) -> Iterator[Cell]:
    if p.table1 is None:
        return
    trimmed = parse_bytes(p.table1.trimmed)
    with_trim = Table1Cell(
        device=device,
        policy=_delaying(p)[0],
        written_bytes=parse_bytes(p.table1.written),
        unit_bytes=parse_bytes(p.table1.unit),
        trimmed_bytes=trimmed,
    )
    yield from (replace(with_trim, policy=policy) for policy in _delaying(p))
    yield replace(with_trim, trimmed_bytes=0)
    for policy in _delaying(p) if p.table1.at_once else ():
        values = {**with_trim.values, "policy": policy, "kind": AtOnceCell.kind}
        yield AtOnceCell.read(values)


def _shares(p: Parameters, device: str) -> Iterator[Cell]:
    if p.command is None:
        return
    unit = p.command.blocks_per_range * BLOCK_BYTES
    for policy in _delaying(p):
        yield SharesCell(device=device, policy=policy, ranges=p.command.ranges, unit_bytes=unit)


def _units(p: Parameters, device: str) -> Iterator[Cell]:
    for unit in p.units:
        for policy in _delaying(p):
            yield UnitsCell(
                device=device,
                policy=policy,
                file_bytes=parse_bytes(p.file),
                unit_bytes=parse_bytes(unit),
            )


def _scenarios(p: Parameters, device: str) -> Iterator[Cell]:
    for scenario in p.scenarios:
        for policy in ("delayed", UNCHECKED):
            yield ScenarioCell(device=device, policy=policy, scenario=scenario)


def _tails(p: Parameters, device: str) -> Iterator[Cell]:
    t = p.tails
    if t is None:
        return
    for unit in t.units:
        for policy in p.policies:
            yield TailsCell(
                device=device,
                policy=policy,
                unit_bytes=parse_bytes(unit),
                trim_rate_bytes_per_s=parse_bytes(t.trim_rate),
                device_bytes=parse_bytes(t.device),
                region_bytes=parse_bytes(t.region),
                duration_s=t.duration_s * p.length,
                reads_per_s=t.reads_per_s,
                read_bytes=parse_bytes(t.read),
                writes_per_s=t.writes_per_s,
                write_bytes=parse_bytes(t.write),
            )


def _list(p: Parameters, device: str) -> Iterator[Cell]:
    w = p.write_list
    if w is None:
        return
    for policy in p.policies:
        for tables in w.tables if policy == "delayed" else w.tables[:1]:
            yield WriteListCell(
                device=device,
                policy=policy,
                unit_bytes=parse_bytes(w.unit),
                pending=w.pending,
                writes=w.writes,
                pending_ranges=tables.ranges,
                list_entries=tables.entries,
            )


def _idle(p: Parameters, device: str) -> Iterator[Cell]:
    i = p.idle
    if i is None:
        return
    for policy in p.policies:
        for ratio in i.pause_ratios if policy == "delayed" else i.pause_ratios[-1:]:
            yield IdleCell(
                device=device,
                policy=policy,
                file_bytes=parse_bytes(i.file),
                unit_bytes=parse_bytes(i.unit),
                rounds=max(2, round(i.rounds * p.length)),
                pause_ratio=ratio,
            )


def _phase(p: Parameters, device: str) -> Iterator[Cell]:
    x = p.idle_phase
    if x is None:
        return
    plain = IdlePhaseCell(
        device=device,
        policy="immediate",
        file_bytes=parse_bytes(p.file),
        unit_bytes=parse_bytes(x.unit),
        files=max(1, round(x.files * p.length)),
        reads_per_s=x.reads_per_s,
        pattern="units",
        step=1,
        merged=False,
    )
    for pattern in x.patterns:
        yield replace(plain, pattern=pattern)
        for merged in (False, True):
            yield replace(plain, policy="delayed", pattern=pattern, merged=merged)
    for step in x.steps:
        yield replace(plain, policy="delayed", step=step, merged=True)


def _label(cell: Cell) -> str:
    v = cell.values
    said = [str(v[name]) for name in ("device", "kind", "policy", "scenario") if name in v]
    said += [format_bytes(float(v["unit_bytes"]))] if "unit_bytes" in v else []
    said += ["without TRIM"] if v.get("trimmed_bytes") == 0 else []
    said += [f"repetition {cell.repetition}"] if cell.repetition else []
    said += [
        f"{name} {v[name]}"
        for name in ("ranges", "pending_ranges", "list_entries", "pause_ratio")
        if name in v
    ]
    if isinstance(cell, IdlePhaseCell):
        said += [cell.pattern, f"step {cell.step}", "merged" if cell.merged else "as they came"]
    return " ".join(said)
