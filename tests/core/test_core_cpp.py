"""The C++ tests, under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import REPOSITORY, WERROR, need

BUILD = REPOSITORY / "build" / "core-tests"


def built(folder: Path, *options: str) -> Path:
    """The test program, built in that folder."""
    cmake = need("cmake")
    if not any(Path("/usr").glob("include/gtest/gtest.h")):
        pytest.skip("GoogleTest is not installed (libgtest-dev)")
    configure = [cmake, "-S", str(REPOSITORY / "harness" / "core"), "-B", str(folder)]
    # Compiled more often than run: lines for the sanitizers' reports, little else.
    configure += ["-DCMAKE_BUILD_TYPE=", "-DCMAKE_CXX_FLAGS=-O1 -g1", "-DFLASHLAB_TESTS=ON"]
    configure += [
        "-DFLASHLAB_SANITIZE=ON",
        f"-DCMAKE_PROJECT_flashlab_core_INCLUDE={Path(__file__).with_name('several_at_once.cmake')}",
        f"-DFLASHLAB_WERROR={'ON' if WERROR else 'OFF'}",
        *options,
    ]
    if not (folder / "CMakeCache.txt").is_file() and shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    run(configure)
    run([cmake, "--build", str(folder), "--parallel", "2"])
    return folder / "tests" / "core_tests"


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def core_tests() -> Path:
    return built(BUILD)


@pytest.mark.builds
def test_core_tests_pass_under_the_sanitizers(core_tests: Path) -> None:
    run([str(core_tests), "--gtest_brief=1"])


@pytest.mark.builds
@pytest.mark.slow
def test_core_tests_pass_under_the_sanitizers_with_their_own_code() -> None:
    """Which has what of the core lies in headers and only they use; it takes twice as long."""
    program = built(BUILD.with_name("core-tests-whole"), "-DFLASHLAB_SANITIZE_TESTS=ON")
    run([str(program), "--gtest_brief=1"])


@pytest.mark.builds
@pytest.mark.slow
def test_long_random_work_on_flash(core_tests: Path) -> None:
    """More than ten million operations on random translation layers, and 1500 power-cut drives."""
    random = "FtlRandom.*:SsdPowerCut.AgreesWithALedger:Lane.*"
    run([str(core_tests), "--gtest_brief=1", f"--gtest_filter={random}", "--repeats=25"])
