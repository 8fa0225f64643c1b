"""What an ordinary user may do beside root's devices, and what a drive in use is offered for."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import leaks
import pytest
from conftest import REPOSITORY
from live_world import HARNESS, NEEDS_FUSE, new_name, small

from harness.devices import live
from harness.drives.discovery import Machine
from harness.errors import TargetError

_SAID = "as nobody:\nnothing was left behind\n"

# Python may lie where only root may look: all that is imported is imported before.
_AS_NOBODY = """
import os, sys
from harness.commands import main as cli
from harness.commands.console import say
from harness.runs import cleaning
say("as nobody:")
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
sys.argv = ["harness", *sys.argv[1:]]
cli.main()
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of nobody's own: below /tmp itself, as tests' folders are root's to enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, 65534, 65534)
        yield Path(folder)


def _as_nobody(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, *arguments],
        env={"HOME": str(folder), "TMPDIR": str(folder), "PATH": "/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.servers
@pytest.mark.root
@NEEDS_FUSE
def test_clean_beside_a_device_of_root_s(home: Path) -> None:
    """It cleans what is the user's own; root's devices are not his to see."""
    with leaks.nothing_left(), live.created(small(), new_name()) as device:
        own = _as_nobody(home, "clean")
        assert (own.returncode, own.stdout) == (0, _SAID), own.stderr
        every = _as_nobody(home, "clean", "--all")
        assert device.stats()["name"] == device.name
    assert every.returncode == 2
    assert "live devices need root" in every.stderr


def test_a_mounted_drive_could_serve_nothing() -> None:
    """Of this machine's own drives: whichever the system runs from."""
    machine = Machine()
    try:
        names = machine.system_drives() & {drive.name for drive in machine.drives}
    except TargetError as error:
        pytest.skip(str(error))
    if not names:
        pytest.skip("the root file system is on no drive that is listed")
    done = subprocess.run(
        [HARNESS, "hardware", "list"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    name = ""
    served: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name = line.removeprefix("/dev/").strip() if line.startswith("/dev/") else name
        if line.strip().startswith("could serve"):
            served.setdefault(name, []).append(line.split("could serve")[1].strip())
    for system in names:
        assert [text.startswith("nothing: ") for text in served[system]] == [True]
