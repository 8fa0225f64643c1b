"""What each tier needs of a machine, what is missing, and the one command that installs it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pandas as pd
from rich.console import Console
from rich.table import Table

from harness import _core
from harness.devices.live import front
from harness.system.programs import chosen_folders


@dataclass(frozen=True)
class Need:
    """Something that a tier needs: how to see that it is there, and the Debian package of it."""

    tier: str
    name: str
    purpose: str
    present: Callable[[], bool]
    package: str


def _program(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name, path=f"{Path(sys.executable).parent}:{_PATH}") is not None


def _chosen(name: str) -> bool:
    return any((folder / name).exists() for folder in chosen_folders())


def _postgres() -> bool:
    installed = any(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or _program("initdb")()
    return installed or _chosen("initdb")


def _mysql() -> bool:
    return any(_program(name)() or _chosen(name) for name in ("mariadbd", "mysqld"))


def _mysql_installer() -> bool:
    """MySQL's server makes its data folders itself."""
    return _program("my_print_defaults")() or not _program("mariadbd")()


_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

NEEDS: Final = (
    Need("simulated", "tpchgen-cli", "TPC-H data", _program("tpchgen-cli"), ""),
    Need(
        "hardware",
        "io_uring",
        "queue depths above 1",
        _core.FileStorage.has_io_uring,
        "liburing-dev",
    ),
    Need("hardware", "losetup", "loop devices", _program("losetup"), "util-linux"),
    Need("hardware", "fio", "filling and ageing a drive", _program("fio"), "fio"),
    Need("hardware", "nvme", "NVMe: wear, format, sanitize", _program("nvme"), "nvme-cli"),
    Need("hardware", "smartctl", "SATA and SAS: wear", _program("smartctl"), "smartmontools"),
    Need("hardware", "hdparm", "SATA: secure erase", _program("hdparm"), "hdparm"),
    *(
        Need("emulated", need.name, "live devices", need.present, need.package)
        for need in front.named(front.DEFAULT).needs
    ),
    Need("emulated", "losetup", "live devices", _program("losetup"), "mount"),
    Need("emulated", "mke2fs", "file systems for databases", _program("mke2fs"), "e2fsprogs"),
    Need("emulated", "initdb", "the sort-merge join", _postgres, "postgresql"),
    Need("emulated", "mariadbd", "TPC-C", _mysql, "mariadb-server-core"),
    Need("emulated", "my_print_defaults", "TPC-C", _mysql_installer, "mariadb-client-core"),
    Need("probes", "bpftrace", "traces of block devices", _program("bpftrace"), "bpftrace"),
    Need("bench", "fio", "the engine beside fio", _program("fio"), "fio"),
    Need("bench", "initdb", "the engine beside PostgreSQL", _postgres, "postgresql"),
)
"""In the order in which they are shown."""

_SERVERS: Final = {
    "postgres": {"initdb"},
    "mysql": {"mariadbd", "my_print_defaults"},
}


def needs_of(tier: str, servers: Sequence[str]) -> list[Need]:
    """What a tier needs for a study that starts these servers (postgres, mysql)."""
    others = set().union(*(names for kind, names in _SERVERS.items() if kind not in servers))
    return [need for need in NEEDS if need.tier == tier and need.name not in others]


def table() -> pd.DataFrame:
    """One row per need: tier, name, purpose, present, Debian package."""
    rows = [(n.tier, n.name, n.purpose, n.present(), n.package) for n in NEEDS]
    return pd.DataFrame(rows, columns=["tier", "name", "purpose", "present", "package"])


def print_report(console: Console) -> None:
    """The table, and the command that installs what is missing."""
    needs = table()
    shown = Table("tier", "needs", "for", "here", box=None)
    for need in needs.itertuples():
        here = "[green]yes[/]" if need.present else "[red]no[/]"
        shown.add_row(need.tier, need.name, need.purpose, here)
    console.print(shown)
    missing = needs[~needs.present]
    packages = sorted({package for package in missing.package if package})
    if packages:
        console.print(f"install with: apt-get install {' '.join(packages)}")
    if not missing.empty:
        console.print("then run `make env`: Python's packages, and a core with the libraries found")
    if missing.empty:
        console.print("nothing is missing")
