"""What a probe says of itself: what it is given, how its lines become rows, what proves them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from harness.probes import counters
from harness.probes.counters import BlockCounters
from harness.probes.lines import Output
from harness.probes.proof import Printed, Tally
from harness.probes.span import Span

WORD: Final = pa.dictionary(pa.int8(), pa.string())
Raw = Sequence[pa.Array]
"""The columns of some lines as they were printed: int64, null where nothing stood."""


@dataclass
class Ending:
    """What a script still had when it ended.

    printed: rows that it counted as printed. others: rows that it did not count. moved: what no
    row has. empty_writes: writes without data (see proof.of_counters). flushes_begun: all flushes
    that were issued, with and without a row.
    """

    printed: list[pa.Table] = field(default_factory=list)
    others: list[pa.Table] = field(default_factory=list)
    moved: Tally = field(default_factory=Tally)
    empty_writes: int = 0
    flushes_begun: int = 0


@dataclass(frozen=True)
class Probe:
    """A bpftrace script and the columns of its trace; a subclass adds what only it knows.

    module: the file that makes it; the script lies beside it, under the same name. schema: of the
    trace; without a `decode` of its own a line has these columns, all of them int64. tables: what
    `harness probe analyse` shows of a trace, by title.
    """

    module: str
    purpose: str
    schema: pa.Schema
    tables: Mapping[str, Callable[[Path], pd.DataFrame]] = field(default_factory=dict)

    counted: ClassVar[bool] = False
    """It sees a device's requests: it is given the drive's number, and begins and ends while
    nothing is in flight."""

    json: ClassVar[bool] = False
    """No rows are printed, the script's maps are the result (lines.JsonMaps)."""

    times: ClassVar[tuple[str, ...]] = ("time_ns",)
    """The columns that say whether a row is in the recorded span (Span.rows)."""

    recountable: ClassVar[bool] = True
    """`count` finds in the trace's rows all that the proof was about."""

    @property
    def name(self) -> str:
        """As `--script` has it."""
        return Path(self.module).stem

    @property
    def source(self) -> Path:
        """The bpftrace script."""
        return Path(self.module).with_suffix(".bt")

    @property
    def fields(self) -> int:
        """The number of columns of a line."""
        return len(self.schema)

    def arguments(self, device: Path, span: Span) -> list[str]:
        """What the script is given: the device's number, the token of a mark, the queues.

        Raises BadParameter if it cannot record here.
        """
        number = str(counters.kernel_number(device, of_requests=self.counted))
        return [number, span.token, str(counters.queues(device) if self.counted else 1)]

    def decode(self, raw: Raw) -> pa.Table:
        """The rows, in `schema`, of the columns of some lines."""
        return pa.Table.from_arrays(list(raw), schema=self.schema)

    def ending(self, output: Output, span: Span) -> Ending:
        """What the script's maps still have at its end."""
        del output, span
        return Ending()

    def count(self, table: pa.Table, tally: Tally) -> None:
        """Adds to a tally what the proof needs of rows that are in the trace."""

    def problems(
        self, tally: Tally, printed: Printed, kernel: BlockCounters, device: Mapping[str, int]
    ) -> list[str]:
        """Where the trace disagrees with what the kernel and the device itself counted."""
        del tally, printed, kernel, device
        return []


@dataclass(frozen=True)
class EventProbe(Probe):
    """Its lines begin with an event's number; `events` are the names, by number."""

    events: tuple[str, ...] = ()

    def decode(self, raw: Raw) -> pa.Table:
        """The number's name, then the columns as they are."""
        event = words(self.events, numbers(raw[0]))
        return pa.Table.from_arrays([event, *raw[1:]], schema=self.schema)


def integers(*names: str) -> list[pa.Field]:
    """Columns of int64."""
    return [pa.field(name, pa.int64()) for name in names]


def numbers(column: pa.Array) -> NDArray[np.int64]:
    """A column of lines that has no nulls."""
    return np.asarray(column.to_numpy(zero_copy_only=False))


def words(names: Sequence[str], index: NDArray[np.int64]) -> pa.Array:
    """A dictionary column: names[index], names may repeat."""
    distinct = sorted(set(names))
    places = np.array([distinct.index(name) for name in names], dtype=np.int8)
    chosen = places[index] if len(places) else np.empty(0, np.int8)
    return pa.DictionaryArray.from_arrays(
        pa.array(chosen, pa.int8()), pa.array(distinct, pa.string())
    )
