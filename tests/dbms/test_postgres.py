"""The private server: unprivileged, no TCP port, gone afterwards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import cleaning_alone, open_folder

from harness.dbms import loading, postgres
from harness.errors import HarnessError, MissingTool, ServerError
from harness.runs import cleaning


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    try:
        postgres.find_binaries()
    except MissingTool as error:
        pytest.skip(str(error))
    if os.geteuid() == 0:  # pytest's own folders are closed to the server's user
        with open_folder() as folder:
            yield folder
    else:
        yield tmp_path_factory.mktemp("postgres")


pytestmark = pytest.mark.servers


def running(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text()


def test_a_server_answers_on_its_socket_only_and_goes(place: Path) -> None:
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


def test_what_the_environment_says_of_servers_is_not_heard(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server would be taken for ours and written to; sessions would have other settings."""
    said = {
        "PGHOSTADDR": "127.0.0.1",
        "PGPORT": "1",
        "PGOPTIONS": "-c work_mem=77MB",
        "PGTZ": "Iran",
    }
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    with postgres.run(place, {"work_mem": "1MB"}) as server, server.connect() as db:
        assert db.execute("SHOW work_mem").fetchone() == ("1MB",)
        assert db.execute("SHOW timezone").fetchone() != ("Iran",)
        assert db.execute("SHOW data_directory").fetchone() == (str(server.folder / "data"),)
    assert {name: os.environ[name] for name in said} == said


def test_another_server_that_answers_is_not_taken_for_ours(place: Path) -> None:
    with postgres.run(place, {}) as server:
        other = server.folder.with_name("other")
        with pytest.raises(ServerError, match="not ours"):
            postgres._wait_until_ready(server.process, server.socket, other, server.log)


def test_a_server_that_cannot_start_says_why(place: Path) -> None:
    with (
        pytest.raises(HarnessError, match="nonesuch"),
        postgres.run(place, {"nonesuch": "1"}),
    ):
        pass
    assert list(place.iterdir()) == []


@cleaning_alone
def test_it_ends_with_the_harness_even_if_that_is_killed(place: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from harness.dbms import postgres\n"
        "with postgres.run(Path(sys.argv[1]), {}) as server:\n"
        "    print(server.pid, server.folder, server.socket.parent, flush=True); time.sleep(600)\n"
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


def fake_server(folder: Path, version: str) -> Path:
    """Programs that say which version they are, and no more."""
    folder.mkdir()
    for name in ("initdb", "postgres"):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    return folder


def test_only_supported_versions_are_used_and_of_them_the_newest(tmp_path: Path) -> None:
    old, good, better, new = (
        fake_server(tmp_path / version, version) for version in ("9.4.1", "12.1", "18.0", "19beta1")
    )
    assert postgres.find_binaries([old, good, new]) == good
    assert postgres.find_binaries([good, better, new]) == better
    with pytest.raises(HarnessError, match=r"12 to 18 are supported, found was 9 in .*, 19 in "):
        postgres.find_binaries([old, new])


def test_a_server_that_path_names_beside_the_system_s_is_used_before_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = fake_server(tmp_path / "chosen", "12.1")
    monkeypatch.setenv("PATH", f"/usr/bin:{chosen}")
    assert postgres.find_binaries() == chosen


def test_without_a_server_the_command_that_installs_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match="apt-get install postgresql"):
        postgres.find_binaries([tmp_path])


def test_temp_files_lie_where_they_are_sent(place: Path) -> None:
    with (
        tempfile.TemporaryDirectory(dir=place) as temp,
        postgres.run(place, {"log_temp_files": "0"}) as server,
    ):
        Path(temp).chmod(0o711)
        loading.copy_database(server, ["other"])
        server.use_for_temp_files(Path(temp))
        written = [0]
        for database in (postgres.DATABASE, "other"):
            with server.connect(database) as db:
                db.execute("SET work_mem = '64kB'")
                rows = db.execute("SELECT i FROM generate_series(1, 50000) i ORDER BY -i")
                assert len(rows.fetchall()) == 50_000
            files = re.findall(r"temporary file: path .*", server.log.read_text())
            assert all("pg_tblspc" in file for file in files), files
            written.append(len(files))
        assert written[0] < written[1] < written[2]
        assert server.number // 10_000 in range(12, 19)


def test_a_copied_database_has_the_rows_and_a_life_of_its_own(place: Path) -> None:
    count = "SELECT count(*), sum(i) FROM numbers"
    with postgres.run(place, {}) as server:
        with server.connect() as db:
            db.execute("CREATE UNLOGGED TABLE numbers AS SELECT i FROM generate_series(1, 9999) i")
        loading.copy_database(server, ["one", "two"])
        with server.connect("one") as db:
            db.execute("DELETE FROM numbers WHERE i % 2 = 0")
        found = []
        for database in (postgres.DATABASE, "one", "two"):
            with server.connect(database) as db:
                found.append(db.execute(count).fetchone())
        assert found == [(9999, 49_995_000), (5000, 25_000_000), (9999, 49_995_000)]
