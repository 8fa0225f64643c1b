"""Other people's programs that we call: where they are, or how to get them."""

from __future__ import annotations

import shutil
from typing import Final

from harness.errors import MissingTool

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGES: Final = {
    "blkdiscard": "util-linux",
    "bpftrace": "bpftrace",
    "debugfs": "e2fsprogs",
    "env": "coreutils",
    "fio": "fio",
    "fstrim": "util-linux",
    "losetup": "mount",
    "mke2fs": "e2fsprogs",
    "mount": "mount",
    "setpriv": "util-linux",
    "setsid": "util-linux",
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
