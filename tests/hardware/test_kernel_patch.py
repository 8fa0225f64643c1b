"""The JBD2 patch: applies to Debian's source of the longterm kernel, compiles, has its style."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import REPOSITORY, need

HOME = REPOSITORY / "build" / "guest"
PATCH = REPOSITORY / "hardware" / "msdj" / "linux" / "journal-write-hint.patch"
PACKED = HOME / "linux-source-6.12.tar.xz"
BUILDERS = HOME / "builders" / "usr"

# A build of two file systems needs no drivers; but Kconfig reads all that is named Kconfig.
LEFT_OUT = (
    *("*/drivers/*.[chS]", "*/sound/*.[ch]", "*/net/*.c", "*/tools/testing", "*/tools/perf"),
    *("*/arch/[a-wyz]*/*.[chS]", "*/arch/*.dts*", "*/Documentation/*.yaml"),
)
CONFIGURATION = """
CONFIG_64BIT=y
CONFIG_PRINTK=y
CONFIG_BLOCK=y
CONFIG_PROC_FS=y
CONFIG_SYSFS=y
CONFIG_QUOTA=y
CONFIG_FS_ENCRYPTION=y
CONFIG_EXT4_FS=y
CONFIG_EXT4_FS_POSIX_ACL=y
CONFIG_EXT4_DEBUG=y
CONFIG_JBD2_DEBUG=y
"""
COMPILED = ("fs/buffer.o", "fs/jbd2/", "fs/ext4/")

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source, patched, without fuzz or offset."""
    if not PACKED.is_file():
        pytest.skip("no kernel source: run tools/install-guest kernel-source (on Debian)")
    folder = tmp_path_factory.mktemp("linux")
    left_out = [f"--exclude={pattern}" for pattern in LEFT_OUT]
    unpacking = ["tar", "-xf", str(PACKED), "-C", str(folder), "--strip-components=1"]
    subprocess.run([*unpacking, "--wildcards", *left_out], check=True)
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


def test_it_applies_and_compiles_without_a_warning(source: Path, tmp_path: Path) -> None:
    need("gcc")
    objects = tmp_path / "objects"
    objects.mkdir()
    make = ["make", "-s", f"O={objects}", f"HOSTCFLAGS=-I{BUILDERS}/include"]
    make.append(f"HOSTLDFLAGS=-L{BUILDERS}/lib/x86_64-linux-gnu")
    tools = {
        "PATH": f"{BUILDERS}/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{BUILDERS}/lib/x86_64-linux-gnu",
        "BISON_PKGDATADIR": f"{BUILDERS}/share/bison",
        "M4": str(BUILDERS / "bin" / "m4"),
    }
    unpacked = tools if (BUILDERS / "bin" / "bison").is_file() else {}
    run([*make, "tinyconfig"], source, unpacked)
    with (objects / ".config").open("a") as file:
        file.write(CONFIGURATION)
    run([*make, "olddefconfig"], source, unpacked)
    chosen = (objects / ".config").read_text().splitlines()
    assert set(CONFIGURATION.split()) <= set(chosen)
    run([*make, "KCFLAGS=-Werror", *COMPILED], source, unpacked)
    for path in (path for path in touched() if path.endswith(".c")):
        assert (objects / path).with_suffix(".o").is_file(), path
    shutil.rmtree(objects)


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
