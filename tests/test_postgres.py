"""The private server: unprivileged, no TCP port, gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import cleaning
from harness.dbms import postgres
from harness.errors import HarnessError, MissingTool


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    try:
        postgres.find_binaries()
    except MissingTool as error:
        pytest.skip(str(error))
    if os.geteuid() == 0:  # pytest's own folders are closed to the server's user
        with tempfile.TemporaryDirectory(prefix="flashlab-test-", dir="/var/tmp") as folder:
            yield Path(folder)
    else:
        yield tmp_path_factory.mktemp("postgres")


pytestmark = pytest.mark.real


def running(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text()


def test_a_server_answers_on_its_socket_only_and_goes(place: Path) -> None:
    place.chmod(0o711)
    with postgres.run(place, {"work_mem": "1MB"}) as server:
        with server.connect() as db:
            assert db.execute("SHOW work_mem").fetchone() == ("1MB",)
            assert db.execute("SHOW listen_addresses").fetchone() == ("",)
            assert db.execute("SELECT 1 + 1").fetchone() == (2,)
        status = Path(f"/proc/{server.pid}/status").read_text()
        user = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1]
        assert user != "0"
        assert server.socket.stat().st_mode & 0o077 == 0
        pid, folder, socket = server.pid, server.folder, server.socket
    assert not running(pid)
    assert not folder.exists()
    assert not socket.exists()


def test_a_server_that_cannot_start_says_why(place: Path) -> None:
    place.chmod(0o711)
    with (
        pytest.raises(HarnessError, match="nonesuch"),
        postgres.run(place, {"nonesuch": "1"}),
    ):
        pass
    assert list(place.iterdir()) == []


def test_it_ends_with_the_harness_even_if_that_is_killed(place: Path) -> None:
    place.chmod(0o711)
    program = (
        "import sys, time; from pathlib import Path; from harness.dbms import postgres\n"
        "with postgres.run(Path(sys.argv[1]), {}) as server:\n"
        "    print(server.pid, server.folder, server.socket, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(place)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        number, folder, socket = process.stdout.readline().split()
        pid = int(number)
        assert running(pid)
        process.kill()
    deadline = time.monotonic() + 30
    while running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert Path(folder).is_dir()
    done = cleaning.clean().done
    assert f"deleted {folder}" in done
    assert f"deleted {socket}" in done
    assert list(place.iterdir()) == []
    assert not Path(socket).exists()
