"""The private MariaDB or MySQL: unprivileged, no TCP port, killed and started again, its pages."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import cleaning_alone, loop_device, mounted, open_folder

from harness.dbms import innodb, mysql, private
from harness.dbms.innodb import MARIADB, MYSQL, InnodbSettings, Release
from harness.dbms.mysql import Server
from harness.errors import (
    BadParameter,
    DiskFull,
    HarnessError,
    MissingTool,
    ServerError,
    ServerLost,
    TargetError,
)
from harness.runs import cleaning

SMALL = InnodbSettings(buffer_pool_bytes=32 << 20, redo_bytes=16 << 20)
OLD, MARIADB_11, MYSQL_8, MYSQL_8_0_20 = (
    Release(MARIADB, (10, 11, 2)),
    Release(MARIADB, (11, 4, 1)),
    Release(MYSQL, (8, 4, 0)),
    Release(MYSQL, (8, 0, 20)),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    try:
        mysql.find_programs()
    except MissingTool as error:
        pytest.skip(str(error))
    if os.geteuid() == 0:  # pytest's own folders are closed to the server's user
        with open_folder() as folder:
            yield folder
    else:
        yield tmp_path_factory.mktemp("mysql")


@pytest.fixture(scope="module")
def filled(place: Path) -> Path:
    """A data folder with two rows, stopped cleanly: to be copied."""
    folder = place / "filled"
    with mysql.run(folder, SMALL) as server:
        ask(server, "CREATE DATABASE kept", "CREATE TABLE kept.rows_of (n INT PRIMARY KEY)")
        ask(server, "INSERT INTO kept.rows_of VALUES (1), (2)")
    return folder


@pytest.fixture
def copied(filled: Path, tmp_path: Path, place: Path) -> Iterator[Path]:
    """As a copy by whoever runs this: whose files they are is not the server's user's any more."""
    folder = place / tmp_path.name
    shutil.copytree(filled, folder)
    yield folder
    shutil.rmtree(folder)


def ask(server: Server, *statements: str) -> list[tuple[Any, ...]]:
    """Runs statements, and returns the rows of the last one."""
    rows: list[tuple[Any, ...]] = []
    with server.connect() as db, db.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            rows = cursor.fetchall() if cursor.with_rows else []
    return rows


def variable(server: Server, name: str) -> str:
    return str(ask(server, f"SHOW VARIABLES LIKE '{name}'")[0][1])


def insert_up_to(server: Server, last: int) -> None:
    """Rows from 3 on: what `kept.rows_of` has none of yet. As both products can."""
    with server.connect() as db, db.cursor() as cursor:
        values = ",".join(f"({n})" for n in range(3, last + 1))
        cursor.execute(f"INSERT INTO kept.rows_of VALUES {values}")


def numbers(server: Server) -> list[int]:
    return [n for (n,) in ask(server, "SELECT n FROM kept.rows_of ORDER BY n")]


def running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


# options, without a server


@pytest.mark.parametrize("release", [OLD, MARIADB_11, MYSQL_8, MYSQL_8_0_20], ids=str)
def test_settings_become_options_of_each_server(release: Release) -> None:
    options = InnodbSettings(
        doublewrite="off", flush_log_at_commit=2, redo_bytes=64 << 20, redo_folder=Path("/redo")
    ).options(release)
    assert options["innodb_doublewrite"] == "OFF"
    assert options["innodb_flush_log_at_trx_commit"] == "2"
    assert options["innodb_log_group_home_dir"] == "/redo"
    redo = {name: value for name, value in options.items() if "redo" in name or "log_file" in name}
    expected = {
        OLD: {"innodb_log_file_size": str(64 << 20)},
        MARIADB_11: {"innodb_log_file_size": str(64 << 20)},
        MYSQL_8: {"innodb_redo_log_capacity": str(64 << 20)},
        MYSQL_8_0_20: {
            "innodb_log_file_size": str(32 << 20),
            "innodb_log_files_in_group": "2",
        },
    }
    assert redo == expected[release]


@pytest.mark.parametrize(
    ("pool_bytes", "chunk_mib"), [(5 << 20, 1), (341 << 20, 1), (4 << 30, 5), (16 << 30, 17)]
)
def test_a_pool_of_mysql_s_is_as_large_as_it_was_asked_for(pool_bytes: int, chunk_mib: int) -> None:
    """It is rounded up to whole chunks: of 128 MiB, if it is not told another size."""
    settings = InnodbSettings(buffer_pool_bytes=pool_bytes)
    chunk = settings.options(MYSQL_8)["innodb_buffer_pool_chunk_size"]
    assert int(chunk) == chunk_mib << 20
    assert "innodb_buffer_pool_chunk_size" not in settings.options(MARIADB_11)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [("fast", MARIADB_11, OLD), ("fast", MARIADB_11, MYSQL_8), ("detect_only", MYSQL_8, OLD)],
)
def test_a_doublewrite_that_a_server_does_not_know_is_refused(
    name: str, good: Release, bad: Release
) -> None:
    settings = InnodbSettings(doublewrite=name)
    assert settings.options(good)["innodb_doublewrite"] == name.upper()
    with pytest.raises(BadParameter, match=f"doublewrite '{name}' needs"):
        settings.options(bad)


@pytest.mark.parametrize(
    "options",
    [
        {"doublewrite": "maybe"},
        {"flush_method": "O_SYNC"},
        {"flush_log_at_commit": 3},
        {"page_bytes": 2048},
        {"buffer_pool_bytes": 1024},
        {"redo_bytes": 1 << 20},
        {"io_capacity_pages_per_s": 1},
        {"old_blocks_ms": -1},
        {"lru_scan_depth": 99},
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadParameter, match=next(iter(options))):
        InnodbSettings(**options)


# programs


def fake_server(folder: Path, program: str, said: str) -> Path:
    """A program that says which version it is, and no more."""
    folder.mkdir(exist_ok=True)
    path = folder / program
    path.write_text(f"#!/bin/sh\necho '{path}  {said}'\n")
    path.chmod(0o755)
    return folder


def test_the_newest_supported_server_is_used_and_mariadb_before_mysql(tmp_path: Path) -> None:
    debian = "Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)"
    eleven = "Ver 11.4.2-MariaDB for Linux on x86_64 (MariaDB Server)"
    community = "Ver 8.4.0 for Linux on x86_64 (MySQL Community Server - GPL)"
    ancient = "Ver 10.3.39-MariaDB-0+deb10u1 for debian-linux-gnu on x86_64 (Debian 10)"
    a = fake_server(tmp_path / "a", "mariadbd", debian)
    b = fake_server(tmp_path / "b", "mariadbd", eleven)
    c = fake_server(tmp_path / "c", "mysqld", community)
    d = fake_server(tmp_path / "d", "mysqld", ancient)
    assert mysql.find_programs([a, d]).release == Release(MARIADB, (10, 11, 6))
    assert mysql.find_programs([a, b, c]).release == Release(MARIADB, (11, 4, 2))
    assert mysql.find_programs([d, c]).release == Release(MYSQL, (8, 4, 0))
    assert mysql.find_programs([c]).server == c / "mysqld"
    with pytest.raises(HarnessError, match=r"found was MariaDB 10\.3\.39 in .*apt-get install"):
        mysql.find_programs([d])


def test_a_server_that_path_names_beside_the_system_s_is_used_before_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    community = "Ver 9.7.4 for Linux on x86_64 (MySQL Community Server - GPL)"
    chosen = fake_server(tmp_path / "chosen", "mysqld", community)
    monkeypatch.setenv("PATH", f"/sbin:/usr/sbin:{chosen}")
    found = mysql.find_programs()
    assert found.release == Release(MYSQL, (9, 7, 4))
    assert found.server == chosen / "mysqld"
    # Another product's would take its pages for damaged.
    assert found.page_checker is None


def test_without_a_server_the_command_that_installs_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match="apt-get install mariadb-server-core"):
        mysql.find_programs([tmp_path])
    fake_server(tmp_path, "mysqld", "no version at all")
    with pytest.raises(MissingTool, match="apt-get install mariadb-server-core"):
        mysql.find_programs([tmp_path])


# a real server


@pytest.mark.servers
def test_a_server_answers_on_its_socket_only_and_goes(place: Path) -> None:
    with mysql.new_folder(place) as folder, mysql.run(folder, SMALL) as server:
        assert ask(server, "SELECT 1 + 1") == [(2,)]
        assert variable(server, "skip_networking") == "ON"
        assert variable(server, "port") == "0"
        status = Path(f"/proc/{server.pid}/status").read_text()
        user = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1]
        assert user != "0"
        assert server.socket.parent.stat().st_mode & 0o077 == 0
        pid, socket = server.pid, server.socket
    assert not running(pid)
    assert not socket.exists()
    assert not folder.exists()


@pytest.mark.servers
def test_settings_arrive(place: Path) -> None:
    settings = InnodbSettings(
        doublewrite="off",
        buffer_pool_bytes=48 << 20,
        flush_method="fsync",
        flush_log_at_commit=2,
        redo_bytes=24 << 20,
        redo_folder=place / "redo",
        page_bytes=4096,
        io_capacity_pages_per_s=300,
        old_blocks_ms=27,
        lru_scan_depth=120,
        others={"innodb_adaptive_hash_index": "OFF"},
    )
    with mysql.new_folder(place) as folder, mysql.run(folder, settings) as server:
        found = {
            name: variable(server, f"innodb_{name}")
            for name in (
                *("doublewrite", "buffer_pool_size", "flush_method", "page_size", "io_capacity"),
                *("flush_log_at_trx_commit", "log_group_home_dir", "adaptive_hash_index"),
                *("old_blocks_time", "lru_scan_depth"),
            )
        }
        assert found == {
            "doublewrite": "OFF",
            "buffer_pool_size": str(48 << 20),
            "flush_method": "fsync",
            "page_size": "4096",
            "io_capacity": "300",
            "flush_log_at_trx_commit": "2",
            "log_group_home_dir": str(place / "redo"),
            "adaptive_hash_index": "OFF",
            "old_blocks_time": "27",
            "lru_scan_depth": "120",
        }
        redo = [path.stat().st_size for path in innodb.redo_files(place / "redo")]
        if server.release.product == MARIADB:
            assert sum(redo) >= 24 << 20
        else:  # it has up to 32 files, and makes some later
            assert variable(server, "innodb_redo_log_capacity") == str(24 << 20)
            assert set(redo) == {(24 << 20) // 32}
        assert not innodb.redo_files(folder)
    shutil.rmtree(place / "redo")


@pytest.mark.servers
def test_what_was_committed_survives_a_kill_and_what_was_not_does_not(copied: Path) -> None:
    with mysql.run(copied, SMALL) as server:
        ask(server, "INSERT INTO kept.rows_of VALUES (3)")
        with server.connect(autocommit=False) as db, db.cursor() as cursor:
            cursor.execute("INSERT INTO kept.rows_of VALUES (4)")
            server.kill()
            with suppress(Exception):  # the connection is gone with the server
                db.rollback()
        assert not server.is_running()
    with mysql.run(copied, SMALL) as server:
        assert numbers(server) == [1, 2, 3]
        assert "crash recovery" in server.log.read_text()


@pytest.mark.servers
def test_a_folder_that_was_copied_while_its_server_ran_recovers(place: Path, copied: Path) -> None:
    other = place / "snapshot"
    with mysql.run(copied, SMALL) as server:
        ask(server, "INSERT INTO kept.rows_of VALUES (5)")
        server.process.send_signal(signal.SIGSTOP)  # so that all is from one moment
        shutil.copytree(copied, other)
        server.process.send_signal(signal.SIGCONT)
        ask(server, "INSERT INTO kept.rows_of VALUES (6)")
    with mysql.run(other, SMALL) as server:
        assert numbers(server) == [1, 2, 5]
    shutil.rmtree(other)


@pytest.mark.servers
def test_doublewrite_pages_are_counted_where_there_are_any(copied: Path) -> None:
    counted = {}
    for doublewrite in ("off", "on"):
        settings = InnodbSettings(
            doublewrite=doublewrite, buffer_pool_bytes=32 << 20, redo_bytes=16 << 20
        )
        with mysql.run(copied, settings) as server:
            before = server.status()
            insert = "INSERT INTO kept.rows_of SELECT MAX(n) + 1 FROM kept.rows_of"
            ask(server, insert, "SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0")
            ask(server, "SET GLOBAL innodb_max_dirty_pages_pct = 0", "FLUSH TABLES")
            ask(server, "FLUSH TABLES kept.rows_of FOR EXPORT", "UNLOCK TABLES")
            after = server.status()
            deadline = time.monotonic() + 30
            # MySQL counts whole batches, which its page cleaner writes some moments later.
            while doublewrite == "on" and after["doublewrite_pages"] == before["doublewrite_pages"]:
                assert time.monotonic() < deadline
                after = server.status()
        changed = {name: after[name] - before[name] for name in after}
        assert changed["pages_written"] > 0
        assert changed["redo_written_bytes"] > 0
        assert changed["buffer_pool_read_requests"] > 0
        counted[doublewrite] = changed["doublewrite_pages"]
    assert counted["off"] == 0
    assert counted["on"] > 0


@pytest.mark.servers
def test_a_server_that_cannot_start_says_why(copied: Path) -> None:
    settings = InnodbSettings(
        buffer_pool_bytes=32 << 20, redo_bytes=16 << 20, others={"nonesuch": "1"}
    )
    with (
        pytest.raises(ServerError, match=r"did not start: .*nonesuch"),
        mysql.run(copied, settings),
    ):
        pass


@pytest.mark.servers
def test_what_it_cannot_make_a_folder_with_leaves_the_folder_empty(place: Path) -> None:
    folder = place / "bad"
    settings = InnodbSettings(
        buffer_pool_bytes=32 << 20, redo_bytes=16 << 20, others={"nonesuch": "1"}
    )
    with pytest.raises(ServerError, match="nonesuch"), mysql.run(folder, settings):
        pass
    assert list(folder.iterdir()) == []


@pytest.mark.servers
@pytest.mark.parametrize(
    ("marker", "said"),
    [("MariaDB 9.9\n", r"belongs to MariaDB 9\.9"), ("MySQL 8.0\n", r"belongs to MySQL 8\.0")],
)
def test_a_folder_of_another_server_is_refused(copied: Path, marker: str, said: str) -> None:
    (copied / "flashlab-server").write_text(marker)
    with pytest.raises(TargetError, match=said), mysql.run(copied, SMALL):
        pass


@pytest.mark.servers
def test_a_folder_that_is_not_from_us_is_recognised_by_its_files(place: Path) -> None:
    folder = place / "strange"
    for name, content, said in (
        ("mysql.ibd", "", "belongs to MySQL 8 or newer"),
        ("mysql_upgrade_info", "9.9.2-MariaDB\0", r"belongs to MariaDB 9\.9"),
        ("whatever", "", "is no data folder of ours"),
    ):
        folder.mkdir()
        (folder / name).write_text(content)
        with pytest.raises(TargetError, match=said), mysql.run(folder, SMALL):
            pass
        shutil.rmtree(folder)


@pytest.mark.servers
def test_a_server_that_dies_is_told_with_its_last_words(copied: Path) -> None:
    with mysql.run(copied, SMALL) as server:
        server.check()
        os.kill(server.pid, signal.SIGABRT)
        server.process.wait()
        with pytest.raises(ServerError, match=r"ended in the middle: .*got signal 6"):
            server.check()
        with pytest.raises(ServerError, match="ended in the middle"):
            server.status()


@pytest.mark.servers
def test_a_server_that_somebody_has_killed_is_told_apart(copied: Path) -> None:
    with mysql.run(copied, SMALL) as server:
        os.kill(server.pid, signal.SIGKILL)
        server.process.wait()
        with pytest.raises(ServerLost, match="ended in the middle: somebody has killed it"):
            server.check()


@pytest.mark.servers
@pytest.mark.root
def test_a_full_device_is_told(place: Path) -> None:
    with (
        loop_device(place, 100 << 20) as device,
        mounted(device, place / "full") as mount,
    ):
        mount.chmod(0o711)
        too_large = InnodbSettings(buffer_pool_bytes=32 << 20, redo_bytes=256 << 20)
        with (
            pytest.raises(DiskFull, match="no space left"),
            mysql.run(mount / "data", too_large),
        ):
            pass


@pytest.mark.servers
@pytest.mark.root
def test_a_device_that_is_full_at_the_start_is_told(place: Path, filled: Path) -> None:
    """MariaDB's other engine waits for space when InnoDB has given up."""
    with (
        loop_device(place, 200 << 20) as device,
        mounted(device, place / "filled-up") as mount,
    ):
        mount.chmod(0o711)
        shutil.copytree(filled, mount / "data")
        with (mount / "rest").open("wb") as rest, suppress(OSError):
            while True:
                rest.write(bytes(4096))
                rest.flush()
        with pytest.raises(DiskFull, match="no space left"), mysql.run(mount / "data", SMALL):
            pass


@pytest.mark.servers
def test_one_that_stands_still_writes_nothing_and_goes_on(copied: Path) -> None:
    def written() -> tuple[str, ...]:
        facts = Path(f"/proc/{server.pid}/io").read_text()
        return tuple(line for line in facts.splitlines() if line.startswith(("syscw", "wchar")))

    with mysql.run(copied, SMALL) as server:
        insert_up_to(server, 999)
        with server.paused():
            assert Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
            before = written()
            select.select([], [], [], 1.5)  # longer than InnoDB's own rounds
            assert written() == before
        assert len(numbers(server)) == 999
        server.kill()
        with server.paused():  # nothing is left to stand still
            pass


@pytest.mark.servers
def test_doublewrite_and_redo_are_found_where_they_are(copied: Path) -> None:
    """What lies in the doublewrite buffer are copies of pages: their own numbers are others."""
    with mysql.run(copied, SMALL) as server:
        insert_up_to(server, 9999)
        product = server.release.product
    parts = innodb.doublewrite_parts(copied, SMALL.page_bytes)
    assert parts
    assert all(part.file.is_relative_to(copied) for part in parts)
    if product == MARIADB:
        assert [p.file.name for p in parts] == ["ibdata1", "ibdata1"]
        assert [(p.end_bytes or 0) - p.begin_bytes for p in parts] == [1 << 20, 1 << 20]
        content = (copied / "ibdata1").read_bytes()
        first = parts[0].begin_bytes
        number = int.from_bytes(content[first + 4 : first + 8], "big")
        assert number != first // SMALL.page_bytes
    files = innodb.redo_files(copied)
    assert sum(file.stat().st_size for file in files) == SMALL.redo_bytes


@pytest.mark.servers
def test_every_page_is_checked_and_a_torn_one_is_found(copied: Path) -> None:
    with mysql.run(copied, SMALL) as server:
        ask(
            server,
            "CREATE TABLE kept.wide (n INT PRIMARY KEY, text VARCHAR(5000))",
            "INSERT INTO kept.wide WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s "
            "WHERE n < 100) SELECT n, REPEAT('x', 5000) FROM s",
        )
    whole = mysql.check_pages(copied, SMALL)
    assert whole.bad == []
    assert whole.files >= 3
    assert whole.pages == sum(p.stat().st_size for p in [copied / "ibdata1"]) // 16384 + sum(
        p.stat().st_size // 16384 for p in copied.rglob("*.ibd")
    ) + sum(p.stat().st_size // 16384 for p in copied.glob("undo*"))
    table = copied / "kept" / "wide.ibd"
    page = 10
    with table.open("r+b") as file:  # the second half of another page, as a torn write leaves it
        file.seek(page * 16384 + 16384 + 8192)
        half = file.read(8192)
        file.seek(page * 16384 + 8192)
        file.write(half)
    torn = mysql.check_pages(copied, SMALL)
    assert [(bad.file, bad.page) for bad in torn.bad] == [(table, page)]
    with table.open("r+b") as file:
        file.truncate(5 * 16384)
        file.seek(0)
        file.write(b"\xff" * 100)
    assert (table, 0) in [(bad.file, bad.page) for bad in mysql.check_pages(copied, SMALL).bad]
    table.write_bytes(b"")
    assert (table, 0) in [(bad.file, bad.page) for bad in mysql.check_pages(copied, SMALL).bad]


@pytest.mark.servers
def test_a_file_that_nobody_could_check_is_neither_whole_nor_damaged(copied: Path) -> None:
    """Here it is locked; a program that cannot be asked, or knows not its options, is the same."""
    with (copied / "kept" / "rows_of.ibd").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        with pytest.raises(ServerError, match=r"rows_of\.ibd was not checked: .*lock"):
            mysql.check_pages(copied, SMALL)
    assert mysql.check_pages(copied, SMALL).bad == []
    release, account = mysql.find_programs().release, private.account(mysql._KIND)
    for program in ("/bin/false", "/bin/nonesuch", str(copied / "ibdata1")):
        with pytest.raises(ServerError, match="was not checked"):
            innodb.check_pages(copied, SMALL.page_bytes, release, program, account)


@pytest.mark.servers
@pytest.mark.root
def test_it_runs_in_a_control_group_of_its_own(copied: Path) -> None:
    with mysql.run(copied, SMALL, bounded=True) as server:
        assert server.cgroup is not None
        assert server.cgroup.members() == [server.pid]
        folder = server.cgroup.folder
    assert not folder.exists()


@pytest.mark.servers
@cleaning_alone
def test_it_ends_with_the_harness_even_if_that_is_killed(place: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from harness.dbms import mysql; from harness.dbms.innodb import InnodbSettings\n"
        "settings = InnodbSettings(buffer_pool_bytes=32 << 20, redo_bytes=16 << 20)\n"
        "with mysql.new_folder(Path(sys.argv[1])) as folder:\n"
        "    with mysql.run(folder, settings) as server:\n"
        "        print(server.pid, folder.parent, server.log.parent, flush=True)\n"
        "        time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(place)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        number, folder, socket = process.stdout.readline().split()
        fd = os.pidfd_open(int(number))
        process.kill()
    assert select.select([fd], [], [], 30.0)[0]
    os.close(fd)
    done = cleaning.clean().done
    assert f"deleted {folder}" in done
    assert f"deleted {socket}" in done
    assert not Path(folder).exists()
    assert not Path(socket).exists()
