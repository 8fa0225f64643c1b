"""What a recorded run of InnoDB on ext4 has written, by the place where it lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from harness.dbms import innodb
from harness.dbms.innodb import FileRange
from harness.errors import InvalidRun
from harness.experiments.msdj_tpcc.pages import SHARES, TABLES, concentration
from harness.probes import places
from harness.probes.fiemap import file_extents
from harness.system import filesystems

_TOLERANCE: Final = 0.01

Ranges = list[tuple[int, int]]


@dataclass(frozen=True)
class Layout:
    """Where the parts of a database lie on the device that its file system is on.

    `journal` and `redo` are empty if they are on another device. Indexes belong to their tables.
    """

    journal: Ranges
    doublewrite: Ranges
    redo: Ranges
    tables: Mapping[str, Ranges]

    @property
    def apart(self) -> dict[str, Ranges]:
        """What is not written home."""
        return {"journal": self.journal, "doublewrite": self.doublewrite, "redo": self.redo}


def layout(mounted: Path, data: Path, database: str, page_bytes: int, redo: Path) -> Layout:
    """Of a server's data folder `data` on a file system of ours, mounted at `mounted`.

    `redo`: the folder that the redo log is in. Files grow: ask at the end. Raises TargetError.
    """
    log = innodb.redo_files(redo) if redo.is_relative_to(mounted) else []
    device = filesystems.device_of(mounted)
    inside = filesystems.journal_device(device) is None
    return Layout(
        journal=sorted(filesystems.journal_extents(device)) if inside else [],
        doublewrite=_extents(innodb.doublewrite_parts(data, page_bytes)),
        redo=_extents(map(FileRange, log)),
        tables={name: file_extents(data / database / f"{name}.ibd") for name in TABLES},
    )


def _extents(parts: Iterable[FileRange]) -> Ranges:
    return [
        extent
        for part in parts
        for extent in file_extents(part.file, part.begin_bytes, part.end_bytes)
    ]


def written_bytes(trace: Path, found: Layout) -> dict[str, int]:
    """Bytes written to the journal, the doublewrite buffer, the redo log; home is all the rest."""
    parts = places.by_place(trace, found.apart)
    writes = parts[parts.op == "write"].set_index("place").bytes
    names = {**dict(zip(found.apart, found.apart, strict=True)), places.REST: "home"}
    return {f"{name}_written_bytes": int(writes.get(place, 0)) for place, name in names.items()}


def check_journal(trace_bytes: int, device_bytes: int) -> None:
    """The kernel's and the drive's count of what the journal was written. Raises InvalidRun."""
    if abs(trace_bytes - device_bytes) > _TOLERANCE * max(trace_bytes, device_bytes):
        raise InvalidRun(
            f"the journal was written {trace_bytes} B by the block trace, {device_bytes} B by the "
            "drive: its extents are not what they were when the drive was told"
        )


def accesses(trace: Path, found: Layout, device_bytes: int) -> dict[str, int | float]:
    """How often the journal and the rest are accessed for their size (figure 1)."""
    rows = places.accesses_per_lba(trace, {"journal": found.journal}, device_bytes)
    names = ("requests_per_lba", "accesses_per_lba", "writes_per_lba")
    metrics: dict[str, int | float] = {}
    for row in rows.to_dict("records"):
        place = str(row["place"]).strip("()")
        metrics[f"{place}_size_bytes"] = int(row["size_bytes"])
        metrics |= {f"{place}_{name}": float(row[name]) for name in names}
    return metrics


def page_series(trace: Path, found: Layout, page_bytes: int) -> dict[str, list[float]]:
    """Pages written home per table, and how few of all those pages were written how much."""
    counts = places.page_writes(trace, found.tables, page_bytes)
    return {
        "table_written_pages": [round(float(counts[name].sum()), 2) for name in TABLES],
        "home_write_concentration": concentration(
            np.concatenate([counts[name] for name in TABLES]), SHARES
        ),
    }
