"""A private MariaDB or MySQL server: an unprivileged user, a unix socket, no port, no passwords.

    with mysql.run(folder, InnodbSettings(doublewrite="off")) as server:
        with server.connect() as db: ...
        server.kill()                       # as a power failure would
    with mysql.run(folder, InnodbSettings(doublewrite="off")) as server:
        ...                                 # has recovered what was committed

The data folder is the caller's: a new one is filled, one that a server has left is used again,
however that server ended, and wherever the folder was copied from. A file in it says which series
of which product it belongs to. Socket and log lie elsewhere, and go with the server.

Grant tables are not read: nobody else comes to the socket, and after a power cut they need not be
whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mysql.connector

from harness.dbms import innodb, private
from harness.dbms.innodb import MARIADB, MYSQL, InnodbSettings, PageCheck, Release
from harness.errors import (
    DiskFull,
    HarnessError,
    MissingTool,
    ServerError,
    ServerLost,
    TargetError,
)
from harness.system import given
from harness.system.cgroups import Cgroup
from harness.system.leases import open_lease
from harness.system.programs import chosen_folders

START_LIMIT_S: Final = 120.0
STOP_LIMIT_S: Final = 120.0

_KIND: Final = private.Kind("MariaDB or MySQL", ("mysql", "nobody"), "flashlab-my-", signal.SIGKILL)
_FOLDERS: Final = (
    "/usr/sbin",
    "/usr/bin",
    "/usr/libexec",
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/local/mysql/bin",
)
_OLDEST: Final = {MARIADB: (10, 11, 0), MYSQL: (8, 0, 0)}
_PACKAGES: Final = "apt-get install mariadb-server-core mariadb-client-core"
_VERSION: Final = re.compile(r"Ver (\d+)\.(\d+)\.(\d+)(\S*)")
_MARKER: Final = "flashlab-server"
_NO_SPACE: Final = ("error 28", "errno: 28", "No space left", "Disk full", "disk is full")
_WAITS: Final = "Waiting for someone to free space"
"""Says the code that both products share (mysys) before it tries again, for ever; then Aria does
not even let the server end that has given up for the same reason.
"""

_LOOK_S: Final = 0.02
_HUNG_S: Final = 10
_SOCKET_BYTES: Final = 107  # the longest path that a unix socket can have


@dataclass(frozen=True)
class Programs:
    """A server that is installed: its program, what makes a data folder, what checks pages."""

    release: Release
    server: Path
    installer: Path | None
    page_checker: Path | None


@dataclass
class Server:
    """A running server; `folder` holds its data, `log` what it said since it was started.

    `cgroup`: the control group that it and nothing else is in, if that was asked for.
    """

    release: Release
    folder: Path
    socket: Path
    log: Path
    process: subprocess.Popen[bytes]
    settings: InnodbSettings
    started_s: float
    cgroup: Cgroup | None = None
    _ended_by_us: bool = False

    @property
    def pid(self) -> int:
        """Of its only process."""
        return self.process.pid

    @property
    def address(self) -> dict[str, Any]:
        """What mysql.connector.connect needs; can be pickled."""
        return {
            "unix_socket": str(self.socket),
            "user": "root",
            "charset": "utf8mb4",
            "collation": "utf8mb4_general_ci",
            "autocommit": True,
            "ssl_disabled": True,
        }

    def connect(self, **options: Any) -> Any:
        """A new connection; options as in mysql.connector.connect."""
        return mysql.connector.connect(**{**self.address, **options})

    def status(self) -> dict[str, int]:
        """What InnoDB has counted since it was started: names as in innodb.COUNTERS.

        Raises ServerError if it does not answer.
        """
        try:
            with self.connect(connection_timeout=_HUNG_S) as db, db.cursor() as cursor:
                cursor.execute("SHOW GLOBAL STATUS")
                return innodb.counters(dict(cursor.fetchall()))
        except mysql.connector.Error as error:
            self.check()
            raise ServerError(f"{self.release.product}: {error.msg}") from error

    def is_running(self) -> bool:
        """Whether it lives."""
        return self.process.poll() is None

    def check(self) -> None:
        """Raises ServerError with its last words if it has ended; ServerLost if it was killed."""
        if self.is_running() or self._ended_by_us:
            return
        if self.cgroup is not None and self.cgroup.killed():
            raise ServerLost(
                f"the kernel has killed {self.release.product}, since its control group's limit is "
                "too low: allow more memory, or a smaller buffer_pool_bytes"
            )
        raise _failure(self, "ended in the middle")

    def kill(self) -> None:
        """Ends it at once, as a power failure would: what it had not written is lost."""
        self._ended_by_us = True
        self.process.kill()
        self.process.wait()
        if self.cgroup is not None:
            self.cgroup.end_processes()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """It does nothing while the block runs; what it has asked the kernel for goes on."""
        self.check()
        if self.is_running():
            self.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self, limit_s: float = STOP_LIMIT_S) -> None:
        """Ends it cleanly; kills it, and raises ServerLost, if that takes more than `limit_s`."""
        if not self.is_running():
            return
        self._ended_by_us = True
        private.stop(self.process, signal.SIGTERM, limit_s=limit_s)
        if not self.is_running():
            return
        self.kill()
        raise ServerLost(
            f"{self.release.product} did not stop in {limit_s:g} s and was killed: "
            f"{private.last_line(self.log)}"
        )


def find_programs(folders: Sequence[Path] | None = None) -> Programs:
    """The newest supported server that is installed; MariaDB before MySQL, and before all what
    lies in a folder that PATH names beside the system's.

    Raises MissingTool if there is none, HarnessError if all are too old.
    """
    chosen = chosen_folders() if folders is None else []
    places = [*chosen, *map(Path, _FOLDERS)] if folders is None else list(folders)
    servers = [p for f in places for name in ("mariadbd", "mysqld") if (p := f / name).exists()]
    found = {server.resolve(): release for server in servers if (release := _release(server))}
    if not found:
        raise MissingTool(f"no MariaDB or MySQL server is installed: {_PACKAGES}")
    good = {path: r for path, r in found.items() if r.version >= _OLDEST[r.product]}
    if not good:
        listed = ", ".join(f"{r.product} {_text(r)} in {p.parent}" for p, r in found.items())
        raise HarnessError(
            f"MariaDB from {_dotted(_OLDEST[MARIADB])} and MySQL from {_dotted(_OLDEST[MYSQL])} on "
            f"are supported, found was {listed}: install one of them ({_PACKAGES})"
        )
    first = {folder.resolve() for folder in chosen}
    server = max(
        good,
        key=lambda path: (path.parent in first, good[path].product == MARIADB, good[path].version),
    )
    # Of the same installation: pages of one product are nonsense to the other's program.
    near = [server.parent, *(server.parent.with_name(name) for name in ("bin", "scripts"))]
    return Programs(
        good[server],
        server,
        _first(near, "mariadb-install-db", "mysql_install_db"),
        _first(near, "innochecksum"),
    )


def _release(server: Path) -> Release | None:
    """What the program says of itself; None if it says nothing."""
    try:
        said = subprocess.run(
            [str(server), "--no-defaults", "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_HUNG_S,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said)
    if found is None:
        return None
    product = MARIADB if "mariadb" in said.lower() else MYSQL
    return Release(product, (int(found[1]), int(found[2]), int(found[3])))


def _first(folders: Sequence[Path], *names: str) -> Path | None:
    paths = (folder / name for name in names for folder in folders)
    return next((path for path in paths if path.exists()), None)


def _dotted(version: tuple[int, int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _text(release: Release) -> str:
    return ".".join(map(str, release.version))


def folder_below(raw: Path) -> Path:
    """A place for databases, on the file system of `raw` if the server's user may go there."""
    return private.folder_below(raw, "mysql")


@contextlib.contextmanager
def new_folder(parent: Path) -> Iterator[Path]:
    """A data folder below `parent` that is deleted at the end, also if we are killed."""
    with open_lease() as lease:
        yield private.account(_KIND).new_folder(lease, parent) / "data"


@contextlib.contextmanager
def run(
    folder: Path,
    settings: InnodbSettings,
    *,
    bounded: bool = False,
    start_limit_s: float = START_LIMIT_S,
    stop_limit_s: float = STOP_LIMIT_S,
) -> Iterator[Server]:
    """A server on a data folder: a new one (missing or empty), or one that was used before.

    It is stopped cleanly at the end, or killed if an error passes; one that was killed meanwhile
    is left as it is. `bounded`: in a control group of its own, without a limit as yet. The limits:
    how long it may take to recover, and to write its pages back. Raises MissingTool, BadParameter,
    TargetError (a folder of another series, one that was not filled to its end), DiskFull, and
    ServerError with what the server said if it does not start, ServerLost if not by its own doing.
    """
    programs = find_programs()
    account = private.account(_KIND)
    data = folder.absolute()
    with open_lease() as lease:
        cgroup = lease.new_cgroup() if bounded else None
        ours = account.new_folder(lease, Path(tempfile.gettempdir()))  # a socket's path is short
        own = account.new_place(ours, "own")
        _prepare(data, settings, programs, account, own)
        log = ours / "server.log"
        command = _command(programs, data, own, settings)
        begin = time.monotonic()
        process = account.start(lease, command, log, cgroup)
        server = Server(
            programs.release, data, own / "socket", log, process, settings, begin, cgroup
        )
        assert len(bytes(server.socket)) <= _SOCKET_BYTES
        try:
            _wait_until_ready(server, start_limit_s)
            yield server
            server.stop(stop_limit_s)
        finally:
            if server.is_running():
                server.kill()


def check_pages(folder: Path, settings: InnodbSettings) -> PageCheck:
    """All InnoDB pages of a data folder whose server is stopped. Raises MissingTool.

    The files become the server's user's, who has to read them: a power cut, too, may have undone
    that they were.
    """
    programs = find_programs()
    if programs.page_checker is None:
        raise MissingTool(f"innochecksum is not installed: {_PACKAGES}")
    account = private.account(_KIND)
    account.own_all(folder.absolute())
    return innodb.check_pages(
        folder.absolute(),
        settings.page_bytes,
        programs.release,
        str(programs.page_checker),
        account,
    )


def _prepare(
    data: Path, settings: InnodbSettings, programs: Programs, account: private.Account, own: Path
) -> None:
    """Fills a new folder, or checks that a used one belongs to this server."""
    folders = [data] if settings.redo_folder is None else [data, settings.redo_folder.absolute()]
    try:
        for each in folders:
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise TargetError(f"{data}: {error.strerror}: choose another folder") from error
    for each in folders:
        account.check_reachable(each)
        account.own_all(each)
    if any(data.iterdir()):
        _check_series(data, programs.release)
    else:
        _install(data, settings, programs, account, own)


class NoDataFolder(TargetError):
    """A folder that has files, and not those by which a server's data are known."""


def _check_series(data: Path, release: Release) -> None:
    marker = data / _MARKER
    there = (given.read_text(marker) or "").strip() or _guessed(data)
    if not there:
        raise NoDataFolder(
            f"{data} is no data folder of ours, or was not filled to its end: "
            "delete it, or choose another one"
        )
    if there != release.series:
        raise TargetError(
            f"{data} belongs to {there}, installed is {release.series}: use that server, or "
            "another folder"
        )


def _guessed(data: Path) -> str:
    """Of a folder that is not from us: the product's own note, or a file that only one has."""
    for name in ("mariadb_upgrade_info", "mysql_upgrade_info"):
        if (said := given.read_text(data / name)) is not None:
            version = said.strip("\0\n ")
            major, minor = [*version.split("."), "", ""][:2]
            return f"{MARIADB if 'mariadb' in version.lower() else MYSQL} {major}.{minor}"
    if (data / "mysql.ibd").is_file():
        return f"{MYSQL} 8 or newer"
    return f"some {MARIADB}" if (data / "aria_log_control").is_file() else ""


def _install(
    data: Path, settings: InnodbSettings, programs: Programs, account: private.Account, own: Path
) -> None:
    """System tables in an empty folder; what was begun is removed if it fails.

    Temporary tables lie in `own`: where two servers begin at once, each deletes the other's.
    """
    chosen = {"tmpdir": str(own), **settings.options(programs.release)}
    options = [f"--{name}={value}" for name, value in chosen.items()]
    if programs.release.product == MYSQL:
        command = [str(programs.server), "--no-defaults", "--initialize-insecure"]
    elif programs.installer is None:
        raise MissingTool(f"mariadb-install-db is not installed: {_PACKAGES}")
    else:
        command = [str(programs.installer), "--no-defaults", "--skip-test-db"]
        command += ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
        # It looks for what it needs below its working folder otherwise.
        command += [f"--basedir={programs.server.parent.parent}"]
    try:
        done = account.call([*command, f"--datadir={data}", *options], hopeless=_WAITS)
    except BaseException:
        given.empty(data)
        raise
    if done.returncode:
        lines = (done.stderr + done.stdout).strip().splitlines()
        given.empty(data)
        raise _told(f"{programs.release.product}: no data folder could be made", lines, data)
    account.mark(data, _MARKER, programs.release.series)


def _command(programs: Programs, data: Path, own: Path, settings: InnodbSettings) -> list[str]:
    fixed = {
        "datadir": str(data),
        "socket": str(own / "socket"),
        "pid-file": str(own / "pid"),
        "tmpdir": str(own),
        "skip-networking": "ON",
        "skip-grant-tables": "ON",
        "skip-name-resolve": "ON",
        "local-infile": "ON",
        "performance-schema": "OFF",
        "character-set-server": "utf8mb4",
        "collation-server": "utf8mb4_general_ci",
        **_of_product(programs.release),
        **settings.options(programs.release),
    }
    pairs = [f"--{name}={value}" for name, value in fixed.items()]
    return [str(programs.server), "--no-defaults", *pairs]


def _of_product(release: Release) -> Mapping[str, str]:
    """No binary log in either: it would be a second log on the device.

    MySQL exports no files: the folder that it would do so in by itself need not be there, and it
    does not start without. Its log tells of its recovery, as MariaDB's does.
    """
    if release.product != MYSQL:
        return {}
    return {
        "disable-log-bin": "ON",
        "mysqlx": "OFF",
        "secure-file-priv": "NULL",
        "log-error-verbosity": "3",
    }


def _wait_until_ready(server: Server, limit_s: float) -> None:
    deadline = server.started_s + limit_s
    product = server.release.product
    while time.monotonic() < deadline:
        waits = any(_WAITS in line for line in private.lines_of(server.log))
        if waits or not server.is_running():
            raise _failure(server, "did not start")
        with contextlib.suppress(mysql.connector.Error):
            server.connect(connection_timeout=_HUNG_S).close()
            return
        time.sleep(_LOOK_S)
    said = private.last_line(server.log)
    raise ServerLost(f"{product} did not start in {limit_s:g} s: {said}")


def _failure(server: Server, what: str) -> HarnessError:
    told = f"{server.release.product} {what}"
    if server.process.poll() == -signal.SIGKILL:  # it never does that itself
        return ServerLost(f"{told}: somebody has killed it, or the kernel for want of memory")
    return _told(told, private.lines_of(server.log), server.folder)


def _told(what: str, lines: Sequence[str], folder: Path) -> HarnessError:
    """What went wrong by a server's own words: its first error is the cause of the others."""
    errors = [line for line in lines if "[ERROR]" in line or _WAITS in line]
    crash = [line for line in lines if "got signal" in line]
    words = [*crash[:1], *errors[:1], *lines[-1:], "it said nothing"][0]
    full = next((line for line in errors if any(text in line for text in _NO_SPACE)), "")
    if full:
        return DiskFull(f"{what}: no space left for {folder} ({_plain(full)}): use a larger device")
    return ServerError(f"{what}: {_plain(words)}")


def _plain(line: str) -> str:
    """A line of its log without the time."""
    return re.sub(r"^\S+ +\S+ \d+ (?=\[)", "", line).strip()
