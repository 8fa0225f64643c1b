"""A full or read-only disk below what is published: one line, exit code 2, nothing left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import LITTLE, describe, full_tmpfs

from harness.paths import Project
from harness.runs import machines

Command = Callable[..., subprocess.CompletedProcess[str]]

RUN = ("run", "grace_hash_join")


@pytest.fixture(autouse=True)
def described(checkout: Project) -> None:
    """The checkout's pipelines run next to nothing."""
    describe(checkout, "grace_hash_join", "simulated", **LITTLE)


def contents(root: Path) -> dict[str, bytes]:
    """Of everything below a folder; a folder has none."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else b""
        for path in root.rglob("*")
        if path.name not in ("lock", "journal.jsonl")
    }


def assert_one_line(done: subprocess.CompletedProcess[str], says: str) -> None:
    """And what it says; a progress bar is no line of its own."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("harness: ")]
    assert len(said) == 1, done.stderr
    assert says in said[0]


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder as on a read-only medium; needs root."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_a_full_disk_below_what_a_run_publishes(harness_here: Command, checkout: Project) -> None:
    """All the same places as before, whatever had been written when the disk was found full."""
    assert harness_here(*RUN).returncode == 0
    name, tier = "grace_hash_join", "simulated"
    traces, drawn = checkout.raw / name / tier, checkout.figures / name / tier
    for folder in (checkout.results, checkout.metrics, checkout.figures, drawn, traces):
        assert any(folder.iterdir())
        before = contents(checkout.root)
        with full_tmpfs(folder, 4096) as full:
            (full / "full").write_bytes(bytes(4096))
            assert_one_line(harness_here(*RUN), "no space left for")
            assert [path.name for path in full.iterdir()] == ["full"]
        assert contents(checkout.root) == before, folder
    assert harness_here(*RUN).returncode == 0


@pytest.mark.root
def test_a_full_disk_below_the_journal(harness_here: Command, checkout: Project) -> None:
    checkout.journal.mkdir(parents=True)
    with full_tmpfs(checkout.journal, 16 << 10) as full:
        assert_one_line(harness_here(*RUN), "no space left for")
        left = [path.name for path in full.rglob("*") if path.is_file()]
        assert set(left) <= {"lock", "journal.jsonl"} | {n for n in left if n.startswith("p-")}
        assert not [name for name in left if name.startswith(".")]


@pytest.mark.root
@pytest.mark.parametrize("arguments", [("report",), ("notebook", "00_start_here")])
def test_a_full_disk_below_the_report(
    harness_here: Command, checkout: Project, arguments: tuple[str, ...]
) -> None:
    checkout.report.mkdir(parents=True)
    with full_tmpfs(checkout.report, 4096) as full:
        assert_one_line(harness_here(*arguments), "no space left for")
        assert list(full.iterdir()) == []


@pytest.mark.root
def test_a_full_disk_below_a_fingerprint(harness_here: Command, checkout: Project) -> None:
    folder = machines.folder(checkout)
    folder.mkdir()
    with full_tmpfs(folder, 4096) as full:
        (full / "full").write_bytes(bytes(4096))
        assert_one_line(harness_here("machine", "emulated"), "no space left for")
        assert [path.name for path in full.iterdir()] == ["full"]


@pytest.mark.root
@pytest.mark.parametrize(
    "arguments", [("report",), ("notebook", "00_start_here"), ("machine", "emulated"), RUN]
)
def test_a_read_only_checkout(
    harness_command: Command, checkout: Project, arguments: tuple[str, ...]
) -> None:
    before = contents(checkout.root)
    with read_only(checkout.root):
        assert_one_line(harness_command(*arguments), "Read-only file system")
    assert contents(checkout.root) == before


def test_a_full_disk_where_it_prints(checkout: Project) -> None:
    """Not even what is said at the very end is lost without an error."""
    with Path("/dev/full").open("w") as full:
        for arguments in (["list"], ["claims"], ["doctor"]):
            done = subprocess.run(
                [str(Path(sys.executable).with_name("harness")), *arguments],
                cwd=checkout.root,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            assert done.returncode == 2, done.stderr
            assert done.stderr.splitlines() == ["harness: No space left on device"]
