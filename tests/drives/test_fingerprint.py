"""What a measured result depends on besides its parameters: this machine, and what lies below."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.drives import fingerprint
from harness.runs import published
from harness.system import block_queue, cgroups

CPU = """processor\t: 0
cpu family\t: 25
model\t\t: 1
model name\t: A Processor
stepping\t: 2
"""


def test_the_machine_is_its_kernel_processor_memory_and_control_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = {
        Path("/proc/cpuinfo"): CPU,
        Path("/proc/meminfo"): "MemFree: 12 kB\nMemTotal:       16309148 kB\n",
    }
    monkeypatch.setattr(fingerprint, "_read", texts.get)
    said = fingerprint.machine()
    assert said["cpu"] == "A Processor"
    assert said["cpu_stepping"] == "25/1/2"
    assert said["memory_gib"] == "16", "not whole: the kernel keeps some of it"
    assert said["cgroups"] == str(cgroups.version())


def test_what_records_from_before_do_not_say_is_not_held_against_them() -> None:
    machine = fingerprint.machine()
    old = {name: machine[name] for name in ("kernel", "cpu", "cpus")}
    assert published.is_from_here({"devices": {"ssd": {"profile": "x", **old}}})
    assert published.is_from_here({"devices": {"ssd": machine}})
    for name in machine:
        assert not published.is_from_here({"devices": {"ssd": machine | {name: "another"}}})


@pytest.mark.parametrize(
    ("memory", "version"), [("memory\t5\t80\t1", 1), ("memory\t0\t80\t1", 2), ("", 2)]
)
def test_which_control_groups_bound_memory(tmp_path: Path, memory: str, version: int) -> None:
    file = tmp_path / "cgroups"
    file.write_text(f"#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t3\t1\t1\n{memory}\n")
    assert cgroups.version(file) == version


def disk(root: Path, name: str, *, place: str, rotational: str) -> Path:
    folder = root / place / name
    (folder / "queue").mkdir(parents=True)
    (folder / "queue" / "rotational").write_text(f"{rotational}\n")
    return folder


def test_whether_what_is_made_of_drives_rotates_is_known_if_they_all_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {
        "8:0": disk(tmp_path, "sda", place="ata1", rotational="1"),
        "8:16": disk(tmp_path, "sdb", place="ata2", rotational="1"),
        "254:0": disk(tmp_path, "vda", place="virtio0", rotational="1"),
        "259:0": disk(tmp_path, "nvme0n1", place="nvme0", rotational="0"),
    }
    monkeypatch.setattr(block_queue, "folder_of", numbers.get)

    def made_of(*parts: str) -> str:
        upper = disk(tmp_path, "dm-" + "-".join(parts), place="virtual", rotational="1")
        for part in parts:
            (upper / "slaves" / part).mkdir(parents=True)
            (upper / "slaves" / part / "dev").write_text(f"{part}\n")
        return fingerprint._rotation(upper)

    assert made_of("8:0") == "1"
    assert made_of("8:0", "8:16") == "1"
    assert made_of("259:0") == "0"
    assert made_of("8:0", "259:0") == "unknown"
    assert made_of("8:0", "254:0") == "unknown"
    assert made_of() == "unknown", "a virtual disk, of which this is Linux's default"
