"""The probes: for each a bpftrace script, NAME.bt, and beside it NAME.py with its PROBE.

The folder is the table. So is every other folder in this package's `__path__`: a probe from
elsewhere needs no line here.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from harness.errors import UnknownName
from harness.probes.probe import Probe


def names() -> list[str]:
    """Of all probes there are."""
    return sorted(path.stem for folder in __path__ for path in Path(folder).glob("*.bt"))


def find(name: str) -> Probe:
    """The probe of that name. Raises UnknownName."""
    known = names()
    if name not in known:
        raise UnknownName("probe", name, known)
    probe: Probe = importlib.import_module(f"{__name__}.{name}").PROBE
    return probe
