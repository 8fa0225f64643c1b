"""What tests of live devices share: devices that are surely removed."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REPOSITORY
from leaks import PREFIX

from harness import _core
from harness.devices.live import LiveDevice, registry
from harness.devices.live.registry import Place
from harness.devices.live.spec import LiveSpec
from harness.system import mounts

PROFILES = REPOSITORY / "hardware" / "profiles"
HARNESS = str(Path(sys.executable).with_name("harness"))
NEEDS_FUSE = pytest.mark.skipif(
    not _core.FuseFile.available(), reason="the core was built without FUSE"
)
NEEDS_DEVICES = (pytest.mark.servers, pytest.mark.root, NEEDS_FUSE)
"""Of a module that makes live devices."""

KEPT = f"{PREFIX}kept"
"""A device that lives as long as a module's tests."""

_numbers = itertools.count()


def new_name() -> str:
    """A device's name that nobody else uses, not even another test run at the same time."""
    return f"{PREFIX}{next(_numbers)}"


def queue(device: LiveDevice, name: str) -> int:
    """A setting of the device's queue, as the kernel says it."""
    return int((Path("/sys/block") / device.path.name / "queue" / name).read_text())


def small(**values: Any) -> LiveSpec:
    """A small, quick flash drive."""
    chosen = {"profile": "crucial_mx500_250gb", "size_bytes": 256 << 20, "speed": "none", **values}
    return LiveSpec.checked(profiles=PROFILES, **chosen)


def harness(*arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs `harness ARGUMENTS` in this checkout."""
    return subprocess.run(
        [HARNESS, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def remove_all() -> None:
    """Whatever devices of this test run are left, but for KEPT."""
    for name in registry.list_names():
        if name.startswith(PREFIX) and name != KEPT:
            registry.remove_traces(Place(name))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def processes_of(name: str) -> list[int]:
    """Processes that serve a device of that name; not those of another container."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        words = _read(line).split("\0")
        if str(registry.ROOT / name) in words and _is_here(line.parent):
            found.append(int(line.parts[2]))
    return found


def _is_here(process: Path) -> bool:
    try:
        return (process / "ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False


def eventually(holds: Callable[[], bool], limit_s: float = 30.0) -> None:
    """Waits for it; fails if it does not come."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def mount_of(point: Path) -> list[mounts.Mount]:
    """What is mounted at a path."""
    return [mount for mount in mounts.table() if mount.point == point]


def fsync_files_until_the_cut(device: LiveDevice, folder: Path, seed: int) -> dict[str, bytes]:
    """Cuts the power while files are written; what had been synced before it was cut."""
    chance = np.random.default_rng(seed)
    folder.mkdir()
    synced: dict[str, bytes] = {}
    enough = threading.Event()

    def write_files() -> None:
        for i in range(100_000):
            content = chance.bytes(int(chance.integers(1, 20_000)))
            try:
                with (folder / str(i)).open("wb") as file:
                    file.write(content)
                    file.flush()
                    if i % 3 == 0:
                        os.fsync(file.fileno())
                    else:
                        continue
                sync_folder(folder)
            except OSError:
                return
            synced[str(i)] = content
            if len(synced) == 20:
                enough.set()

    def sync_folder(path: Path) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_files)
        try:
            assert enough.wait(60)
        finally:
            device.power_cut(seed, stay_off=True)
        writing.result()
    return synced
