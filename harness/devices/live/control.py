"""The control socket of a live device: one line of JSON asks, one line answers.

    {"command": "power_cut", "seed": 7}   ->   {"ok": {...}}   or   {"error": "..."}

The socket may be used by whoever may write to it: root, by its permissions.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from harness.errors import HarnessError, TargetError
from harness.system import locks

_LONGEST_LINE: Final = 1 << 20
_PATIENCE_S: Final = 600.0
_POLL_S: Final = 0.05
_WAITING: Final = 512
"""Clients that may wait to be heard, as far as the kernel's own bound (net.core.somaxconn) lets."""

Command = Callable[..., Any]


class Server(socketserver.ThreadingUnixStreamServer):
    """Answers commands in threads of its own; each is a function of keyword arguments."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = _WAITING

    def __init__(self, path: Path, commands: Mapping[str, Command]) -> None:
        self.commands = dict(commands)
        before = os.umask(0o177)
        try:
            super().__init__(str(path), _Handler)
        finally:
            os.umask(before)

    def start(self) -> None:
        """Begins to answer."""
        threading.Thread(
            target=self.serve_forever, args=(_POLL_S,), name="control", daemon=True
        ).start()

    def answer(self, line: bytes) -> dict[str, Any]:
        """What a line of a client gets back."""
        try:
            asked = json.loads(line)
            command = self.commands[asked.pop("command")]
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
            known = ", ".join(sorted(self.commands))
            return {"error": f"no command is in {line[:80]!r}; known: {known}"}
        try:
            return {"ok": command(**asked)}
        except HarnessError as error:
            return {"error": str(error)}
        except OSError as error:
            return {"error": f"{error.filename or 'the system'}: {error.strerror or error}"}
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            return {"error": f"wrong arguments: {error}"}


class _Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        """Lines until the client goes, or sends one that is none."""
        with contextlib.suppress(OSError):  # the client did not wait
            while line := self.rfile.readline(_LONGEST_LINE):
                answer = self.server.answer(line)
                self.wfile.write(json.dumps(answer).encode() + b"\n")
                if len(line) == _LONGEST_LINE:  # what follows is the rest of it
                    return


def ask(path: Path, command: str, *, patience_s: float = _PATIENCE_S, **arguments: Any) -> Any:
    """Asks a device. Raises TargetError with its answer, or if nobody answers in that time."""
    name = path.parent.name
    deadline = time.monotonic() + patience_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            _connect(client, path, deadline)
            client.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            with client.makefile("rb") as answers:
                line = answers.readline()
        except TimeoutError as error:
            raise TargetError(
                f"{name} does not answer within {patience_s:.0f} s (was it stopped?): "
                f"`harness device remove --force {name}` ends it"
            ) from error
        except OSError as error:
            raise TargetError(_unheard(path, error)) from error
    if not line.endswith(b"\n"):
        raise TargetError(f"{name} ended while it was asked")
    answer = json.loads(line)
    if "error" in answer:
        raise TargetError(str(answer["error"]))
    return answer["ok"]


def _connect(client: socket.socket, path: Path, deadline: float) -> None:
    """Waits where too many others wait already, of which a Unix socket says EAGAIN at once."""
    while (left_s := deadline - time.monotonic()) > 0:
        client.settimeout(left_s)
        try:
            client.connect(str(path))
        except BlockingIOError:
            time.sleep(min(_POLL_S, left_s))
        else:
            return
    raise TimeoutError


def _unheard(path: Path, error: OSError) -> str:
    """Why a device does not answer, and what to do: nothing is to be cleaned of one that lives."""
    name, why = path.parent.name, error.strerror or error
    if locks.is_held(path.with_name("lock")):
        return (
            f"{name} does not answer ({why}), but its process lives: try again; "
            f"`harness device remove --force {name}` ends it"
        )
    return f"{name} does not answer ({why}): if it was killed, `harness clean` removes what is left"
