"""What killed runs have left behind, and its removal: `harness clean`."""

from __future__ import annotations

import os
from dataclasses import dataclass

from harness.devices.live import registry
from harness.errors import HarnessError
from harness.system import leases


@dataclass(frozen=True)
class Cleaned:
    """What was removed, and what could not be, a line each."""

    done: list[str]
    failed: list[str]


def clean(*, everything: bool = False) -> Cleaned:
    """Ends processes, then removes live devices, then deletes folders, of runs that are no more.

    What cannot be removed does not keep the rest. `everything`: living devices go as well, but
    never what a living run has started or made.
    """
    done, failed = leases.end_processes()
    if os.geteuid() == 0 or everything:  # an ordinary user has no devices, and may not see root's
        try:
            device_done, device_failed = registry.clean(everything=everything)
            done, failed = done + device_done, failed + device_failed
        except HarnessError as error:
            failed = [*failed, str(error)]
    folder_done, folder_failed = leases.delete_folders()
    return Cleaned(done + folder_done, failed + folder_failed)
