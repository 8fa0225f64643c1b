"""What private servers have in common: whom they run as, where, since when, and how they end.

A server is one process that runs as somebody unprivileged, in folders that only he may enter, and
that the kernel ends when the thread that started it is gone.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import HarnessError, MissingTool, TargetError
from harness.system.cgroups import Cgroup
from harness.system.leases import Lease
from harness.system.programs import find_program

_ROOM: Final = Path("/var/tmp")  # noqa: S108 - a folder of ours is made in it


@dataclass(frozen=True)
class Kind:
    """A make of servers: its name, its users in the order of preference, its folders' prefix.

    `gone` ends a server at once when its starter is gone.
    """

    name: str
    users: tuple[str, ...]
    prefix: str
    gone: signal.Signals


@dataclass(frozen=True)
class Account:
    """Whom a server runs as; ids of None: as ourselves."""

    kind: Kind
    ids: tuple[int, int] | None

    def own(self, path: Path) -> None:
        """Gives him a file or folder."""
        if self.ids is not None:
            os.chown(path, *self.ids, follow_symlinks=False)

    def own_all(self, folder: Path) -> None:
        """Gives him a folder with all that is in it: what was copied may be somebody else's."""
        if self.ids is None:
            return
        for path in (folder, *folder.rglob("*")):
            facts = path.lstat()
            if (facts.st_uid, facts.st_gid) != self.ids:
                self.own(path)

    def check_reachable(self, folder: Path) -> None:
        """Raises TargetError if he may not come to a folder."""
        if self.ids is None:
            return
        for above in folder.absolute().parents:
            facts = above.stat()
            may = 0o100 if facts.st_uid == self.ids[0] else 0o001
            if not facts.st_mode & may:
                raise TargetError(
                    f"{above} may not be entered by {self.kind.name}'s user: choose a folder "
                    f"elsewhere, such as {_ROOM}"
                )

    def new_folder(self, lease: Lease, parent: Path) -> Path:
        """A folder that only he can enter; it goes with the lease. Raises TargetError."""
        folder = lease.new_folder(parent, self.kind.prefix)
        self.own(folder)
        self.check_reachable(folder)
        return folder

    def call(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Runs a program as him, to its end."""
        whole = [find_program("setpriv"), *self._options(), "--", *command]
        return subprocess.run(
            whole if self.ids else list(command),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            cwd="/",
        )

    def start(
        self, lease: Lease, server: Sequence[str], log: Path, cgroup: Cgroup | None
    ) -> subprocess.Popen[bytes]:
        """Starts a server as him; what it says goes into `log`."""
        dying = self.kind.gone.name.removeprefix("SIG")
        command = [find_program("setpriv"), "--pdeathsig", dying, *self._options(), "--", *server]
        with log.open("wb") as out:
            return lease.start(
                command,
                ending=self.kind.gone,
                cgroup=cgroup,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd="/",
            )

    def _options(self) -> list[str]:
        if self.ids is None:
            return []
        return [f"--reuid={self.ids[0]}", f"--regid={self.ids[1]}", "--clear-groups"]


def account(kind: Kind) -> Account:
    """Whom to run as: ourselves, or somebody unprivileged if we are root. Raises MissingTool."""
    if os.geteuid() != 0:
        return Account(kind, None)
    for name in kind.users:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(kind, (entry.pw_uid, entry.pw_gid))
    raise MissingTool(
        f"{kind.name} does not run as root, and there is no user {' or '.join(kind.users)}"
    )


def folder_below(raw: Path, name: str) -> Path:
    """A place for databases, on the file system of `raw` if a server's user may go there."""
    folder = raw.absolute() / name
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)
    can_pass = all(above.stat().st_mode & 0o001 for above in folder.parents)
    return folder if can_pass else _ROOM


def call_well(who: Account, command: Sequence[str]) -> None:
    """Runs a program as him; raises HarnessError with its last words if it fails."""
    done = who.call(command)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise HarnessError(f"{Path(command[0]).name}: {said[0] if said else 'failed'}")


def stop(process: subprocess.Popen[bytes], *words: signal.Signals, limit_s: float) -> None:
    """Ends a server by one signal after the other, each `limit_s` after the last one."""
    for word in words:
        if process.poll() is not None:
            return
        process.send_signal(word)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=limit_s)


def lines_of(log: Path) -> list[str]:
    """What a server has said up to now."""
    return log.read_text(errors="replace").strip().splitlines() if log.is_file() else []


def last_line(log: Path) -> str:
    """What a server has said last."""
    lines = lines_of(log)
    return lines[-1] if lines else "it said nothing"
