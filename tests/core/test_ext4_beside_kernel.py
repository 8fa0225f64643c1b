"""The modelled ext4 allocator beside this kernel's: where each file's blocks lie."""

from __future__ import annotations

import ctypes
import os
import platform
import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from conftest import loop_device, need
from test_core_cpp import BUILD, built

from harness.experiments import kernel
from harness.experiments.this_machine import possible_cpus
from harness.probes.fiemap import file_extents
from harness.system import filesystems, mounts
from harness.system.ext4_spec import Ext4Spec

DEVICE_BYTES = 2304 << 20
BLOCK_BYTES = 4096
LIBC = ctypes.CDLL(None, use_errno=True)

pytestmark = [
    pytest.mark.builds,
    pytest.mark.root,
    pytest.mark.xdist_group("tests/core/test_core_cpp.py"),  # which builds, too
]


class Both:
    """A real file system, and the orders with which the model does the same."""

    def __init__(self, device: Path, folder: Path) -> None:
        self.folder = folder / "files"
        self.folder.mkdir()
        mounts.sync(folder)
        # Groups are loaded when they are first looked at: by this, all of them.
        Path(f"/proc/fs/ext4/{device.name}/mb_groups").read_text()
        said = subprocess.run(
            [need("dumpe2fs"), str(device)], capture_output=True, text=True, check=True
        ).stdout
        self.orders = list(_free(said))
        per_group = re.search(r"Inodes per group: +(\d+)", said)
        assert per_group
        directory = (self.folder.stat().st_ino - 1) // int(per_group[1])
        self.small_files = directory // 16 * 16 + 1
        self.places: list[str] = []
        self.files: dict[int, int] = {}

    def close(self) -> None:
        for fd in self.files.values():
            os.close(fd)

    def order(self, what: str, name: int = 0, value: int = 0) -> None:
        self.orders.append(f"{what} {name} {value}")

    def create(self, name: int) -> None:
        self.files[name] = os.open(self.folder / str(name), os.O_CREAT | os.O_RDWR)
        self.order("create", name, os.fstat(self.files[name]).st_ino)

    def fallocate(self, name: int, blocks: int) -> None:
        """With FALLOC_FL_KEEP_SIZE."""
        size = ctypes.c_long(blocks * BLOCK_BYTES)
        assert LIBC.fallocate(self.files[name], 1, ctypes.c_long(0), size) == 0
        self.order("fallocate", name, blocks)

    def write(self, name: int, blocks: int, *, closed: bool) -> None:
        """At the end, and written back while the file is open or not."""
        file = self.folder / str(name)
        os.pwrite(self.files[name], bytes(blocks * BLOCK_BYTES), file.stat().st_size)
        if closed:
            os.close(self.files.pop(name))
            self.order("open", name, 0)
        fd = os.open(file, os.O_RDONLY)
        assert LIBC.sync_file_range(fd, ctypes.c_long(0), ctypes.c_long(0), 7) == 0
        os.close(fd)
        self.order("write", name, blocks)
        if closed:
            self.files[name] = os.open(file, os.O_RDWR)
            self.order("open", name, 1)

    def remove(self, name: int) -> None:
        os.close(self.files.pop(name))
        (self.folder / str(name)).unlink()
        self.order("remove", name)

    def commit(self) -> None:
        """Twice: the first may be over for who waits for it before all that it freed is free."""
        for _ in range(2):
            os.utime(self.folder)
            mounts.sync(self.folder)
        self.order("commit")

    def show(self, name: int) -> None:
        runs = _runs(self.folder / str(name))
        self.places.append(" ".join(f"{begin}+{blocks}" for begin, blocks in runs))
        self.order("show", name)

    def replayed(self, program: Path, recent: bool) -> list[str]:
        """What the model says to the same."""
        goals = kernel.stream_goals(DEVICE_BYTES, possible_cpus())
        command = [program, DEVICE_BYTES // BLOCK_BYTES, int(recent), goals, self.small_files]
        done = subprocess.run(
            [str(each) for each in command],
            input="\n".join(self.orders),
            capture_output=True,
            text=True,
            check=True,
        )
        return [line.strip() for line in done.stdout.splitlines()]


def _free(said: str) -> Iterator[str]:
    for line in re.findall(r"^ +Free blocks: (\d.*)", said, re.MULTILINE):
        for part in line.split(","):
            begin, _, last = part.strip().partition("-")
            yield f"free {begin} {int(last or begin) - int(begin) + 1}"


def _runs(file: Path) -> list[tuple[int, int]]:
    # Beyond its end, too, where fallocate() puts what the file has not.
    found = file_extents(file, 0, 1 << 32)
    return [(begin // BLOCK_BYTES, (end - begin) // BLOCK_BYTES) for begin, end in found]


@contextmanager
def both(folder: Path, option: str) -> Iterator[Both]:
    with loop_device(folder, DEVICE_BYTES, remove=True) as device:
        Path(f"/sys/block/{device.name}/queue/rotational").write_text("0")
        filesystems.make(device, Ext4Spec(inodes=16_384))
        place = folder / "mounted"
        place.mkdir()
        subprocess.run(["mount", "-o", f"noatime,{option}", str(device), str(place)], check=True)
        try:
            with closing(Both(device, place)) as each:
                yield each
        finally:
            subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(scope="module")
def replay() -> Path:
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    if release is None or (int(release[1]), int(release[2])) < (6, 17):
        pytest.skip("the model knows 3.10, and 6.17 and newer")
    return built(BUILD).with_name("ext4_replay")


@pytest.mark.parametrize("blocks", [256, 3072, 4096])
@pytest.mark.parametrize("option", ["mb_optimize_scan=0", "mb_optimize_scan=1"])
def test_preallocated_files_lie_where_the_kernel_puts_them(
    replay: Path, tmp_path: Path, option: str, blocks: int
) -> None:
    """All of them, block for block, while files come and go in any order."""
    drawn = random.Random(blocks)
    with both(tmp_path, option) as each:
        for name in range(700):
            while len(each.files) >= 126:
                for gone in drawn.sample(sorted(each.files), drawn.choice([1, 2, 8, 30])):
                    each.remove(gone)
                each.commit()
            each.create(name)
            each.fallocate(name, blocks)
            each.show(name)
        # Without sorted groups this kernel and 3.10 differ in nothing that plays a part here.
        assert each.replayed(replay, option.endswith("1")) == each.places


@pytest.mark.parametrize("closed_ratio", [0.0, 0.7])
def test_files_that_grow_together_have_as_many_extents_as_the_kernel_makes(
    replay: Path, tmp_path: Path, closed_ratio: float
) -> None:
    drawn = random.Random(round(closed_ratio * 10))
    with both(tmp_path, "mb_optimize_scan=1") as each:
        for query in range(3):
            names = range(63 * query, 63 * (query + 1))
            for name in names:
                each.create(name)
            for _ in range(25):
                for name in drawn.sample(names, len(names)):
                    each.write(name, drawn.randrange(20, 100), closed=drawn.random() < closed_ratio)
            for name in names:
                each.show(name)
            for name in names:
                each.remove(name)
                if drawn.random() < 0.2:
                    each.commit()
        modelled = each.replayed(replay, True)
        here, there = (
            sum(len(line.split()) for line in lines) for lines in (each.places, modelled)
        )
        assert here > 3 * 63 * 5
        assert there == pytest.approx(here, rel=0.02)
