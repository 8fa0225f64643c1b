"""Figures that a reviewer meets: a clean clone, its first and second run, two clones, kills."""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console

from harness.benchmarks import clones, interrupted
from harness.errors import HarnessError
from harness.goals import Goal
from harness.paths import Project
from harness.runs import times

_COMMAND: Final = "make bench ONLY=reviewer"
_KILLS: Final = 50
_SEED: Final = 1
_OF_STAGES: Final = {"10_grace_hash_join": "<= 45", "30_trim_fallocate_matrix": "<= 120"}


def measure(project: Project, console: Console) -> Iterator[Goal]:
    """All figures of the group. Only what is committed takes part."""
    with tempfile.TemporaryDirectory(prefix="flashlab-clone-", dir="/var/tmp") as folder:
        first, second = (Path(folder) / name for name in ("first", "second"))
        for each in (first, second):
            clones.clone(project.root, each)
        seconds, _ = _make(first, "quick", console)
        yield Goal("make quick from an empty clone", "s", "<= 360", _COMMAND, [seconds])
        yield from _interrupted(first, console)
        seconds, _ = _make(second, "env", console)
        yield Goal("make env in a clean clone", "s", "", _COMMAND, [seconds])
        seconds, peak_bytes = _make(second, "reproduce", console)
        yield Goal("make reproduce in a clean clone", "s", "<= 600", _COMMAND, [seconds])
        yield from _stages(Project(second))
        yield Goal("its peak memory, all processes", "GiB", "<= 3", _COMMAND, [peak_bytes / 2**30])
        again = [_make(second, "reproduce", console)[0] for _ in range(3)]
        yield Goal("its second run", "s", "<= 10", _COMMAND, again)
        dirty = _output(["git", "status", "--porcelain"], second).splitlines()
        yield Goal("files that git sees changed after it", "files", "== 0", _COMMAND, [len(dirty)])
        _make(first, "reproduce", console)
        compared = clones.digests(first)
        different = clones.different(compared, clones.digests(second))
        yield Goal(
            "files that differ between two clean clones",
            "files",
            "== 0",
            _COMMAND,
            [len(different)],
            context={"compared": len(compared), "different": different},
        )


def _stages(project: Project) -> Iterator[Goal]:
    """What each stage of it took; its studies' goals are those of all their points."""
    for stage in times.read(project):
        goal = _OF_STAGES.get(stage.name, "")
        context = {"processor_s": stage.cpu_s}
        yield Goal(
            f"its stage {stage.name}", "s", goal, _COMMAND, [stage.elapsed_s], context=context
        )


def _interrupted(clone: Path, console: Console) -> Iterator[Goal]:
    console.print(f"make reproduce at a small scale, killed {_KILLS} times ...")
    outcome = interrupted.kill_often(clone, _KILLS, _SEED)
    figures = {
        "points that were run twice": outcome.twice,
        "files that differ from those of a run that nobody killed": outcome.different,
    }
    for name, found in figures.items():
        yield Goal(
            f"make reproduce SCALE={interrupted.SCALE}, killed {outcome.kills} times: {name}",
            "files" if name.startswith("files") else "points",
            "== 0",
            _COMMAND,
            [len(found)],
            context={"completed": outcome.completed, "found": found, "seed": _SEED},
        )


def _make(clone: Path, target: str, console: Console) -> tuple[float, int]:
    """Seconds, and the most memory that all its processes used at once (anonymous and shared)."""
    console.print(f"make {target} in {clone.name} ...")
    begin = time.monotonic()
    peak = 0
    with subprocess.Popen(
        [shutil.which("make") or "make", target],
        cwd=clone,
        env=clones.changed_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        while True:
            try:
                process.wait(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, _memory_bytes(process.pid))
    if process.returncode != 0:
        raise HarnessError(f"make {target} failed in {clone} with exit code {process.returncode}")
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return time.monotonic() - begin, max(peak, children)


def _memory_bytes(root: int) -> int:
    """Proportional set size of a process and all that it has started, whatever their session."""
    total = 0
    for pid in interrupted.tree(root):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
            total += int(pss.split()[1]) * 1024
        except (OSError, StopIteration):
            continue  # it has ended meanwhile
    return total


def _output(command: list[str], folder: Path) -> str:
    return subprocess.run(command, check=True, cwd=folder, capture_output=True, text=True).stdout
