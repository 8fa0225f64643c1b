"""The mount table, as the kernel writes it; and unmounting nothing but what was meant."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import need
from leaks import PREFIX

from harness.errors import TargetError
from harness.system import kernel_tables, mounts

NAMES = (
    "a",
    "a\u00a0b",
    "a\u3000b",
    "a\u2028b",
    "a\x0cb",
    "a\rb",
    "a b",
    "a\tb",
    "a\nb",
    "a\\b",
    "a\udcffb",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_line_ends_where_the_kernel_ends_it(name: str, tmp_path: Path) -> None:
    escaped = "".join(f"\\{ord(c):03o}" if c in " \t\n\\" else c for c in name)
    table = tmp_path / "mountinfo"
    line = f"25 1 8:2 / /mnt/{escaped} rw - ext4 /dev/{escaped} rw\n"
    table.write_bytes(os.fsencode(line * 2))
    first, second = kernel_tables.lines(table)
    assert first == second
    found = mounts._mount(first)
    assert found.point == Path(f"/mnt/{name}")
    assert found.source == f"/dev/{name}"


@pytest.fixture
def point(tmp_path: Path) -> Iterator[Path]:
    """Where something may be mounted; nothing is afterwards."""
    need("mount")
    folder = tmp_path / f"{PREFIX}point"
    folder.mkdir()
    try:
        yield folder
    finally:
        for mounted in mounts.below(tmp_path)[::-1]:
            subprocess.run(["umount", str(mounted)], check=True)


def mount(source: str, point: Path) -> mounts.Mount:
    subprocess.run(["mount", "-t", "tmpfs", source, str(point)], check=True)
    return [each for each in mounts.table() if each.point == point][-1]


@pytest.mark.root
@pytest.mark.parametrize("name", NAMES[1:])
def test_a_name_with_other_white_space_is_not_another_s(name: str, point: Path) -> None:
    """Cut there, it would be the name of a file system of somebody else's."""
    theirs, ours = point / "a", point / name
    theirs.mkdir()
    ours.mkdir()
    mount("theirs", theirs)
    made = mount("ours", ours)
    assert made.point == ours
    assert mounts.unmount(made) == f"unmounted {ours}"
    assert mounts.below(point) == [theirs]


@pytest.mark.root
def test_what_has_come_to_a_place_since_is_not_unmounted(point: Path) -> None:
    """The kernel gives a mount's number to the next one."""
    first = mount("first", point)
    subprocess.run(["umount", str(point)], check=True)
    assert mounts.unmount(first) == f"{point} was unmounted already"
    second = mount("second", point)
    assert mounts.unmount(first) == f"{point} was unmounted already"
    assert second in mounts.table()
    third = mount("third", point)
    with pytest.raises(TargetError, match="another mount covers"):
        mounts.unmount(second)
    assert third in mounts.table()


def test_a_kernel_without_swap_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_SWAPS", tmp_path / "swaps")
    assert mounts.swaps() == []
    (tmp_path / "swaps").write_text(
        "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
        "/dev/sda2                               partition\t8388604\t\t0\t\t-2\n"
        "/mnt/a\\040file\\040(deleted)            file\t8388604\t\t0\t\t-3\n"
    )
    assert mounts.swaps() == [Path("/dev/sda2"), Path("/mnt/a file")]
