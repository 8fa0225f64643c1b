"""Fixtures: what a test needs, and the reason for which it skips where that is missing."""

from __future__ import annotations

import dis
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, settings
from leaks import PREFIX
from numpy.typing import NDArray

from harness import _core
from harness.commands import main as cli
from harness.errors import InvalidRun
from harness.paths import Project, find_project
from harness.workloads.records import CONTENT
from harness.workloads.tpch import JoinInputs, expected_join, join_inputs

pytest.register_assert_rewrite("told_world")  # its assertions say what they saw

Found = TypeVar("Found")

REPOSITORY = Path(__file__).resolve().parent.parent

WERROR = ["-Werror"] if os.environ.get("FLASHLAB_WERROR", "OFF") != "OFF" else []
"""What a compiler is told: warnings are errors for those who change the code, never for users."""

settings.register_profile(
    "fast",
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("long", settings.get_profile("fast"), max_examples=2000)
settings.load_profile("fast")

# A run in the background ignores Ctrl-C, and so would all that tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup: we go on, and what we start need not
    signal.signal(signal.SIGHUP, lambda *_: None)


cleaning_alone = pytest.mark.xdist_group("cleaning")
"""Calls `harness clean`, or leaves it something to do: two of these would clean for each other."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that are marked for root skip without it.

    With pytest-xdist, tests that share what a module makes once stay together (--dist loadgroup),
    and what takes longest begins first.
    """
    for item in items:
        if _starts_a_server(item) and not item.get_closest_marker("servers"):
            raise pytest.UsageError(f"{item.nodeid} starts a server: mark it with `servers`")
    missing = None if os.geteuid() == 0 and sys.platform == "linux" else "needs root on Linux"
    for item in items:
        if missing and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason=missing))
        if not item.get_closest_marker("xdist_group") and _shares_a_module_s(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    items.sort(key=lambda item: not _takes_long(item))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """A pytest-xdist that keeps no group together (3.8 with pytest 9.2) would say nothing of it."""
    if getattr(session.config.option, "loadgroup", False):
        grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
        assert all("@" in item.nodeid for item in grouped), "pytest-xdist does not see the groups"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why each test was run again (pytest-rerunfailures says only that it was)."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"run again: {report.nodeid}", sep="_")
        terminalreporter.write_line(report.longreprtext)


def _fixtures(item: pytest.Item) -> list[Any]:
    """All that it uses, by way of others, too."""
    info = getattr(item, "_fixtureinfo", None)  # of functions; there is no other way to ask
    known = info.name2fixturedefs.values() if info else ()
    return [each for definitions in known for each in definitions]


def _shares_a_module_s(item: pytest.Item) -> bool:
    """Whether it uses a fixture that is made once in a module."""
    return any(each.scope == "module" for each in _fixtures(item))


STARTERS = {("mysql", "run"), ("postgres", "run"), ("live", "create"), ("live", "created")}
"""What starts a database server or a live device, as tests call it."""


def _starts_a_server(item: pytest.Item) -> bool:
    """Whether it does so itself, or a fixture of its does; what a helper starts is not seen."""
    functions = [getattr(item, "function", None), *(each.func for each in _fixtures(item))]
    codes = [code for each in functions if (code := getattr(each, "__code__", None))]
    return any(_has_a_starter(code) for code in codes)


@cache
def _has_a_starter(code: CodeType) -> bool:
    if not any(set(pair) <= {*code.co_names} for pair in STARTERS):
        return False
    steps = pairwise(dis.get_instructions(code))
    return any((one.argval, other.argval) in STARTERS for one, other in steps)


def _takes_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("builds", "servers"))


def pytest_xdist_auto_num_workers() -> int:
    """Of `-n auto`: servers and devices mostly wait, so a processor has time for two workers."""
    processors = len(os.sched_getaffinity(0))
    return min(2 * processors, max(processors, 8))


def on_time(measure: Callable[[int], Found], *slowdowns: int) -> tuple[int, Found]:
    """The first of these slowdowns at which a live device's replies leave in time, and its result.

    Skips on a machine that is too busy for all of them: the run says so, and gives no result.
    """
    said = ""
    for slowdown in slowdowns:
        try:
            return slowdown, measure(slowdown)
        except InvalidRun as error:
            said = str(error)
    pytest.skip(f"this machine is too busy: {said}")


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that a server's user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix=f"flashlab-test-{PREFIX}", dir="/var/tmp") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def need(program: str) -> str:
    """The program's path; skips the test if this machine lacks it."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def newest() -> tuple[list[str], dict[str, str]]:
    """What runs Debian's newest programs, and the names of its compilers; skips without them."""
    folder, run_in = REPOSITORY / "build" / "newest", str(REPOSITORY / "tools" / "newest")
    if not (folder / "ready.json").is_file():
        why = folder / "missing.txt"
        pytest.skip(why.read_text() if why.is_file() else "`make newest` was not called")
    tried = subprocess.run([run_in, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"Debian's newest programs do not run here: {tried.stderr.strip()}")
    return [run_in], json.loads((folder / "ready.json").read_text())


@pytest.fixture(scope="session")
def project() -> Project:
    """This checkout."""
    return find_project(REPOSITORY)


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder of inputs, made once per test run: all workers of a run share it."""
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "raw"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def smoke(raw: Path) -> JoinInputs:
    """TPC-H at scale factor 0.01, with its expected join; the first who needs it makes it."""
    with (raw / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        inputs = join_inputs(raw, "smoke")
        expected_join(raw, inputs)
    return inputs


def sockets(folder: str, names: list[str]) -> list[str]:
    """A notebook that is executed meanwhile talks to its kernel through some."""
    return [name for name in names if (Path(folder) / name).is_socket()]


@pytest.fixture
def checkout(tmp_path: Path, raw: Path, smoke: JoinInputs) -> Project:
    """An empty checkout to run commands in: the committed files, and the smoke inputs."""
    del smoke  # they are in raw
    return make_checkout(tmp_path / "checkout", raw)


def make_checkout(root: Path, raw: Path) -> Project:
    """See `checkout`; inputs that `raw` has not are not there."""
    for name in ("params.yaml", "dvc.yaml", "pyproject.toml"):
        root.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, root / name)
    for name in ("hardware", "data/published", "notebooks"):
        shutil.copytree(REPOSITORY / name, root / name, ignore=sockets)
    shutil.copytree(raw / "tpch" / "smoke", root / "data" / "raw" / "tpch" / "smoke")
    return Project(root)


LITTLE = {
    "scale": "smoke",
    "repetitions": 1,
    "read_buffers": ["4 MiB"],
    "write_buffers": ["4 KiB"],
    "users": [1],
    "queue_depths": [1],
    "algorithms": ["grace"],
    "variants": {},
}
"""Of the Grace join's grid: next to nothing."""


def describe(project: Project, study: str, tier: str, **parameters: Any) -> None:
    """Has the checkout's params.yaml ask for these parameters, so that such a run is published."""
    params = yaml.safe_load(project.params.read_text())
    params[study][tier]["parameters"] |= parameters
    project.params.write_text(yaml.safe_dump(params, sort_keys=False))


@pytest.fixture
def harness_command(checkout: Project) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `harness ARGUMENTS` in the checkout."""

    def run(*arguments: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("harness")), *arguments],
            cwd=checkout.root,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return run


@pytest.fixture
def harness_here(
    checkout: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Like harness_command, but in this process: starting Python takes longer than failing."""
    before = {which: signal.getsignal(which) for which in (signal.SIGTERM, signal.SIGHUP)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(checkout.root)
        monkeypatch.setattr(sys, "argv", ["harness", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        said = capfd.readouterr()
        status = code if isinstance(code, int) else 0
        return subprocess.CompletedProcess(arguments, status, said.out, said.err)

    yield run
    for which, handler in before.items():
        signal.signal(which, handler)


def contents(keys: Any) -> NDArray[np.void]:
    """Records (dtype CONTENT) with the given keys and otherwise distinct columns."""
    rows = np.zeros(len(keys), dtype=CONTENT)
    rows["key"] = keys
    rows["row"] = np.arange(len(keys))
    rows["first"] = np.arange(len(keys)) * 7 % 1000
    rows["second"] = 42
    rows["signature"] = _core.record_signatures(
        *(np.ascontiguousarray(rows[name]) for name in ("key", "row", "first", "second"))
    )
    return rows


@contextmanager
def loop_device(folder: Path, size_bytes: int, *, remove: bool = False) -> Iterator[Path]:
    """A loop device over a sparse file, past its page cache; detached afterwards, whatever happens.

    `remove`: the kernel forgets it then, with limits that nobody can put back, and makes a new one
    when one is asked for.
    """
    losetup = need("losetup")
    backing = folder / "loop.img"
    with backing.open("wb") as file:
        file.truncate(size_bytes)
    made = subprocess.run(
        [losetup, "--find", "--show", "--direct-io=on", str(backing)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"no loop device to be had: {made.stderr.strip()}")
    device = Path(made.stdout.strip())
    try:
        yield device
    finally:
        subprocess.run([losetup, "--detach", str(device)], check=True)
        if remove:
            _forget_loop_device(int(device.name.removeprefix("loop")))


LOOP_CTL_REMOVE = 0x4C81


def _forget_loop_device(number: int) -> None:
    """Once nobody has it open: another test's losetup looks at all of them for a moment."""
    deadline = time.monotonic() + 30
    with Path("/dev/loop-control").open("rb") as control:
        while True:
            try:
                fcntl.ioctl(control, LOOP_CTL_REMOVE, number)
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return


"""include/uapi/linux/loop.h"""


@contextmanager
def mounted(device: Path, folder: Path, *options: str) -> Iterator[Path]:
    """A file system on a device, made and mounted; unmounted afterwards."""
    subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(device)], check=True)
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", *options, str(device), str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def full_tmpfs(folder: Path, room_bytes: int = 64 << 10) -> Iterator[Path]:
    """A file system in memory with hardly any room, over a folder; needs root."""
    options = f"size={room_bytes},mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
