"""A sweep's record, as a test wants it."""

from __future__ import annotations

import json
from pathlib import Path

from harness.runs.sweeps import tables
from harness.system.files import digests_of


def note(folder: Path, **facts: object) -> None:
    """Writes about.json for the tables that are there now: what it had, with these facts."""
    path = folder / tables.ABOUT
    before = json.loads(path.read_text()) if path.is_file() else {}
    found = {name: (folder / name).read_bytes() for name in (tables.MACHINES, tables.CLAIMS)}
    path.write_text(json.dumps({**before, **facts, "files": digests_of(found)}))
