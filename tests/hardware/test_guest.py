"""The lab in a box itself: commands, errors, and that nothing of it is left."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hardware import guest
from hardware.drives import STANDARD, Sata
from hardware.guest import CommandTooSlow, Guest, GuestDied

Machine = Callable[..., Guest]
SATA = [drive for drive in STANDARD if isinstance(drive, Sata)]

pytestmark = pytest.mark.builds


@pytest.mark.slow
def test_commands_are_binary_safe_and_say_how_they_ended(machine: Machine) -> None:
    box = machine(STANDARD)
    content = os.urandom(300_000)
    assert box.run(["cat"], given=content).stdout == content
    done = box.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert box.run(["sh", "-c", "kill -9 $$"]).returncode == -9
    with pytest.raises(OSError, match="no-such-program"):
        box.run(["no-such-program"])
    with pytest.raises(CommandTooSlow, match="before"):
        box.run(["sh", "-c", "echo before; sleep 600"], timeout_s=2)
    assert box.text(["cat", "/proc/sys/kernel/hostname"]) == "guest\n"


@pytest.mark.slow
def test_the_host_sees_what_is_on_a_drive(machine: Machine) -> None:
    box = machine(STANDARD)
    name, link = SATA[0].serial, f"/dev/disk/by-id/wwn-{SATA[0].wwn:#018x}"
    before = box.content_hash(name)
    assert box.content_hash(name) == before
    marker = os.urandom(512)
    write = ["dd", f"of={link}", "bs=512", "seek=9000", "oflag=direct", "status=none"]
    box.run(write, given=marker, check=True)
    assert box.content_hash(name) != before
    with (box.folder / name).open("rb") as file:
        file.seek(9000 * 512)
        assert file.read(512) == marker


@pytest.mark.slow
def test_a_panic_is_told_at_once_and_nothing_is_left() -> None:
    if missing := guest.missing():
        pytest.skip(missing)
    with guest.boot(STANDARD[:1]) as box:
        assert box.run(["true"]).returncode == 0
        with pytest.raises(GuestDied, match="Kernel panic"):
            box.run(["sh", "-c", "echo c > /proc/sysrq-trigger"], timeout_s=600)
        assert not box.lives()
    assert not box.folder.exists()
    assert not Path(f"/proc/{box.process.pid}").exists()


def test_content_hashes_tell_content_and_not_holes(tmp_path: Path) -> None:
    def made(name: str, *blocks: tuple[int, bytes]) -> str:
        path = tmp_path / name
        with path.open("wb") as file:
            file.truncate(8 << 20)
            for at, content in blocks:
                file.seek(at)
                file.write(content)
        return guest.content_hash(path)

    assert made("empty") == made("zeros", (0, bytes(1 << 20)), (3 << 20, bytes(5)))
    assert made("empty") == hashlib.sha256().hexdigest()
    assert made("a", (4096, b"a")) == made("a-and-zeros", (4096, b"a"), (5 << 20, bytes(9)))
    different = [made("b", (4096, b"b")), made("a-elsewhere", (4097, b"a"))]
    different += [made("a-later", ((1 << 20) + 4096, b"a")), made("a", (4096, b"a")), made("empty")]
    assert len(set(different)) == len(different)
