"""Leases' notes: a wrong one ends nothing, is told, and keeps nobody from removing the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import full_tmpfs

from harness.system import kernel_partitions, leases, locks, mounts, processes, workqueues

_DEEP = "[" * 100_000 + "]" * 100_000
_PROCESS: dict[str, Any] = {"pid": 1, "identity": "nobody's", "ending": 15}
_KINDS = ["process", "cgroup", "queue", "bound", "mount", "partitions", "folder"]
_DRIVE: dict[str, Any] = {"drive": "nonexistent", "boot": processes.boot(), "sequence": "1"}
_QUEUE: dict[str, Any] = {**_DRIVE, "settings": {}, "changing": []}
_BOUND: dict[str, Any] = {**_DRIVE, "ratio": "100", "strict": "0"}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for leases in which nobody else's are, with one of a run that is no more."""
    root = tmp_path / "leases"
    monkeypatch.setattr(leases, "_root", lambda: root)
    dead = root / "0123456789abcdef"
    dead.mkdir(parents=True, mode=0o700)
    root.chmod(0o700)
    (dead / "lock").touch(mode=0o600)
    return dead


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    "text",
    [
        *("{}", "[]", "7", "-1", "1e400", "true", '{"pid": "x"}', '{"pid": 1}', _DEEP),
        *(json.dumps(_PROCESS | other) for other in ({"pid": 1 << 70}, {"pid": -1}, {"ending": 0})),
        *(json.dumps(_PROCESS | other) for other in ({"ending": 999}, {"pid": True}, {"more": 1})),
        *(json.dumps(_QUEUE | queue) for queue in ({"drive": 1}, {"settings": 7})),
        *(json.dumps(_BOUND | bound) for bound in ({"ratio": 100}, {"strict": False})),
        '"\\u0000"',
    ],
)
def test_a_wrong_note_is_told_and_left(own: Path, kind: str, text: str) -> None:
    wrong = own / f"{kind}-0123"
    wrong.write_text(text)
    right = _note_folder(own)
    done, failed = _clean()
    assert done == [f"deleted {right}"]
    assert failed == [f"{wrong} is no note of ours: see what it names, then remove it"]
    assert wrong.read_text() == text
    wrong.unlink()
    assert _clean() == ([], [])
    assert not own.exists()


@pytest.mark.parametrize(
    ("kind", "facts", "asked"),
    [
        ("process", _PROCESS, leases._PROCESS),
        ("queue", _QUEUE, leases._QUEUE),
        ("bound", _BOUND, leases._BOUND),
    ],
)
def test_without_what_is_wrong_in_them_these_notes_are_right(
    own: Path, kind: str, facts: dict[str, Any], asked: dict[str, type]
) -> None:
    """Nothing else of them is refused above. What they name is no more, so they are forgotten."""
    assert {name: type(value) for name, value in facts.items()} == asked
    (own / f"{kind}-0123").write_text(json.dumps(facts))
    assert _clean() == ([], [])
    assert not own.exists()


def test_the_folder_that_leases_lie_in_is_not_ours_to_delete(own: Path) -> None:
    """Of an ordinary user it is the one for temporary files."""
    above = own.parent.parent
    assert _clean() == ([], [])
    assert not own.parent.exists()
    assert list(above.iterdir()) == []
    assert above.is_dir()


def _note_folder(lease: Path) -> Path:
    """A folder that the lease's run had made."""
    path = lease.parent.parent / "flashlab-pg-fedcba9876543210"
    path.mkdir()
    (path / ".flashlab-lease").write_text("fedcba9876543210")
    (lease / "folder-fedcba9876543210").write_text(json.dumps(str(path)))
    return path


def _clean() -> tuple[list[str], list[str]]:
    ended, not_ended = leases.end_processes()
    deleted, not_deleted = leases.delete_folders()
    return ended + deleted, not_ended + not_deleted


def _as_folder(note: Path) -> None:
    note.mkdir()


def _as_loop(note: Path) -> None:
    note.symlink_to(note.name)


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("make", [_as_folder, _as_loop])
def test_a_note_that_is_no_file(own: Path, kind: str, make: Callable[[Path], Any]) -> None:
    wrong = own / f"{kind}-0123"
    make(wrong)
    right = _note_folder(own)
    done, failed = _clean()
    assert done == [f"deleted {right}"]
    assert failed == [f"{wrong} is no note of ours: see what it names, then remove it"]


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("text", ["", '"/tm', '{"pid": 1', "\x00"])
def test_a_note_that_was_cut_short_is_forgotten(own: Path, kind: str, text: str) -> None:
    """What is noted comes before what it stands for: then there is nothing of it yet."""
    (own / f"{kind}-0123").write_text(text)
    assert _clean() == ([], [])
    assert not own.exists()


@pytest.mark.root
@pytest.mark.parametrize("is_listed", [True, False])
def test_a_folder_is_not_deleted_through_a_mount(
    own: Path, monkeypatch: pytest.MonkeyPatch, *, is_listed: bool
) -> None:
    """Its noted path has a link in it, or the mount table does not have it at all."""
    path = _note_folder(own)
    inside = path / "below" / "mounted"
    inside.mkdir(parents=True)
    link = path.parent / "link"
    link.symlink_to(path.parent)
    (own / "folder-fedcba9876543210").write_text(json.dumps(str(link / path.name)))
    if not is_listed:
        monkeypatch.setattr(mounts, "below", lambda _: [])
    with full_tmpfs(inside):
        (inside / "file").write_text("kept")
        done, [failed] = _clean()
        assert done == []
        assert ("is mounted at" if is_listed else "of another file system") in failed
        assert (inside / "file").read_text() == "kept"
    assert _clean() == ([f"deleted {link / path.name}"], [])


@pytest.mark.root
@pytest.mark.parametrize("is_wanted", [False, True])
def test_the_kernel_s_own_work_is_freed_of_killed_devices_and_not_of_living_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_wanted: bool
) -> None:
    cpumask, dead, living = (tmp_path / name for name in ("cpumask", "dead", "living"))
    cpumask.write_text("f")
    monkeypatch.setattr(workqueues, "_SETTING", cpumask)
    monkeypatch.setattr(leases, "_DEVICES", tmp_path)
    for folder in (dead, living):
        folder.mkdir()
    held = locks.hold(living / "lock")
    (dead / "lock").touch()
    workqueues.bind(dead / workqueues.NOTE, 1, [])
    if is_wanted:
        workqueues.bind(living / workqueues.NOTE, 1, [dead / workqueues.NOTE])
    leases.free_workqueues()
    assert cpumask.read_text() == ("2" if is_wanted else "f")
    assert not (dead / workqueues.NOTE).exists()
    assert (living / workqueues.NOTE).exists() == is_wanted
    os.close(held)


def test_partitions_that_a_killed_run_has_left_are_those_of_a_living_run_now(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has claimed the drive since, and has them in use: `clean` can do nothing, and is done."""
    removed: list[str] = []

    def remove_ours(number: str, *, unmounted: bool) -> str:
        assert unmounted
        removed.append(number)
        return f"removed {number}"

    monkeypatch.setattr(kernel_partitions, "remove_ours", remove_ours)
    for name, number in (("partitions-01", "8:0"), ("partitions-02", "8:16")):
        (own / name).write_text(json.dumps(number))
    living = own.with_name("living")
    living.mkdir(mode=0o700)
    held = locks.hold(living / "lock")
    leases.Lease(living).note_partitions("8:0")
    left = "left the kernel's partitions of 8:0 to a run that uses it: clean up after it"
    assert _clean() == ([left, "removed 8:16"], [])
    assert own.exists()
    assert leases._end_all([living], "partitions") == (["removed 8:0"], []), "its own, at its end"
    os.close(held)
    assert _clean() == (["removed 8:0"], [])
    assert removed == ["8:16", "8:0", "8:0"]
    assert not own.exists()


def test_a_process_is_ended_beside_a_wrong_note(own: Path) -> None:
    (own / "process-1").write_text("{}")
    sleeping = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        who = processes.identity(sleeping.pid)
        facts = {"pid": sleeping.pid, "identity": who, "ending": 15}
        (own / f"process-{sleeping.pid}").write_text(json.dumps(facts))
        done, failed = leases.end_processes()
    finally:
        sleeping.kill()
    assert sleeping.wait() == -15
    assert done == [f"ended process {sleeping.pid}"]
    assert len(failed) == 1
