"""What control groups of version 2 make of a bound on dirty pages: the host that tests has 1."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from harness.errors import TargetError
from harness.system import cgroups, filesystems, leases, writeback
from harness.system.ext4_spec import Ext4Spec

MIB = 1 << 20
LIMIT_BYTES = 4 * MIB
MEMORY_BYTES = 64 * MIB
WRITTEN_MIB = 96


@pytest.mark.parametrize("made", ["before it is mounted", "when it is mounted"])
def test_a_group_may_have_as_much_dirty_as_the_device_is_bounded_to(
    made: str, tmp_path: Path
) -> None:
    """Without regard to its own share of the memory it would have 0.1 MiB."""
    assert cgroups.bound_writeback()
    disk = tmp_path / "disk"
    disk.touch()
    os.truncate(disk, 256 * MIB)
    spec = Ext4Spec(size_bytes=256 * MIB, dirty_bytes=LIMIT_BYTES)
    seen = []
    with leases.open_lease() as lease:
        group = lease.new_cgroup() if made == "before it is mounted" else None
        with filesystems.ext4_in(disk, 0, spec) as folder:
            group = group or lease.new_cgroup()
            group.set_limit(MEMORY_BYTES)
            time.sleep(1)  # the bound follows
            write = f"dd if=/dev/zero of={folder}/file bs=64k count={WRITTEN_MIB * 16} status=none"
            command = ["sh", "-c", f"echo 0 > {group.processes_file} && exec {write}"]
            with subprocess.Popen(command) as writer:
                while writer.poll() is None:
                    seen.append(group.memory().dirty)
                    time.sleep(0.02)
            assert writer.returncode == 0
    assert 0.25 * LIMIT_BYTES < max(seen) < 1.25 * LIMIT_BYTES
    assert group not in cgroups.made()


def test_a_larger_share_than_the_machines_is_refused() -> None:
    allowed = int(Path("/proc/sys/vm/dirty_ratio").read_text())
    writeback.check_share(allowed / 100)
    with pytest.raises(TargetError, match=f"vm.dirty_ratio={allowed + 1} "):
        writeback.check_share((allowed + 1) / 100)
