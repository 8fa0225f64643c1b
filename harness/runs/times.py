"""What each stage of the pipeline took here when it last ran, beside the report that shows it."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from harness.paths import Project
from harness.system.files import write_atomically
from harness.units import format_bytes, format_seconds

REPORT: Final = "report"


@dataclass(frozen=True)
class Stage:
    """A stage's wall-clock time and processor time, its kernel's included, in s; and the memory of
    the largest of its processes, in bytes (0: not noted).
    """

    name: str
    elapsed_s: float
    cpu_s: float
    memory_bytes: int = 0


def read(project: Project) -> list[Stage]:
    """Of the stages that have run in this checkout, by name; a file that cannot be read is none."""
    try:
        found = json.loads(_path(project).read_text(encoding="utf-8"))
        return [Stage(**stage) for stage in found]
    except (OSError, ValueError, TypeError):
        return []


@contextmanager
def noted(project: Project, name: str) -> Iterator[None]:
    """Notes what the block takes, in the place of what it took before; nothing if it fails."""
    begin, cpu = time.monotonic(), _cpu_s()
    yield
    took = round(time.monotonic() - begin, 2), round(_cpu_s() - cpu, 2)
    stage = Stage(name, *took, _memory_bytes())
    others = [other for other in read(project) if other.name != name]
    stages = sorted([*others, stage], key=lambda each: each.name)
    text = json.dumps([asdict(each) for each in stages], indent=1) + "\n"
    write_atomically(_path(project), text.encode(), make_folder=True)


def in_words(stages: Sequence[Stage]) -> str:
    """What they took together, one after the other: 'the stages took 5 min, ...'."""
    elapsed = format_seconds(sum(stage.elapsed_s for stage in stages))
    memory = format_bytes(max((stage.memory_bytes for stage in stages), default=0))
    return f"the stages took {elapsed}, and no process more than {memory} of memory"


def _cpu_s() -> float:
    """Of this process and of those that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _memory_bytes() -> int:
    """Of the largest of the same processes; the kernel counts it in KiB."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in whose) << 10


def _path(project: Project) -> Path:
    return project.report / ".times.json"
