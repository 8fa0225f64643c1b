"""A private PostgreSQL server: its own data, an unprivileged user, a unix socket, no TCP port.

It ends with the process that started it, whatever becomes of that process. If that is killed,
`harness clean` deletes the folders and the control group.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from harness.dbms import private
from harness.errors import HarnessError, MissingTool, ServerError
from harness.system import given
from harness.system.cgroups import Cgroup
from harness.system.leases import open_lease
from harness.system.programs import chosen_folders, find_program, without_environment

_START_LIMIT_S: Final = 60
_STOP_LIMIT_S: Final = 30
_USER: Final = "harness"  # of the database
DATABASE: Final = "postgres"
"""The database that a server has from the start."""

_DATA: Final = "data"
_TEMP: Final = "flashlab_temp"
_SUPPORTED: Final = range(12, 19)
_BINARIES: Final = ("/usr/local/bin", "/usr/bin")
_VERSION: Final = re.compile(r"PostgreSQL\)? (\d+)")
_KIND: Final = private.Kind("PostgreSQL", ("postgres", "nobody"), "flashlab-pg-", signal.SIGQUIT)


@dataclass(frozen=True)
class Preload:
    """A library that a server's processes load before all others, and its settings."""

    library: Path
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Server:
    """A running server.

    `version` is the server's, such as '15.18'. `folder` holds its data; `log` what it said.
    `cgroup`: the control group that it and nothing else is in, if that was asked for.
    """

    version: str
    folder: Path
    socket: Path
    log: Path
    process: subprocess.Popen[bytes]
    cgroup: Cgroup | None = None

    @property
    def pid(self) -> int:
        """Of its first process."""
        return self.process.pid

    @property
    def number(self) -> int:
        """The version as the server counts it: 150018 is 15.18."""
        major, _, minor = self.version.partition(".")
        return int(major) * 10_000 + int(re.match(r"\d*", minor)[0] or 0)  # type: ignore[index]

    def connect(self, database: str = DATABASE, **options: Any) -> psycopg.Connection[Any]:
        """A new connection to a database; options as in psycopg.connect."""
        return psycopg.connect(
            host=str(self.socket), dbname=database, user=_USER, autocommit=True, **options
        )

    def use_for_temp_files(self, folder: Path) -> None:
        """From the next connection on, to any database, temporary files lie in a new folder below
        `folder`.

        Raises ServerError.
        """
        place = folder / "postgres"
        owner = (self.folder / _DATA).stat()
        place.mkdir(mode=0o700)
        with given.opened_folder(place) as fd:
            os.fchown(fd, owner.st_uid, owner.st_gid)
        name = sql.Identifier(_TEMP)
        try:
            with self.connect() as db:
                path = sql.Literal(str(place))
                db.execute(sql.SQL("CREATE TABLESPACE {} LOCATION {}").format(name, path))
                db.execute(f"ALTER ROLE {_USER} SET temp_tablespaces = {_TEMP}")
        except psycopg.Error as error:
            raise ServerError(f"{place}: PostgreSQL cannot use it: {_first_line(error)}") from error

    def is_running(self) -> bool:
        """Whether its first process lives."""
        return self.process.poll() is None

    def end_now(self) -> None:
        """Ends all of it at once: what its first process no longer can, when it was killed."""
        if self.is_running():
            self.process.send_signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=_STOP_LIMIT_S)
        if self.cgroup is not None:
            self.cgroup.end_processes()

    def last_words(self) -> str:
        """Why it ended, by its log: which process a signal ended, or the last line."""
        lines = private.lines_of(self.log)
        fatal = [line for line in lines if "was terminated by signal" in line or "PANIC:" in line]
        return fatal[-1] if fatal else private.last_line(self.log)


def find_binaries(folders: Sequence[Path] | None = None) -> Path:
    """The newest supported PostgreSQL's folder of server programs; before all, one that PATH names
    beside the system's.

    Raises MissingTool if there is none, HarnessError if all are of another version.
    """
    candidates = _system_folders() if folders is None else folders
    usable = [c for c in candidates if (c / "initdb").exists() and (c / "postgres").exists()]
    if not usable:
        raise MissingTool("PostgreSQL's server is not installed: apt-get install postgresql")
    versions = {folder: _major_version(folder) for folder in dict.fromkeys(usable)}
    supported = {f: v for f, v in versions.items() if v in _SUPPORTED}
    if not supported:
        found = ", ".join(f"{v or 'unknown'} in {f}" for f, v in versions.items())
        raise HarnessError(
            f"PostgreSQL {_SUPPORTED[0]} to {_SUPPORTED[-1]} are supported, found was {found}: "
            "install one of them (apt-get install postgresql)"
        )
    chosen = chosen_folders() if folders is None else []
    return max(supported, key=lambda folder: (folder in chosen, supported[folder]))


def _system_folders() -> list[Path]:
    return [
        *Path("/usr/lib/postgresql").glob("*/bin"),
        *Path("/usr").glob("pgsql-*/bin"),
        *map(Path, _BINARIES),
        *chosen_folders(),
    ]


def _major_version(binaries: Path) -> int:
    """What the program says of itself; 0 if it says nothing."""
    command = [str(binaries / "postgres"), "--version"]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_START_LIMIT_S
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(said)
    return int(found[1]) if found else 0


def folder_below(raw: Path) -> Path:
    """A place for databases, on the file system of `raw` if the server's user may go there."""
    return private.folder_below(raw, "postgres")


@contextmanager
def run(
    parent: Path,
    settings: Mapping[str, str],
    *,
    bounded: bool = False,
    preload: Preload | None = None,
) -> Iterator[Server]:
    """A server with its data in a new folder below `parent`, stopped and deleted at the end.

    `settings` are lines of postgresql.conf. `bounded`: it runs in a control group of its own,
    without a limit as yet. `preload`: a library for the server alone. Raises MissingTool (also for
    a library that cannot be loaded), TargetError, or ServerError with what the server said last if
    it does not start, or if it has not loaded the library.
    """
    binaries = find_binaries()
    if preload is not None:
        _check_library(preload.library)
    account = private.account(_KIND)
    with without_environment("PG"), open_lease() as lease:  # which may name another server
        cgroup = lease.new_cgroup() if bounded else None
        folder = account.new_folder(lease, parent)
        short = account.new_folder(lease, Path(tempfile.gettempdir()))  # as a socket's path must be
        socket = account.new_place(short, "own")
        data = account.new_place(folder, _DATA)
        log = folder / "server.log"
        options = ["-U", _USER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        private.call_well(account, [str(binaries / "initdb"), "-D", str(data), *options])
        server = [str(binaries / "postgres"), *_arguments(data, socket, settings)]
        command = [*_preloading(preload, folder), *server]
        process = account.start(lease, command, log, cgroup)
        try:
            version = _wait_until_ready(process, socket, data, log)
            if preload is not None:
                _check_loaded(preload, process)
            yield Server(version, folder, socket, log, process, cgroup)
        finally:
            private.stop(
                process, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, limit_s=_STOP_LIMIT_S
            )


def _check_library(library: Path) -> None:
    """The dynamic linker goes on without a library that it cannot load; we do not."""
    if not library.is_file():
        raise MissingTool(f"{library} is missing: build the package again (make env)")
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        raise MissingTool(
            f"{library} cannot be loaded ({error}): build the package again (make env)"
        ) from error


def _preloading(preload: Preload | None, folder: Path) -> list[str]:
    """What starts a program with the library: a copy of it that the server's user may read, at a
    path that has none of the characters that separate paths here.
    """
    if preload is None:
        return []
    copy = folder / preload.library.name
    fd = given.create(folder, copy.name, 0o755)
    with preload.library.open("rb") as source, os.fdopen(fd, "wb") as target:
        shutil.copyfileobj(source, target)
    pairs = {"LD_PRELOAD": str(copy), **preload.environment}
    return [find_program("env"), *(f"{name}={value}" for name, value in pairs.items())]


def _check_loaded(preload: Preload, process: subprocess.Popen[bytes]) -> None:
    maps = Path(f"/proc/{process.pid}/maps").read_text()
    if preload.library.name not in maps:
        raise ServerError(
            f"PostgreSQL has not loaded {preload.library.name}: is its folder on a file system "
            "that is mounted noexec?"
        )


def _arguments(data: Path, socket: Path, settings: Mapping[str, str]) -> list[str]:
    fixed = {
        "listen_addresses": "",
        "unix_socket_directories": str(socket),
        "fsync": "off",
        "restart_after_crash": "off",  # a run that lost a process is no run
    }
    pairs = {**fixed, **settings}
    return ["-D", str(data)] + [part for n, v in pairs.items() for part in ("-c", f"{n}={v}")]


def _wait_until_ready(process: subprocess.Popen[bytes], socket: Path, data: Path, log: Path) -> str:
    """Its version, once it answers. Raises ServerError if it ends, or if another one answers."""
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError(f"PostgreSQL did not start: {private.last_line(log)}")
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(
                host=str(socket), dbname=DATABASE, user=_USER, connect_timeout=5
            ) as connection,
        ):
            [there] = connection.execute("SHOW data_directory").fetchone() or [""]
            if Path(there) != data:
                raise ServerError(f"{socket}: a server answers whose data is in {there}: not ours")
            return str(connection.info.parameter_status("server_version")).split()[0]
        time.sleep(0.05)
    raise ServerError(f"PostgreSQL did not start in {_START_LIMIT_S} s: {private.last_line(log)}")


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
