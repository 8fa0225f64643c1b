"""Run on the host: imports what tests in the guest import, so that the bytecode is at hand there.

The guest, an emulated processor, would take half a minute to compile pandas.
"""

from __future__ import annotations

import importlib
import pkgutil

import _pytest.junitxml
import pytest

import harness

LIBRARIES = ("temp_files",)  # preloaded by servers, nothing to import


def main() -> None:
    """Imports pytest with what it loads late, and all of ours with all that it needs."""
    assert pytest.__file__
    assert _pytest.junitxml.__file__
    for module in pkgutil.walk_packages(harness.__path__, "harness."):
        if module.name.rpartition(".")[2] not in LIBRARIES:
            importlib.import_module(module.name)


if __name__ == "__main__":
    main()
