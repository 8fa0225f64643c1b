"""What private servers have in common: whom they run as, where, since when, and how they end.

A server is one process that runs as somebody unprivileged, in folders that only he may enter, and
that the kernel ends when the thread that started it is gone. What is ours (its log, a library for
it) lies in folders of ours, beside those that are his: in his, a link could wait for us.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import HarnessError, MissingTool, ServerError, TargetError
from harness.system import given
from harness.system.cgroups import Cgroup
from harness.system.leases import Lease
from harness.system.programs import find_program

_ROOM: Final = Path("/var/tmp")  # noqa: S108 - a folder of ours is made in it
CALL_LIMIT_S: Final = 1800.0
"""For a program that ends by itself, on a device of any speed that the tiers offer."""
_LOOK_S: Final = 0.2
_UNUSED_GROUPS: Final = range(65520, 65534)


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
    """Whom a server runs as: user and group; ids of None: as ourselves.

    The user may be one of a server that this machine has anyway, or `nobody`, with processes of
    other people. The group is one that nobody else is in.
    """

    kind: Kind
    ids: tuple[int, int] | None

    def own_all(self, folder: Path) -> None:
        """Lets him, and nobody else but us, into a folder that we have made, and gives him what is
        in it: what was copied may be somebody else's. Raises TargetError if it is a link.
        """
        if self.ids is not None:
            given.give(folder, self.ids)

    def check_reachable(self, folder: Path) -> None:
        """Raises TargetError if he may not come to a folder, or could put another one there."""
        if self.ids is None:
            return
        for above in folder.absolute().parents:
            facts = above.stat()
            if facts.st_uid == self.ids[0]:
                raise TargetError(
                    f"{above} belongs to {self.kind.name}'s user, who could put a link in it: "
                    f"choose a folder elsewhere, such as {_ROOM}"
                )
            may = 0o010 if facts.st_gid == self.ids[1] else 0o001
            if not facts.st_mode & may:
                raise TargetError(
                    f"{above} may not be entered by {self.kind.name}'s user: choose a folder "
                    f"elsewhere, such as {_ROOM}"
                )

    def new_folder(self, lease: Lease, parent: Path) -> Path:
        """A folder of ours that nobody else but he can enter; it goes with the lease.

        He can change nothing in it: what is to be his is made in it by `new_place`. Raises
        TargetError.
        """
        folder = lease.new_folder(parent, self.kind.prefix)
        if self.ids is not None:
            os.chown(folder, -1, self.ids[1])
            folder.chmod(0o710)
            self.check_reachable(folder)
        return folder

    def new_place(self, folder: Path, name: str) -> Path:
        """A folder of his in one of ours: from now on it is full of traps. Raises TargetError."""
        place = folder / name
        place.mkdir(mode=0o700)
        if self.ids is not None:
            with given.opened_folder(place) as fd:
                os.fchown(fd, *self.ids)
        return place

    def mark(self, folder: Path, name: str, text: str) -> None:
        """A new file of his with a line in it, on the disk. Raises TargetError."""
        fd = given.create(folder, name, 0o644)
        with os.fdopen(fd, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(fd)
            if self.ids is not None:
                os.fchown(fd, *self.ids)

    def call(
        self, command: Sequence[str], limit_s: float = CALL_LIMIT_S, *, hopeless: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program as him, to its end.

        It and all that it has started are killed if we are interrupted, as soon as it says
        `hopeless` among its errors, since it would wait for ever then, and after `limit_s`: then
        ServerError is raised. A server at its bootstrap may wait for ever without a word.
        """
        options = ["--pdeathsig", "KILL", *self._options()]
        with subprocess.Popen(
            [find_program("setpriv"), *options, "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd="/",
            process_group=0,
        ) as program:
            try:
                ended = _heard(program, time.monotonic() + limit_s, hopeless)
            finally:
                if program.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(program.pid, signal.SIGKILL)
            if not ended:
                name = Path(command[0]).name
                raise ServerError(f"{name} has not ended within {limit_s:.0f} s")
            out, said = program.communicate()
        return subprocess.CompletedProcess(command, program.returncode, out, said)

    def start(
        self, lease: Lease, server: Sequence[str], log: Path, cgroup: Cgroup | None
    ) -> subprocess.Popen[bytes]:
        """Starts a server as him; what it says goes into `log`, a new file in a folder of ours."""
        dying = self.kind.gone.name.removeprefix("SIG")
        command = [find_program("setpriv"), "--pdeathsig", dying, *self._options(), "--", *server]
        with os.fdopen(given.create(log.parent, log.name), "wb") as out:
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
    """Whom to run as: ourselves, or somebody unprivileged if we are root.

    Raises MissingTool, HarnessError.
    """
    if os.geteuid() != 0:
        return Account(kind, None)
    for name in kind.users:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(kind, (entry.pw_uid, _group()))
    raise MissingTool(
        f"{kind.name} does not run as root, and there is no user {' or '.join(kind.users)}"
    )


def _group() -> int:
    """A group that nobody is in: no user's, and of numbers that nothing hands out by itself
    (systemd.io/UIDS-GIDS), so that who has the server's user does not have its folders.
    """
    taken = {entry.gr_gid for entry in grp.getgrall()} | {e.pw_gid for e in pwd.getpwall()}
    if free := [number for number in _UNUSED_GROUPS if number not in taken]:
        return free[0]
    raise HarnessError(
        f"groups {_UNUSED_GROUPS[0]} to {_UNUSED_GROUPS[-1]} are all taken: free one"
    )


def folder_below(raw: Path, name: str) -> Path:
    """A place for databases, on the file system of `raw` if a server's user may go there."""
    folder = raw.absolute() / name
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
        with given.opened_folder(folder) as fd:
            os.fchmod(fd, 0o711)
    can_pass = all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents))
    return folder if can_pass else _ROOM


def call_well(who: Account, command: Sequence[str]) -> None:
    """Runs a program as him; raises HarnessError with its last words if it fails."""
    done = who.call(command)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise HarnessError(f"{Path(command[0]).name}: {said[0] if said else 'failed'}")


def _heard(program: subprocess.Popen[str], deadline_s: float, hopeless: str) -> bool:
    """Whether it has ended, or has said among its errors what it never ends after, in time."""
    while time.monotonic() < deadline_s:
        try:
            program.communicate(timeout=_LOOK_S)
        except subprocess.TimeoutExpired as yet:
            if hopeless and hopeless.encode() in (yet.stderr or b""):
                return True
        else:
            return True
    return False


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
