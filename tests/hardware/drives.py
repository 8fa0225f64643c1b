"""The drives that a guest has: what QEMU is told of them, and what the guest must find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MIB = 1 << 20


class Drive(Protocol):
    """Something with sparse files below it, which the host may look into."""

    @property
    def images(self) -> dict[str, int]:
        """File name -> bytes."""

    def arguments(self, folder: Path, place: int) -> list[str]:
        """What QEMU is told, with the images in a folder. `place`: among all drives, 0 to 5."""


@dataclass(frozen=True)
class Sata:
    """A SATA drive: an SSD if its rotation rate is 1, as ATA has it (ACS-4, word 217)."""

    serial: str
    model: str
    firmware: str
    wwn: int
    rotation_rate: int
    size_bytes: int = 512 * MIB
    discard: bool = True

    @property
    def images(self) -> dict[str, int]:
        """See Drive."""
        return {self.serial: self.size_bytes}

    def arguments(self, folder: Path, place: int) -> list[str]:
        """See Drive. Only with a granularity does QEMU's drive know TRIM."""
        facts = {
            "bus": f"ide.{place}",
            "drive": self.serial,
            "serial": self.serial,
            "model": self.model,
            "ver": self.firmware,
            "wwn": f"{self.wwn:#x}",
            "rotation_rate": self.rotation_rate,
            "discard_granularity": 512 if self.discard else 0,
        }
        return [*backing(folder, self.serial), "-device", _device("ide-hd", facts)]


@dataclass(frozen=True)
class Nvme:
    """An NVMe drive of one namespace.

    QEMU sets the model and the firmware version, and Linux believes no EUI-64 that QEMU gives.
    """

    serial: str
    size_bytes: int = 512 * MIB
    ocp: bool = True

    @property
    def images(self) -> dict[str, int]:
        """See Drive."""
        return {self.serial: self.size_bytes}

    def arguments(self, folder: Path, place: int) -> list[str]:
        """See Drive."""
        ident = f"ctrl-{self.serial}"
        controller = {"id": ident, "serial": self.serial, "ocp": "on" if self.ocp else "off"}
        space = {"bus": ident, "nsid": 1, "drive": self.serial}
        return [
            *backing(folder, self.serial),
            *("-device", _device("nvme", controller)),
            *("-device", _device("nvme-ns", space)),
        ]


@dataclass(frozen=True)
class FdpNvme:
    """An NVMe drive with Flexible Data Placement: namespace i + 1 places by handles[i].

    `handles`: of each namespace, which of the reclaim unit handles its placement ids stand for.
    """

    serial: str
    handles: tuple[str, ...]
    size_bytes: int = 512 * MIB
    reclaim_unit_bytes: int = 16 * MIB
    handles_in_all: int = 8

    @property
    def images(self) -> dict[str, int]:
        """See Drive."""
        return {f"{self.serial}-{i + 1}": self.size_bytes for i in range(len(self.handles))}

    def arguments(self, folder: Path, place: int) -> list[str]:
        """See Drive."""
        subsystem = f"subsys-{self.serial}"
        placement = {
            "id": subsystem,
            "nqn": f"nqn.2024-01.org.example:{self.serial}",
            "fdp": "on",
            "fdp.runs": self.reclaim_unit_bytes,
            "fdp.nrg": 1,
            "fdp.nruh": self.handles_in_all,
        }
        ident = f"ctrl-{self.serial}"
        controller = {"id": ident, "serial": self.serial, "subsys": subsystem}
        devices = [_device("nvme-subsys", placement), _device("nvme", controller)]
        for i, (image, handles) in enumerate(zip(self.images, self.handles, strict=True)):
            space = {"bus": ident, "nsid": i + 1, "drive": image, "fdp.ruhs": handles}
            devices.append(_device("nvme-ns", space))
        backings = [word for image in self.images for word in backing(folder, image)]
        return [*backings, *(word for device in devices for word in ("-device", device))]


STANDARD: tuple[Drive, ...] = (
    Nvme(serial="NV5C1A7D20E1"),
    Sata(
        serial="SS2037E4B7C9",
        model="FLASHLAB SSD 512",
        firmware="M3CR046",
        wwn=0x500A0751E4B7C901,
        rotation_rate=1,
    ),
    Sata(
        serial="HD7K1CXR9F04",
        model="FLASHLAB HDD 512",
        firmware="MX6OA5Q0",
        wwn=0x5000CCA39BD0F402,
        rotation_rate=7200,
        discard=False,
    ),
)
"""What a guest has, if a test does not ask for others."""

ROOT = Sata(
    serial="RT0B00TD15K7",
    model="FLASHLAB ROOT",
    firmware="1.0",
    wwn=0x5000C500A1B2C3D4,
    rotation_rate=1,
    size_bytes=4096 * MIB,
)
"""What the guest itself runs from: partition 1 is /, partition 2 is swap."""


def backing(folder: Path, name: str) -> list[str]:
    """A raw file as QEMU's block device; it keeps holes, and punches new ones for discards."""
    facts = {"driver": "raw", "node-name": name, "discard": "unmap", "file.driver": "file"}
    return ["-blockdev", _joined({**facts, "file.filename": str(folder / name)})]


def make_images(drives: Sequence[Drive], folder: Path) -> None:
    """Sparse files of all drives; those that are there stay as they are."""
    for name, size_bytes in (row for drive in drives for row in drive.images.items()):
        if not (folder / name).exists():
            with (folder / name).open("wb") as file:
                file.truncate(size_bytes)


def _device(kind: str, facts: Mapping[str, object]) -> str:
    return f"{kind},{_joined(facts)}"


def _joined(facts: Mapping[str, object]) -> str:
    """QEMU's own syntax: a comma within a value is written twice."""
    return ",".join(f"{key}={str(value).replace(',', ',,')}" for key, value in facts.items())
