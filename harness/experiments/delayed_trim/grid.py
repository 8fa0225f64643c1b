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

UNCHECKED: Final = "delayed_unchecked"
"""The policy without a Check Write List: what the paper's figure 1 warns of."""


def _checked(check: Callable[[Any], object]) -> BeforeValidator:
    def validate(value: Any) -> Any:
        check(value)
        return value

    return BeforeValidator(validate)


SizeText = Annotated[str, _checked(parse_bytes)]
Policy = Literal["none", "immediate", "delayed"]
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
    """Random reads and writes, a few at a time, while TRIMs arrive by a clock.

    `trim_rate`: bytes trimmed per s, in units of one size. `read_depth`, `write_depth`: how many of
    them at a time.
    """

    units: list[SizeText]
    trim_rate: SizeText
    duration_s: Positive
    read_depth: Count
    write_depth: Count


class WriteList(_Strict):
    """So many TRIMs of `unit` that are pending while writes of `block` come without a pause."""

    unit: SizeText
    pending: list[Annotated[int, Field(ge=0)]]
    block: SizeText
    writes: Count


class Idle(_Strict):
    """Rounds on a full drive: a file is written, trimmed, and there is a pause.

    `pause_ratios`: the pause over the time that the work that was put off takes.
    """

    file: SizeText
    unit: SizeText
    rounds: Count
    pause_ratios: list[Annotated[float, Field(ge=0)]]


class IdlePhase(_Strict):
    """How a file is trimmed, and the variants of the policy: slices per step, ranges merged.

    Patterns: `units` (one after the other), `blocks` (units that begin and end within a slice),
    `again` (each TRIM begins where the one before began and goes further, as Linux 6 does).
    """

    unit: SizeText
    patterns: list[Literal["units", "blocks", "again"]]
    steps: list[Count]


class Parameters(BaseModel):
    """The grid. Sizes are texts with units.

    `scale`: `smoke` makes everything that is long a tenth as long, `small` half.
    """

    model_config = ConfigDict(extra="forbid")

    scale: Literal["smoke", "small", "paper"] = "paper"
    policies: list[Policy] = Field(min_length=1)
    file: SizeText
    units: list[SizeText]
    table1: Table1 | None = None
    command: Command | None = None
    scenario: bool = True
    tails: Tails | None = None
    write_list: WriteList | None = None
    idle: Idle | None = None
    idle_phase: IdlePhase | None = None
