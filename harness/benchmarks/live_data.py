"""Is data what was written? fio and file systems on a live device, judged by tools of others."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import TargetError
from harness.system import filesystems
from harness.system.programs import find_program

_DEPTHS: Final = (1, 4, 32)
_FOLDERS: Final = 100
_ALIGN: Final = 1 << 20


@dataclass(frozen=True)
class Verified:
    """What fio did and found: `errors` are blocks that were not what was written, or I/O errors."""

    errors: int
    written_bytes: int
    read_bytes: int
    trims: int
    said: str


def verify_with_fio(
    device: Path, span_bytes: int, *, loops: int = 1, seed: int = 1, trims: bool = True
) -> Verified:
    """Jobs of several depths over parts of their own: random sizes, flushes, trims, CRC-32C.

    They read while they write (blocks of the recent past), and everything at the end. With `trims`
    another job trims each range before it writes it.
    """
    share = span_bytes // (len(_DEPTHS) + trims) // _ALIGN * _ALIGN
    command = [find_program("fio"), f"--filename={device}", "--direct=1", "--ioengine=libaio"]
    command += ["--bsrange=4k-256k", "--blockalign=4k", f"--size={share}", f"--loops={loops}"]
    command += ["--verify=crc32c", "--verify_backlog=200", "--verify_fatal=0", "--fsync=40"]
    command += ["--verify_state_save=0"]
    command += [f"--randseed={seed}", "--output-format=json", "--thread"]
    for i, depth in enumerate(_DEPTHS):
        command += [f"--name=depth{depth}", f"--iodepth={depth}", f"--offset={i * share}"]
        command += ["--rw=randwrite", f"--serialize_overlap={int(depth > 1)}"]
    if trims:
        command += ["--name=trims", "--iodepth=8", f"--offset={len(_DEPTHS) * share}"]
        command += ["--rw=trimwrite", "--serialize_overlap=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stderr.strip()
    try:
        jobs: list[dict[str, Any]] = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    except ValueError as error:
        raise TargetError(f"fio: {said or done.stdout[-500:]}") from error
    errors = sum(job["error"] != 0 for job in jobs) + said.count("verify:")
    return Verified(
        max(errors, int(done.returncode != 0)),
        sum(job["write"]["io_bytes"] for job in jobs),
        sum(job["read"]["io_bytes"] for job in jobs),
        sum(job["trim"]["total_ios"] for job in jobs),
        said,
    )


@contextmanager
def file_system(device: Path, folder: Path, kind: str, *options: str) -> Iterator[Path]:
    """Makes and mounts ext4, xfs or btrfs; unmounts it, whatever happens."""
    quiet = ["-q", "-F"] if kind == "ext4" else ["-q", "-f"]
    run(f"mkfs.{kind}", *quiet, str(device))
    with mounted(device, folder, *options):
        yield folder


@contextmanager
def mounted(device: Path, folder: Path, *options: str) -> Iterator[Path]:
    """The device's file system."""
    folder.mkdir(exist_ok=True)
    run("mount", *options, str(device), str(folder))
    try:
        yield folder
    finally:
        run("umount", str(folder))


def write_files(folder: Path, files: int, seed: int) -> str:
    """So many small files with random content, and a digest of them all."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    digest = hashlib.sha256()
    for i in range(files):
        parent = folder / f"{i % _FOLDERS:02d}"
        parent.mkdir(exist_ok=True)
        content = chance.randbytes(chance.randrange(1, 8192))
        (parent / str(i)).write_bytes(content)
        digest.update(content)
    return digest.hexdigest()


def digest_files(folder: Path, files: int) -> str:
    """The digest of what `write_files` wrote, read again."""
    digest = hashlib.sha256()
    for i in range(files):
        digest.update((folder / f"{i % _FOLDERS:02d}" / str(i)).read_bytes())
    return digest.hexdigest()


def check_file_system(device: Path, kind: str) -> str:
    """What the file system's own checker complains of; empty if it is clean."""
    if kind == "ext4":
        return filesystems.check(device)
    checkers = {"xfs": ("xfs_repair", "-n"), "btrfs": ("btrfs", "check", "--readonly")}
    program, *options = checkers[kind]
    command = [find_program(program), *options, str(device)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{program}: {done.stdout} {done.stderr}"


def discarded_bytes(device: Path) -> int:
    """What the kernel has discarded on a device, by its own count."""
    fields = (Path("/sys/block") / device.name / "stat").read_text().split()
    return int(fields[13]) * 512


def run(program: str, *arguments: str) -> str:
    """Runs a tool, and returns what it said. Raises TargetError with its complaint."""
    command = [find_program(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TargetError(f"{program}: {' '.join((done.stderr or done.stdout).split())}")
    return done.stdout
