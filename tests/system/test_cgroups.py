"""Control groups: found in both versions' trees, bounding what is in them, gone afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import cleaning_alone

from harness.errors import TargetError
from harness.runs import cleaning
from harness.system import cgroups, leases

ROOT_V1 = "30 20 0:25 {root} {point} rw - cgroup cgroup rw,memory\n"
OTHER_V1 = "31 20 0:26 / {point} rw - cgroup cgroup rw,cpu,cpuacct\n"
ROOT_V2 = "32 20 0:27 / {point} rw - cgroup2 cgroup2 rw\n"


def tree(folder: Path, mounts: str, own: str) -> tuple[Path, Path]:
    (folder / "mountinfo").write_text(mounts)
    (folder / "cgroup").write_text(own)
    return folder / "mountinfo", folder / "cgroup"


def test_version_1_is_found_by_its_controller_and_below_our_own_group(tmp_path: Path) -> None:
    point = tmp_path / "memory"
    (point / "us").mkdir(parents=True)
    mounts = OTHER_V1.format(point=tmp_path / "cpu") + ROOT_V1.format(point=point, root="/box")
    files = tree(tmp_path, mounts, "4:cpu,cpuacct:/other\n3:memory:/box/us\n0::/\n")
    assert cgroups.find_hierarchy(*files) == cgroups.Hierarchy(1, point / "us")
    files = tree(tmp_path, mounts, "3:memory:/elsewhere\n")
    assert cgroups.find_hierarchy(*files) == cgroups.Hierarchy(1, point)


def test_version_2_is_below_the_nearest_group_that_gives_the_controller(tmp_path: Path) -> None:
    point = tmp_path / "unified"
    inner = point / "slice" / "us"
    inner.mkdir(parents=True)
    for folder, gives in ((point, "cpu memory"), (point / "slice", "memory"), (inner, "")):
        (folder / "cgroup.subtree_control").write_text(gives + "\n")
    files = tree(tmp_path, ROOT_V2.format(point=point), "0::/slice/us\n")
    assert cgroups.find_hierarchy(*files) == cgroups.Hierarchy(2, point / "slice")
    (point / "slice" / "cgroup.subtree_control").write_text("cpu\n")
    assert cgroups.find_hierarchy(*files) == cgroups.Hierarchy(2, point)


def test_a_machine_without_the_controller_is_told_so(tmp_path: Path) -> None:
    point = tmp_path / "unified"
    point.mkdir()
    (point / "cgroup.subtree_control").write_text("cpu\n")
    files = tree(tmp_path, ROOT_V2.format(point=point), "0::/\n")
    with pytest.raises(TargetError, match="no memory controller"):
        cgroups.find_hierarchy(*files)


def test_version_2_is_read_by_its_own_names(tmp_path: Path) -> None:
    (tmp_path / "memory.stat").write_text(
        "anon 1\nfile 20\nkernel 3\nshmem 4\nfile_dirty 5\nfile_writeback 6\n"
    )
    (tmp_path / "memory.events").write_text("low 0\noom_kill 2\n")
    group = cgroups.at(tmp_path)
    group.set_limit(12345)
    assert (tmp_path / "memory.max").read_text() == "12345"
    assert group.memory() == cgroups.Memory(1, shared=4, cache=16, kernel=3, dirty=11)
    assert group.killed() == 2


@pytest.fixture
def _controller() -> None:
    try:
        cgroups.find_hierarchy()
    except TargetError as error:
        pytest.skip(str(error))


WRITER = (
    "import sys\n"
    "with open(sys.argv[1], 'wb') as file:\n"
    "    for _ in range(64): file.write(bytes(1 << 20))\n"
)


@pytest.mark.servers
@pytest.mark.root
@pytest.mark.usefixtures("_controller")
def test_a_group_bounds_the_page_cache_of_what_runs_in_it(tmp_path: Path) -> None:
    limit = 32 << 20
    with leases.open_lease() as lease:
        group = lease.new_cgroup()
        group.set_limit(limit)
        command = [sys.executable, "-c", WRITER, str(tmp_path / "file")]
        assert lease.start(command, cgroup=group).wait(timeout=120) == 0
        seen = group.memory()
        assert 4 << 20 < seen.cache <= limit  # the file has 64 MiB
        assert seen.anonymous + seen.shared + seen.cache + seen.kernel <= limit
        assert group.members() == []
    assert not group.folder.exists()


@pytest.mark.servers
@pytest.mark.root
@pytest.mark.usefixtures("_controller")
def test_what_a_group_has_of_its_own_is_not_swapped_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_machine_swaps", lambda: True)
    with leases.open_lease() as lease:
        group = lease.new_cgroup()
        name = "memory.swappiness" if group.version == 1 else "memory.swap.max"
        assert (group.folder / name).read_text().strip() == "0"


@pytest.mark.servers
@pytest.mark.root
@pytest.mark.usefixtures("_controller")
def test_who_needs_more_than_the_limit_is_killed_and_counted() -> None:
    with leases.open_lease() as lease:
        group = lease.new_cgroup()
        group.set_limit(32 << 20)
        process = lease.start([sys.executable, "-c", "bytearray(1 << 28)"], cgroup=group)
        assert process.wait(timeout=120) == -9
        assert group.killed() >= 1


@pytest.mark.servers
@pytest.mark.root
@pytest.mark.usefixtures("_controller")
@cleaning_alone
def test_the_group_of_a_killed_run_is_cleaned_with_what_is_in_it() -> None:
    program = (
        "import sys, time; from harness.system import leases\n"
        "with leases.open_lease() as lease:\n"
        "    group = lease.new_cgroup()\n"
        "    child = 'import os, time; os.fork(); time.sleep(600)'\n"
        "    lease.start([sys.executable, '-c', child], cgroup=group)\n"
        "    while len(group.members()) < 2: time.sleep(0.01)\n"
        "    print(group.folder, *group.members(), flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder, *members = process.stdout.readline().split()
        process.kill()
    assert Path(folder).is_dir()
    found = cleaning.clean()
    assert any(line.startswith(f"removed {folder}") for line in found.done), found
    assert not Path(folder).exists()
    for pid in members:
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or ") Z " in stat.read_text()


CONTROLLERS = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t2\t1\t1\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("blkio\t0\t40\t1\nmemory\t0\t40\t1\n", True),
        ("", True),  # kernels without version 1 list neither
        ("blkio\t3\t1\t1\nmemory\t4\t9\t1\n", False),
        ("blkio\t3\t1\t1\nmemory\t0\t9\t1\n", False),
        ("blkio\t0\t1\t1\nmemory\t4\t9\t1\n", False),
    ],
)
def test_groups_bound_writeback_where_version_2_has_both_controllers(
    lines: str, expected: bool, tmp_path: Path
) -> None:
    (tmp_path / "cgroups").write_text(CONTROLLERS + lines)
    assert cgroups.bound_writeback(tmp_path / "cgroups") == expected


def test_what_may_be_dirty_is_a_share_of_file_pages_and_what_is_free(tmp_path: Path) -> None:
    inner = tmp_path / "slice" / "us"
    inner.mkdir(parents=True)
    (inner / "memory.stat").write_text("anon 7\nfile 900\nactive_file 300\ninactive_file 500\n")
    group = cgroups.Cgroup(2, inner)
    assert group.dirtyable_bytes() > 1 << 60  # nothing limits it
    for folder, current, most, high in (
        (inner, 850, 1000, "max"),
        (tmp_path / "slice", 90, "max", 100),
    ):
        (folder / "memory.current").write_text(f"{current}\n")
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.high").write_text(f"{high}\n")
    assert group.dirtyable_bytes() == 800 + 10
    (inner / "memory.current").write_text("1020\n")  # for a moment it may have more
    assert group.dirtyable_bytes() == 800
