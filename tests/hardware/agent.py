"""Runs in the guest: does one command after another that the host sends, and answers.

Both ways a message is its length (4 bytes, big endian), a JSON object of so many bytes, and then
the bytes that the object's "sizes" announce, one after the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any, Protocol

PORT = "org.flashlab.agent"


class Stream(Protocol):
    """A port, from either end."""

    def read(self, size: int, /) -> bytes | None:
        """At most so much; nothing at the end."""

    def write(self, content: memoryview, /) -> int | None:
        """Returns how much it took."""

    def flush(self) -> None:
        """Sends what is buffered."""


def receive(port: Stream) -> tuple[dict[str, Any], list[bytes]]:
    """A message and its parts; EOFError if the other end is gone."""
    length = struct.unpack(">I", _exactly(port, 4))[0]
    message = json.loads(_exactly(port, length))
    return message, [_exactly(port, size) for size in message["sizes"]]


def send(port: Stream, message: dict[str, Any], parts: list[bytes]) -> None:
    """Sends a message and its parts."""
    head = json.dumps(message | {"sizes": [len(part) for part in parts]}).encode()
    left = memoryview(b"".join([struct.pack(">I", len(head)), head, *parts]))
    while left:  # the guest's driver takes a part at a time
        left = left[port.write(left) or 0 :]


def _exactly(port: Stream, size: int) -> bytes:
    content = b""
    while len(content) < size:
        more = port.read(size - len(content))
        if not more:
            raise EOFError
        content += more
    return content


def run(request: dict[str, Any], given: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Runs a command and all its children at most so long; kills what is left of it then."""
    try:
        process = subprocess.Popen(
            request["argv"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=request["cwd"],
            env=request["env"],
            start_new_session=True,
        )
    except OSError as error:
        return {"error": f"{request['argv'][0]}: {error}"}, [b"", b""]
    try:
        out, err = process.communicate(given, timeout=request["timeout_s"])
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return {"timeout": True}, _said_so_far(process)
    return {"returncode": process.returncode}, [out, err]


def _said_so_far(process: subprocess.Popen[bytes]) -> list[bytes]:
    """What a killed command had said; a child in a session of its own may still hold its pipes."""
    try:
        return list(process.communicate(timeout=5))
    except subprocess.TimeoutExpired as error:
        return [error.stdout or b"", error.stderr or b""]


def main() -> None:
    """Until the host closes the port."""
    (name,) = (
        path.parent.name
        for path in Path("/sys/class/virtio-ports").glob("*/name")
        if path.read_text().strip() == PORT
    )
    with open(f"/dev/{name}", "r+b", buffering=0) as port:  # noqa: PTH123
        send(port, {"ready": True}, [])
        with contextlib.suppress(EOFError):
            while True:
                request, parts = receive(port)
                send(port, *run(request, parts[0]))


if __name__ == "__main__":
    main()
