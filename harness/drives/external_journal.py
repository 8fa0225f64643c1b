"""An ext4 whose journal is on a device of its own, such as a second namespace of an FDP drive.

That gives MS-DJ (a stream of its own for the journal) with an unchanged kernel: what a namespace
writes without saying more is placed by the first of its placement handles (NVMe TP4146), so two
namespaces with different handles never share a reclaim unit. See hardware/msdj/README.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.drives.targets import Step, Target
from harness.errors import TargetError
from harness.system import ext4_spec, filesystems
from harness.system.ext4_spec import BLOCK_BYTES, JOURNAL_BLOCKS, Ext4Spec
from harness.units import format_bytes

_MIB: Final = 1 << 20
_PACE_BYTES_PER_S: Final = 100e6  # slow, rather than fast


def steps(data: Target, journal: Target, spec: Ext4Spec) -> tuple[Step, Step]:
    """What is overwritten: the journal's device first, since the file system notes its identity.

    Of `spec`, `size_bytes` 0 is all of the data's target, `journal_bytes` 0 as much of the
    journal's target as a journal may have. Raises BadParameter, TargetError (targets that are too
    small, or the same).
    """
    if data.path.resolve() == journal.path.resolve():
        raise TargetError(
            f"{data.path} cannot have its own journal beside itself: give two targets"
        )
    whole_journal = spec.journal_bytes or _most_bytes(journal)
    written_bytes = filesystems.journal_device_bytes(whole_journal)
    if written_bytes > journal.size_bytes:
        raise TargetError(
            f"a journal of {format_bytes(whole_journal)} does not fit on {journal.path}, which has "
            f"{format_bytes(journal.size_bytes)}: choose a smaller one"
        )
    files = filesystems.make_command(data.path, spec.sized(data.size_bytes), journal=journal.path)
    command = filesystems.journal_command(journal.path, whole_journal)
    return (
        _step("make a journal", command, written_bytes),
        _step("make a file system", files, spec.inodes * ext4_spec.INODE_BYTES),
    )


@contextlib.contextmanager
def external_journal(data: Target, journal: Target, spec: Ext4Spec) -> Iterator[Path]:
    """A new ext4 on `data` with its journal on `journal`, mounted while the block runs.

    Mounted with data=journal, and with nothing else: with ordered data, fsync of Linux 6.12 does
    not flush the data's device if the journal is on another one: whatever `spec` says of the mode.
    Root only. Raises what filesystems.ext4 and `steps` raise; TargetError if a target may not be
    overwritten.
    """
    for target, step in zip((journal, data), steps(data, journal, spec), strict=True):
        target.permit(step.what, step.written_bytes)
        filesystems.run_mke2fs(step.command)
    journaled = replace(spec, journal_mode="journal")
    with filesystems.mounted(data.path, journaled, journal=journal.path) as folder:
        yield folder


def _most_bytes(journal: Target) -> int:
    room_bytes = journal.size_bytes - filesystems.journal_device_bytes(0)
    return min(room_bytes, JOURNAL_BLOCKS[1] * BLOCK_BYTES) // _MIB * _MIB


def _step(what: str, command: tuple[str, ...], written_bytes: int) -> Step:
    return Step(what, command, written_bytes, written_bytes / _PACE_BYTES_PER_S)
