"""The drives of a machine: who they are, what they can do, and what occupies them.

All from the kernel (sysfs, mountinfo, swaps) and, for signatures, from libblkid by way of `blkid`;
nothing is opened for writing. What the kernel does not say is an empty text or None, never a guess.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from harness.errors import MissingTool, TargetError, UnknownName
from harness.system import kernel_tables, mounts
from harness.system.kernel_partitions import SECTOR_BYTES
from harness.system.programs import find_program

EDGE_BYTES: Final = 1 << 20
"""Every file system, RAID, LVM and partition table signature lies this close to either end."""

_NOT_DRIVES: Final = re.compile(r"^(loop|ram|zram|dm-|md|sr|fd|nbd|mtdblock)")
_FDP: Final = 1 << 19  # NVMe 2.1, Identify Controller, CTRATT bit 19
_DIRECTIVES: Final = 1 << 5  # NVMe 1.3, Identify Controller, OACS bit 5
_SANE: Final = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True)
class Places:
    """Where the kernel tells about devices; other folders in tests."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")
    udev: Path = Path("/run/udev/data")
    links: Path = Path("/run/udev/links")


@dataclass(frozen=True)
class Drive:
    """A whole drive, as the kernel describes it.

    `number`: as in '8:0'. `by_id`: its persistent names that are no other drive's. `rpm`: of a disk
    that says so. `transport`: nvme, sata, sas, usb, virtio or other. `trim_queued`: None if not
    known. `controller`: what erases or resets it together with others, an NVMe subsystem; or ''.
    `sequence`: the kernel's number for this appearance of it (diskseq): another one after it was
    pulled and put back. `rotation_told`: see there.
    """

    name: str
    number: str
    node: Path
    by_id: tuple[Path, ...]
    model: str
    serial: str
    wwn: str
    firmware: str
    size_bytes: int
    logical_block_bytes: int
    rotational: bool
    rpm: int | None
    transport: str
    trim: bool
    trim_queued: bool | None
    read_only: bool
    controller: str
    sequence: str
    rotation_told: bool = True

    @property
    def identity(self) -> tuple[str, str, str, int]:
        """What must not change: model, serial, WWN, size in bytes."""
        return (self.model, self.serial, self.wwn, self.size_bytes)


class Machine:
    """The block devices of this machine at one moment; make a new one to look again."""

    def __init__(self, places: Places | None = None) -> None:
        self.places = places or Places()
        self._block = self.places.sys / "class" / "block"

    @cached_property
    def drives(self) -> tuple[Drive, ...]:
        """All drives, by name."""
        names = sorted(path.name for path in self._block.iterdir() if self._is_drive(path.name))
        return tuple(self.drive(name) for name in names)

    def drive(self, name: str) -> Drive:
        """One drive. Raises UnknownName."""
        if not self._is_drive(name):
            known = [path.name for path in self._block.iterdir() if self._is_drive(path.name)]
            raise UnknownName("drive", name, known)
        folder = self._folder(name)
        transport = transport_of(folder)
        sata = self._ata_link(folder) if transport == "sata" else None
        return Drive(
            name=name,
            number=_read(folder / "dev"),
            node=self.places.dev / name,
            by_id=self._names(name),
            model=_read(folder / "device" / "model"),
            serial=self._serial(folder),
            wwn=_read(folder / "wwid") or _read(folder / "device" / "wwid"),
            firmware=self._firmware(folder),
            size_bytes=int(_read(folder / "size") or 0) * SECTOR_BYTES,
            logical_block_bytes=int(_read(folder / "queue" / "logical_block_size") or 0),
            rotational=_read(folder / "queue" / "rotational") == "1",
            rpm=_rpm(_rate(folder)),
            transport=transport,
            trim=int(_read(folder / "queue" / "discard_max_bytes") or 0) > 0,
            trim_queued=_trim_queued(transport, sata),
            read_only=_read(folder / "ro") != "0",
            controller=self._controller(folder),
            sequence=_read(folder / "diskseq"),
            rotation_told=rotation_told(folder),
        )

    def occupants(self, name: str) -> list[str]:
        """What uses a drive or a part of it, a line each: mounts, swap, partitions, what is made of
        it, and signatures. Raises TargetError, MissingTool.
        """
        return list(self._occupants(name))

    def number_of(self, name: str) -> str:
        """A block device's number, as in '8:0'."""
        return _read(self._folder(name) / "dev")

    def name_of(self, number: str) -> str:
        """The block device with a number. Raises UnknownName."""
        link = self.places.sys / "dev" / "block" / number
        if not link.exists():
            raise UnknownName("block device", number, [])
        return link.resolve().name

    def partitions(self, name: str) -> tuple[str, ...]:
        """What the kernel takes to be partitions of a drive."""
        folder = self._folder(name)
        return tuple(sorted(p.parent.name for p in folder.glob("*/partition")))

    def holders(self, name: str) -> tuple[str, ...]:
        """Block devices that are made of this one: LVM, md, dm-crypt, bcache and so on."""
        return tuple(sorted(p.name for p in (self._folder(name) / "holders").glob("*")))

    def family(self, name: str) -> set[str]:
        """A block device, its partitions, the drive that it is a partition of, and all that is
        made of these or that these are made of.
        """
        found: set[str] = set()
        waiting = {name}
        while waiting:
            one = waiting.pop()
            found.add(one)
            folder = self._folder(one)
            near = {*self.partitions(one), *self.holders(one)}
            near |= {p.name for p in (folder / "slaves").glob("*")}
            if (folder / "partition").exists():
                near.add(folder.parent.name)
            waiting |= near - found
        return found

    def system_drives(self) -> set[str]:
        """Drives that this system runs from, and all that share a controller or identity with them.

        Raises TargetError if it cannot be told what the root file system lies on: then no drive
        can be said not to be it.
        """
        roots = set()
        for point in ("/", "/usr", "/boot", "/boot/efi", "/var", "/home"):
            if (name := self._below(point)) is not None:
                roots |= self.family(name)
            elif point == "/":
                raise TargetError(
                    "cannot tell which drive the root file system lies on (it is an overlay, a "
                    "network or a memory file system): no drive can be claimed on such a system"
                )
        drives = [self.drive(name) for name in sorted(roots) if self._is_drive(name)]
        controllers = {drive.controller for drive in drives if drive.controller}
        identities = {drive.identity for drive in drives if drive.serial}
        alike = {
            drive.name
            for drive in self.drives
            if drive.controller in controllers or drive.identity in identities
        }
        return {name for name in roots if self._is_drive(name)} | alike

    def uses(self, name: str) -> list[str]:
        """What the kernel does with a block device itself, as far as this process sees: where it is
        mounted, whether it swaps to it or to a file on it.
        """
        return self._mounted_and_swap().get(name, [])

    def _below(self, point: str) -> str | None:
        """The block device that is mounted at a path, innermost; None if there is none."""
        found = None
        for line in _lines(self.places.proc / "self" / "mountinfo"):
            fields = kernel_tables.fields(line)
            if fields[4] == point:
                number, source = fields[2], fields[fields.index("-") + 2]
                found = self._block_device(number, source)
        return found

    def _block_device(self, number: str, source: str) -> str | None:
        """By number; btrfs has none of its own there, but names one of its devices."""
        if (self.places.sys / "dev" / "block" / number).exists():
            return self.name_of(number)
        if source.startswith("/dev/"):
            name = (self.places.dev / source.removeprefix("/dev/")).resolve().name
            if (self._block / name).exists():
                return name
        return None

    def _occupants(self, name: str) -> Iterator[str]:
        used = self._mounted_and_swap()
        for member in sorted(self.family(name)):
            for use in used.get(member, []):
                yield f"{member}: {use}"
        yield from (f"{name}: partition {part}" for part in self.partitions(name))
        for member in (name, *self.partitions(name)):
            yield from (f"{member}: held by {holder}" for holder in self.holders(member))
        for member in (name, *self.partitions(name)):
            yield from (f"{member}: {found}" for found in signatures(self.places.dev / member))

    def _mounted_and_swap(self) -> dict[str, list[str]]:
        """Block device -> what the kernel does with it."""
        used: dict[str, list[str]] = {}
        for line in _lines(self.places.proc / "self" / "mountinfo"):
            fields = kernel_tables.fields(line)
            name = self._block_device(fields[2], fields[fields.index("-") + 2])
            if name is not None:
                used.setdefault(name, []).append(f"mounted at {fields[4]}")
        table = self.places.proc / "swaps"
        with _needing(table):
            swaps = kernel_tables.swaps(table)
        for path in swaps:
            if (name := self._swapped_to(path)) is not None:
                used.setdefault(name, []).append("swap")
        return used

    def _swapped_to(self, path: Path) -> str | None:
        """The block device that a swap device is, or that a swap file lies on; None: unknown."""
        if path.is_relative_to("/dev"):
            return (self.places.dev / path.relative_to("/dev")).resolve().name
        try:
            return self._block_device(mounts.number_of(path), "")
        except OSError:
            return None

    def _is_drive(self, name: str) -> bool:
        folder = self._folder(name)
        return (
            (folder / "device").exists()
            and not (folder / "partition").exists()
            and not _NOT_DRIVES.match(name)
            and _read(folder / "hidden") != "1"  # one path of several to an NVMe namespace
        )

    def _folder(self, name: str) -> Path:
        return (self._block / name).resolve()

    def _names(self, name: str) -> tuple[Path, ...]:
        folder = self.places.dev / "disk" / "by-id"
        links = sorted(folder.iterdir()) if folder.is_dir() else []
        mine = [link for link in links if _leads_to(link) == name]
        with suppress(TargetError):
            return tuple(link for link in mine if len(self.claimants(link)) < 2)
        return ()  # nobody can say which of them are this drive's alone

    def claimants(self, link: Path) -> tuple[str, ...]:
        """The devices that a link of udev's may lead to; it leads to one of them at a time.

        All namespaces of an NVMe drive, or two drives of one serial number, have a link in common.
        Empty if udev has not made it. Raises TargetError if what udev has noted cannot be seen.
        """
        if not self.places.links.is_dir():
            raise TargetError(
                f"{link}: whether it may lead to several drives stands in {self.places.links}, "
                "which is not there: let this machine's udev be seen here"
            )
        place = str(link.relative_to(self.places.dev))
        escaped = place.replace("\\", "\\x5c").replace("/", "\\x2f")
        # Before systemd 250 or so with the slash that comes before it.
        folders = (self.places.links / name for name in (escaped, f"\\x2f{escaped}"))
        return tuple(sorted({path.name for each in folders for path in each.glob("[!.]*")}))

    def _serial(self, folder: Path) -> str:
        """NVMe: Identify Controller; SCSI and SATA: unit serial number page (SPC, VPD 80h)."""
        if said := _read(folder / "device" / "serial") or _read(folder / "serial"):
            return said
        with suppress(OSError):
            page = (folder / "device" / "vpd_pg80").read_bytes()
            length = int.from_bytes(page[2:4], "big")
            if page[1:2] == b"\x80" and len(page) >= 4 + length:
                return _SANE.sub("", page[4 : 4 + length].decode("ascii", "replace")).strip()
        return ""

    def _firmware(self, folder: Path) -> str:
        """Of a SATA drive the kernel knows the end only; udev has asked the drive itself."""
        if said := _read(folder / "device" / "firmware_rev"):
            return said
        for line in _read(self.places.udev / f"b{_read(folder / 'dev')}").splitlines():
            if line.startswith("E:ID_REVISION="):
                return line.removeprefix("E:ID_REVISION=")
        return _read(folder / "device" / "rev")

    def _controller(self, folder: Path) -> str:
        """An NVMe subsystem: `format` and `sanitize` may reach all of its namespaces."""
        return _read(folder / "device" / "subsysnqn")

    def _ata_link(self, folder: Path) -> Path | None:
        for parent in folder.parents:
            if re.fullmatch(r"ata\d+", parent.name):
                return parent
        return None


def transport_of(folder: Path) -> str:
    """How a drive is reached, by its folder in sysfs: see `Drive`."""
    path = str(folder)
    if "/usb" in path:
        return "usb"
    if "/nvme" in path:
        return "nvme"
    if "/virtio" in path:
        return "virtio"
    if "/ata" in path:
        return "sata"
    if "/end_device-" in path:
        return "sata" if _read(folder / "device" / "vendor") == "ATA" else "sas"
    return "other"


def rotation_told(folder: Path) -> bool:
    """Whether Linux knows from the drive at this folder of sysfs if it rotates.

    A SATA or SAS drive says it, an NVMe drive, too, and any other that gives a rate (SBC, VPD B1h;
    1 is flash). Of the rest, virtual drives and bridges that tell nothing, queue/rotational is
    Linux's default, and no word on what lies below.
    """
    return transport_of(folder) in ("sata", "sas", "nvme") or _rate(folder) is not None


def signatures(node: Path) -> list[str]:
    """What libblkid finds on a block device: file systems, RAID and LVM members, partition tables.

    Reads only. Without the right to read it there is a line that says so: what cannot be looked at
    is not taken for empty. Raises MissingTool.
    """
    if not os.access(node, os.R_OK):
        return ["not readable, so its contents are not known"]
    command = [find_program("wipefs"), "--no-act", "--json", "--noheadings", str(node)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        return [f"its contents cannot be probed: {' '.join(done.stderr.split())}"]
    found = json.loads(done.stdout or "{}").get("signatures", [])
    return sorted({f"carries {entry['type']}" for entry in found})


@dataclass(frozen=True)
class NvmeFeatures:
    """What an NVMe controller can do with placement; None if it was not possible to ask."""

    streams: bool | None
    fdp: bool | None


def nvme_features(drive: Drive) -> NvmeFeatures:
    """Asks the controller (Identify, by nvme-cli). NVMe Base 2.1, figure 312: CTRATT, OACS."""
    unknown = NvmeFeatures(None, None)
    if drive.transport != "nvme":
        return NvmeFeatures(streams=False, fdp=False)
    try:
        program = find_program("nvme")
    except MissingTool:
        return unknown
    command = [program, "id-ctrl", "--output-format=json", str(drive.node)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        return unknown
    said = json.loads(done.stdout)
    return NvmeFeatures(
        streams=bool(int(said["oacs"]) & _DIRECTIVES), fdp=bool(int(said["ctratt"]) & _FDP)
    )


def _rate(folder: Path) -> int | None:
    """Block device characteristics page (SBC, VPD B1h), bytes 4 and 5; 1: flash. None: not said."""
    with suppress(OSError):
        data = (folder / "device" / "vpd_pgb1").read_bytes()
        if len(data) >= 6 and data[1] == 0xB1:
            rate = int.from_bytes(data[4:6], "big")
            return rate if rate == 1 or 0x0401 <= rate <= 0xFFFE else None
    return None


def _rpm(rate: int | None) -> int | None:
    return None if rate == 1 else rate


def _trim_queued(transport: str, link: Path | None) -> bool | None:
    """Of SATA, libata says it; an NVMe command is always queued."""
    if transport == "nvme":
        return True
    if link is None:
        return None
    said = [_read(path) for path in link.glob("link*/dev*/ata_device/dev*/trim")]
    known = [text for text in said if text in ("queued", "unqueued", "forced_unqueued")]
    return "queued" in known if known else None


def _leads_to(link: Path) -> str:
    """The device's name; empty if udev has taken the link away meanwhile."""
    try:
        return link.resolve().name
    except FileNotFoundError:  # between two looks of realpath
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip().rstrip("\0")
    except OSError:
        return ""


def _lines(path: Path) -> list[str]:
    with _needing(path):
        return kernel_tables.lines(path)


@contextmanager
def _needing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TargetError(
            f"{path}: {error.strerror}: without it no drive is known to be free"
        ) from error
