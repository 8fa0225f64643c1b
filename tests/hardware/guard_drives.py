"""The drives on which the guard is tried: small ones, and some that cannot be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hardware.drives import MIB, Drive, FdpNvme, Nvme, Sata

SIZE_BYTES = 65 * MIB


@dataclass(frozen=True)
class Twin:
    """A SATA drive whose serial number and WWN another one has, too; its image has its own name."""

    drive: Sata
    image: str

    @property
    def images(self) -> dict[str, int]:
        """See Drive."""
        return {self.image: self.drive.size_bytes}

    def arguments(self, folder: Path, place: int) -> list[str]:
        """See Drive."""
        return [
            word.replace(f"drive={self.drive.serial}", f"drive={self.image}")
            .replace(f"node-name={self.drive.serial}", f"node-name={self.image}")
            .replace(f"/{self.drive.serial}", f"/{self.image}")
            for word in self.drive.arguments(folder, place)
        ]


def _sata(serial: str, wwn: int, rate: int = 1, *, discard: bool = True) -> Sata:
    model = "FLASHLAB SSD 65" if rate == 1 else "FLASHLAB HDD 65"
    return Sata(serial, model, "M3CR046", wwn, rate, SIZE_BYTES, discard)


GUARD: Sequence[Drive] = (
    _sata("SS2037E4B7C9", 0x500A0751E4B7C901),
    _sata("HD7K1CXR9F04", 0x5000CCA39BD0F402, 7200, discard=False),
    _sata("S1", 0x500A0751E4B7C902),
    Twin(_sata("TW1N00000001", 0x500A0751E4B7C903), "twin-1"),
    Twin(_sata("TW1N00000001", 0x500A0751E4B7C903), "twin-2"),
    Nvme(serial="NV5C1A7D20E1", size_bytes=SIZE_BYTES),
    FdpNvme(serial="FD9A77C3E610", handles=("0;1", "2;3"), size_bytes=SIZE_BYTES),
)
"""SATA drives first: the machine has six ports for them, one is the root disk's."""
