"""A reproduction that is killed is completed by the next one, and nothing runs twice."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY, need

from harness.benchmarks import clones, interrupted

KILLS = 5
LIMIT_S = 60.0


def test_what_a_journal_has_twice(tmp_path: Path) -> None:
    lines = [json.dumps({"key": key}) for key in ("a", "b", "a")]
    journal = tmp_path / "study" / "simulated" / "journal.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_text("".join(f"00000000 {line}\n" for line in lines) + '00000000 {"key": "b')
    assert interrupted.twice(tmp_path) == ["a"]


def test_a_tree_is_killed_whatever_its_sessions() -> None:
    """A child in a session of its own is gone with its parent."""
    program = (
        "import subprocess, sys; "
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], "
        "start_new_session=True); print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        ended = os.pidfd_open(child)
        try:
            assert interrupted.tree(parent.pid) == {parent.pid, child}
            interrupted.kill_tree(parent.pid)
            assert select.select([ended], [], [], LIMIT_S)[0] == [ended]
        finally:
            os.close(ended)


@pytest.mark.slow
@pytest.mark.builds
def test_a_killed_reproduction_is_completed(tmp_path: Path) -> None:
    need("git")
    clone = tmp_path / "clone"
    clones.clone(REPOSITORY, clone)
    outcome = interrupted.kill_often(clone, KILLS, seed=7)
    assert outcome.kills == KILLS
    assert outcome.completed >= 1
    assert not outcome.twice
    assert not outcome.different
