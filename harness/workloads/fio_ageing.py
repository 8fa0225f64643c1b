"""Ages a device or file with fio."""

from __future__ import annotations

from pathlib import Path

from harness.workloads import fio
from harness.workloads.ageing import Ageing, job
from harness.workloads.fio import FioRun


def run(target: Path, ageing: Ageing, device_bytes: int) -> FioRun:
    """Writes it past the page cache.

    Raises what `Ageing.check` does, MissingTool, DeviceError.
    """
    ageing.check(device_bytes)
    return fio.run(target, job(ageing))
