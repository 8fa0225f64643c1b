"""The grid: points of eight kinds, the paper's tables and figure first, then what we add.

table1     writes with and without TRIMs, one after the other (the paper's table 1)
shares     one command of many ranges, its cost by part (table 2)
units      a file that is trimmed in units of one size (figure 2)
scenario   the paper's figure 1: a write after a TRIM, and one between two TRIMs
tails      reads and writes while TRIMs arrive
write_list writes that must be remembered, because TRIMs are pending
idle       rounds of writing, trimming and idling on a full drive: how much idle time is enough
idle_phase how long the work that was put off takes, with larger steps and merged ranges
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from harness.experiments.base import Point, Scalar
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


def _checked(check: Callable[[Any], object]) -> BeforeValidator:
    def validate(value: Any) -> Any:
        check(value)
        return value

    return BeforeValidator(validate)


SizeText = Annotated[str, _checked(parse_bytes)]
OWN: Final = "own"
"""The policy of a real drive: whatever it does."""

Policy = Literal["none", "immediate", "delayed", "own"]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Table1(_Strict):
    """Sequential writes one at a time, then TRIMs of what was written first, one at a time."""

    written: SizeText
    trimmed: SizeText
    unit: SizeText


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

    `scale`: `smoke` makes what is measured over time a tenth as long, `small` half. `file` is
    trimmed in units of one of `units`.
    """

    model_config = ConfigDict(extra="forbid")

    scale: Literal["smoke", "small", "paper"] = "paper"
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


def points(parameters: Parameters, devices: Sequence[str]) -> list[Point]:
    """Every setting once, in a fixed order."""
    unique: dict[str, Point] = {}
    for values in _settings(parameters, devices):
        point = Point(values, _label(values))
        unique.setdefault(point.id, point)
    return list(unique.values())


def _settings(p: Parameters, devices: Sequence[str]) -> Iterator[dict[str, Scalar]]:
    makers = {NVME: [_table1], BOARD: [_shares, _units, _scenarios, _tails, _list, _idle, _phase]}
    for device in devices:
        # A drive that is neither, such as one of the user's own, is taken for both.
        for make in makers.get(device, [_table1, _shares, _units, _tails]):
            for values in make(p):
                yield {"device": device, "variant": BASE, **values}


def _delaying(p: Parameters) -> list[str]:
    return [policy for policy in p.policies if policy != "none"]


def _table1(p: Parameters) -> Iterator[dict[str, Scalar]]:
    if p.table1 is None:
        return
    sizes = {
        "written_bytes": parse_bytes(p.table1.written),
        "unit_bytes": parse_bytes(p.table1.unit),
    }
    for policy in _delaying(p):
        trimmed = parse_bytes(p.table1.trimmed)
        yield {"kind": "table1", "policy": policy, **sizes, "trimmed_bytes": trimmed}
    yield {"kind": "table1", "policy": _delaying(p)[0], **sizes, "trimmed_bytes": 0}


def _shares(p: Parameters) -> Iterator[dict[str, Scalar]]:
    if p.command is None:
        return
    shape = {"ranges": p.command.ranges, "unit_bytes": p.command.blocks_per_range * BLOCK_BYTES}
    for policy in _delaying(p):
        yield {"kind": "shares", "policy": policy, **shape}


def _units(p: Parameters) -> Iterator[dict[str, Scalar]]:
    for unit in p.units:
        for policy in _delaying(p):
            sizes = {"file_bytes": parse_bytes(p.file), "unit_bytes": parse_bytes(unit)}
            yield {"kind": "units", "policy": policy, **sizes}


def _scenarios(p: Parameters) -> Iterator[dict[str, Scalar]]:
    for scenario in p.scenarios:
        for policy in ("delayed", UNCHECKED):
            yield {"kind": "scenario", "policy": policy, "scenario": scenario}


def _tails(p: Parameters) -> Iterator[dict[str, Scalar]]:
    t = p.tails
    if t is None:
        return
    load = {
        "device_bytes": parse_bytes(t.device),
        "region_bytes": parse_bytes(t.region),
        "duration_s": t.duration_s * p.length,
        "reads_per_s": t.reads_per_s,
        "read_bytes": parse_bytes(t.read),
        "writes_per_s": t.writes_per_s,
        "write_bytes": parse_bytes(t.write),
    }
    for unit in t.units:
        trims = {"unit_bytes": parse_bytes(unit), "trim_rate_bytes_per_s": parse_bytes(t.trim_rate)}
        for policy in p.policies:
            yield {"kind": "tails", "policy": policy, **trims, **load}


def _list(p: Parameters) -> Iterator[dict[str, Scalar]]:
    w = p.write_list
    if w is None:
        return
    load = {"unit_bytes": parse_bytes(w.unit), "pending": w.pending, "writes": w.writes}
    for policy in p.policies:
        for tables in w.tables if policy == "delayed" else w.tables[:1]:
            sizes = {"pending_ranges": tables.ranges, "list_entries": tables.entries}
            yield {"kind": "write_list", "policy": policy, **load, **sizes}


def _idle(p: Parameters) -> Iterator[dict[str, Scalar]]:
    i = p.idle
    if i is None:
        return
    sizes: dict[str, Scalar] = {
        "file_bytes": parse_bytes(i.file),
        "unit_bytes": parse_bytes(i.unit),
        "rounds": max(2, round(i.rounds * p.length)),
    }
    for policy in p.policies:
        for ratio in i.pause_ratios if policy == "delayed" else i.pause_ratios[-1:]:
            yield {"kind": "idle", "policy": policy, **sizes, "pause_ratio": ratio}


def _phase(p: Parameters) -> Iterator[dict[str, Scalar]]:
    x = p.idle_phase
    if x is None:
        return
    common: dict[str, Scalar] = {
        "kind": "idle_phase",
        "file_bytes": parse_bytes(p.file),
        "unit_bytes": parse_bytes(x.unit),
        "files": max(1, round(x.files * p.length)),
        "reads_per_s": x.reads_per_s,
    }
    for pattern in x.patterns:
        yield {**common, "policy": "immediate", "pattern": pattern, "step": 1, "merged": False}
        for merged in (False, True):
            yield {**common, "policy": "delayed", "pattern": pattern, "step": 1, "merged": merged}
    for step in x.steps:
        yield {**common, "policy": "delayed", "pattern": "units", "step": step, "merged": True}


def _label(v: dict[str, Scalar]) -> str:
    said = [str(v[name]) for name in ("device", "kind", "policy", "scenario") if name in v]
    said += [format_bytes(float(v["unit_bytes"]))] if "unit_bytes" in v else []
    said += ["without TRIM"] if v.get("trimmed_bytes") == 0 else []
    said += [
        f"{name} {v[name]}"
        for name in ("ranges", "pending_ranges", "list_entries", "pause_ratio")
        if name in v
    ]
    if "step" in v:
        said += [
            str(v["pattern"]),
            f"step {v['step']}",
            "merged" if v["merged"] else "as they came",
        ]
    return " ".join(said)
