"""Other people's programs that we call: where they are, or how to get them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from harness.errors import DeviceError, MissingTool

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGES: Final = {
    "blkdiscard": "util-linux",
    "bpftrace": "bpftrace",
    "debugfs": "e2fsprogs",
    "env": "coreutils",
    "fio": "fio",
    "fstrim": "util-linux",
    "hdparm": "hdparm",
    "losetup": "mount",
    "mke2fs": "e2fsprogs",
    "mount": "mount",
    "nvme": "nvme-cli",
    "setpriv": "util-linux",
    "setsid": "util-linux",
    "smartctl": "smartmontools",
    "umount": "mount",
}
"""Debian packages."""


def find_program(name: str) -> str:
    """The path of a program in the system's folders. Raises MissingTool with the package."""
    path = shutil.which(name, path=_PATH)
    if path is None:
        package = _PACKAGES.get(name, name)
        raise MissingTool(f"{name} is not installed: apt-get install {package}")
    return path


def chosen_folders() -> list[Path]:
    """Those that PATH names beside the system's: what lies there, somebody has chosen."""
    system = {Path(name).resolve() for name in _PATH.split(os.pathsep)}
    named = [Path(name) for name in os.environ.get("PATH", "").split(os.pathsep) if name]
    return [folder for folder in named if folder.resolve() not in system]


@contextmanager
def without_environment(prefix: str) -> Iterator[None]:
    """While the block runs, this process's environment has no variables of such names.

    A client's library hears them beside what it is told: of PG..., another server (PGHOSTADDR,
    PGSERVICE), which would be taken for ours and written to, and sessions' settings (PGOPTIONS).
    """
    said = {name: value for name, value in os.environ.items() if name.startswith(prefix)}
    for name in said:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(said)


def ask(name: str, *arguments: str, limit_s: float = 60.0) -> subprocess.CompletedProcess[bytes]:
    """Runs a program that only asks a device something; how it ended is for the caller to judge.

    Raises MissingTool, and DeviceError if there is no answer within the limit.
    """
    command = [find_program(name), *arguments]
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceError(
            f"{name} {' '.join(arguments)}: no answer within {limit_s:.0f} s: "
            "see whether the drive still works (dmesg)"
        ) from error


def last_words(done: subprocess.CompletedProcess[bytes]) -> str:
    """The last line that a program has said, where it complains if it does."""
    lines = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace").splitlines()
    return lines[-1].strip() if lines else f"exit code {done.returncode}"
