"""The groups of a profile that the core describes; their types are in the stub beside this file.

`make stub` writes the stub, from the same description (tools/parameters-stub).
"""

from harness import _core
from harness.devices.parameters import described_by

HddParameters = described_by(
    _core.HddParameters, __name__, "A hard disk; see harness/core/disk for what each one does."
)
SsdParameters = described_by(
    _core.SsdParameters, __name__, "A flash drive; see harness/core/flash for what each one does."
)
HostParameters = described_by(
    _core.HostParameters,
    __name__,
    "The machine above the device; see harness/core/host/block_layer.hpp.",
)
