"""Requests as a device gets them: all that a probe has to say, in a folder that is not ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from harness.probes.block_requests import op_of
from harness.probes.counters import BlockCounters
from harness.probes.probe import WORD, Probe, Raw, integers, numbers, words
from harness.probes.proof import Printed, Tally


@dataclass(frozen=True)
class Issues(Probe):
    counted: ClassVar[bool] = True

    def decode(self, raw: Raw) -> pa.Table:
        time_ns, letter, *place = raw
        op = words([op_of(n) for n in range(128)], numbers(letter))
        return pa.Table.from_arrays([time_ns, op, *place], schema=self.schema)

    def count(self, table: pa.Table, tally: Tally) -> None:
        reads = table.filter(pc.equal(table["op"].cast(pa.string()), "read"))
        tally.of("read").ios += len(reads)
        tally.of("read").sectors += pc.sum(reads["sectors"]).as_py() or 0

    def problems(
        self, tally: Tally, printed: Printed, kernel: BlockCounters, device: Mapping[str, int]
    ) -> list[str]:
        mine, its = tally.of("read").ios, kernel.read_ios
        return [f"{mine} reads were issued, {its} ended"] if mine != its else []


def sizes(trace: Path) -> pd.DataFrame:
    rows = pq.read_table(trace).to_pandas()
    return rows.groupby(["op", "sectors"], observed=True).size().reset_index(name="issues")


PROBE = Issues(
    __file__,
    "requests when they are issued",
    pa.schema([*integers("time_ns"), pa.field("op", WORD), *integers("lba", "sectors")]),
    {"issues by size": sizes},
)
