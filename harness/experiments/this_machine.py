"""A host profile of this machine for the models: what a database's software finds here.

Software's own time is measured and given by whoever compares; the kernel's costs are in it.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from harness.devices.live.front.base import QueueLimits
from harness.devices.live.front.fuse_loop import FuseLoop
from harness.devices.profiles import load_device
from harness.experiments.kernel import Setup
from harness.experiments.read_ahead import READ_AHEAD_KIB
from harness.paths import Project
from harness.system.ext4_spec import INODES, PLAIN
from harness.system.files import write_atomically
from harness.tiers.hardware import HardwareBench

_BACKGROUND: Final = 0.5
"""Where writing in the background begins, of the limit: see `writeback.limited`."""

SETUP: Final = Setup(fua=FuseLoop.told.fua == "fua", strict_limit=True, inodes=INODES)
"""Of the emulated drives that are published: FUA as their front end says, what may be dirty as
`writeback.limited` sets it, a file system as `filesystems.ext4` makes it."""

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of ours is made in it


def possible_cpus() -> int:
    """As many as the kernel may ever have (Documentation/admin-guide/cputopology.rst)."""
    said = Path("/sys/devices/system/cpu/possible").read_text()
    return int(re.split("[-,]", said.strip())[-1]) + 1


@contextlib.contextmanager
def memory_bench() -> Iterator[HardwareBench]:
    """A bench whose device `file` is in memory, for what a server needs without a device."""
    with tempfile.TemporaryDirectory(prefix="flashlab-", dir=_MEMORY) as folder:
        Path(folder).chmod(0o711)
        with HardwareBench(Path(folder) / "disk", cached=True) as bench:
            yield bench


def plain(value: object) -> dict[str, object]:
    """A profile's value that is this machine's."""
    return {"value": value, "source": "this machine"}


def ext4_of(
    *, size_bytes: int, discard: str, commit_s: float, slowdown: float
) -> dict[str, object]:
    """A host profile's section `ext4`: a file system of that size on a device that takes `slowdown`
    times its own time, seen in that time.

    `commit_s`: that the device's user asks for, in the device's time; the kernel's is in whole
    seconds of the clock.
    """
    by_clock_s = max(round(commit_s * slowdown), 1)
    return {
        "discard": plain(discard),
        "recent_allocator": plain(True),
        "commit_interval": plain(f"{round(by_clock_s / slowdown * 1000)} ms"),
        "journal": plain(f"{PLAIN.journal_bytes_in(size_bytes)} B"),
    }


def write_profile(
    project: Project,
    name: str,
    *,
    title: str,
    memory: str,
    dirty_ratio: float,
    device: str,
    copy_cpu: Mapping[str, object],
    sections: Mapping[str, Mapping[str, Any]],
) -> Path:
    """Writes the profile `name` into the build folder and returns its path.

    `memory` and `dirty_ratio` are the page cache's (writing in the background begins at half of
    that), `device` a drive's profile, `copy_cpu` the cache's time per block, `sections` what the
    study's software costs.
    """
    limits = QueueLimits.of(load_device(project.profiles, device))
    page_cache = {
        "memory": plain(memory),
        "client_memory": plain("0 B"),
        "read_ahead": plain(f"{READ_AHEAD_KIB} KiB"),
        "dirty_background": plain(dirty_ratio * _BACKGROUND),
        "dirty": plain(dirty_ratio),
        "queue_limit": plain(limits.at_a_time),
        "allocation": plain("8 MiB"),
        "segment": plain("1 GiB"),
        "copy_cpu": dict(copy_cpu),
        "file_system_begin": plain(0.0),
    }
    return write_bare_profile(
        project, name, title=title, sections={"page_cache": page_cache, **sections}
    )


def write_bare_profile(
    project: Project, name: str, *, title: str, sections: Mapping[str, Mapping[str, Any]]
) -> Path:
    """The same for software that goes past the page cache."""
    profile = {
        "title": title,
        "kind": "host",
        "parameters": {
            "cores": plain(possible_cpus()),
            "submit_cpu": plain("0 ns"),
            "complete_cpu": plain("0 ns"),
            "max_request": plain("512 KiB"),
            "io_scheduler": plain("none"),
        },
        **{key: dict(section) for key, section in sections.items()},
    }
    path = project.build / "hosts" / f"{name}.yaml"
    text = yaml.safe_dump(profile, sort_keys=False)
    write_atomically(path, text.encode(), make_folder=True)
    return path
