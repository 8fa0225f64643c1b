"""File systems on a device under test: always the same, quiet, bounded, and gone afterwards."""

from __future__ import annotations

import hashlib
import mmap
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import REPOSITORY, loop_device, need
from live_world import eventually

from harness.drives import scratch
from harness.errors import BadParameter, TargetError, UnknownName
from harness.probes import counters
from harness.system import ext4_spec, filesystems, leases, mounts
from harness.system.ext4_spec import PLAIN, Ext4Spec
from harness.tiers.base import DeviceRequest
from harness.tiers.hardware import HardwareBench
from harness.tiers.simulated import SimulatedBench

PROFILES = REPOSITORY / "hardware" / "profiles"
SIZE = 64 << 20


def bdi(folder: Path, name: str) -> str:
    number = folder.stat().st_dev
    place = Path("/sys/class/bdi") / f"{os.major(number)}:{os.minor(number)}"
    return (place / name).read_text().strip()


def test_the_same_options_make_the_same_file_system(tmp_path: Path) -> None:
    digests = set()
    for name in ("one", "two"):
        file = tmp_path / name
        file.touch()
        os.truncate(file, SIZE)
        filesystems.make(file)
        digests.add(hashlib.sha256(file.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_a_file_system_has_a_least_size(tmp_path: Path) -> None:
    file = tmp_path / "small"
    file.write_bytes(bytes(1 << 20))
    with pytest.raises(TargetError, match="too few for a file system"):
        filesystems.make(file)


@pytest.mark.parametrize("size_mib", [0.5, 3, 50_000_000])
def test_a_journal_that_mke2fs_does_not_make_is_refused_before_anything_is_made(
    size_mib: float,
) -> None:
    with pytest.raises(BadParameter, match="must be whole MiB"):
        Ext4Spec(journal_bytes=int(size_mib * (1 << 20)))
    with pytest.raises(UnknownName, match="ordered"):
        Ext4Spec(journal_mode="data")


def test_what_has_no_size_of_its_own_takes_the_device_s() -> None:
    assert Ext4Spec().sized(5 << 20).size_bytes == 5 << 20
    assert Ext4Spec(size_bytes=1 << 20).sized(5 << 20).size_bytes == 1 << 20


# --- the journal

JBD2_MAGIC = bytes.fromhex("c03b3998")
"""Its superblock begins with it (Linux, Documentation/filesystems/ext4/journal.rst)."""


def made(folder: Path, size: int, journal_bytes: int, offset_bytes: int = 0) -> Path:
    file = folder / "image"
    file.touch()
    os.truncate(file, offset_bytes + size)
    spec = Ext4Spec(size_bytes=size, journal_bytes=journal_bytes)
    filesystems.make(file, spec, offset_bytes=offset_bytes)
    return file


def owners(file: Path, blocks: list[int]) -> list[str]:
    """The inodes that blocks belong to, as debugfs looks for them from the other side."""
    done = subprocess.run(
        [need("debugfs"), "-R", f"icheck {' '.join(map(str, blocks))}", str(file)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [line.split("\t")[1] for line in done.stdout.splitlines()[1:]]


@pytest.mark.parametrize("offset_bytes", [0, 1 << 20])
def test_the_journal_has_its_size_and_is_found(tmp_path: Path, offset_bytes: int) -> None:
    file = made(tmp_path, SIZE, 8 << 20, offset_bytes)
    ranges = filesystems.journal_extents(file, offset_bytes)
    assert sum(end - begin for begin, end in ranges) == 8 << 20
    assert all(offset_bytes < begin < end < offset_bytes + SIZE for begin, end in ranges)
    with file.open("rb") as image:
        image.seek(ranges[0][0])
        assert image.read(4) == JBD2_MAGIC


def test_a_large_journal_lies_in_several_places(tmp_path: Path) -> None:
    """Group tables are between its parts; what is next to it is not its own."""
    file = made(tmp_path, 2600 << 20, 1 << 30)
    ranges = filesystems.journal_extents(file)
    assert sum(end - begin for begin, end in ranges) == 1 << 30
    assert len(ranges) > 1
    edges = [(begin >> 12, (end >> 12) - 1) for begin, end in ranges]
    assert owners(file, [block for edge in edges for block in edge]) == ["8"] * 2 * len(ranges)
    gap = [edges[0][1] + 1, edges[1][0] - 1]
    assert owners(file, gap) != ["8", "8"]


@pytest.mark.servers
@pytest.mark.root
def test_the_shortest_journal_on_a_device_of_its_own_is_one_that_the_kernel_takes(
    tmp_path: Path,
) -> None:
    spec = Ext4Spec(size_bytes=SIZE, journal_bytes=4 << 20, journal_mode="journal")
    folders = [tmp_path / name for name in ("data", "journal")]
    for folder in folders:
        folder.mkdir()
    with loop_device(folders[0], SIZE) as data, loop_device(folders[1], SIZE) as journal:
        filesystems.run_mke2fs(filesystems.journal_command(journal, spec.journal_bytes))
        filesystems.run_mke2fs(filesystems.make_command(data, spec, journal=journal))
        with filesystems.mounted(data, spec, journal=journal) as folder:
            (folder / "file").write_bytes(bytes(1 << 20))
            os.sync()
        assert filesystems.check(data) == ""


def test_the_journal_is_as_large_as_it_always_was_if_nobody_says(tmp_path: Path) -> None:
    for size, journal in ((SIZE, 4 << 20), (1 << 30, 64 << 20)):
        ranges = filesystems.journal_extents(made(tmp_path, size, 0))
        assert sum(end - begin for begin, end in ranges) == journal


@pytest.mark.parametrize(
    ("journal_bytes", "error", "said"),
    [
        (3 << 20, BadParameter, "whole MiB, 4 MiB to 39.06 GiB"),
        (5_000_000, BadParameter, "whole MiB"),
        (-(4 << 20), BadParameter, "whole MiB"),
        (40 << 30, BadParameter, "whole MiB"),
        (33 << 20, TargetError, "33 MiB does not fit into a file system of 64 MiB, at most half"),
        (32 << 20, TargetError, "journal size too big"),  # with its tables: mke2fs says it
    ],
)
def test_a_journal_that_cannot_be_is_refused(
    tmp_path: Path, journal_bytes: int, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        made(tmp_path, SIZE, journal_bytes)


def test_what_has_no_journal_says_so(tmp_path: Path) -> None:
    file = tmp_path / "image"
    file.touch()
    os.truncate(file, SIZE)
    with pytest.raises(TargetError, match="holds no ext4"):
        filesystems.journal_extents(file)
    with pytest.raises(TargetError, match="holds no ext4"):
        filesystems.journal_extents(tmp_path / "nonesuch")
    subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(file)], check=True)
    with pytest.raises(TargetError, match="no journal of its own"):
        filesystems.journal_extents(file)


HEAD = "Level Entries       Logical      Physical Length Flags\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (" 0/ 0   1/  1     0 -     9    11 -    20     10 Uninit\n", "no extent"),
        (" 0/ 0   1/  1     0 -     9    11 -    20\n", "no extent"),
        (" 0/ 0   1/  1     1 -     9    11 -    19      9 \n", "not whole"),
        (" 0/ 0   1/  1     0 -     9    11 -    21     10 \n", "not whole"),
        (" 0/ 0   1/  1     0 -     9    11 -    20     11 \n", "not whole"),
        ("", "no journal"),
    ],
)
def test_only_a_whole_list_of_extents_is_believed(lines: str, said: str) -> None:
    good = " 0/ 0   1/  1     0 -     9    11 -    20     10 \n"
    assert list(filesystems._physical(HEAD + good, "x")) == [(11, 10)]
    with pytest.raises(TargetError, match=said):
        list(filesystems._physical(HEAD + lines, "x"))


@pytest.mark.servers
@pytest.mark.root
def test_the_journal_holds_what_it_is_told_to(tmp_path: Path) -> None:
    with loop_device(tmp_path, SIZE) as device:
        for mode, twice in (("ordered", False), ("journal", True)):
            with filesystems.ext4(
                device, Ext4Spec(journal_mode=mode, journal_bytes=16 << 20)
            ) as folder:
                before = counters.read(device)
                (folder / "file").write_bytes(os.urandom(4 << 20))
                mounts.sync(folder)
                (folder / "file").touch()
                mounts.sync(folder)
            # mounted no more: what was journalled is home, too
            written = (counters.read(device) - before).write_sectors * counters.SECTOR_BYTES
            assert (written > 8 << 20) == twice
        ranges = filesystems.journal_extents(device)
        assert sum(end - begin for begin, end in ranges) == 16 << 20
        with (
            pytest.raises(UnknownName, match="unknown journal mode 'data'; known: journal, order"),
            filesystems.ext4(device, Ext4Spec(journal_mode="data")),
        ):
            pass


@pytest.mark.servers
@pytest.mark.root
def test_it_is_mounted_bounded_and_gone(tmp_path: Path) -> None:
    with loop_device(tmp_path, SIZE) as device:
        with filesystems.ext4(device, Ext4Spec(dirty_bytes=8 << 20)) as folder:
            assert mounts.is_point(folder)
            assert bdi(folder, "strict_limit") == "1"
            # the kernel keeps a share of its own limit, with six digits
            assert int(bdi(folder, "max_bytes")) == pytest.approx(8 << 20, rel=0.01)
            begun = counters.read(device)
            (folder / "file").write_bytes(bytes(1 << 20))
            mounts.sync(folder)
            synced = counters.read(device)
            assert (synced - begun).write_sectors * counters.SECTOR_BYTES >= 1 << 20
            time.sleep(6)  # longer than ext4 waits before a commit, and the kernel's flusher
            assert counters.read(device).write_ios == synced.write_ios
            number = device.stat().st_rdev
        place = Path("/sys/class/bdi") / f"{os.major(number)}:{os.minor(number)}"
        assert (place / "strict_limit").read_text().strip() == "0"
        assert (place / "max_ratio").read_text().strip() == "100"
        assert not mounts.is_point(folder)
        assert not folder.parent.exists()
        assert mounts.of_device(device) == []


@pytest.mark.servers
@pytest.mark.root
def test_a_failure_inside_leaves_nothing(tmp_path: Path) -> None:
    with loop_device(tmp_path, SIZE) as device:
        with pytest.raises(ZeroDivisionError), filesystems.ext4(device):
            1 / 0  # noqa: B018
        assert mounts.of_device(device) == []


@pytest.mark.servers
@pytest.mark.root
def test_it_is_unmounted_and_kept_where_the_temporary_folder_is_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mount table has no links in its paths."""
    place, link, root = (tmp_path / name for name in ("place", "link", "leases"))
    place.mkdir()
    link.symlink_to(place)
    monkeypatch.setattr(tempfile, "tempdir", str(link))
    monkeypatch.setattr(leases, "_root", lambda: root)
    with loop_device(tmp_path, SIZE) as device:
        try:
            with filesystems.ext4(device) as folder:
                (folder / "file").write_text("kept")
            assert mounts.of_device(device) == []
        finally:
            for mount in mounts.of_device(device):
                mounts.unmount(mount)
        assert list(root.iterdir()) == []
        assert list(place.iterdir()) == []
        with filesystems.mounted(device) as folder:
            assert (folder / "file").read_text() == "kept"


@pytest.mark.servers
@pytest.mark.root
def test_a_file_of_the_hardware_tier_keeps_its_header(tmp_path: Path) -> None:
    target = tmp_path / "scratch"
    with HardwareBench(target) as bench:
        bench.reserve({"file": SIZE})
        with bench.open_device(DeviceRequest(device="file", needed_bytes=SIZE)) as device:
            with device.filesystem(Ext4Spec(dirty_bytes=8 << 20)) as folder:
                loop = Path(f"/sys/dev/block/{mounts.number_of(folder)}").resolve()
                assert bdi(folder, "strict_limit") == "1"
                (folder / "file").write_bytes(b"x" * (8 << 20))
                with pytest.raises(OSError, match="No space"):
                    (folder / "large").write_bytes(b"x" * SIZE)
            assert target.read_bytes()[: len(scratch.MARKER)] == scratch.MARKER
            backing = Path("/sys/block") / loop.name / "loop" / "backing_file"
            assert not backing.exists() or backing.read_text().strip() != str(target)
    assert not target.exists()


def test_virtual_time_has_no_file_system() -> None:
    with (
        SimulatedBench(PROFILES, {"hdd": "seagate_250gb"}, "athlon_2010") as bench,
        bench.open_device(DeviceRequest(device="hdd")) as device,
        pytest.raises(TargetError, match="tier emulated or hardware"),
        device.filesystem(PLAIN),
    ):
        pass


@pytest.mark.servers
@pytest.mark.root
@pytest.mark.parametrize("discard", [True, False])
def test_deleted_files_are_discarded_if_asked_for(tmp_path: Path, *, discard: bool) -> None:
    with (
        loop_device(tmp_path, SIZE) as device,
        filesystems.ext4(device, Ext4Spec(discard=discard)) as folder,
    ):
        assert filesystems.device_of(folder) == device
        (folder / "file").write_bytes(b"x" * (8 << 20))
        mounts.sync(folder)
        before = counters.read(device)
        (folder / "file").unlink()
        mounts.sync(folder)

        def discarded() -> int:
            return (counters.read(device) - before).discard_sectors * counters.SECTOR_BYTES

        if discard:
            eventually(lambda: discarded() >= 8 << 20)
        else:
            assert discarded() == 0
            filesystems.trim(folder)
            assert discarded() >= SIZE // 2


@pytest.mark.servers
@pytest.mark.root
def test_a_device_that_knows_no_discard_is_refused_before_it_is_mounted(tmp_path: Path) -> None:
    with loop_device(tmp_path, SIZE, remove=True) as device:
        limit = Path("/sys/block") / device.name / "queue" / "discard_max_bytes"
        limit.write_text("0")
        with (
            pytest.raises(TargetError, match=r"knows no discard.*discard_max_bytes is 0"),
            filesystems.ext4(device, Ext4Spec(discard=True)),
        ):
            pass
        assert mounts.of_device(device) == []
        with (
            filesystems.ext4(device) as folder,
            pytest.raises(TargetError, match="knows no discard"),
        ):
            filesystems.trim(folder)


@pytest.mark.servers
@pytest.mark.root
def test_there_can_be_more_files_than_usual(tmp_path: Path) -> None:
    with (
        loop_device(tmp_path, SIZE) as device,
        filesystems.ext4(device, Ext4Spec(inodes=2 * ext4_spec.INODES)) as folder,
    ):
        assert os.statvfs(folder).f_files >= 2 * ext4_spec.INODES


COMPOUND = (1 << 15) | (1 << 16)
"""Heads and tails of folios of many pages (Documentation/admin-guide/mm/pagemap.rst)."""


def page_flags(file: Path) -> list[int]:
    """The kernel's flags of each page that the file has in the page cache, once mapped."""
    page = mmap.PAGESIZE
    with file.open("rb") as opened:
        size = file.stat().st_size
        mapped = mmap.mmap(opened.fileno(), size, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
        shown = np.frombuffer(mapped, np.uint8)
        assert set(shown[::page]) == {ord("x")}  # and every page is there now
        begin = shown.ctypes.data // page
        with Path("/proc/self/pagemap").open("rb") as pages:
            pages.seek(begin * 8)
            entries = np.frombuffer(pages.read(size // page * 8), np.uint64)
        frames = entries & np.uint64((1 << 55) - 1)
        assert (frames > 0).all()
        flags = []
        with Path("/proc/kpageflags").open("rb", buffering=0) as kernel:
            for frame in frames:
                kernel.seek(int(frame) * 8)
                flags.append(int.from_bytes(kernel.read(8), "little"))
        del shown
        mapped.close()
    return flags


@pytest.mark.servers
@pytest.mark.root
def test_the_page_cache_has_single_pages_as_in_the_papers_kernels(tmp_path: Path) -> None:
    """Read ahead and written in large pieces; a file system as mke2fs makes it shows the others."""
    if not Path("/proc/kpageflags").exists():
        pytest.skip("this kernel does not say what its pages are")
    large = {}
    with loop_device(tmp_path, SIZE) as device:
        for ours in (True, False):
            if ours:
                filesystems.make(device)
            else:
                subprocess.run([need("mke2fs"), "-q", "-F", "-t", "ext4", str(device)], check=True)
            with filesystems.mounted(device) as folder:
                (folder / "file").write_bytes(b"x" * (8 << 20))
                mounts.sync(folder)
                large[ours] = sum(bool(f & COMPOUND) for f in page_flags(folder / "file"))
    assert large[True] == 0
    if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 16):
        assert large[False] > 1000


@pytest.mark.parametrize(
    ("line", "is_ours"),
    [
        ("EXT4-fs (zero): error loading journal", False),
        ("EXT4-fs (null): error loading journal", True),
        ("EXT4-fs error (device null): ext4_fill_super: bad", True),
        ("EXT4-fs error (device zero): ext4_fill_super: bad", False),
        ("EXT4-fs: bad block size 16384", True),
        ("loop0: detected capacity change from 0 to 8", False),
    ],
)
def test_only_what_ext4_says_of_this_device_is_why_it_was_not_mounted(
    line: str, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_block_device", lambda _: True)
    assert filesystems._is_of(Path("/dev/null"), line) is is_ours
