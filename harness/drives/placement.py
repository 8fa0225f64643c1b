"""Flexible Data Placement of NVMe namespaces: which handle takes a write, and how much it took.

NVMe TP4146: a namespace has a list of placement handles, each of which stands for one of the
endurance group's reclaim unit handles. A write that names none goes to the first. A handle fills
one reclaim unit after the other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import DeviceError, TargetError
from harness.system import block_queue
from harness.system.programs import ask, last_words


@dataclass(frozen=True)
class Handle:
    """A placement handle of a namespace.

    `left_blocks`: what may still be written to its reclaim unit, in logical blocks (RUAMW).
    """

    placement_id: int
    reclaim_unit_handle: int
    left_blocks: int


def handles(device: Path) -> list[Handle]:
    """A namespace's handles, in the order of its list. Root only.

    Asked by an I/O Management Receive command, which writes nothing. Raises DeviceError (also for a
    namespace without FDP), TargetError (no block device), MissingTool.
    """
    namespace = block_queue.drive_of(device)
    done = ask("nvme", "fdp", "status", str(namespace), "--output-format=json")
    if done.returncode:
        raise DeviceError(f"{namespace} tells no placement handles: {last_words(done)}")
    try:
        rows = json.loads(done.stdout)["ruhss"]
        return [_handle(row) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise DeviceError(f"{namespace}: nvme fdp status said something else: {error!r}") from error


def _handle(row: dict[str, Any]) -> Handle:
    return Handle(int(row["pid"]), int(row["ruhid"]), int(row["ruamw"]))


def check_apart(data: Path, journal: Path) -> tuple[Handle, Handle]:
    """The handles that two namespaces write to, which share none. Raises TargetError, DeviceError.

    Of the same drive they are the same handle if they have the same number.
    """
    found = [handles(device) for device in (data, journal)]
    if not all(found):
        raise TargetError(
            f"{data} or {journal} has no placement handle: see hardware/msdj/README.md"
        )
    common = {h.reclaim_unit_handle for h in found[0]} & {h.reclaim_unit_handle for h in found[1]}
    if common:
        raise TargetError(
            f"{data} and {journal} both write to reclaim unit handle {min(common)}: make the "
            "namespaces with different --phndls, see hardware/msdj/README.md"
        )
    return found[0][0], found[1][0]


def written_blocks(
    before: Sequence[Handle], after: Sequence[Handle], unit_blocks: int
) -> list[int]:
    """What each handle took in between, in logical blocks, less any whole reclaim units."""
    assert [h.placement_id for h in before] == [h.placement_id for h in after]
    return [
        (old.left_blocks - new.left_blocks) % unit_blocks
        for old, new in zip(before, after, strict=True)
    ]
