"""Fixtures: what a test needs, and the reason for which it skips where that is missing."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

from harness import _core
from harness.commands import main as cli
from harness.errors import InvalidRun
from harness.paths import Project, find_project
from harness.workloads.tpch import CONTENT, JoinInputs, expected_join, join_inputs

Found = TypeVar("Found")

REPOSITORY = Path(__file__).resolve().parent.parent

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that are marked for root skip without it."""
    missing = None if os.geteuid() == 0 and sys.platform == "linux" else "needs root on Linux"
    for item in items:
        if missing and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason=missing))


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


def need(program: str) -> str:
    """The program's path; skips the test if this machine lacks it."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


@pytest.fixture(scope="session")
def project() -> Project:
    """This checkout."""
    return find_project(REPOSITORY)


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of inputs, made once per test run."""
    return tmp_path_factory.mktemp("raw")


@pytest.fixture(scope="session")
def smoke(raw: Path) -> JoinInputs:
    """TPC-H at scale factor 0.01, with its expected join."""
    inputs = join_inputs(raw, "smoke")
    expected_join(raw, inputs)
    return inputs


@pytest.fixture
def checkout(tmp_path: Path, raw: Path, smoke: JoinInputs) -> Project:
    """An empty checkout to run commands in: the committed files, and the smoke inputs."""
    root = tmp_path / "checkout"
    for name in ("params.yaml", "dvc.yaml", "pyproject.toml"):
        root.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / name, root / name)
    for name in ("hardware", "data/published", "notebooks"):
        shutil.copytree(REPOSITORY / name, root / name)
    shutil.copytree(raw / "tpch" / "smoke", root / "data" / "raw" / "tpch" / "smoke")
    return Project(root)


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
    before = signal.getsignal(signal.SIGTERM)

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
    signal.signal(signal.SIGTERM, before)


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
    """A loop device over a sparse file; detached afterwards, whatever happens.

    `remove`: the kernel forgets it then, with limits that nobody can put back, and makes a new one
    when one is asked for.
    """
    losetup = need("losetup")
    backing = folder / "loop.img"
    with backing.open("wb") as file:
        file.truncate(size_bytes)
    made = subprocess.run(
        [losetup, "--find", "--show", str(backing)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no loop device to be had: {made.stderr.strip()}")
    device = Path(made.stdout.strip())
    try:
        yield device
    finally:
        subprocess.run([losetup, "--detach", str(device)], check=True)
        if remove:
            with Path("/dev/loop-control").open("rb") as control:
                fcntl.ioctl(control, LOOP_CTL_REMOVE, int(device.name.removeprefix("loop")))


LOOP_CTL_REMOVE = 0x4C81
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
