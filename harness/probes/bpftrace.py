"""bpftrace as a child process: found, started, waited for until it is attached, ended.

It never outlives us: util-linux's setpriv has the kernel kill it when the thread that started it
is gone, whatever it was that ended us.
"""

from __future__ import annotations

import array
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from harness.errors import HarnessError, MissingTool
from harness.probes.probe import Probe

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TRACEFS: Final = Path("/sys/kernel/tracing")
_PIPE_BYTES: Final = 1 << 20
_F_SETPIPE_SZ: Final = 1031
_MOMENT_S: Final = 0.03  # three ticks of the processor accounting
_REPEAT_S: Final = 10.0
"""Longer than it takes to detach and to print what is left: then a signal would cut it short."""

_HARMLESS: Final = ("RLIMIT_MEMLOCK", "available_filter_functions")


@dataclass(frozen=True)
class Buffers:
    """What the kernel keeps for a probe.

    map_keys: entries of each map; more requests than this in flight, and some have no known issue.
    ring_pages: pages per processor for what is on its way to user space; too few lose rows.
    """

    map_keys: int = 65_536
    ring_pages: int = 2048

    def environment(self) -> dict[str, str]:
        """For bpftrace, under the names of all versions. Nothing else of ours is handed on."""
        keys, pages = str(self.map_keys), str(self.ring_pages)
        return {
            "PATH": _PATH,
            "LC_ALL": "C",
            "BPFTRACE_MAP_KEYS_MAX": keys,
            "BPFTRACE_MAX_MAP_KEYS": keys,
            "BPFTRACE_PERF_RB_PAGES": pages,
        }


def program() -> str:
    """The path of bpftrace. Raises MissingTool if it is not there or may not be used."""
    found = shutil.which("bpftrace", path=_PATH)
    if found is None:
        raise MissingTool(
            "probes need bpftrace: apt-get install bpftrace, or do without rows "
            "(harness.probes.counters needs neither)"
        )
    if os.geteuid() != 0:
        raise MissingTool(
            "probes need root, since they are programs in the kernel: run as root, or do without "
            "rows (harness.probes.counters needs neither)"
        )
    return found


def version() -> str:
    """Such as 'bpftrace v0.17.0'. Raises MissingTool."""
    done = subprocess.run(
        [program(), "--version"], capture_output=True, text=True, check=False, env={"PATH": _PATH}
    )
    return done.stdout.strip()


def mount_tracefs() -> bool:
    """Mounts tracefs if nobody has; says whether it did. It is left mounted.

    It is an interface of the kernel, and another recorder may use it by the time we end.
    """
    if (TRACEFS / "events").is_dir():
        return False
    done = subprocess.run(
        [shutil.which("mount", path=_PATH) or "mount", "-t", "tracefs", "tracefs", str(TRACEFS)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": _PATH},
    )
    if not (TRACEFS / "events").is_dir():
        reason = done.stderr.strip() or "it has no events"
        raise MissingTool(f"probes need tracefs at {TRACEFS}, it cannot be mounted: {reason}")
    return True


class Bpftrace:
    """A running script. `output` has its bytes until it has ended; `stop` ends it."""

    def __init__(self, probe: Probe, arguments: Sequence[str], buffers: Buffers) -> None:
        setpriv = shutil.which("setpriv", path=_PATH)
        if setpriv is None:
            raise MissingTool("probes need setpriv: apt-get install util-linux")
        command = [setpriv, "--pdeathsig", "KILL", program(), "-B", "full"]
        command += ["-f", "json"] if probe.json else []
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        try:
            self.process = subprocess.Popen(
                [*command, str(probe.source), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=buffers.environment(),
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for us; we end it when its rows are whole
            )
        except BaseException:
            self._errors.close()
            raise
        assert self.process.stdout is not None
        self.output: IO[bytes] = self.process.stdout
        fcntl.fcntl(self.output, _F_SETPIPE_SZ, _PIPE_BYTES)

    def missed(self) -> int:
        """Events that came while another program ran on their processor: the kernel skips those.

        A completion in an interrupt of an issue's program, for example.
        """
        folder, total = Path(f"/proc/{self.process.pid}/fdinfo"), 0
        for entry in list(folder.glob("*")):
            try:
                text = entry.read_text()
            except OSError:
                continue  # closed meanwhile
            found = [line for line in text.splitlines() if line.startswith("recursion_misses:")]
            total += sum(int(line.split()[1]) for line in found)
        return total

    def idle(self, timeout_s: float) -> bool:
        """Waits until it has handed on what it had; whether it did so within that time.

        A signal that meets it in a write to a full pipe would cut the write short, and bpftrace
        does not write the rest; one that comes before it has read its events has it throw them
        away. So: the pipe is empty, it waits for events (on a busy machine, it may as well wait for
        a processor), and it has used no processor time for a moment.
        """
        deadline = time.monotonic() + timeout_s
        before = None
        while time.monotonic() < deadline and self.process.poll() is None:
            now = self._ticks_asleep() if not self._waiting_bytes() else None
            if now is not None and now == before:
                return True
            before = now
            time.sleep(_MOMENT_S)  # the moment in which nothing may change
        return self.process.poll() is not None

    def _waiting_bytes(self) -> int:
        count = array.array("i", [0])
        fcntl.ioctl(self.output, termios.FIONREAD, count)
        return count[0]

    def _ticks_asleep(self) -> int | None:
        """Ticks of processor time that it has used, if it sleeps."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(text[11]) + int(text[12]) if text[0] == "S" else None

    def interrupt(self) -> None:
        """Asks it to end: it prints its totals and everything that is still on its way."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended by itself within that time, after `interrupt`.

        It hears a signal only while it waits for events: one that came at another moment has had
        no effect, and is sent again.
        """
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            try:
                self.process.wait(min(left, _REPEAT_S))
            except subprocess.TimeoutExpired:
                self.interrupt()
            else:
                return True
        return False

    def errors(self) -> list[str]:
        """What it said on stderr, without what is always there."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        return [line for line in lines if line and not any(h in line for h in _HARMLESS)]

    def close(self) -> None:
        """Ends it for certain."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.output.close()
        self._errors.close()


def parse_check(probe: Probe) -> None:
    """Has bpftrace read a probe's script and compile it, recording nothing. Raises HarnessError."""
    mount_tracefs()
    done = subprocess.run(
        [program(), _dry_run(), str(probe.source), "1", "2"],
        capture_output=True,
        text=True,
        check=False,
        env=Buffers().environment(),
    )
    if done.returncode != 0:
        raise HarnessError(f"{probe.source.name}: {done.stderr.strip().splitlines()[-3:]}")


def _dry_run() -> str:
    """How bpftrace is told to stop before it traces.

    Old ones have -d, and attach nothing; newer ones want the name of a stage after it, go on, and
    have an option that ends them when all is attached.
    """
    done = subprocess.run(
        [program(), "--help"], capture_output=True, text=True, check=False, env={"PATH": _PATH}
    )
    return "--dry-run" if "--dry-run" in done.stdout + done.stderr else "-d"
