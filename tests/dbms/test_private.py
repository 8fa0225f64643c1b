"""A local user who has the server's account, and what becomes of root's files."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import open_folder
from live_world import eventually

from harness.dbms import mysql, postgres, private, temp_files
from harness.dbms.innodb import InnodbSettings
from harness.errors import MissingTool, ServerError, TargetError
from harness.system.leases import open_lease

pytestmark = [pytest.mark.servers, pytest.mark.root]

SMALL = InnodbSettings(buffer_pool_bytes=32 << 20, redo_bytes=16 << 20)
SECRET = "root's own\n"
KINDS = {"postgres": postgres._KIND, "mysql": mysql._KIND}

ATTACKER = """
import json, os, select, sys
uid, gid, victim, place = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
os.setgroups([])
os.setgid(gid)
os.setuid(uid)
names = ("server.log", "temp_files.so", "flashlab-server", ".flashlab-lease")
planted = set()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for folder in os.listdir(place):
        for below in ("", "data", "own"):
            for name in names:
                path = os.path.join(place, folder, below, name)
                try:
                    if not os.path.islink(path):
                        if os.path.lexists(path):
                            os.unlink(path)
                        os.symlink(victim, path)
                        planted.add(path)
                except OSError:
                    pass
print(json.dumps(sorted(planted)))
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where servers have all their folders, and where anybody may look."""
    try:
        postgres.find_binaries()
        mysql.find_programs()
    except MissingTool as error:
        pytest.skip(str(error))
    with open_folder() as outer:
        folder = outer / "place"
        folder.mkdir()
        folder.chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        yield folder


@pytest.fixture
def victim(place: Path) -> Path:
    """A file that the attacker may not write, and knows the name of."""
    file = place.parent / "victim"
    file.write_text(SECRET)
    file.chmod(0o600)
    return file


@contextmanager
def attacked(victim: Path, place: Path, user: pwd.struct_passwd) -> Iterator[list[str]]:
    """Links to the victim wherever the user can make them, again and again; which ones he made."""
    planted: list[str] = []
    known = [str(user.pw_uid), str(user.pw_gid), str(victim), str(place)]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", ATTACKER, *known],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield planted
        finally:
            process.stdin.close()
            planted += json.loads(process.stdout.readline())


def user_of(kind: str) -> pwd.struct_passwd:
    ids = private.account(KINDS[kind]).ids
    assert ids is not None
    return pwd.getpwuid(ids[0])


@pytest.mark.parametrize("kind", KINDS)
def test_his_links_lead_root_nowhere(place: Path, victim: Path, kind: str) -> None:
    before = victim.stat()
    with attacked(victim, place, user_of(kind)) as planted:
        for _ in range(2):
            if kind == "postgres":
                with postgres.run(place, {}, preload=temp_files.preallocation(1 << 20)) as server:
                    said = server.log.read_text()
                assert "ready to accept connections" in said
            else:
                with mysql.new_folder(place) as data, mysql.run(data, SMALL) as running:
                    assert "ready for connections" in running.log.read_text()
                with mysql.run(place / "data", SMALL):  # a folder of our caller's, used again
                    pass
    after = victim.stat()
    assert victim.read_text() == SECRET
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, 0o100600)
    assert planted == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_is_no_link_that_he_has_made_before(place: Path, victim: Path, kind: str) -> None:
    """Between the making of the folder and the start, in which a database is made."""
    who, user = private.account(KINDS[kind]), user_of(kind)
    with open_lease() as lease:
        folder = who.new_folder(lease, place)
        planted = subprocess.run(
            [
                *("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"),
                *("--clear-groups", "ln", "-s", str(victim), str(folder / "server.log")),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        with who.start(lease, ["/bin/true"], folder / "server.log", None) as process:
            assert process.wait(30) == 0
    assert victim.read_text() == SECRET
    assert "Permission denied" in planted.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_else_who_is_the_server_s_user_comes_in(place: Path, kind: str) -> None:
    user = user_of(kind)
    with ExitStack() as stack:
        if kind == "postgres":
            server = stack.enter_context(postgres.run(place, {}))
            folders = [server.folder, server.folder / "data", server.socket]
        else:
            data = stack.enter_context(mysql.new_folder(place))
            running = stack.enter_context(mysql.run(data, SMALL))
            folders = [data.parent, data, running.log.parent, running.socket.parent]
        for folder in folders:
            done = subprocess.run(
                [
                    *("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"),
                    *("--clear-groups", "ls", str(folder)),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            assert "Permission denied" in done.stderr, folder


@pytest.mark.parametrize("planted", ["link", "pipe"])
def test_a_mark_that_leads_elsewhere_is_not_read(place: Path, victim: Path, planted: str) -> None:
    """The server itself has put it there: what root may read, must not come to light."""
    data = place / "data"
    with mysql.run(data, SMALL):
        pass
    for name in ("flashlab-server", "mariadb_upgrade_info", "mysql_upgrade_info"):
        (data / name).unlink(missing_ok=True)
        if planted == "link":
            (data / name).symlink_to(victim)
        else:
            os.mkfifo(data / name)
    with pytest.raises(TargetError) as refused, mysql.run(data, SMALL):
        pass
    assert SECRET.strip() not in str(refused.value)
    assert victim.stat().st_uid == 0


def test_a_folder_in_one_of_his_is_refused(place: Path) -> None:
    his = place / "his"
    his.mkdir()
    os.chown(his, user_of("mysql").pw_uid, -1)
    with (
        pytest.raises(TargetError, match="belongs to MariaDB or MySQL's user, who could put"),
        mysql.run(his / "data", SMALL),
    ):
        pass


def test_a_program_that_never_ends_is_ended_with_all_that_it_has_started(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `mariadb-install-db`, a script, waits for a server that hangs at its bootstrap.

    The time is over as soon as it has started something.
    """
    account = private.account(mysql._KIND)
    with open_lease() as lease:
        own = account.new_place(account.new_folder(lease, place), "own")
        noted = own / "child"

        def monotonic() -> float:
            is_over = noted.exists() and noted.read_text().endswith("\n")
            return time.monotonic() + (600 if is_over else 0)

        monkeypatch.setattr(private, "time", SimpleNamespace(monotonic=monotonic))
        script = f"sleep 1000 & echo $! > {noted}; wait"
        with pytest.raises(ServerError, match=r"^sh has not ended within 600 s$"):
            account.call(["/bin/sh", "-c", script], limit_s=600.0)
        child = Path("/proc", noted.read_text().strip())
        eventually(lambda: not child.exists())


def test_a_program_that_says_that_it_waits_for_ever_is_ended(place: Path) -> None:
    """Said in two parts, as a pipe may bring it; what else it said is kept."""
    account = private.account(mysql._KIND)
    with open_lease() as lease:
        own = account.new_place(account.new_folder(lease, place), "own")
        script = (
            f"echo begun; sleep 1000 & echo $! > {own / 'child'}; "
            "printf 'error 28\\nWaiting for ' >&2; sleep 0.3; echo 'a better day' >&2; wait"
        )
        done = account.call(["/bin/sh", "-c", script], limit_s=600.0, hopeless="for a better")
        assert done.returncode == -signal.SIGKILL
        assert (done.stdout, done.stderr) == ("begun\n", "error 28\nWaiting for a better day\n")
        child = Path("/proc", (own / "child").read_text().strip())
        eventually(lambda: not child.exists())
