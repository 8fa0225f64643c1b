"""An external journal on a second FDP namespace: checks two namespaces, and prints the plan.

    python hardware/msdj/external_journal.py /dev/disk/by-id/DATA /dev/disk/by-id/JOURNAL

Writes nothing. What the plan overwrites is done by the guard on claimed namespaces only
(`harness hardware claim`). Root only, for the drive answers nobody else.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.drives import external_journal, placement
from harness.errors import EXIT_CODE, HarnessError, TargetError
from harness.system.ext4_spec import PLAIN
from harness.units import format_bytes


@dataclass(frozen=True)
class Planned:
    """A target that is only planned with."""

    path: Path

    @property
    def size_bytes(self) -> int:
        """See targets.Target."""
        sectors = Path("/sys/class/block") / self.path.resolve().name / "size"
        return int(sectors.read_text()) * 512

    def permit(self, step: str, written_bytes: int) -> None:
        """Nothing. Raises TargetError, always."""
        del written_bytes
        raise TargetError(f"{self.path} is not claimed: {step} is refused")


def main(data: Path, journal: Path) -> None:
    """Prints. Raises HarnessError."""
    for path in (data, journal):
        if not path.is_block_device():
            raise TargetError(f"{path} is no block device: give two namespaces")
    pair = placement.check_apart(data, journal)
    for what, path, handle in zip(("data", "journal"), (data, journal), pair, strict=True):
        print(
            f"{what}: {path} writes to reclaim unit handle {handle.reclaim_unit_handle} "
            f"({handle.left_blocks} logical blocks left in its unit)"
        )
    print("this would overwrite both; the guard does it on claimed namespaces:")
    for step in external_journal.steps(Planned(data), Planned(journal), PLAIN):
        print(f"  {step.what}, at most {format_bytes(step.written_bytes)}:")
        print(f"    {shlex.join(step.command)}")
    print("and then:")
    print(f"    mount -t ext4 -o data=journal,journal_path={journal} {data} FOLDER")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*map(Path, sys.argv[1:]))
    except HarnessError as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_CODE)
