"""Loop devices that one system call makes: a part of a file, and nothing that a kill leaves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import TargetError
from harness.system import loop_devices

pytestmark = pytest.mark.root

MIB = 1 << 20
LIMIT_S = 30.0


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Path]:
    """A file; no loop device is over it in the end."""
    path = tmp_path / "image"
    path.write_bytes(b"".join(bytes([number]) * MIB for number in range(4)))
    yield path
    deadline = time.monotonic() + LIMIT_S
    while left := over(path):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def over(file: Path) -> list[str]:
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it has gone meanwhile
            found += [backing.parts[3]] * (backing.read_text().rstrip("\n") == str(file))
    return found


def test_a_part_of_a_file_is_a_device_while_it_is_open(image: Path) -> None:
    file = os.open(image, os.O_RDWR)
    try:
        device, loop = loop_devices.attach(
            file, b"ours", offset_bytes=MIB, size_bytes=2 * MIB, is_temporary=True
        )
    except TargetError as error:
        pytest.skip(str(error))
    finally:
        os.close(file)
    try:
        assert device.read_bytes() == bytes([1]) * MIB + bytes([2]) * MIB
        assert loop_devices.name_of(loop) == b"ours"
        assert over(image) == [device.name]
    finally:
        os.close(loop)


@pytest.mark.servers
def test_a_queue_is_the_kernel_s_own_whatever_was_set_before(image: Path) -> None:
    """A loop device that went with its last user is free, and keeps what was set."""
    settings = {"nomerges": "2", "read_ahead_kb": "76"}
    queues = []
    for _ in range(2):
        file = os.open(image, os.O_RDWR)
        try:
            device, loop = loop_devices.attach(file, is_temporary=True)
        except TargetError as error:
            pytest.skip(str(error))
        finally:
            os.close(file)
        try:
            queue = Path("/sys/block") / device.name / "queue"
            queues.append({name: (queue / name).read_text().strip() for name in settings})
            for name, value in settings.items():
                (queue / name).write_text(value)
        finally:
            os.close(loop)
    assert queues[0] == queues[1]
    assert queues[1]["nomerges"] == "0"


CHILD = """
import os, signal, sys
from harness.system import loop_devices
loop_devices.attach(os.open(sys.argv[1], os.O_RDWR), is_temporary=True)
print("made", flush=True)
signal.pause()
"""


def test_a_kill_leaves_no_temporary_one(image: Path) -> None:
    """It goes with its last user; the fixture looks."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(image)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        if child.stdout.readline() != b"made\n":
            pytest.skip(child.stderr.read().decode())
        assert over(image)
        child.send_signal(signal.SIGKILL)
