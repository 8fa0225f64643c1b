"""Joins by the engine over a test's own storage, and what comes out by the obvious dictionary."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness import _core
from harness.workloads.records import RECORD_BYTES, expand

MIB = 1 << 20
BLOCK = 512


def oracle(build: NDArray[np.void], probe: NDArray[np.void]) -> tuple[int, int]:
    """Matches and checksum by the obvious dictionary."""
    rows = defaultdict(list)
    for row in build:
        rows[int(row["key"])].append(int(row["signature"]) & 0xFFFFFFFF)
    matches = checksum = 0
    for row in probe:
        for signature in rows[int(row["key"])]:
            matches += 1
            checksum += signature * (int(row["signature"]) & 0xFFFFFFFF)
    return matches, checksum % 2**64


def spec(**options: Any) -> _core.JoinSpec:
    defaults: dict[str, Any] = {
        "algorithm": _core.Algorithm.grace,
        "read_buffer_bytes": 4096,
        "write_buffer_bytes": 1024,
        "input_io_bytes": 2048,
    }
    return _core.JoinSpec(**{**defaults, **options})


def join(
    storage: Any,
    build: NDArray[np.void],
    probe: NDArray[np.void],
    wanted: _core.JoinSpec,
    *,
    users: int = 1,
    scratch_bytes: int = 8 * MIB,
    cancel: _core.Cancel | None = None,
) -> list[dict[str, Any]]:
    """Places both inputs, 1 MiB apart from everything, and runs one join per user."""

    def place(offset: int, rows: NDArray[np.void]) -> None:
        if isinstance(storage, _core.VirtualStorage):
            storage.mount(offset, rows.view(np.uint8))
        else:
            storage.write(offset, expand(rows, BLOCK))

    probe_at = MIB + -(-max(len(build), 1) * RECORD_BYTES // MIB) * MIB
    scratch_at = probe_at + -(-max(len(probe), 1) * RECORD_BYTES // MIB) * MIB
    place(MIB, build)
    place(probe_at, probe)
    jobs = [
        _core.UserJob(
            build_offset_bytes=MIB,
            build_records=len(build),
            probe_offset_bytes=probe_at,
            probe_records=len(probe),
            scratch_begin_bytes=scratch_at + user * scratch_bytes,
            scratch_end_bytes=scratch_at + (user + 1) * scratch_bytes,
        )
        for user in range(users)
    ]
    return list(_core.run_joins(storage, wanted, jobs, cancel or _core.Cancel()))
