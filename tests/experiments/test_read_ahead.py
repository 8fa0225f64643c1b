"""How far the kernel reads ahead of a buffered reader, on drives that are modelled and others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pandas as pd
import pytest
from conftest import loop_device

from harness.drives.queue_settings import queue_settings
from harness.experiments import read_ahead
from harness.probes.recorder import Recorder
from harness.system import filesystems, mounts
from harness.tiers.base import DeviceUnderTest

FILE_BYTES = 8 << 20


def said(device: Path) -> Path:
    return Path("/sys/block") / device.name / "queue/read_ahead_kb"


def under_test(device: Path, *, modelled: bool) -> DeviceUnderTest:
    """As much of one as decides about read-ahead: its path, and whether it is a model's."""
    return cast(DeviceUnderTest, SimpleNamespace(path=device, drive=object() if modelled else None))


@pytest.fixture
def once_on_a_disk(tmp_path: Path) -> Iterator[Path]:
    """A loop device with the read-ahead that one keeps from a disk (Linux 6.17)."""
    with loop_device(tmp_path, 64 << 20) as device, queue_settings(device, {"read_ahead_kb": 2560}):
        yield device


@pytest.mark.root
def test_a_modelled_drive_is_read_ahead_of_as_the_papers_were(
    once_on_a_disk: Path, tmp_path: Path
) -> None:
    """By its largest request: whatever the device was before."""
    largest = {}
    for modelled in (False, True):
        device = under_test(once_on_a_disk, modelled=modelled)
        with read_ahead.as_modelled(device), filesystems.ext4(once_on_a_disk) as folder:
            file = folder / "file"
            file.write_bytes(bytes(FILE_BYTES))
            mounts.sync(folder)
            trace = tmp_path / "block.parquet"
            with Recorder(once_on_a_disk, trace), file.open("rb", buffering=0) as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while opened.read(8192):
                    pass
            largest[modelled] = _largest_read_kib(trace)
        assert said(once_on_a_disk).read_text().strip() == "2560"
    assert largest[True] == read_ahead.READ_AHEAD_KIB < largest[False]


def _largest_read_kib(trace: Path) -> int:
    found = pd.read_parquet(trace)
    return int(found[found.op == "read"].sectors.max()) // 2
