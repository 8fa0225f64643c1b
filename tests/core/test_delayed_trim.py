"""The delayed TRIM against a plain map: at random, by a fuzzer, and in every state of tiny drives.

The programs are those of tests/core/trim/Makefile; the unit tests are in tests/core.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, WERROR, need

PROGRAMS = REPOSITORY / "tests/core/trim"
MODULE = REPOSITORY / "harness/core/flash/trim/delayed_trim.c"
SANITIZED = "-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all"

# Blocks, of a slice, ranges, writes, batch, forced slices, flags (1: merge, 2: whole slices).
TINY = [
    (4, 2, 2, 2, 1, 1, 0),
    (4, 2, 2, 1, 2, 0, 1),
    (4, 2, 3, 1, 2, 3, 1),
    (4, 1, 2, 1, 2, 1, 0),
    (6, 2, 2, 1, 2, 1, 3),
    (5, 2, 1, 0, 2, 1, 0),
]
LESS_TINY = [
    (5, 2, 3, 2, 2, 1, 1),
    (5, 2, 2, 2, 1, 1, 0),
    (6, 2, 2, 0, 2, 2, 1),
    (6, 2, 1, 0, 1, 1, 0),
    (5, 1, 1, 1, 2, 1, 0),
]


def make(folder: Path, program: str, *variables: str) -> Path:
    """One program, built."""
    command = [need("make"), "-s", "-C", str(PROGRAMS), f"OUT={folder}", f"{folder}/{program}"]
    command.append(f"WERROR={' '.join(WERROR)}")
    done = subprocess.run([*command, *variables], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / program


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)


def said(*command: str | Path) -> Any:
    done = run(*command)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trim")


@pytest.mark.builds
def test_random_operations_under_the_sanitizers(tmp_path: Path) -> None:
    program = make(tmp_path, "trim_random", f"CFLAGS={SANITIZED}")
    counts = said(program, "300000", "7")
    assert counts["operations"] == 300_000
    # All kinds of operations, and all the rare paths.
    assert min(counts.values()) > 0, counts


@pytest.mark.builds
@pytest.mark.slow
def test_twenty_million_random_operations(folder: Path) -> None:
    counts = said(make(folder, "trim_random"), "20000000", "2")
    assert counts["operations"] == 20_000_000


@pytest.mark.builds
@pytest.mark.parametrize("drive", TINY, ids=str)
def test_every_state_of_a_tiny_drive(folder: Path, drive: tuple[int, ...]) -> None:
    """To the end of the search: for sequences of requests of any length."""
    assert said(make(folder, "trim_states"), *map(str, drive))["complete"]


@pytest.mark.builds
@pytest.mark.slow
@pytest.mark.parametrize("drive", LESS_TINY, ids=str)
def test_every_state_of_a_less_tiny_drive(folder: Path, drive: tuple[int, ...]) -> None:
    found = said(make(folder, "trim_states"), *map(str, drive))
    assert found["complete"]
    assert found["states"] > 300_000


def fuzz(program: Path, corpus: Path, runs: int) -> subprocess.CompletedProcess[str]:
    corpus.mkdir()
    options = [f"-runs={runs}", "-seed=1", "-max_len=600", f"-artifact_prefix={corpus}/"]
    return run(program, *options, corpus)


@pytest.mark.builds
def test_what_a_fuzzer_finds(folder: Path, tmp_path: Path) -> None:
    need("clang")
    done = fuzz(make(folder, "trim_fuzz"), tmp_path / "corpus", 10_000)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done 10000 runs" in done.stderr


@pytest.fixture(scope="module")
def broken(folder: Path) -> tuple[str, str]:
    """Variables of make for a module with a planted bug: TRIMs erase what came after them."""
    bugs = tomllib.loads((REPOSITORY / "tests/planted/delayed_trim.toml").read_text())["bug"]
    bug = next(b for b in bugs if b["name"] == "a pending TRIM erases what was written after it")
    source = folder / "broken.c"
    source.write_text(MODULE.read_text().replace(bug["find"], bug["replace"]))
    includes = f"-I{MODULE.parent} -I{REPOSITORY / 'harness/core'} -I."
    return f"MODULE={source}", f"INCLUDES={includes}"


@pytest.mark.builds
@pytest.mark.parametrize("program", ["trim_random", "trim_states", "trim_fuzz"])
def test_each_program_finds_a_broken_module(
    program: str, broken: tuple[str, str], folder: Path, tmp_path: Path
) -> None:
    if program == "trim_fuzz":
        need("clang")
    if program == "trim_states":  # the search itself is compiled already
        make(folder, program)
        shutil.copy(folder / "states.o", tmp_path)
    built = make(tmp_path, program, *broken)
    if program == "trim_fuzz":
        done = fuzz(built, tmp_path / "corpus", 200_000)
    else:
        done = run(built, *(["100000"] if program == "trim_random" else map(str, TINY[0])))
    assert done.returncode not in (0, 2)
    assert "gone" in done.stderr


@pytest.mark.builds
def test_a_check_costs_the_same_however_long_the_list_is(folder: Path) -> None:
    """Entries looked at, since time is another machine's matter."""
    curve = said(make(folder, "trim_curve"), "20000")
    assert [point["entries"] for point in curve][-1] == 100_000
    for point in curve:
        assert 1 <= point["write_probes"] < 2.1, point
