"""The library that preallocates temp files: every way to open one, and a real server."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import loop_device, open_folder
from leaks import PREFIX

from harness.dbms import postgres, temp_files
from harness.dbms.postgres import Preload
from harness.errors import BadParameter, MissingTool, ServerError
from harness.system import filesystems, mounts

EACH = 1 << 20
WRITTEN = 10_000
KEPT = 12 << 10
"""WRITTEN bytes in blocks of 4 KiB."""

pytestmark = pytest.mark.servers

PROGRAM = """
import ctypes, json, os, sys
call, name = sys.argv[1:3]
c = ctypes.CDLL(None, use_errno=True)
RDWR = os.O_RDWR | os.O_CREAT | os.O_EXCL
folder = os.open(".", os.O_RDONLY)
path = name.encode()
c.fopen.restype = c.fopen64.restype = ctypes.c_void_p
def opened():
    if call in ("open", "open64"):
        return getattr(c, call)(path, RDWR, 0o600)
    if call in ("openat", "openat64"):
        return getattr(c, call)(folder, path, RDWR, 0o600)
    if call in ("creat", "creat64"):
        return getattr(c, call)(path, 0o600)
    return getattr(c, call)(path, b"w")
made = opened()
stream = "fopen" in call
failed = not made if stream else made < 0
if failed:
    print(json.dumps({"errno": ctypes.get_errno(), "there": os.path.exists(name)}))
    sys.exit()
fd = c.fileno(ctypes.c_void_p(made)) if stream else made
blocks = [os.fstat(fd).st_blocks * 512]
os.write(fd, bytes(WRITTEN))
os.fsync(fd)
blocks.append(os.fstat(fd).st_blocks * 512)
how = sys.argv[3]
if how == "dup2":
    other = os.open("other", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(other, 0, 1 << 16)
    c.fallocate(other, 1, ctypes.c_long(0), ctypes.c_long(1 << 20))
    c.dup2(other, fd)
    c.read(fd, ctypes.create_string_buffer(1), ctypes.c_size_t(1))
    print(json.dumps({"other": os.fstat(other).st_blocks * 512}))
    sys.exit()
if how == "fork":
    child = os.fork()
    if not child:
        c.read(fd, ctypes.create_string_buffer(1), ctypes.c_size_t(1))
        os._exit(0)
    os.waitpid(child, 0)
if how == "again":
    c.close(fd)
    fd = os.open(name, os.O_RDWR)
    blocks.append(os.fstat(fd).st_blocks * 512)
    how = "pread"
buffer, one, zero = ctypes.create_string_buffer(64), ctypes.c_size_t(1), ctypes.c_long(0)
if how == "read":
    c.read(fd, buffer, one)
elif how in ("pread", "pread64"):
    getattr(c, how)(fd, buffer, one, zero)
elif how in ("__pread_chk", "__pread64_chk"):
    c.__getattr__(how)(fd, buffer, one, zero, ctypes.c_size_t(64))
elif how in ("preadv", "preadv64"):
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 1)
    getattr(c, how)(fd, vector, 1, zero)
blocks.append(os.fstat(fd).st_blocks * 512)
if stream:
    c.fclose(ctypes.c_void_p(made))
else:
    c.close(fd)
facts = os.stat(name)
print(json.dumps({"size": facts.st_size, "blocks": [*blocks, facts.st_blocks * 512]}))
""".replace("WRITTEN", str(WRITTEN))

READS = ("read", "pread", "pread64", "__pread_chk", "__pread64_chk", "preadv", "preadv64")
CALLS = ("open", "open64", "openat", "openat64", "creat", "creat64", "fopen", "fopen64")


@pytest.fixture
def folder() -> Iterator[Path]:
    """On a disk: pytest's own folder may be in memory."""
    with open_folder() as made:
        yield made


def preloaded(
    folder: Path,
    call: str,
    name: str = "pgsql_tmp1.0",
    how: str = "close",
    each: str = str(EACH),
    program: str = PROGRAM,
    give_back: bool = False,
) -> Any:
    """What a program says that has the library and calls the C library's functions by name."""
    env = {"LD_PRELOAD": str(temp_files.LIBRARY), "FLASHLAB_TEMP_FILE_BYTES": each}
    env["FLASHLAB_TEMP_FILE_GIVE_BACK"] = str(int(give_back))
    command = [sys.executable, "-I", "-S", "-c", program, call, name, how]
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("call", CALLS)
def test_a_temp_file_has_its_bytes_at_once_and_keeps_them(folder: Path, call: str) -> None:
    found = preloaded(folder, call)
    assert found["size"] == WRITTEN
    at_creation, *later = found["blocks"]
    assert at_creation >= EACH
    assert later == [at_creation] * 3  # written, about to be closed, closed


@pytest.mark.parametrize("read", READS)
def test_what_it_did_not_use_goes_with_the_first_read_if_asked_for(folder: Path, read: str) -> None:
    _, written, *later = preloaded(folder, "open", how=read, give_back=True)["blocks"]
    assert written >= EACH
    assert later == [KEPT] * 2
    (folder / "pgsql_tmp1.0").unlink()
    kept = preloaded(folder, "open", how=read)["blocks"]
    assert kept == [kept[0]] * 4


def test_a_close_says_nothing_of_the_file_s_end(folder: Path) -> None:
    """Of a server that has too many open: it comes back, and only then reads."""
    found = preloaded(folder, "open", how="again", give_back=True)["blocks"]
    _, _, again, *later = found
    assert again >= EACH
    assert later == [KEPT] * 2


@pytest.mark.parametrize("call", CALLS)
def test_other_files_are_left_alone(folder: Path, call: str) -> None:
    found = preloaded(folder, call, name="16384_fsm")
    assert found["blocks"] == [0, KEPT, KEPT, KEPT]


def test_a_child_that_reads_what_it_inherited_gives_nothing_back(folder: Path) -> None:
    _, before, after_child, _ = preloaded(folder, "open", how="fork", give_back=True)["blocks"]
    assert after_child == before >= EACH


def test_a_descriptor_that_became_another_file_is_left_alone(folder: Path) -> None:
    assert preloaded(folder, "open", how="dup2", give_back=True)["other"] >= EACH


def test_fortified_opens_pass_through(folder: Path) -> None:
    """They refuse to create, in the C library itself."""
    (folder / "pgsql_tmp1.0").write_bytes(b"there")
    program = """
import ctypes, json, os
c = ctypes.CDLL(None)
here = os.open(".", os.O_RDONLY)
name = b"pgsql_tmp1.0"
fds = [c.__getattr__("__open_2")(name, 0), c.__getattr__("__open64_2")(name, 0)]
fds += [c.__getattr__(n)(here, name, 0) for n in ("__openat_2", "__openat64_2")]
print(json.dumps([os.read(fd, 9).decode() for fd in fds]))
"""
    assert preloaded(folder, "", program=program) == ["there"] * 4
    assert (folder / "pgsql_tmp1.0").stat().st_blocks * 512 <= 4096


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A small ext4 of our own."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    with loop_device(tmp_path, 64 << 20) as device, filesystems.ext4(device) as folder:
        yield folder


@pytest.mark.parametrize("call", ["open", "openat", "creat", "fopen"])
def test_a_file_that_does_not_fit_is_not_made(small: Path, call: str) -> None:
    free = os.statvfs(small).f_bfree
    found = preloaded(small, call, each=str(1 << 30))
    assert found == {"errno": errno.ENOSPC, "there": False}
    mounts.sync(small)
    assert os.statvfs(small).f_bfree == free


def test_a_file_system_that_cannot_preallocate_refuses_the_file() -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    with tempfile.TemporaryDirectory(prefix=f"flashlab-test-{PREFIX}") as place:
        subprocess.run(["mount", "-t", "ramfs", "ramfs", place], check=True)
        try:
            found = preloaded(Path(place), "open")
        finally:
            subprocess.run(["umount", place], check=True)
    assert found == {"errno": errno.EOPNOTSUPP, "there": False}


def test_a_setting_that_is_no_number_ends_the_program(folder: Path) -> None:
    env = {"LD_PRELOAD": str(temp_files.LIBRARY), "FLASHLAB_TEMP_FILE_BYTES": "16M"}
    done = subprocess.run(
        ["/bin/true"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "FLASHLAB_TEMP_FILE_BYTES=16M is not a number of bytes" in done.stderr


def test_none_is_no_preload() -> None:
    assert temp_files.preallocation(0) is None
    with pytest.raises(BadParameter, match="0 or more"):
        temp_files.preallocation(-1)


@pytest.fixture
def place() -> Iterator[Path]:
    try:
        postgres.find_binaries()
    except MissingTool as error:
        pytest.skip(str(error))
    with open_folder() as folder:
        yield folder


def test_a_library_that_is_missing_or_broken_is_told_before_the_server_starts(
    place: Path,
) -> None:
    broken = place / "broken.so"
    with (
        pytest.raises(MissingTool, match=r"broken.so is missing.*make env"),
        postgres.run(place, {}, preload=Preload(broken, {})),
    ):
        pass
    broken.write_bytes(b"no library")
    with (
        pytest.raises(MissingTool, match=r"broken.so cannot be loaded"),
        postgres.run(place, {}, preload=Preload(broken, {})),
    ):
        pass
    assert list(place.iterdir()) == [broken]


def test_a_server_that_did_not_load_it_is_ended(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dynamic linker only warns: here of a copy that was cut off."""
    monkeypatch.setattr(shutil, "copyfileobj", lambda _, to: to.write(b"\x7fELF"))
    with (
        pytest.raises(ServerError, match=r"has not loaded temp_files.so"),
        postgres.run(place, {}, preload=temp_files.preallocation(EACH)),
    ):
        pass
    assert list(place.iterdir()) == []


def test_only_the_server_has_it(place: Path) -> None:
    with postgres.run(place, {}, preload=temp_files.preallocation(EACH)) as server:
        environment = Path(f"/proc/{server.pid}/environ").read_bytes()
        assert f"FLASHLAB_TEMP_FILE_BYTES={EACH}".encode() in environment
        assert b"temp_files.so" in Path(f"/proc/{server.pid}/maps").read_bytes()
    assert "temp_files.so" not in Path("/proc/self/environ").read_text()


@pytest.mark.root
@pytest.mark.parametrize("give_back", [False, True])
@pytest.mark.parametrize("spill", ["hash", "sort"])
def test_every_temp_file_of_a_server_gets_one_fallocate_and_nothing_else_does(
    place: Path, spill: str, give_back: bool
) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    log = place / "calls"
    with postgres.run(
        place, {"log_temp_files": "0"}, preload=temp_files.preallocation(EACH, give_back)
    ) as server:
        with server.connect() as db:
            pid = db.info.backend_pid
            with subprocess.Popen(
                [
                    *(strace, "-f", "-y", "-o", str(log), "-p", str(pid)),
                    *("-e", "trace=open,openat,creat,fallocate,ftruncate"),
                ],
                stderr=subprocess.PIPE,
                text=True,
            ) as tracer:
                assert tracer.stderr is not None
                assert "attached" in tracer.stderr.readline()
                db.execute("SET work_mem = '64kB'")
                db.execute(
                    "CREATE TABLE t AS SELECT i, repeat('x', 50) s FROM generate_series(1, 30000) i"
                )
                if spill == "hash":
                    db.execute("SET enable_mergejoin = off")
                    db.execute("SELECT count(*) FROM t a JOIN t b ON a.i = b.i AND a.s = b.s")
                else:
                    db.execute("SELECT * FROM t ORDER BY s, -i")
                db.close()
                tracer.wait(30)
        said = server.log.read_text()
    calls = log.read_text().splitlines()
    created = [c for c in calls if "O_CREAT" in c and "pgsql_tmp/" in c and " = -1" not in c]
    given = [c for c in calls if "fallocate(" in c and "FALLOC_FL_KEEP_SIZE" in c]
    # PostgreSQL itself extends tables like this, from 16 on.
    own = [c for c in calls if "fallocate(" in c and c not in given]
    assert all("pgsql_tmp" not in c for c in own)
    paths = [re.search(r'"([^"]*pgsql_tmp[^"]*)"', c)[1] for c in created]  # type: ignore[index]
    assert len(created) == said.count("temporary file: path") > 0
    assert len(created) > 10 or spill == "sort"
    assert len(given) == len(created)
    for path, call in zip(paths, given, strict=True):  # in the order of creation, one each
        assert f"{path}>, FALLOC_FL_KEEP_SIZE, 0, {EACH}) = 0" in call
    others = [c for c in calls if "O_CREAT" in c and "pgsql_tmp" not in c]
    assert others  # the table itself, its log
    backs = [c for c in calls if "ftruncate(" in c and "pgsql_tmp" in c]
    assert len(backs) == (len(created) if give_back else 0)
    assert all("pgsql_tmp" in c for c in calls if "ftruncate(" in c)
