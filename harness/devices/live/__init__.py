"""Live devices: a device model behind a real Linux block device, in real time.

    with created(LiveSpec(profile="crucial_mx500_250gb", size_bytes=8 << 30)) as device:
        subprocess.run(["mkfs.ext4", str(device.path)])
        device.stats()["lateness"]

The core serves the model (harness/core/live), a front end (`front`) makes a block device of it.
Each device is a process of its own (`daemon`), with a folder below /run/flashlab (`registry`) and a
unix socket in it (`control`), where it can be asked (`service`). It survives whoever made it;
`harness clean` finds what a killed one left behind.
"""

from harness.devices.live.client import LiveDevice, create, created, find, recover
from harness.devices.live.registry import list_names
from harness.devices.live.spec import LiveSpec

__all__ = ["LiveDevice", "LiveSpec", "create", "created", "find", "list_names", "recover"]
