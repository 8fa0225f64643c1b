"""Figures of sweeps: workers against one, overhead, kills, planted machines, what is on record.

In a checkout of their own, with the study whose points are the smallest.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from rich.console import Console

from harness.goals import Goal
from harness.paths import Project
from harness.runs.sweeps import nearest, recorded, unknowns
from harness.runs.sweeps.sweep import Asked, Sweep, place
from harness.runs.sweeps.work import Work, run_batch

_COMMAND: Final = "make bench ONLY=sweeps"
_POINTS: Final = 10_000
_ROUNDS: Final = 3
_KILLS: Final = 20
_TRIALS: Final = 100
_SMALL: Final = "smoke"
_NEEDED: Final = ("params.yaml", "dvc.yaml", "pyproject.toml", "hardware", "data/published")
_KILLER_S: Final = 300.0
_BARE_POINTS: Final = 2_000
_BARE_BATCH: Final = 40


def measure(project: Project, console: Console) -> Iterator[Goal]:
    """All figures of the group."""
    console.print(f"{_POINTS:,} small points by 1, 2 and 3 workers: many minutes")
    with tempfile.TemporaryDirectory(prefix="flashlab-sweeps-") as folder:
        own = _checkout(project, Path(folder))
        study, points = _smallest(own)
        machines = -(-_POINTS // points) - 1
        yield from _figures(own, study, machines, console)
    yield from _on_record(project)


@dataclass(frozen=True)
class _Run:
    """How long one took with its workers at hand, what its points took, and what it published."""

    elapsed_s: float
    points_s: float
    keys: list[str]
    published: dict[str, bytes]
    folder: Path


def _figures(own: Project, study: str, machines: int, console: Console) -> Iterator[Goal]:
    ones, twos, bare = [], [], []
    for _ in range(_ROUNDS):
        ones.append(_run(own, study, machines, 1))
        twos.append(_run(own, study, machines, 2))
        bare.append(_bare_speedup(own, study, machines))
        speedup = ones[-1].elapsed_s / twos[-1].elapsed_s
        console.print(
            f"{study}: {len(ones[-1].keys):,} points, one worker {ones[-1].elapsed_s:.0f} s, "
            f"2 workers {speedup:.2f}, 2 bare processes {bare[-1]:.2f}"
        )
    one, two = ones[-1], twos[-1]
    context = {
        "study": study,
        "points": len(one.keys),
        "one_s": statistics.median(each.elapsed_s for each in ones),
        "two_s": statistics.median(each.elapsed_s for each in twos),
        "bare_processes": statistics.median(bare),
        "processors": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }
    speedups = [a.elapsed_s / b.elapsed_s for a, b in zip(ones, twos, strict=True)]
    yield Goal("2 workers over 1", "ratio", ">= 1.9", _COMMAND, speedups, context=context)
    overheads_ms = [(each.elapsed_s - each.points_s) / len(each.keys) * 1e3 for each in ones]
    yield Goal("overhead per point, 1 worker", "ms", "<= 5", _COMMAND, overheads_ms)
    with _killing(_KILLS) as (killed, begin):
        three = _run(own, study, machines, 3, begin)
    lost = len(set(one.keys) - set(three.keys))
    twice = len(three.keys) - len(set(three.keys))
    said = {"kills": len(killed), "workers": 3}
    yield Goal("random kills of workers", "kills", f">= {_KILLS}", _COMMAND, [len(killed)])
    yield Goal("points lost with them", "points", "== 0", _COMMAND, [lost], context=said)
    yield Goal("points recorded twice", "points", "== 0", _COMMAND, [twice], context=said)
    others = (two.published, three.published)
    different = [n for n, data in one.published.items() if {o[n] for o in others} != {data}]
    yield Goal(
        "files that differ between 1, 2 and 3 workers", "files", "== 0", _COMMAND, [len(different)]
    )
    found = recorded.read(own, study, three.folder)
    table = nearest.planted(found, nearest.used(found), _TRIALS)
    again = table.groupby("unknown").found.agg(["sum", "size"])
    least = again["sum"] / again["size"] * _TRIALS
    yield Goal(
        f"planted machines found again, of {_TRIALS}, least of the unknowns",
        "trials",
        ">= 85",
        _COMMAND,
        [float(least.min())],
        context={"unknown": str(least.idxmin()), "trials": int(again["size"].min())},
    )


def _checkout(project: Project, folder: Path) -> Project:
    for name in _NEEDED:
        source, target = project.root / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    return Project(folder)


def _smallest(project: Project) -> tuple[str, int]:
    """The study whose points take least, by its default machine's first one; and its points."""
    found = []
    for study in unknowns.names(project):
        sweep = Sweep(project, study, Asked(machines=1, scale=_SMALL))
        [work, *_] = [work for work, _ in sweep.todo({}).values()]
        run_batch([work])  # inputs are made, modules are loaded
        [outcome] = run_batch([work])
        found.append((outcome.seconds, study, len(sweep.machines[0].points)))
    _, study, points = min(found)
    return study, points


def _run(
    project: Project,
    study: str,
    machines: int,
    workers: int,
    begin: Callable[[], object] = lambda: None,
) -> _Run:
    sweep = Sweep(project, study, Asked(machines=machines, scale=_SMALL))
    shutil.rmtree(project.journal, ignore_errors=True)
    begun: list[float] = []

    def say(_: str) -> None:  # the first time when the workers are there
        begun.append(time.monotonic())
        begin()

    sweep.run(workers, say=say)
    elapsed_s = time.monotonic() - begun[0]
    folder = place(project, study, _SMALL, "sobol", publish=False)
    sweep.publish(folder)
    entries = sweep.journal.entries()
    return _Run(
        elapsed_s,
        sum(float(entry.about["duration_s"]) for entry in entries.values()),
        _recorded_keys(project, study),
        {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()},
        folder,
    )


def _bare_speedup(project: Project, study: str, machines: int) -> float:
    """What two processes gain over one on this machine, with nothing of a sweep between them."""
    sweep = Sweep(project, study, Asked(machines=machines, scale=_SMALL))
    works = [work for work, _ in sweep.todo({}).values()][:_BARE_POINTS]
    batches = [works[at : at + _BARE_BATCH] for at in range(0, len(works), _BARE_BATCH)]
    one_s, two_s = (_bare_s(batches, processes) for processes in (1, 2))
    return one_s / two_s


def _bare_s(batches: Sequence[Sequence[Work]], processes: int) -> float:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        list(pool.map(run_batch, [batches[0]] * (2 * processes)))  # all are there, and warm
        begin = time.monotonic()
        list(pool.map(run_batch, batches))
        return time.monotonic() - begin


def _recorded_keys(project: Project, study: str) -> list[str]:
    """Of every line of the journal, also those that are there twice."""
    text = (project.journal / "sweeps" / study / "journal.jsonl").read_text()
    return [line.partition('"key": "')[2].partition('"')[0] for line in text.splitlines()]


@contextmanager
def _killing(count: int) -> Iterator[tuple[list[int], Callable[[], None]]]:
    """So many of this process's workers are killed while the block runs, at random moments.

    The list is of those that were; the function begins it. Dask gives up where one that it starts
    ends before it is there.
    """
    chance, done = random.Random(1), threading.Event()  # noqa: S311 - no secret
    begun = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        begun.wait()
        end = time.monotonic() + _KILLER_S
        while len(killed) < count and time.monotonic() < end:
            if done.wait(chance.uniform(0.5, 4.0)):
                return
            if workers := _workers():
                victim = chance.choice(workers)
                victim.kill()
                killed.append(victim.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed, begun.set
    finally:
        done.set()
        begun.set()
        thread.join()


def _workers() -> list[psutil.Process]:
    """Processes that this one has spawned for Dask."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:  # it has just ended
            continue
    return found


def _on_record(project: Project) -> Iterator[Goal]:
    """How many machines there are of each study, of those that its file wants."""
    sweeps = recorded.found(project)
    for study in unknowns.names(project):
        wanted = unknowns.load(project, study).machines
        name, goal = f"machines on record, {study}", f">= {wanted}"
        mine = [folder for folder in sweeps if folder.name.startswith(f"{study}.")]
        if not mine:
            yield Goal(name, "machines", goal, _COMMAND, missing="nobody has swept it here")
            continue
        about = [recorded.read(project, study, folder).about for folder in mine]
        most = max(about, key=lambda each: each["finished"])
        context = {key: most[key] for key in ("scale", "design", "refused", "unfinished")}
        yield Goal(name, "machines", goal, _COMMAND, [most["finished"]], context=context)
