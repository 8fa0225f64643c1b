"""Figures that a reviewer meets: a clean clone, its first and second run, two clones compared."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console

from harness.errors import HarnessError
from harness.goals import Goal
from harness.paths import Project

_COMMAND: Final = "make bench ONLY=reviewer"
_COMPARED: Final = ("data/raw", "data/results", "data/figures", "data/metrics", "dvc.lock")


def measure(project: Project, console: Console) -> Iterator[Goal]:
    """All figures of the group. Only what is committed takes part."""
    with tempfile.TemporaryDirectory(prefix="flashlab-clone-", dir="/var/tmp") as folder:
        first, second = (Path(folder) / name for name in ("first", "second"))
        for clone in (first, second):
            _call(["git", "clone", "--quiet", "--no-hardlinks", str(project.root), str(clone)])
        seconds, peak_bytes = _reproduce(first, console)
        yield Goal("make reproduce in a clean clone", "s", "< 300", _COMMAND, [seconds])
        yield Goal("its peak memory, all processes", "GiB", "< 4", _COMMAND, [peak_bytes / 2**30])
        again = [_reproduce(first, console)[0] for _ in range(3)]
        yield Goal("its second run", "s", "< 15", _COMMAND, again)
        dirty = _output(["git", "status", "--porcelain"], first).splitlines()
        yield Goal("files that git sees changed after it", "files", "== 0", _COMMAND, [len(dirty)])
        _reproduce(second, console)
        different = _different(first, second)
        yield Goal(
            "files that differ between two clean clones",
            "files",
            "== 0",
            _COMMAND,
            [len(different)],
            context={"compared": len(_digests(first)), "different": different},
        )
        shutil.rmtree(second)


def _reproduce(clone: Path, console: Console) -> tuple[float, int]:
    """Seconds, and the most memory that all its processes used at once (anonymous and shared)."""
    console.print(f"make reproduce in {clone.name} ...")
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "MAKEFLAGS")}
    environment.pop("UV_PROJECT_ENVIRONMENT", None)
    begin = time.monotonic()
    peak = 0
    with subprocess.Popen(
        [shutil.which("make") or "make", "reproduce"],
        cwd=clone,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        while True:
            try:
                process.wait(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, _session_memory(process.pid))
    if process.returncode != 0:
        raise HarnessError(f"make reproduce failed in {clone} with exit code {process.returncode}")
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return time.monotonic() - begin, max(peak, children)


def _session_memory(session: int) -> int:
    """Proportional set size of all processes of a session, in bytes."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                rollup = (stat.parent / "smaps_rollup").read_text()
                pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
                total += int(pss.split()[1]) * 1024
        except (OSError, StopIteration):
            continue  # it has ended meanwhile
    return total


def _different(first: Path, second: Path) -> list[str]:
    one, other = _digests(first), _digests(second)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _digests(clone: Path) -> dict[str, str]:
    files = [f for part in _COMPARED for f in _files(clone / part)]
    return {
        str(f.relative_to(clone)): hashlib.sha256(f.read_bytes()).hexdigest()
        for f in files
        if f.name != ".gitignore"
    }


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]


def _call(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _output(command: list[str], folder: Path) -> str:
    return subprocess.run(command, check=True, cwd=folder, capture_output=True, text=True).stdout
