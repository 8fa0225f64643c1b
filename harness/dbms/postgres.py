"""A private PostgreSQL server: its own data, an unprivileged user, a unix socket, no TCP port.

It ends with the process that started it, whatever becomes of that process. If that is killed,
`harness clean` deletes the folders.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from harness.errors import HarnessError, MissingTool, TargetError
from harness.leases import Lease, open_lease
from harness.programs import find_program

_START_LIMIT_S: Final = 60
_USER: Final = "harness"  # of the database


@dataclass(frozen=True)
class Server:
    """A running server.

    `version` is the server's, such as '15.18'. `folder` holds its data; `log` what it said.
    """

    version: str
    folder: Path
    socket: Path
    log: Path
    pid: int

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A new connection to the database `postgres`; options as in psycopg.connect."""
        return psycopg.connect(
            host=str(self.socket), dbname="postgres", user=_USER, autocommit=True, **options
        )


def find_binaries() -> Path:
    """The newest PostgreSQL's folder of server programs. Raises MissingTool."""
    candidates = [
        *Path("/usr/lib/postgresql").glob("*/bin"),
        *Path("/usr").glob("pgsql-*/bin"),
        *(Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p),
    ]
    usable = [c for c in candidates if (c / "initdb").exists() and (c / "postgres").exists()]
    if not usable:
        raise MissingTool("PostgreSQL's server is not installed: apt-get install postgresql")
    return max(usable, key=_major_version)


@contextmanager
def run(parent: Path, settings: Mapping[str, str]) -> Iterator[Server]:
    """A server with its data in a new folder below `parent`, stopped and deleted at the end.

    `settings` are lines of postgresql.conf. Raises MissingTool, TargetError, or HarnessError with
    what the server said last if it does not start.
    """
    binaries = find_binaries()
    account = _account()
    with open_lease() as lease:
        folder = _private_folder(lease, parent, account)
        socket = _private_folder(lease, Path(tempfile.gettempdir()), account)  # a short path
        data = folder / "data"
        log = folder / "server.log"
        options = ["-U", _USER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        _call([str(binaries / "initdb"), "-D", str(data), *options], account)
        process = _start(lease, binaries, data, socket, log, settings, account)
        try:
            version = _wait_until_ready(process, socket, log)
            yield Server(version, folder, socket, log, process.pid)
        finally:
            _stop(process)


def _start(
    lease: Lease,
    binaries: Path,
    data: Path,
    socket: Path,
    log: Path,
    settings: Mapping[str, str],
    account: pwd.struct_passwd | None,
) -> subprocess.Popen[bytes]:
    fixed = {"listen_addresses": "", "unix_socket_directories": str(socket), "fsync": "off"}
    pairs = {**fixed, **settings}
    arguments = [part for name, value in pairs.items() for part in ("-c", f"{name}={value}")]
    server = [str(binaries / "postgres"), "-D", str(data), *arguments]
    # The kernel stops the server if we are killed before we can.
    command = [find_program("setpriv"), "--pdeathsig", "QUIT", *_as(account), "--", *server]
    with log.open("wb") as out:
        return lease.start(
            command,
            ending=signal.SIGQUIT,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd="/",
        )


def _wait_until_ready(process: subprocess.Popen[bytes], socket: Path, log: Path) -> str:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise HarnessError(f"PostgreSQL did not start: {_last_line(log)}")
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(
                host=str(socket), dbname="postgres", user=_USER, connect_timeout=5
            ) as connection,
        ):
            return str(connection.info.parameter_status("server_version")).split()[0]
        time.sleep(0.05)
    raise HarnessError(f"PostgreSQL did not start in {_START_LIMIT_S} s: {_last_line(log)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    for last_word in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(last_word)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=30)


def _account() -> pwd.struct_passwd | None:
    """Whom to run as: ourselves, or somebody unprivileged if we are root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise MissingTool("PostgreSQL does not run as root, and there is no user postgres or nobody")


def _as(account: pwd.struct_passwd | None) -> list[str]:
    if account is None:
        return []
    return [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]


def _call(command: list[str], account: pwd.struct_passwd | None) -> None:
    whole = [find_program("setpriv"), *_as(account), "--", *command] if account else command
    done = subprocess.run(whole, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise HarnessError(f"{Path(command[0]).name}: {said[0] if said else 'failed'}")


def _private_folder(lease: Lease, parent: Path, account: pwd.struct_passwd | None) -> Path:
    """A folder that only the server's user can enter."""
    folder = lease.new_folder(parent, "flashlab-pg-")
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)
        _check_reachable(folder)
    return folder


def _check_reachable(folder: Path) -> None:
    for above in folder.parents:
        if not above.stat().st_mode & 0o001:
            raise TargetError(
                f"{above} may not be entered by PostgreSQL's user: choose a folder elsewhere, "
                "such as /var/tmp"
            )


def _major_version(binaries: Path) -> int:
    parts = [part.removeprefix("pgsql-") for part in binaries.parts]
    numbers = [int(part) for part in parts if part.isdigit()]
    return max(numbers, default=0)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1] if lines else "it said nothing"
