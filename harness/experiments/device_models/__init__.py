"""The device models beside theory: what they do where the answer is known.

No paper stands behind this one. Uniform random writes have a closed form for write amplification, a
disk has a published seek curve, a TRIM has three costs: the models must give these back before what
they say of a database means anything.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from harness.experiments.base import Study
from harness.experiments.device_models import grid, run
from harness.experiments.device_models.benchmarks import BENCHMARKS


class DeviceModels(Study):
    """The experiment."""

    title = "The device models, beside theory"
    runs = MappingProxyType({"simulated": run.run})


EXPERIMENT: Final = DeviceModels(grid, benchmarks=BENCHMARKS, beside=("mqsim",))
