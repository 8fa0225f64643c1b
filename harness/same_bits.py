"""The same bits on every processor: NumPy's code for all of them, asked for before NumPy starts.

NumPy has several codes for `log`, `exp` and others, and takes the best that the processor has. They
differ in the last bit, and a figure that is drawn with one is another file than with the other. So
what is computed here is computed by the code that every processor of its kind has.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_BEYOND: Final = ("X86_V3", "X86_V4", "AVX512_ICL", "AVX512_SPR")
"""What NumPy (2.4) chooses from beyond that, by its names; it passes over names unknown to it."""


def ask() -> None:
    """For this process and those that it starts. Too late if NumPy is imported: see `beyond`."""
    os.environ.pop("NPY_ENABLE_CPU_FEATURES", None)  # NumPy refuses to be told both
    os.environ["NPY_DISABLE_CPU_FEATURES"] = " ".join(_BEYOND)


def beyond() -> list[str]:
    """What NumPy uses beyond that all the same: somebody imported it before us."""
    if "numpy" not in sys.modules:
        return []
    used = sys.modules["numpy._core._multiarray_umath"].__dict__
    return [name for name in used["__cpu_dispatch__"] if used["__cpu_features__"][name]]
