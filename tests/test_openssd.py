"""The delayed TRIM on a board: cross-compiled, run on an emulated ARM, its log page read."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import REPOSITORY, WERROR, need

from harness.devices.model import Device
from harness.drives.trim_log import LOG_BYTES, TrimLog, counted_between, read_trim_log
from harness.errors import DeviceError, InvalidRun

MODULE = REPOSITORY / "harness/core/flash/trim"
GLUE = REPOSITORY / "hardware/openssd"
TRIM_TESTS = REPOSITORY / "tests/core/trim"
GTEST = Path("/usr/src/googletest/googletest")
INCLUDES = [f"-I{GLUE}", f"-I{MODULE}"]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion"]
STRICT += ["-Wshadow", "-Wcast-qual", *WERROR]
BOARD_SOURCES = [str(MODULE / "delayed_trim.c"), str(GLUE / "openssd_trim.c")]
FIRMWARE = [str(REPOSITORY / "tests/openssd/firmware.c"), *BOARD_SOURCES]

# The boards' cores: Cosmos+, DaisyPlus.
BARE = {"cortex-a9": "arm-none-eabi-", "cortex-a53": "aarch64-linux-gnu-"}
HOSTED = {
    "cortex-a9": ("arm-linux-gnueabihf-gcc", "qemu-arm"),
    "cortex-a53": ("aarch64-linux-gnu-gcc", "qemu-aarch64"),
}
MAY_BE_UNDEFINED = {"memcpy", "memset"}
CALLBACKS = {"openssd_invalidate_slices", "openssd_request_waiting"}


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def compile_bare(cpu: str, level: str, sources: Sequence[str], to: Path) -> str:
    """One relocatable file of all sources; returns the tools' prefix."""
    prefix = BARE[cpu]
    compiler = need(f"{prefix}gcc")
    options = [*STRICT, *INCLUDES, f"-mcpu={cpu}", level, "-ffreestanding", "-r", "-nostdlib"]
    run([compiler, *options, *sources, "-o", str(to)])
    return prefix


def undefined(prefix: str, path: Path) -> set[str]:
    return set(re.findall(r"U (\w+)", run([f"{prefix}nm", "-u", str(path)])))


def sizes(prefix: str, path: Path) -> tuple[int, int]:
    """Code, and tables with all else that is not code, in bytes."""
    text, data, bss = run([f"{prefix}size", str(path)]).splitlines()[1].split()[:3]
    return int(text), int(data) + int(bss)


@pytest.mark.builds
@pytest.mark.parametrize("cpu", BARE)
@pytest.mark.parametrize("level", ["-O0", "-Os", "-O2", "-O3"])
def test_the_module_needs_nothing_of_the_board(cpu: str, level: str, tmp_path: Path) -> None:
    module = tmp_path / "module.o"
    prefix = compile_bare(cpu, level, BOARD_SOURCES[:1], module)
    assert undefined(prefix, module) <= MAY_BE_UNDEFINED
    assert sizes(prefix, module)[1] == 0, "the module has variables of its own"


@pytest.mark.builds
@pytest.mark.parametrize("cpu", BARE)
def test_a_firmware_gives_the_callbacks_and_nothing_else(cpu: str, tmp_path: Path) -> None:
    whole = tmp_path / "openssd_trim.o"
    prefix = compile_bare(cpu, "-O2", BOARD_SOURCES, whole)
    assert undefined(prefix, whole) - MAY_BE_UNDEFINED == CALLBACKS
    code_bytes, table_bytes = sizes(prefix, whole)
    print(f"{cpu}: {code_bytes} bytes of code, {table_bytes} bytes of tables and state")
    assert table_bytes < 64 * 1024


@pytest.fixture(scope="module", params=[*HOSTED, "native"])
def machine(request: pytest.FixtureRequest) -> tuple[list[str], list[str]]:
    """A compiler for static programs, and what runs them."""
    if request.param == "native":
        return [need("gcc"), "-fsanitize=address,undefined"], []
    compiler, emulator = HOSTED[request.param]
    return [need(compiler), "-static", f"-mcpu={request.param}"], [
        need(emulator),
        "-cpu",
        request.param,
    ]


@pytest.mark.builds
def test_a_firmwares_loop(machine: tuple[list[str], list[str]], tmp_path: Path) -> None:
    """And the log page that it transfers."""
    compiler, emulator = machine
    program, page = tmp_path / "firmware", tmp_path / "trim.bin"
    run([*compiler, "-O2", *STRICT, *INCLUDES, *FIRMWARE, "-o", str(program)])
    run([*emulator, str(program), str(page)])
    log = read_trim_log(page.read_bytes())
    assert log.bytes == LOG_BYTES == page.stat().st_size
    assert (log.range_capacity, log.blocks_per_slice) == (1024, 4)
    assert (log.pending_ranges, log.pending_blocks, log.write_entries) == (0, 0, 0)
    assert (log.trim_commands, log.trim_ranges) == (3, 258)
    assert log.trim_blocks == 256 * 16 + 4096 * 4 + 6
    assert (log.partial_blocks, log.yields, log.resumes, log.drains) == (2, 1, 0, 1)
    assert log.slices_applied == 1024 + 4094 + 3 + 1
    assert log.reads_of_pending == 3
    assert log.blocks_forgotten == 0


def random_operations(compiler: list[str], emulator: list[str], folder: Path) -> dict[str, int]:
    """What 50,000 random operations beside a plain map counted."""
    out = [f"OUT={folder}", f"CC={compiler[0]}", f"CFLAGS=-O2 {' '.join(compiler[1:])}"]
    out.append(f"WERROR={' '.join(WERROR)}")
    run([need("make"), "-s", "-C", str(TRIM_TESTS), *out, f"{folder}/trim_random"])
    said = json.loads(run([*emulator, str(folder / "trim_random"), "50000"]))
    return {name: count for name, count in said.items() if "second" not in name}


@pytest.mark.builds
@pytest.mark.parametrize("cpu", HOSTED)
def test_random_operations_go_on_arm_as_they_go_here(cpu: str, tmp_path: Path) -> None:
    compiler, emulator = (need(program) for program in HOSTED[cpu])
    cross = [compiler, "-static", f"-mcpu={cpu}"]
    there = random_operations(cross, [emulator, "-cpu", cpu], tmp_path / "there")
    here = random_operations([need("gcc")], [], tmp_path / "here")
    assert there == here
    assert here["operations"] == 50000
    assert min(here["list_full_forced"], here["ranges_full_forced"], here["blocks_kept"]) > 0


@pytest.mark.builds
def test_the_unit_tests_pass_on_arm(tmp_path: Path) -> None:
    """The GoogleTests of the module, on an emulated Cortex-A9."""
    cxx, cc, emulator = map(need, ("arm-linux-gnueabihf-g++", *HOSTED["cortex-a9"]))
    if not (GTEST / "src/gtest-all.cc").is_file():
        pytest.skip("GoogleTest's sources are not installed (libgtest-dev)")
    core = REPOSITORY / "tests/core"
    includes = [f"-I{REPOSITORY / 'harness/core'}", f"-I{core}"]
    # In one piece: GoogleTest's headers take longer than all else.
    parts = [GTEST / "src/gtest-all.cc", core / "main.cpp", core / "test_delayed_trim.cpp"]
    source = tmp_path / "unit_tests.cpp"
    source.write_text("".join(f'#include "{part}"\n' for part in parts))
    gtest = ["-isystem", str(GTEST / "include"), "-isystem", str(GTEST)]
    to = ["-c", "-o", str(tmp_path / "unit_tests.o")]
    run([cxx, "-std=c++20", "-O0", "-Wno-psabi", *gtest, *includes, str(source), *to])
    for part in (MODULE / "delayed_trim.c", TRIM_TESTS / "board.c", TRIM_TESTS / "world.c"):
        to = ["-c", "-o", str(tmp_path / f"{part.stem}.o")]
        run([cc, "-std=c11", "-O2", "-mcpu=cortex-a9", *includes, str(part), *to])
    program = str(tmp_path / "unit_tests")
    run([cxx, "-static", *map(str, tmp_path.glob("*.o")), "-o", program])
    passed = re.search(r"PASSED  \] (\d+) tests", run([emulator, "-cpu", "cortex-a9", program]))
    assert passed
    tests = re.findall(r"^TEST\(", parts[-1].read_text(), re.MULTILINE)
    assert int(passed.group(1)) == len(tests)


# --- the log page

OFFSETS = """#include <stdio.h>
#include <stddef.h>
#include "delayed_trim.h"
#define SIZE(field) sizeof(((dtrim_statistics*)0)->field)
#define PLACE(field) printf(#field " %zu %zu\\n", offsetof(dtrim_statistics, field), SIZE(field))
int main(void) {
"""


@pytest.mark.builds
def test_the_reader_has_the_layout_of_the_header(tmp_path: Path) -> None:
    """Every field at its place and in its size, as the compiler says; and none left out."""
    header = (MODULE / "delayed_trim.h").read_text()
    body = re.search(r"typedef struct dtrim_statistics \{(.*?)\} dtrim_statistics;", header, re.S)
    assert body
    fields = re.findall(r"^\s*uint\d+_t (\w+)(?:\[\d+\])?;", body.group(1), re.MULTILINE)
    assert fields[-1] == "reserved"
    source = tmp_path / "offsets.c"
    places = "".join(f"PLACE({field});\n" for field in fields)
    source.write_text(OFFSETS + places + "}\n")
    run([need("gcc"), "-std=c11", *INCLUDES, str(source), "-o", str(tmp_path / "offsets")])
    said = [line.split() for line in run([str(tmp_path / "offsets")]).splitlines()]
    compiled = {name: (int(offset), int(size)) for name, offset, size in said}
    offset, size = compiled.pop("reserved")
    assert compiled == TrimLog.layout()
    assert offset + size == LOG_BYTES


def page(**changed: int) -> bytes:
    """A log page with these fields."""
    content = bytearray(LOG_BYTES)
    fields = {"magic": 0x4D525444, "version": 1, "bytes": LOG_BYTES} | changed
    for name, value in fields.items():
        offset, size = TrimLog.layout()[name]
        content[offset : offset + size] = value.to_bytes(size, "little")
    return bytes(content)


def test_a_page_says_what_was_written_to_it() -> None:
    names = list(TrimLog.layout())[3:]
    values = {name: 2**31 + i for i, name in enumerate(names)}
    log = read_trim_log(page(**values) + b"more")
    assert {name: getattr(log, name) for name in names} == values


@pytest.mark.parametrize(
    "content",
    [b"", page()[:-1], bytes(LOG_BYTES), page(magic=1), page(version=0), page(bytes=16)],
    ids=["empty", "short", "zeroes", "magic", "version", "size"],
)
def test_what_is_no_such_page_is_refused(content: bytes) -> None:
    with pytest.raises(DeviceError, match="TRIM log page"):
        read_trim_log(content)


def test_two_readings_say_what_was_done_between_them_by_the_models_names() -> None:
    before = read_trim_log(page(slices_applied_idle=10, drains=2, pending_ranges=3))
    after = read_trim_log(page(slices_applied_idle=25, drains=2, pending_ranges=1))
    found = counted_between(before, after)
    assert {name: count for name, count in found.items() if count} == {
        "trim_idle_slices": 15,
        "trim_pending_ranges": 1,
    }
    profiles = REPOSITORY / "hardware" / "profiles"
    model = Device.from_profile(profiles, "daisyplus_openssd", {"trim": "delayed"}, seed=0)
    assert set(found) <= set(model.counters)
    assert counted_between(None, None) == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (page(resets=1), page(resets=2)),
        (page(drains=2), page(drains=1)),
        (None, page()),
        (page(), None),
    ],
    ids=["reset", "backwards", "came", "went"],
)
def test_readings_that_do_not_belong_together_are_refused(
    before: bytes | None, after: bytes | None
) -> None:
    logs = [None if content is None else read_trim_log(content) for content in (before, after)]
    with pytest.raises(InvalidRun, match="delayed TRIM"):
        counted_between(*logs)


def test_the_guide_names_every_call() -> None:
    """hardware/openssd/README.md says where each function of the header belongs."""
    header = (GLUE / "openssd_trim.h").read_text()
    guide = (GLUE / "README.md").read_text()
    calls = re.findall(r"^\w[\w ]* (openssd_\w+)\(", header, re.MULTILINE)
    assert len(calls) == 9
    for call in calls:
        assert f"`{call}" in guide, call
