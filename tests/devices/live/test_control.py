"""The control socket: whatever is sent is answered, and many may ask at once."""

from __future__ import annotations

import fcntl
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from live_world import NEEDS_FUSE, new_name, small

from harness.devices import live
from harness.devices.live.control import Server, ask
from harness.errors import TargetError

_AT_ONCE = 200
_DEEP = 100_000


def _echo(number: int = 0) -> int:
    return number


def _refuse(**_: object) -> None:
    raise TargetError("no")


def _missing() -> str:
    return Path("/nonexistent/file").read_text()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A socket at which a server answers."""
    path = tmp_path / "device" / "control.sock"
    path.parent.mkdir()
    server = Server(path, {"echo": _echo, "refuse": _refuse, "missing": _missing})
    server.start()
    yield path
    server.shutdown()
    server.server_close()


def _sent(path: Path, *lines: bytes) -> list[dict[str, Any]]:
    """The answers to these lines of one client, a good one at the end included."""
    with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as answers:
        client.settimeout(20)
        client.connect(str(path))
        for line in (*lines, b'{"command": "echo", "number": 7}'):
            client.sendall(line + b"\n")
        return [json.loads(answers.readline()) for _ in range(len(lines) + 1)]


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"7",
        b"null",
        b'"echo"',
        b"",
        b"{}",
        b'{"command": ["a"]}',
        b'{"command": {"a": 1}}',
        b'{"command": null}',
        b'{"command": "nothing"}',
        b"[" * _DEEP + b"]" * _DEEP,
        b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
        b'{"command": "echo", "number": ' + b"9" * 5000 + b"}",
        b"\xff\xfe",
        b"\x00",
    ],
)
def test_no_command_gets_an_answer(place: Path, line: bytes) -> None:
    error, good = _sent(place, line)
    assert "no command is in" in error["error"]
    assert "known: echo, missing, refuse" in error["error"]
    assert good == {"ok": 7}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"command": "echo", "colour": 1}', "wrong arguments"),
        (b'{"command": "refuse"}', "no"),
        (b'{"command": "missing"}', "/nonexistent/file: No such file or directory"),
    ],
)
def test_a_command_that_cannot_be_followed_gets_an_answer(
    place: Path, line: bytes, says: str
) -> None:
    error, good = _sent(place, line)
    assert says in error["error"]
    assert good == {"ok": 7}


def test_a_line_without_end_is_answered_once(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as answers:
        client.settimeout(20)
        client.connect(str(place))
        client.sendall(b"x" * (1 << 20))
        assert "no command is in" in json.loads(answers.readline())["error"]
        assert answers.readline() == b""


def test_200_clients_at_once(place: Path) -> None:
    """All of them connect before the first is heard."""
    together = threading.Barrier(_AT_ONCE)

    def client(number: int) -> Any:
        together.wait()
        return ask(place, "echo", number=number, patience_s=60)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        assert list(pool.map(client, range(_AT_ONCE))) == list(range(_AT_ONCE))


@contextmanager
def asked_at_once(
    folder: Path, clients: int, *, backlog: int, patience_s: float
) -> Iterator[tuple[socket.socket, list[Future[Any]]]]:
    """A socket that answers nobody by itself, and so many clients that ask it now."""
    path = folder / "device" / "control.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor(clients) as pool:
        listening.bind(str(path))
        listening.listen(backlog)
        yield (
            listening,
            [pool.submit(ask, path, "echo", patience_s=patience_s) for _ in range(clients)],
        )


def test_a_server_that_is_busy_is_waited_for(tmp_path: Path) -> None:
    """Where the queue of clients is full, a Unix socket says so at once."""
    with asked_at_once(tmp_path, 8, backlog=1, patience_s=60) as (listening, asked):
        for _ in asked:
            client, _ = listening.accept()
            with client, client.makefile("rb") as lines:
                assert json.loads(lines.readline()) == {"command": "echo"}
                client.sendall(b'{"ok": 1}\n')
        assert [each.result() for each in asked] == [1] * 8


def test_patience_ends(tmp_path: Path) -> None:
    with asked_at_once(tmp_path, 3, backlog=0, patience_s=0.3) as (_, asked):
        for each in asked:
            with pytest.raises(TargetError, match="device does not answer within 0 s"):
                each.result()


def test_nobody_advises_to_clean_what_lives(tmp_path: Path) -> None:
    """Its process holds the lock: what is there is no dead device's."""
    path = tmp_path / "device" / "control.sock"
    path.parent.mkdir()
    with (path.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TargetError) as alive:
            ask(path, "echo")
    with pytest.raises(TargetError) as dead:
        ask(path, "echo")
    assert "its process lives" in str(alive.value)
    assert "harness clean" not in str(alive.value)
    assert "harness clean" in str(dead.value)


WRONG: tuple[Any, ...] = (
    *(None, "", "x", [], {}, [[]], True, -1, 0, 1 << 70, -(1 << 70), 1e308, float("nan")),
    *(float("inf"), [["a", 0, 1]], [["a", 1, 0, 0]], [[0, 1, 1 << 40]], "x" * 5000, "\udcff"),
)
ARGUMENTS = {
    "ranges": ("ranges",),
    "speed": ("speed", "slowdown"),
    "power_cut": ("seed", "stay_off"),
    "trim_policy": ("name",),
    "streams": ("ranges",),
    "fault": ("op", "begin_bytes", "end_bytes", "times"),
    "slow_die": ("die", "factor"),
    "honest_flush": ("honest",),
    "record": ("target",),
}


@pytest.mark.servers
@pytest.mark.root
@NEEDS_FUSE
def test_a_device_survives_wrong_arguments_and_200_clients() -> None:
    good: dict[str, dict[str, Any]] = {
        "speed": {"speed": "none"},
        "fault": {"op": "read"},
        "slow_die": {"die": 0, "factor": 1},
    }
    with live.created(small(), new_name()) as device:
        place = device.place.socket
        for command, names in ARGUMENTS.items():
            for name in names:
                for value in WRONG:
                    if (command, value) in (("record", "x"), ("record", "x" * 5000)):
                        continue  # it might come to be
                    arguments = {**good.get(command, {}), name: value}
                    message = json.dumps({"command": command, **arguments}).encode()
                    with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as answers:
                        client.settimeout(60)
                        client.connect(str(place))
                        client.sendall(message + b"\n")
                        answer = json.loads(answers.readline())
                    assert set(answer) <= {"ok", "error"}, message
        device.power_on()
        device.clear_faults()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            asked = [pool.submit(device.stats, patience_s=60) for _ in range(_AT_ONCE)]
            assert all(each.result()["name"] == device.name for each in asked)
