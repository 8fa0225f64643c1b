"""xfstests, the kernel developers' tests of file systems, on live and on plain loop devices.

What fails on both is this machine's or the suite's; what fails on live devices alone is ours.
It is not part of this project: whoever has it names its folder in XFSTESTS, or has it where its own
installation puts it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from conftest import loop_device, open_folder
from live_world import NEEDS_DEVICES, mount_of, new_name, small

from harness.devices import live

pytestmark = [*NEEDS_DEVICES, pytest.mark.slow]

SUITE: Final = Path(os.environ.get("XFSTESTS", "/var/lib/xfstests"))
SIZE: Final = 3 << 30
LIMIT_S: Final = 3600.0
ALWAYS: Final = {"trim", "fsx"}
"""Groups whose tests are taken even if they are not quick: what discards, and what compares each
byte of a file with what it should be."""

OF_THESE: Final = {"rw", "aio", "prealloc", "punch", "zero", "mmap", "sync", "recoveryloop", "log"}
"""Groups whose quick tests are taken: they write, read, make holes, sync, or shut down."""

NOT: Final = {"dangerous", "fuzzers", "broken", "soak", "long_rw", "deprecated"}


@dataclass(frozen=True)
class Outcome:
    """Names of tests, such as generic/038."""

    ran: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]

    @property
    def passed(self) -> frozenset[str]:
        return self.ran - self.failed


def chosen() -> list[str]:
    """By the suite's own lists of groups."""
    found = []
    for kind in ("generic", "ext4"):
        for line in (SUITE / "tests" / kind / "group.list").read_text().splitlines():
            number, *groups = line.split() or [""]
            if not number.isdigit() or NOT & set(groups) or "auto" not in groups:
                continue
            if ALWAYS & set(groups) or ("quick" in groups and OF_THESE & set(groups)):
                found.append(f"{kind}/{number}")
    return found


def check(test_device: Path, scratch: Path, folder: Path, tests: Sequence[str]) -> Outcome:
    """Runs these tests; each device gets a file system of its own."""
    points = {name: folder / name for name in ("test", "scratch", "results")}
    for point in points.values():
        point.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", str(test_device)], check=True)
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        "FSTYP": "ext4",
        "TEST_DEV": str(test_device),
        "TEST_DIR": str(points["test"]),
        "SCRATCH_DEV": str(scratch),
        "SCRATCH_MNT": str(points["scratch"]),
        "RESULT_BASE": str(points["results"]),
    }
    try:
        with (folder / "output").open("w") as output:
            subprocess.run(
                ["./check", *tests],
                cwd=SUITE,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
                check=False,  # it ends with 1 if one test fails
            )
    finally:
        for name in ("scratch", "test"):
            while mount_of(points[name]):
                subprocess.run(["umount", str(points[name])], check=True)
    return read((points["results"] / "check.log").read_text())


def as_flash(device: Path) -> None:
    """Says of a loop device what ours say: on what spins ext4's allocator looks further."""
    (Path("/sys/block") / device.name / "queue" / "rotational").write_text("0")


def read(log: str) -> Outcome:
    """Of the suite's own summary: 'Ran: ...', 'Not run: ...', 'Failures: ...'."""

    def named(title: str) -> frozenset[str]:
        found = re.findall(rf"^{title}: (.*)$", log, re.MULTILINE)
        return frozenset(found[-1].split()) if found else frozenset()

    skipped = named("Not run")
    return Outcome(named("Ran") - skipped, named("Failures"), skipped)


def test_the_summary_is_read() -> None:
    log = "Date\nRan: generic/001 generic/002 ext4/003\nNot run: ext4/003\nFailures: generic/002\n"
    found = read(log)
    assert found.passed == {"generic/001"}
    assert found.failed == {"generic/002"}
    assert found.skipped == {"ext4/003"}


def test_nothing_fails_on_live_devices_alone(
    record_property: Callable[[str, object], None],
) -> None:
    if not (SUITE / "check").is_file():
        pytest.skip(f"there is no xfstests in {SUITE}; XFSTESTS names another folder")
    tests = chosen()
    with open_folder() as folder:
        for name in ("plain", "scratch", "live"):
            (folder / name).mkdir()
        with (
            loop_device(folder / "plain", SIZE, remove=True) as one,
            loop_device(folder / "scratch", SIZE, remove=True) as two,
        ):
            as_flash(one)
            as_flash(two)
            plain = check(one, two, folder / "plain", tests)
        spec = small(size_bytes=SIZE)
        with live.created(spec, new_name()) as first, live.created(spec, new_name()) as second:
            ours = check(first.path, second.path, folder / "live", tests)
    both = ours.failed & plain.failed
    told = (
        f"passed {len(ours.passed)}, skipped {len(ours.skipped)}, failed on both {len(both)}, "
        f"only on plain loop devices {len(plain.failed - ours.failed)}"
    )
    record_property("outcome", told)
    print(told)
    assert len(ours.passed) >= 100
    assert ours.ran | ours.skipped == set(tests)
    assert not (ours.failed & plain.passed)
