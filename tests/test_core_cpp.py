"""The C++ tests, under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import REPOSITORY, need


@pytest.mark.real
def test_core_tests_pass_under_the_sanitizers() -> None:
    cmake = need("cmake")
    if not any(Path("/usr").glob("include/gtest/gtest.h")):
        pytest.skip("GoogleTest is not installed (libgtest-dev)")
    build = REPOSITORY / "build" / "core-tests"
    configure = [cmake, "-S", str(REPOSITORY / "harness" / "core"), "-B", str(build)]
    configure += ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DFLASHLAB_TESTS=ON"]
    configure += ["-DFLASHLAB_SANITIZE=ON"]
    if not (build / "CMakeCache.txt").is_file() and shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    for command in (configure, [cmake, "--build", str(build), "--parallel", "2"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    done = subprocess.run(
        [str(build / "tests" / "core_tests"), "--gtest_brief=1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
