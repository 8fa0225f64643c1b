"""A reproduction that is killed again and again: does the next one complete it, and repeat nothing?

A kill is SIGKILL to all processes at once, as when the power goes. Two copies of a clone are made
at scale smoke: one is left alone, the other is killed at random moments. When it is complete it has
to be the same, byte for byte, and its journals may have no point twice.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.benchmarks.clones import changed_environment, different, digests
from harness.errors import HarnessError

SCALE: Final = "smoke"
_SUBREAPER: Final = 36
"""PR_SET_CHILD_SUBREAPER, of the kernel's include/uapi/linux/prctl.h."""

_LONGEST_S: Final = 20.0
"""After which a run is killed, at the latest: the pipeline takes some minutes."""


@dataclass
class Outcome:
    """What became of the killed copies.

    `kills`: how many runs were killed; `completed`: how many reproductions were finished in spite
    of them; `twice`: points that a journal has more than once; `different`: files that are not
    those of the copy that was left alone.
    """

    kills: int = 0
    completed: int = 0
    twice: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)


def kill_often(clone: Path, kills: int, seed: int) -> Outcome:
    """Reproduces in two folders of a clone, kills one of both `kills` times and completes it.

    Raises HarnessError if a run that nobody killed fails.
    """
    _adopt()
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    whole, killed = clone / "build" / "whole", clone / "build" / "killed"
    _run(clone, whole, after_s=None)
    expected = digests(whole)
    outcome = Outcome()
    while outcome.kills < kills:
        if _run(clone, killed, after_s=chance.uniform(0.2, _LONGEST_S)):
            _look(killed, expected, outcome)
            shutil.rmtree(killed)
        else:
            outcome.kills += 1
    _run(clone, killed, after_s=None)
    _look(killed, expected, outcome)
    return outcome


def _look(killed: Path, expected: dict[str, str], outcome: Outcome) -> None:
    outcome.different += different(digests(killed), expected)
    outcome.twice += twice(killed / "data" / "journal")
    outcome.completed += 1


def twice(journals: Path) -> list[str]:
    """Keys of the points that a journal below this folder has in more than one line."""
    found: list[str] = []
    for file in sorted(journals.rglob("journal.jsonl")):
        keys: Counter[str] = Counter()
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, KeyError):  # cut short by a kill
                keys[json.loads(line.partition(" ")[2])["key"]] += 1
        found += [key for key, count in keys.items() if count > 1]
    return found


def _run(clone: Path, folder: Path, after_s: float | None) -> bool:
    """`make reproduce` into a folder; whether it came to its end before it was killed."""
    with subprocess.Popen(
        [shutil.which("make") or "make", "reproduce", f"SCALE={SCALE}", f"DIR={folder}"],
        cwd=clone,
        env=changed_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            _, said = process.communicate(timeout=after_s)
        except subprocess.TimeoutExpired:
            killed = kill_tree(process.pid)
            process.communicate()
            _bury(killed - {process.pid})
            return False
    if process.returncode:
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        raise HarnessError(f"make reproduce failed in {folder}: {' '.join(last)}")
    return True


def _adopt() -> None:
    """From now on, whoever loses his parent is a child of ours.

    Not every first process of a container ends what is left to it, and DVC takes what is dead and
    not buried for alive.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def _bury(killed: set[int]) -> None:
    """Waits until they are gone for good; of children that we have adopted."""
    left = set(killed)
    while left:
        for pid in sorted(left):
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:  # not ours yet, or gone
                if Path(f"/proc/{pid}").exists():
                    continue
            left.discard(pid)


def kill_tree(pid: int) -> set[int]:
    """SIGKILL to a child of ours that runs, and to all that it has started, whatever their session.

    They are stopped first, so that none starts another one meanwhile. Returns who they were.
    """
    stopped: set[int] = set()
    while more := tree(pid) - stopped:
        for each in more:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGSTOP)
        stopped |= more
    for each in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    return stopped


def tree(root: int) -> set[int]:
    """A process and all that it has started, whatever their session."""
    parents = dict(_parents())
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _parents() -> Iterator[tuple[int, int]]:
    """Every process with its parent."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield int(stat.parent.name), int(stat.read_text().rpartition(")")[2].split()[1])
