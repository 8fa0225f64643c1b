"""Every Python that finds this takes ublk for the front end of whoever names none.

Nothing of the package is imported for it: most of these programs need none of it.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

_TABLE: Final = "harness.devices.live.front"


class _Table(Loader):
    """Loads the table of front ends as `loader` does, and changes its default."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        assert hasattr(module, "DEFAULT")
        vars(module)["DEFAULT"] = "ublk"


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname != _TABLE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        spec.loader = _Table(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
