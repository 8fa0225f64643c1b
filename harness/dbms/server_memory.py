"""The memory of a server in a control group, and of the page cache that it fills."""

from __future__ import annotations

import os
import statistics
from contextlib import suppress
from dataclasses import dataclass, field

from harness.dbms.postgres import Server
from harness.system import given
from harness.system.cgroups import Cgroup


@dataclass
class ServerMemory:
    """The control group's limit, and what the server had of it for itself at each look.

    One of `limit_bytes` (of all) and `page_cache_bytes` (of file pages alone) is not 0.
    `expected_bytes`: how much more the server will have for itself once all clients are at work;
    it grows faster than it is looked at, and would be killed by a limit that only follows.
    """

    cgroup: Cgroup
    limit_bytes: int
    page_cache_bytes: int
    expected_bytes: int
    own: list[int] = field(default_factory=list)
    kernel: list[int] = field(default_factory=list)
    cache: list[int] = field(default_factory=list)

    def look(self) -> None:
        """Once; and the limit follows."""
        now = self.cgroup.memory()
        self.own.append(now.anonymous + now.shared)
        self.kernel.append(now.kernel)
        self.cache.append(now.cache)
        if self.page_cache_bytes:
            needed = [own + kernel for own, kernel in zip(self.own, self.kernel, strict=True)]
            whole = max(needed[-1], needed[0] + self.expected_bytes)
            self.limit_bytes = self.page_cache_bytes + whole
        self.cgroup.set_limit(self.limit_bytes)

    def metrics(self) -> dict[str, float]:
        """What the server has of the limit for itself: the rest is page cache."""
        return {
            "cache_limit_bytes": self.limit_bytes,
            "page_cache_mean_bytes": round(statistics.fmean(self.cache)),
            "page_cache_max_bytes": max(self.cache),
            "server_memory_bytes": max(self.own),
            "server_memory_mean_bytes": round(statistics.fmean(self.own)),
            "server_kernel_bytes": max(self.kernel),
        }


def forget_files(server: Server) -> None:
    """What follows begins without the tables in the page cache, whatever has left them there."""
    for fd in given.files(server.folder / "data" / "base"):
        with suppress(OSError):
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
