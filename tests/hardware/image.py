"""What a guest boots from: an initial RAM disk that finds its disks, and a root disk.

The root disk holds little but /etc and mount points: /usr, the Python environment and the checkout
are the host's own, which the guest mounts read-only (shares).
"""

from __future__ import annotations

import lzma
import shutil
import stat
import struct
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness.system.programs import find_program

HERE = Path(__file__).resolve().parent
MIB = 1 << 20

ROOT_LABEL = "guest-root"
_ROOT_BEGIN = 1 * MIB
_SWAP_BYTES = 256 * MIB
_SECTOR = 512

_MODULES = ("crc32c_generic", "9pnet_virtio", "9p", "ahci", "sd_mod", "ext4", "overlay")
"""What is needed before there is a root disk; udev loads what else there is a device for."""

_OF_ETC = (
    *("alternatives", "group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime"),
    *("mke2fs.conf", "nsswitch.conf", "passwd", "postgresql-common", "protocols", "services"),
)


def make_initial_disk(target: Path, inside: Path, kernel: str, shares: Mapping[str, Path]) -> None:
    """Writes the initial RAM disk. `shares`: what each 9p tag is mounted as in the guest."""
    folders = ("bin", "modules", "dev", "proc", "sys", "run")
    files = dict.fromkeys(folders, (stat.S_IFDIR | 0o755, b""))
    busybox = (inside / "usr" / "bin" / "busybox").read_bytes()
    files["bin/busybox"] = (stat.S_IFREG | 0o755, busybox)
    files["bin/sh"] = (stat.S_IFLNK | 0o777, b"busybox")
    files["init"] = (stat.S_IFREG | 0o755, (HERE / "init.sh").read_bytes())
    table = "".join(f"{tag} {point}\n" for tag, point in shares.items())
    files["shares"] = (stat.S_IFREG | 0o644, table.encode())
    for i, module in enumerate(_in_order(inside / "usr" / "lib" / "modules" / kernel, _MODULES)):
        files[f"modules/{i:02}.ko"] = (stat.S_IFREG | 0o644, lzma.decompress(module.read_bytes()))
    target.write_bytes(b"".join(cpio(files)))


def _in_order(folder: Path, names: Iterable[str]) -> list[Path]:
    """Modules, each after what it needs (modules.dep has the first to be loaded last)."""
    needs = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        module, _, others = line.partition(":")
        needs[Path(module).name.split(".")[0]] = [*others.split()[::-1], module]
    wanted = (path for name in names for path in needs[name])
    return [folder / path for path in dict.fromkeys(wanted)]


def cpio(files: Mapping[str, tuple[int, bytes]]) -> Iterator[bytes]:
    """The format "newc" (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    for number, (name, (mode, content)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))]):
        path = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + path
        yield head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)


def make_root_disk(target: Path, folder: Path, size_bytes: int, points: Iterable[Path]) -> None:
    """Writes a partitioned disk: ext4 and, not made yet, swap. `folder`: for its content."""
    root = folder / "root"
    _fill(root, points)
    root_bytes = size_bytes - _ROOT_BEGIN - _SWAP_BYTES
    with target.open("wb") as file:
        file.truncate(size_bytes)
        file.write(
            _partition_table(
                [(0x83, _ROOT_BEGIN, root_bytes), (0x82, size_bytes - _SWAP_BYTES, _SWAP_BYTES)]
            )
        )
    place = f"offset={_ROOT_BEGIN},lazy_itable_init=1,root_owner=0:0"
    options = ["-t", "ext4", "-q", "-F", "-L", ROOT_LABEL, "-d", str(root), "-E", place]
    size = f"{root_bytes // 1024}k"
    subprocess.run([find_program("mke2fs"), *options, str(target), size], check=True)
    shutil.rmtree(root)


def _fill(root: Path, points: Iterable[Path]) -> None:
    """The root disk's files. Links such as /bin are those of the host."""
    for name in ("dev", "proc", "sys", "run", "tmp", "root", "mnt", "var/tmp", "var/log", "usr"):
        (root / name).mkdir(parents=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    for point in points:
        (root / point.relative_to("/")).mkdir(parents=True, exist_ok=True)
    for path in Path("/").iterdir():
        if path.is_symlink() and str(path.readlink()).removeprefix("/").startswith("usr/"):
            (root / path.name).symlink_to(path.readlink())
    (root / "etc").mkdir(exist_ok=True)
    for path in (Path("/etc") / name for name in _OF_ETC):
        if path.is_dir():
            shutil.copytree(path, root / "etc" / path.name, symlinks=True)
        elif path.exists():
            shutil.copy(path, root / "etc" / path.name)
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost guest\n")
    (root / "etc" / "mtab").symlink_to("../proc/self/mounts")
    (root / "etc" / "mdadm").mkdir()
    (root / "etc" / "mdadm" / "mdadm.conf").write_text("AUTO -all\n")  # only when a test says so
    for name in ("start.sh", "agent.py"):
        shutil.copy(HERE / name, root / name)
        (root / name).chmod(0o755)


def _partition_table(partitions: list[tuple[int, int, int]]) -> bytes:
    """A master boot record with partitions of (type, begin, bytes)."""
    entries = b"".join(
        struct.pack(
            "<8BII", 0, 0xFE, 0xFF, 0xFF, kind, 0xFE, 0xFF, 0xFF, begin // _SECTOR, size // _SECTOR
        )
        for kind, begin, size in partitions
    )
    return bytes(440) + struct.pack("<IH", 0xF1A5B1AB, 0) + entries.ljust(64, b"\0") + b"\x55\xaa"
