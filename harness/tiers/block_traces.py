"""Where the block trace of a point lies until it is kept with its results: the tiers with a kernel.

One at a time, as points with a trace run one after another.
"""

from __future__ import annotations

from pathlib import Path

from harness.errors import MissingTool
from harness.paths import Project
from harness.probes import bpftrace


def folder(project: Project) -> Path:
    """Of a project."""
    return project.journal / "block_traces"


def new_file(traces: Path | None) -> Path | None:
    """A name for the next point's; those before are gone. None without bpftrace or a folder."""
    if traces is None:
        return None
    try:
        bpftrace.program()
    except MissingTool:  # the results are as good without the kernel's view of them
        return None
    traces.mkdir(parents=True, exist_ok=True)
    for old in traces.glob("block*.parquet"):
        old.unlink()
    return traces / "block.parquet"
