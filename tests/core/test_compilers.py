"""What compilers say of the core: an error for those who change it, never for those who use it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import REPOSITORY, need, newest

CORE = REPOSITORY / "harness" / "core"
BUILDS = REPOSITORY / "build" / "compilers"
MODULE = ["-DSKBUILD=ON", "-DCMAKE_BUILD_TYPE=Release"]
CHANGES_SIGN = "static inline unsigned long planted(int n) { return n + 1UL * n; }\n"


def run(
    command: list[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    variables = {name: text for name, text in os.environ.items() if name != "FLASHLAB_WERROR"}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=variables | (environment or {}),
    )


def passes(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = run(command, environment)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    return said


def configure(folder: Path, *options: str, python: str = sys.executable) -> list[str]:
    places = ["cmake", "-S", str(CORE), "-B", str(folder)]
    binding = passes([sys.executable, "-m", "nanobind", "--cmake_dir"]).strip()
    found = [f"-Dnanobind_DIR={binding}", f"-DPython_EXECUTABLE={python}"]
    return [*places, *MODULE, *found, *options]


# --- for whom a warning is an error ---------------------------------------------------------------


def compiled(folder: Path) -> dict[str, list[str]]:
    """How each file of ours is compiled, in a folder that is configured."""
    commands = json.loads((folder / "compile_commands.json").read_text())
    ours = [each for each in commands if Path(each["file"]).is_relative_to(CORE)]
    return {each["file"]: shlex.split(each["command"]) for each in ours}


@pytest.mark.builds
@pytest.mark.parametrize("werror", [None, "OFF", "ON"])
def test_a_warning_is_an_error_on_request_only(werror: str | None, tmp_path: Path) -> None:
    """For each file of ours; tried with the library that is loaded into servers, the smallest."""
    need("cmake")
    (tmp_path / "planted.h").write_text(CHANGES_SIGN)
    options = [f"-DCMAKE_C_FLAGS=-include {tmp_path}/planted.h -Wsign-conversion"]
    options += [f"-DFLASHLAB_WERROR={werror}"] if werror else []
    passes(configure(tmp_path / "build", *options))
    commands = compiled(tmp_path / "build")
    assert len({Path(file).relative_to(CORE).parts[0] for file in commands}) >= 10
    for file, command in commands.items():
        assert ("-Werror" in command) == (werror == "ON"), file
    done = run(["cmake", "--build", str(tmp_path / "build"), "--target", "temp_files"])
    assert "sign-conversion" in done.stdout + done.stderr
    assert (done.returncode != 0) == (werror == "ON")


def test_only_who_asks_for_it_installs_with_warnings_as_errors() -> None:
    """Every build says it anew: what an earlier one in the same folder was told does not stay."""
    build = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["scikit-build"]
    asked = {"env": "FLASHLAB_WERROR", "default": "OFF"}
    assert build["cmake"]["define"]["FLASHLAB_WERROR"] == asked
    assert "export FLASHLAB_WERROR=ON" in (REPOSITORY / ".ci" / "run").read_text().splitlines()


TELLS = "env: told\n.PHONY: told\ntold:\n\t+@echo asked: $${FLASHLAB_WERROR:-OFF}"


@pytest.mark.parametrize(
    ("target", "werror"),
    [
        *[("check", "ON"), ("test-slow", "ON"), ("env", "OFF"), ("reproduce", "OFF")],
        *[("test", "OFF"), ("emulated", "OFF"), ("lab", "OFF"), ("bench", "OFF")],
    ],
)
def test_what_the_make_targets_ask_for(target: str, werror: str) -> None:
    said = passes([need("make"), "-C", str(REPOSITORY), "--eval", TELLS, "-n", target])
    assert f"asked: {werror}" in said.splitlines()


@pytest.mark.builds
@pytest.mark.slow
@pytest.mark.parametrize("werror", ["OFF", "ON"])
def test_a_wheel_of_code_that_warns(werror: str, tmp_path: Path) -> None:
    uv = shutil.which("uv") or str(REPOSITORY / "build" / "uv" / "bin" / "uv")
    if not Path(uv).is_file():
        pytest.skip("uv is not installed")
    source = tmp_path / "source"
    listed = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "harness", "pyproject.toml"]
    names = passes([*listed, "README.md", "LICENSE"]).split("\0")
    for name in filter(None, names):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, source / name)
    warns = source / "harness" / "core" / "flash" / "steady_state.cpp"
    warns.write_text(warns.read_text() + CHANGES_SIGN)
    # What it is built with lies in uv's cache since `make env`.
    build = [uv, "build", "--offline", "--wheel", "--out-dir", str(tmp_path / "wheel")]
    environment = {} if werror == "OFF" else {"FLASHLAB_WERROR": werror}
    done = run([*build, "--python", sys.executable, str(source)], environment)
    if "in the cache" in done.stderr:
        pytest.skip(f"uv has not what it builds with: {done.stderr.splitlines()[-1]}")
    assert "sign-conversion" in done.stdout + done.stderr, (done.stdout + done.stderr)[-3000:]
    assert (done.returncode != 0) == (werror == "ON"), done.stderr[-3000:]
    assert bool(list((tmp_path / "wheel").glob("*.whl"))) == (werror == "OFF")


# --- what they leave out --------------------------------------------------------------------------

HINTS = """#include "base/prefetch.hpp"
struct Table {
  const int* at;
  [[gnu::noinline]] void expect(int i) const { HINT(at + i); }
};
void caller(const Table& table) { table.expect(3); }
"""


def hints(compiler: str, hint: str, folder: Path) -> bool:
    """Whether a caller still calls what does nothing but hint. GCC 12: not of the bare builtin."""
    (folder / "hints.cpp").write_text(HINTS)
    options = ["-std=c++20", "-O3", f"-DHINT={hint}", f"-I{CORE}", "-S", "-o", "-"]
    said = passes([need(compiler), *options, str(folder / "hints.cpp")])
    caller = said.split("_Z6callerRK5Table:")[1].split(".cfi_endproc")[0]
    return "expect" in caller or "prefetch" in caller


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("hint", ["flashlab::prefetch", "flashlab::prefetch_early"])
def test_a_hint_to_the_processor_is_not_left_out(compiler: str, hint: str, tmp_path: Path) -> None:
    assert hints(compiler, hint, tmp_path)


# --- the oldest and the newest --------------------------------------------------------------------


def toolchain(name: str) -> tuple[list[str], dict[str, str]]:
    """What a compiler's build is begun with, and its variables; skips where it is not to be had."""
    if name.startswith("newest"):
        run_in, programs = newest()
        if name == "newest gcc":
            return run_in, {"CC": programs["gcc"], "CXX": programs["g++"]}
        return run_in, {"CC": programs["clang"], "CXX": programs["clang"].replace("-", "++-")}
    need("cmake")
    cc, cxx = ("gcc-12", "g++-12") if name == "oldest gcc" else ("clang", "clang++")
    return [], {"CC": need(cc), "CXX": need(cxx)}


@pytest.mark.builds
@pytest.mark.slow
@pytest.mark.parametrize("name", ["oldest gcc", "newest gcc", "installed clang", "newest clang"])
def test_no_compiler_warns(name: str) -> None:
    """Of the core, its module, what is loaded into servers, and the C++ tests, which then pass."""
    if not Path("/usr/include/gtest/gtest.h").is_file():
        pytest.skip("GoogleTest is not installed (libgtest-dev)")
    run_in, variables = toolchain(name)
    # A Python of the machine's /usr is not there where the newest compilers are.
    hidden = run_in and Path(sys.base_prefix).is_relative_to("/usr")
    python = "/usr/bin/python3" if hidden else sys.executable
    folder = BUILDS / name.replace(" ", "-")
    options = ["-DFLASHLAB_TESTS=ON", "-DFLASHLAB_WERROR=ON"]
    options += ["-G", "Ninja"] if run_in else []  # the one that is unpacked with them
    passes([*run_in, *configure(folder, *options, python=python)], variables)
    passes([*run_in, "cmake", "--build", str(folder), "--parallel", "2"], variables)
    passes([*run_in, str(folder / "tests" / "core_tests"), "--gtest_brief=1"])
