"""The guest: a PC that QEMU emulates, with Debian's kernel, drives of its own and our programs.

    with guest.boot(DRIVES) as machine:
        machine.run(["nvme", "list"])

Nothing of it is left when the block ends, however it ends: QEMU is a process of a lease, the kernel
kills it with its parent, and its files are in a folder of that lease.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedRWPair
from pathlib import Path
from typing import Any

from hardware import agent, image
from hardware.drives import ROOT, STANDARD, Drive, make_images
from harness.system import leases
from harness.system.programs import find_program

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
HOME = REPOSITORY / "build" / "guest"
BYTECODE = HOME / "bytecode"
MEMORY_MIB = 2560
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_BOOT_LIMIT_S = 300.0
_WORDS = "nvme_core.multipath=N"  # QEMU's drives say that they may have several paths
_ANSWER_MARGIN_S = 60.0
_TAIL_LINES = 40
_HASHED_BYTES = 1 << 20


class GuestDied(Exception):
    """QEMU or the kernel in it has ended, or does not answer; with the console's last lines."""


class CommandTooSlow(Exception):
    """A command did not end in its time; it was killed."""


def missing() -> str:
    """What this machine lacks for a guest, or nothing."""
    if not (HOME / "ready.json").is_file():
        return "no guest to start: run tools/install-guest (on Debian)"
    return ""


@dataclass
class Guest:
    """A running guest. `folder` has the images and the console's log."""

    folder: Path
    process: subprocess.Popen[bytes]
    port: BufferedRWPair
    line: socket.socket
    monitor: BufferedRWPair
    environment: Mapping[str, str]
    boot_s: float = field(default=0.0)

    def run(
        self,
        argv: Sequence[str],
        timeout_s: float = 120.0,
        *,
        given: bytes = b"",
        check: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a command in the guest, as root, in the checkout.

        Raises CommandTooSlow, GuestDied, CalledProcessError (with `check`), OSError (no such
        program).
        """
        request: dict[str, Any] = {
            "argv": list(argv),
            "cwd": str(REPOSITORY),
            "env": dict(self.environment) | dict(environment or {}),
            "timeout_s": timeout_s,
        }
        answer, (out, err) = self._ask(request, [given], timeout_s + _ANSWER_MARGIN_S)
        if "error" in answer:
            raise OSError(answer["error"])
        if "timeout" in answer:
            said = (out + err).decode(errors="replace")
            raise CommandTooSlow(f"{' '.join(argv)}: not done after {timeout_s} s\n{said}")
        done = subprocess.CompletedProcess(request["argv"], answer["returncode"], out, err)
        if check and done.returncode:
            said = (out + err).decode(errors="replace")
            raise AssertionError(f"{' '.join(argv)}: exit code {done.returncode}\n{said}")
        return done

    def text(self, argv: Sequence[str], timeout_s: float = 120.0) -> str:
        """What a command prints, which must not fail."""
        return self.run(argv, timeout_s, check=True).stdout.decode()

    def read(self, path: str | Path) -> bytes:
        """A file of the guest."""
        return self.run(["cat", str(path)], check=True).stdout

    def pytest(
        self,
        tests: Sequence[str],
        timeout_s: float = 3600.0,
        *,
        options: Sequence[str] = (),
        conftests: Path = HERE,
        path: Sequence[Path] = (),
    ) -> dict[str, Outcome]:
        """Runs tests (files or node ids below the checkout) in the guest; node id -> outcome.

        What pytest cannot even collect is an outcome of its own, with the file as its id.
        `conftests`: the outermost folder whose conftest.py counts; `path`: folders in which every
        Python there looks first, for `sitecustomize`, too.
        """
        report = f"/run/outcomes-{time.monotonic_ns()}.jsonl"
        plugins = ["-p", "no:cacheprovider", "-p", "hardware.outcomes", "--outcomes", report]
        place = ["--rootdir", str(REPOSITORY), "--confcutdir", str(conftests)]
        command = [sys.executable, "-m", "pytest", "-q", *plugins, *place, *options, *tests]
        folders = [*map(str, path), str(REPOSITORY / "tests"), self.environment.get("PYTHONPATH")]
        environment = {
            # Those that are installed would be imported, at the guest's pace.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": ":".join(filter(None, folders)),
        }
        try:
            done = self.run(command, timeout_s, environment=environment)
            said = (done.stdout + done.stderr).decode(errors="replace")
        except CommandTooSlow as error:
            said = str(error)
        lines = self.run(["cat", report]).stdout.decode().splitlines()
        outcomes: dict[str, Outcome] = {}
        for line in lines:
            row = json.loads(line)
            _keep_worst(outcomes, row.pop("id"), Outcome(**row))
        if not outcomes:
            raise AssertionError(f"no test has run in the guest:\n{said}")
        return outcomes

    def content_hash(self, name: str) -> str:
        """SHA-256 of a drive's image, while the guest is halted and QEMU has no request under way.

        What only the guest's page cache holds is not in it: sync before.
        """
        with self.halted():
            return content_hash(self.folder / name)

    @contextmanager
    def halted(self) -> Iterator[None]:
        """No virtual CPU runs, and no request is under way, while the block runs."""
        self.monitor_command("stop")
        try:
            yield
        finally:
            self.monitor_command("cont")

    def monitor_command(self, name: str, **arguments: Any) -> Any:
        """A command of QEMU's monitor protocol (QMP), such as device_del; returns its answer."""
        with suppress(OSError):
            self.monitor.write(json.dumps({"execute": name, "arguments": arguments}).encode())
            self.monitor.flush()
            while line := self.monitor.readline():
                answer = json.loads(line)
                if "error" in answer:
                    raise AssertionError(f"QEMU: {name}: {answer['error']['desc']}")
                if "return" in answer:
                    return answer["return"]
        raise self._died("QEMU has closed its monitor")

    def console(self) -> str:
        """The last lines that the kernel or our scripts have written."""
        log = self.folder / "console.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n".join(lines[-_TAIL_LINES:])

    def lives(self) -> bool:
        """Whether QEMU still runs."""
        return self.process.poll() is None

    def wait_ready(self) -> None:
        """Until the agent says that it is there."""
        self.line.settimeout(_BOOT_LIMIT_S)
        self._receive("it did not start")

    def _ask(
        self, request: dict[str, Any], parts: list[bytes], limit_s: float
    ) -> tuple[dict[str, Any], list[bytes]]:
        self.line.settimeout(limit_s)
        with suppress(OSError):  # the answer, which does not come, says why
            agent.send(self.port, request, parts)
            self.port.flush()
        return self._receive(f"no answer to {' '.join(request['argv'])}")

    def _receive(self, problem: str) -> tuple[dict[str, Any], list[bytes]]:
        try:
            return agent.receive(self.port)
        except (EOFError, OSError) as error:
            raise self._died(problem) from error

    def _died(self, problem: str) -> GuestDied:
        self.process.kill()  # if it has not ended, it is of no use any more
        self.process.wait()
        said = (self.folder / "qemu.log").read_text(errors="replace")
        return GuestDied(f"{problem}\n{self.console()}\n{said}")


@dataclass(frozen=True)
class Outcome:
    """Of a test in the guest: passed, failed or skipped, and what was said."""

    outcome: str
    said: str = ""
    duration_s: float = 0.0


def _keep_worst(outcomes: dict[str, Outcome], ident: str, new: Outcome) -> None:
    """Of set-up, call and tear-down, which report one by one."""
    rank = ("passed", "skipped", "failed")
    old = outcomes.get(ident, Outcome("passed"))
    worst = max(old, new, key=lambda outcome: rank.index(outcome.outcome))
    outcomes[ident] = Outcome(worst.outcome, worst.said, old.duration_s + new.duration_s)


def content_hash(path: Path) -> str:
    """SHA-256 of what a file holds; zeros count the same whether they are holes or not."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for begin in _blocks_with_data(file.fileno()):
            block = os.pread(file.fileno(), _HASHED_BYTES, begin)
            if block.count(0) != len(block):
                digest.update(struct.pack(">Q", begin) + block)
    return digest.hexdigest()


def _blocks_with_data(fd: int) -> Iterator[int]:
    """Where aligned blocks begin that are not only a hole."""
    at = 0
    with suppress(OSError):  # ENXIO: only a hole is left
        while True:
            begin = os.lseek(fd, at, os.SEEK_DATA) // _HASHED_BYTES * _HASHED_BYTES
            yield begin
            at = begin + _HASHED_BYTES


@contextmanager
def boot(drives: Sequence[Drive] = STANDARD) -> Iterator[Guest]:
    """A guest with these drives, for as long as the block runs. Raises GuestDied."""
    _compile()
    ours, theirs = socket.socketpair()
    our_monitor, their_monitor = socket.socketpair()
    with leases.open_lease() as lease, ours, theirs, our_monitor, their_monitor:
        folder = lease.new_folder(Path("/var/tmp"), "flashlab-guest-")
        command = [*emulator(), *_machine(folder), *_channels(folder, theirs, their_monitor)]
        shares = _shares()
        command += _shared(shares) + _disks(folder, drives, shares)
        with (folder / "qemu.log").open("wb") as log:
            started = time.monotonic()
            process = lease.start(
                [find_program("setpriv"), "--pdeathsig", "KILL", "--", *command],
                ending=signal.SIGKILL,
                pass_fds=(theirs.fileno(), their_monitor.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        theirs.close()
        their_monitor.close()
        try:
            machine = Guest(
                folder=folder,
                process=process,
                port=ours.makefile("rwb"),
                line=ours,
                monitor=our_monitor.makefile("rwb"),
                environment=_environment(),
            )
            machine.monitor_command("qmp_capabilities")
            machine.wait_ready()
            machine.boot_s = time.monotonic() - started
            yield machine
        finally:
            process.kill()
            process.wait()


def _compile() -> None:
    """Bytecode of our own files and of the packages that they need, for the guest."""
    write = os.environ | {"PYTHONPYCACHEPREFIX": str(BYTECODE), "PYTHONDONTWRITEBYTECODE": ""}
    made_for = BYTECODE / "made-for"
    now = f"{sys.version} {(REPOSITORY / 'uv.lock').stat().st_mtime_ns}"
    if not made_for.is_file() or made_for.read_text() != now:
        script = HERE / "bytecode.py"
        subprocess.run([sys.executable, str(script)], env=write, cwd=REPOSITORY, check=True)
        made_for.write_text(now)
    ours = [str(REPOSITORY / "harness"), str(HERE)]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *ours], env=write, check=True)


def emulator() -> list[str]:
    """The emulator with its own libraries and ROMs, or this machine's if that is as new."""
    unpacked = HOME / "host" / "usr"
    program = unpacked / "bin" / "qemu-system-x86_64"
    if not program.is_file():
        return [find_program("qemu-system-x86_64")]
    libraries = f"LD_LIBRARY_PATH={unpacked / 'lib' / 'x86_64-linux-gnu'}"
    roms = [word for name in ("qemu", "seabios") for word in ("-L", str(unpacked / "share" / name))]
    return [find_program("env"), libraries, str(program), *roms]


def _machine(folder: Path) -> list[str]:
    kernel = json.loads((HOME / "ready.json").read_text())["kernel"]
    words = (
        f"console=ttyS0 loglevel=4 panic=-1 mitigations=off {_WORDS} guest.python={sys.executable}"
    )
    return [
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max,la57=off"),
        *("-smp", "2", "-m", f"{MEMORY_MIB}M"),
        *("-kernel", str(HOME / "boot" / f"vmlinuz-{kernel}"), "-append", words),
        *("-initrd", str(folder / "initial-disk")),
        *("-serial", f"file:{folder / 'console.log'}"),
    ]


def _channels(folder: Path, port: socket.socket, monitor: socket.socket) -> list[str]:
    return [
        *("-chardev", f"socket,id=agent,fd={port.fileno()}"),
        *("-device", "virtio-serial", "-device", f"virtserialport,chardev=agent,name={agent.PORT}"),
        *("-chardev", f"socket,id=monitor,fd={monitor.fileno()}"),
        *("-mon", "chardev=monitor,mode=control"),
    ]


def _shares() -> dict[str, Path]:
    """Folders of this machine that the guest sees at the same place, each by its tag."""
    wanted = {REPOSITORY, *(Path(p).resolve() for p in (sys.prefix, sys.base_prefix))}
    apart = [p for p in sorted(wanted) if not any(p.is_relative_to(q) for q in wanted - {p})]
    return {f"share{i}": p for i, p in enumerate(p for p in apart if not p.is_relative_to("/usr"))}


def _shared(shares: Mapping[str, Path]) -> list[str]:
    """All of them are read-only; what the guest writes stays in its memory."""
    folders = {"usr": Path("/usr"), "inside": HOME / "inside", **shares}
    facts = "security_model=none,readonly=on,multidevs=remap"
    shared = [f"local,path={path},mount_tag={tag},{facts}" for tag, path in folders.items()]
    return [word for each in shared for word in ("-virtfs", each)]


def _disks(folder: Path, drives: Sequence[Drive], shares: Mapping[str, Path]) -> list[str]:
    kernel = json.loads((HOME / "ready.json").read_text())["kernel"]
    image.make_initial_disk(folder / "initial-disk", HOME / "inside", kernel, shares)
    points = list(shares.values())
    image.make_root_disk(folder / ROOT.serial, folder, ROOT.size_bytes, points)
    make_images(drives, folder)
    places = enumerate((ROOT, *drives))
    return [word for place, drive in places for word in drive.arguments(folder, place)]


def _environment() -> dict[str, str]:
    """What a command in the guest has; of ours, only where Python finds what is not installed."""
    folder = str(Path(sys.executable).parent)
    own = {"PATH": f"{folder}:{PATH}", "HOME": "/root", "LC_ALL": "C.UTF-8"}
    kept = {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
    return own | kept | {"PYTHONPYCACHEPREFIX": str(BYTECODE)}
