"""The oracle for what tests leave behind: it sees what is ours, and not what living others have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import leaks
import pytest
from conftest import cleaning_alone, loop_device, mounted
from leaks import PREFIX

from harness.runs import cleaning
from harness.system import leases, processes


def test_a_file_that_is_left_is_seen_at_once(tmp_path: Path) -> None:
    before = leaks.look(tmp_path / "kept-*")
    assert leaks.changes(before) == []
    (tmp_path / "other").touch()
    (tmp_path / "kept-1").touch()
    assert leaks.changes(before) == [f"watched {tmp_path / 'kept-1'}"]
    (tmp_path / "kept-1").unlink()
    assert leaks.changes(before) == []


@pytest.mark.root
def test_a_device_and_a_mount_that_are_left_are_seen(tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}left"
    folder.mkdir()
    before = leaks.look()
    with loop_device(folder, 16 << 20) as device, mounted(device, folder / "mounted"):
        loop, mount = leaks.changes(before)
        assert loop.startswith(f"loop {device.name} {folder}")
        assert mount.startswith("mount ")
        while_mounted = leaks.look()
    assert leaks.changes(before) == []
    assert len(leaks.changes(while_mounted)) == 2, "what has gone is seen, too"


def test_what_a_run_has_while_it_lives_is_seen(tmp_path: Path) -> None:
    before = leaks.look()
    with leases.open_lease() as lease:
        server = lease.start(["sleep", "600"], cwd=tmp_path)
        folder = lease.new_folder(tmp_path, "flashlab-test-lease-")
        come = leaks.look().rows - before.rows
        assert any(str(lease.folder) in row for row in come)
        assert folder.is_dir()
        server.kill()
        server.wait()
    assert leaks.changes(before) == []


# A run that nobody waits for, with a folder among the temporary ones, and a process in it.
ELSEWHERE = """
import os, sys, tempfile, time
from pathlib import Path
from harness.system import leases, processes
if os.fork():
    os._exit(0)
with leases.open_lease() as lease:
    folder = lease.new_folder(Path(tempfile.gettempdir()), "flashlab-pg-")
    server = lease.start(["sleep", "600"], cwd=folder)
    print(os.getpid(), folder, lease.folder, flush=True)
    time.sleep(600)
"""


@cleaning_alone
def test_what_is_of_others_is_not_counted_until_they_are_dead() -> None:
    before = leaks.look()
    with subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE], stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        number, folder, lease = started.stdout.readline().split()
        try:
            rows = leaks.look().rows - before.rows
            assert not any(folder in row or lease in row for row in rows)
        finally:
            os.kill(int(number), signal.SIGKILL)
    while processes.start_time(int(number)) is not None:
        pass  # a killed process that has not ended yet still holds its lease
    assert f"folder {folder}" in leaks.look().rows
    cleaning.clean()
    assert leaks.changes(before) == []
