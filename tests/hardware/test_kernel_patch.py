"""The JBD2 patch: applies to Debian's source of the longterm kernel, compiles, boots, and tags."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import REPOSITORY, need

from hardware import guest, image

HERE = Path(__file__).resolve().parent
HOME = REPOSITORY / "build" / "guest"
PATCH = REPOSITORY / "hardware" / "msdj" / "linux" / "journal-write-hint.patch"
PACKED = HOME / "linux-source-6.12.tar.xz"
BUILDERS = HOME / "builders" / "usr"

# Drivers and machines that the kernel below has not; but Kconfig reads all that is named Kconfig.
LEFT_OUT = (
    *("*/drivers/gpu/*.[chS]", "*/drivers/net/*.[chS]", "*/drivers/media/*.[chS]"),
    *("*/sound/*.[ch]", "*/tools/testing", "*/tools/perf"),
    *("*/arch/[a-wyz]*/*.[chS]", "*/arch/*.dts*", "*/Documentation/*.yaml"),
)
CONFIGURATION = """
CONFIG_64BIT=y
CONFIG_KERNEL_GZIP=y
CONFIG_PRINTK=y
CONFIG_BUG=y
CONFIG_TTY=y
CONFIG_SERIAL_8250=y
CONFIG_SERIAL_8250_CONSOLE=y
CONFIG_BLK_DEV_INITRD=y
CONFIG_BINFMT_ELF=y
CONFIG_BINFMT_SCRIPT=y
CONFIG_DEVTMPFS=y
CONFIG_PROC_FS=y
CONFIG_SYSFS=y
CONFIG_FTRACE=y
CONFIG_ENABLE_DEFAULT_TRACERS=y
CONFIG_BLOCK=y
CONFIG_SCSI=y
CONFIG_BLK_DEV_SD=y
CONFIG_SCSI_LOWLEVEL=y
CONFIG_SCSI_DEBUG=y
CONFIG_QUOTA=y
CONFIG_FS_ENCRYPTION=y
CONFIG_EXT4_FS=y
CONFIG_EXT4_FS_POSIX_ACL=y
CONFIG_EXT4_DEBUG=y
CONFIG_JBD2_DEBUG=y
"""
COMPILED = ("fs/buffer.o", "fs/jbd2/", "fs/ext4/")
DRIVE_MIB = 64
JOURNAL_MIB = 4
SECTORS_PER_BLOCK = 8
HINTS = {"not_set": 0, "short": 2, "extreme": 5}  # include/linux/rw_hint.h
_BOOT_LIMIT_S = 900.0

pytestmark = [pytest.mark.slow, pytest.mark.builds]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source, patched, without fuzz or offset."""
    if not PACKED.is_file():
        pytest.skip("no kernel source: run tools/install-guest kernel-source (on Debian)")
    folder = tmp_path_factory.mktemp("linux")
    left_out = [f"--exclude={pattern}" for pattern in LEFT_OUT]
    place = ["-C", str(folder), "--strip-components=1", "--wildcards"]
    unpacking = ["tar", "-xf", str(PACKED), *place]
    subprocess.run([*unpacking, *left_out], check=True)
    said = run(["patch", "-p1", "--fuzz=0", "--input", str(PATCH)], folder)
    assert set(said.splitlines()) == {f"patching file {path}" for path in touched()}
    return folder


def run(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | dict(environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def touched() -> list[str]:
    """What the patch changes, by its own headers."""
    lines = PATCH.read_text().splitlines()
    return [line.removeprefix("+++ b/") for line in lines if line.startswith("+++ b/")]


@pytest.fixture(scope="module")
def objects(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small kernel of that source: what the patch changes with warnings as errors, the rest."""
    need("gcc")
    folder = tmp_path_factory.mktemp("objects")
    make = ["make", "-s", f"-j{os.cpu_count()}", f"O={folder}", f"HOSTCFLAGS=-I{BUILDERS}/include"]
    make.append(f"HOSTLDFLAGS=-L{BUILDERS}/lib/x86_64-linux-gnu")
    tools = {
        "PATH": f"{BUILDERS}/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{BUILDERS}/lib/x86_64-linux-gnu",
        "BISON_PKGDATADIR": f"{BUILDERS}/share/bison",
        "M4": str(BUILDERS / "bin" / "m4"),
    }
    unpacked = tools if (BUILDERS / "bin" / "bison").is_file() else {}
    run([*make, "tinyconfig"], source, unpacked)
    with (folder / ".config").open("a") as file:
        file.write(CONFIGURATION)
    run([*make, "olddefconfig"], source, unpacked)
    chosen = (folder / ".config").read_text().splitlines()
    assert set(CONFIGURATION.split()) <= set(chosen)
    run([*make, "prepare"], source, unpacked)
    run([*make, "KCFLAGS=-Werror", *COMPILED], source, unpacked)
    run([*make, "KCFLAGS=-Werror", "bzImage"], source, unpacked)
    yield folder
    shutil.rmtree(folder)


def test_it_applies_and_compiles_without_a_warning(objects: Path) -> None:
    for path in (path for path in touched() if path.endswith(".c")):
        assert (objects / path).with_suffix(".o").is_file(), path


def test_every_journal_write_is_tagged(source: Path) -> None:
    """What is left writes home: checkpoints, and the replay of fast commits (sync_dirty_buffer)."""
    untagged = re.compile(r"\b(submit_bh|write_dirty_buffer)\(")
    files = [*(source / "fs" / "jbd2").glob("*.c"), source / "fs" / "ext4" / "fast_commit.c"]
    assert len(files) == 7
    left = {path.name for path in files if untagged.search(path.read_text())}
    assert left == {"checkpoint.c"}


def test_it_has_the_kernels_style(source: Path) -> None:
    """A sign-off is for whoever submits it."""
    command = ["perl", "scripts/checkpatch.pl", "--no-signoff", "--terse", str(PATCH)]
    assert run(command, source) == ""


@dataclass
class Phase:
    """What one phase of patched.sh printed."""

    mounted: list[str] = field(default_factory=list)
    writes: list[tuple[int, int, int]] = field(default_factory=list)  # LBA, sectors, group
    groups: dict[int, int] = field(default_factory=dict)  # requests by group, by the drive
    entries: str = ""
    fast_commits: int = 0


@pytest.fixture(scope="module")
def booted(objects: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with the file systems' images, and what the patched kernel's machine printed."""
    if missing := guest.missing():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("patched")
    features = {"journalled": "^fast_commit", "fast": "fast_commit"}
    for name, feature in features.items():
        options = ["-q", "-t", "ext4", "-b", "4096", "-O", feature, "-J", f"size={JOURNAL_MIB}"]
        options += ["-E", "lazy_itable_init=0"]
        run(["mke2fs", *options, str(folder / name), f"{DRIVE_MIB}M"], folder)
    directories = ("bin", "dev", "proc", "sys", "files")
    files = dict.fromkeys(directories, (stat.S_IFDIR | 0o755, b""))
    busybox = (HOME / "inside" / "usr" / "bin" / "busybox").read_bytes()
    files["bin/busybox"] = (stat.S_IFREG | 0o755, busybox)
    files["bin/sh"] = (stat.S_IFLNK | 0o777, b"busybox")
    files["init"] = (stat.S_IFREG | 0o755, (HERE / "patched.sh").read_bytes())
    files |= {name: (stat.S_IFREG | 0o644, (folder / name).read_bytes()) for name in features}
    (folder / "initial-disk").write_bytes(b"".join(image.cpio(files)))
    kernel = objects / "arch" / "x86" / "boot" / "bzImage"
    words = f"console=ttyS0 panic=-1 scsi_debug.dev_size_mb={DRIVE_MIB}"
    machine = [
        *("setpriv", "--pdeathsig", "KILL", "--", *guest.emulator()),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "q35", "-accel", "tcg", "-cpu", "max,la57=off", "-m", "1024M"),
        *("-kernel", str(kernel), "-append", words, "-initrd", str(folder / "initial-disk")),
        *("-serial", "stdio"),
    ]
    done = subprocess.run(
        machine,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_BOOT_LIMIT_S,
        check=False,
    )
    said = done.stdout.decode(errors="replace").replace("\r", "")
    assert "\ndone\n" in said, said[-4000:]
    return folder, said


def phases(said: str) -> dict[str, Phase]:
    """What was printed, by phase."""
    found: dict[str, Phase] = {}
    current = Phase()
    for line in said.splitlines():
        word, _, rest = line.partition(" ")
        if word == "begin":
            current = found[rest] = Phase()
        elif word == "end":
            current = Phase()
        elif word == "mounted":
            current.mounted.append(rest)
        elif word == "group":
            group, count = rest.split()
            current.groups[int(group)] = int(count)
        elif word == "fast":
            current.fast_commits = int(rest.split()[0])
        elif line.startswith("entries-in"):
            current.entries = rest
        elif line.startswith("WRITE"):
            current.writes.append(write_of(line))
    return found


def write_of(line: str) -> tuple[int, int, int]:
    """LBA, sectors and group number of a command, from its bytes (SBC-4, WRITE (10) and (16))."""
    [raw] = re.findall(r"raw=([0-9a-f ]+)", line)
    cdb = bytes.fromhex(raw)
    if cdb[0] == 0x2A:
        return int.from_bytes(cdb[2:6]), int.from_bytes(cdb[7:9]), cdb[6] & 0x3F
    assert cdb[0] == 0x8A, line
    return int.from_bytes(cdb[2:10]), int.from_bytes(cdb[10:14]), cdb[14] & 0x3F


def journal_of(folder: Path, name: str) -> set[int]:
    """The blocks of a file system's journal."""
    said = subprocess.run(
        ["debugfs", "-R", "blocks <8>", name], cwd=folder, capture_output=True, check=True
    )
    return {int(n) for n in said.stdout.split()}


def test_a_patched_kernel_tags_what_goes_to_the_journal_and_nothing_else(
    booted: tuple[Path, str],
) -> None:
    """Two witnesses: the commands that SCSI dispatched, and what the drive counted by group."""
    folder, said = booted
    for bad in ("problem:", "WARNING", "BUG", "Call Trace", "EXT4-fs error", "JBD2: "):
        assert bad not in said
    expected = {"unset": "not_set", "remounted": "extreme", "short": "short"}
    seen = phases(said)
    assert set(seen) == {f"{i} {phase}" for i in ("journalled", "fast") for phase in expected}
    for name, phase in seen.items():
        image_name, kind = name.split()
        hint = expected[kind]
        journal = journal_of(folder, image_name)
        assert len(journal) >= JOURNAL_MIB << 8
        [options] = phase.mounted
        assert (phase.fast_commits > 0) == (image_name == "fast"), name
        told = f"journal_write_hint={hint}" in options
        assert told == (hint != "not_set"), options
        kept, printed = re.findall(r"(\d+)/(\d+)", phase.entries)[0]
        assert kept == printed, "the trace has lost entries"
        groups: dict[bool, set[int]] = {True: set(), False: set()}
        sectors = dict.fromkeys(groups, 0)
        for lba, count, group in phase.writes:
            blocks = range(lba // SECTORS_PER_BLOCK, -(-(lba + count) // SECTORS_PER_BLOCK))
            inside = {block in journal for block in blocks}
            assert len(inside) == 1, "a request across the journal's border"
            groups[inside == {True}].add(group)
            sectors[inside == {True}] += count
        assert groups == {True: {HINTS[hint]}, False: {0}}, name
        least = 6 << 11 if image_name == "journalled" else 6 << 4
        assert sectors[True] > least, name
        assert sectors[False] > 6 << 11, name
        counted = {group: n for group, n in phase.groups.items() if n}
        mine = Counter(group for _, _, group in phase.writes)
        assert counted == dict(mine), name


def test_files_are_as_written_under_the_patched_kernel(booted: tuple[Path, str]) -> None:
    """Unmounted and mounted again without the option: after two phases, and after all three."""
    _, said = booted
    left_by_phase, images = 8, 2
    found = re.findall(r"^file [0-9a-f]{32}  /files/", said, re.M)
    assert len(found) == images * left_by_phase * (2 + 3)
