"""Which drives a machine has, and what occupies them, from recorded trees of sysfs and procfs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.drives import discovery, fingerprint
from harness.drives.discovery import Machine, Places
from harness.errors import TargetError, UnknownName

PCI = "devices/pci0000:00"
AHCI = f"{PCI}/0000:00:17.0"
ROOT_LINE = "25 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw"


Files = dict[str, str | bytes]


class Tree:
    """A machine's files: paths as the kernel has them, links as it and udev make them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        folders = (root / name for name in ("sys", "proc", "dev", "udev", "links"))
        self.places = Places(*folders)
        for folder in ("sys/class/block", "sys/dev/block", "dev/disk/by-id", "udev", "links"):
            (root / folder).mkdir(parents=True)
        self.mounts(ROOT_LINE)
        self.write("proc/swaps", "Filename Type Size Used Priority\n")

    @property
    def machine(self) -> Machine:
        return Machine(self.places)

    def write(self, path: str, content: str | bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    def mounts(self, *lines: str) -> None:
        self.write("proc/self/mountinfo", "".join(f"{line}\n" for line in lines))

    def block(self, place: str, number: str, files: Mapping[str, str | bytes]) -> None:
        folder = f"sys/{place}"
        for name, content in {"dev": f"{number}\n", "ro": "0\n", **files}.items():
            self.write(f"{folder}/{name}", content)
        name = Path(place).name
        (self.root / "sys/class/block" / name).symlink_to(self.root / folder)
        (self.root / "sys/dev/block" / number).symlink_to(self.root / folder)
        (self.root / "dev" / name).touch()

    def partition(self, drive: str, number: str, name: str) -> None:
        self.block(f"{drive}/{name}", number, {"partition": name[-1]})

    def made_of(self, upper: str, lower: str) -> None:
        """What the kernel links between a block device and what is made of it."""
        folders = {n: (self.root / "sys/class/block" / n).resolve() for n in (upper, lower)}
        for name, other, kind in ((lower, upper, "holders"), (upper, lower, "slaves")):
            link = folders[name] / kind / other
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(folders[other])

    def by_id(self, name: str, link: str, *claimants: str) -> None:
        """`claimants`: of whom udev has noted that they want the link."""
        (self.root / "dev/disk/by-id" / link).symlink_to(self.root / "dev" / name)
        for claimant in claimants:
            self.write(f"links/disk\\x2fby-id\\x2f{link}/{claimant}", "0:sdx")


def page(code: int, content: bytes) -> bytes:
    """A vital product data page (SPC-4): code, length, content."""
    return bytes([0, code]) + len(content).to_bytes(2, "big") + content


def sata(letter: str, port: int, serial: str, *, rate: int, trim: str = "") -> tuple[str, Files]:
    link = f"{AHCI}/ata{port}"
    place = f"{link}/host{port}/target{port}:0:0/{port}:0:0:0/block/sd{letter}"
    files: Files = {
        "size": "1000215216\n",
        "queue/rotational": f"{int(rate > 1)}\n",
        "queue/logical_block_size": "512\n",
        "queue/discard_max_bytes": "2147450880\n" if trim else "0\n",
        "diskseq": "7\n",
        "device/model": "DRIVE A\n",
        "device/rev": "R046\n",
        "device/wwid": f"naa.5000{serial}\n",
        "device/vpd_pg80": page(0x80, f"  {serial} ".encode()),
        "device/vpd_pgb1": page(0xB1, rate.to_bytes(2, "big") + bytes(58)),
    }
    return place, files


def with_drives(root: Path) -> Tree:
    """A system's SSD, a free SSD, a disk, and an NVMe controller with two namespaces."""
    made = Tree(root)
    for letter, port, number, rate, trim in (
        ("a", 1, "8:0", 1, "unqueued"),
        ("b", 2, "8:16", 1, "queued"),
        ("c", 3, "8:32", 7200, ""),
    ):
        place, files = sata(letter, port, f"SERIAL0{port}", rate=rate, trim=trim)
        made.block(place, number, files)
        if trim:
            link = f"sys/{AHCI}/ata{port}/link{port}/dev{port}.0/ata_device/dev{port}.0/trim"
            made.write(link, f"{trim}\n")
    made.partition(sata("a", 1, "", rate=1)[0], "8:2", "sda2")
    for space in (1, 2):
        files = {
            "size": "2000409264\n",
            "queue/rotational": "0\n",
            "queue/discard_max_bytes": "2199023255040\n",
            "wwid": f"eui.{space}\n",
            "device/model": "DRIVE B \n",
            "device/serial": "NV5C1A7D20E1\n",
            "device/firmware_rev": "9.0\n",
            "device/subsysnqn": "nqn.1\n",
        }
        made.block(f"{PCI}/0000:01:00.0/nvme/nvme0/nvme0n{space}", f"259:{space}", files)
    return made


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return with_drives(tmp_path)


def test_drives_are_what_the_kernel_says(tree: Tree) -> None:
    tree.by_id("sdb", "ata-DRIVE_A_SERIAL02")
    tree.by_id("sdb", "wwn-0x5000")
    tree.write("udev/b8:16", "E:ID_BUS=ata\nE:ID_REVISION=M3CR046\n")
    drives = {drive.name: drive for drive in tree.machine.drives}
    assert list(drives) == ["nvme0n1", "nvme0n2", "sda", "sdb", "sdc"]
    ssd, disk, nvme = drives["sdb"], drives["sdc"], drives["nvme0n2"]
    assert (ssd.transport, ssd.serial, ssd.firmware) == ("sata", "SERIAL02", "M3CR046")
    assert [link.name for link in ssd.by_id] == ["ata-DRIVE_A_SERIAL02", "wwn-0x5000"]
    assert ssd.size_bytes == 1_000_215_216 * 512
    assert (ssd.rotational, ssd.rpm, ssd.trim, ssd.trim_queued) == (False, None, True, True)
    assert drives["sda"].trim_queued is False
    assert (disk.rotational, disk.rpm, disk.trim, disk.trim_queued) == (True, 7200, False, None)
    assert disk.firmware == "R046"
    assert (nvme.transport, nvme.controller, nvme.trim_queued) == ("nvme", "nqn.1", True)
    assert nvme.identity == ("DRIVE B", "NV5C1A7D20E1", "eui.2", 2_000_409_264 * 512)


def test_a_name_that_udev_takes_away_meanwhile(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.by_id("sdb", "ata-DRIVE_A_SERIAL02")
    tree.by_id("sdb", "wwn-0x5000")
    resolve = Path.resolve

    def gone(path: Path, strict: bool = False) -> Path:
        if path.name == "wwn-0x5000":
            raise FileNotFoundError(path)
        return resolve(path, strict)

    monkeypatch.setattr(Path, "resolve", gone)
    assert [link.name for link in tree.machine.drive("sdb").by_id] == ["ata-DRIVE_A_SERIAL02"]


def test_names_that_two_drives_share_are_no_names(tree: Tree) -> None:
    tree.by_id("nvme0n2", "nvme-DRIVE_B_NV5C1A7D20E1", "b259:1", "b259:2")
    tree.by_id("nvme0n2", "nvme-DRIVE_B_NV5C1A7D20E1_2", "b259:2")
    tree.by_id("sdb", "ata-DRIVE_A_SERIAL02", "b8:16")
    names = [link.name for link in tree.machine.drive("nvme0n2").by_id]
    assert names == ["nvme-DRIVE_B_NV5C1A7D20E1_2"]
    assert len(tree.machine.drive("sdb").by_id) == 1


def test_older_udevs_note_names_with_a_slash_before_them(tree: Tree) -> None:
    tree.by_id("nvme0n2", "nvme-OLD")
    for claimant in ("b259:1", "b259:2"):
        tree.write(f"links/\\x2fdisk\\x2fby-id\\x2fnvme-OLD/{claimant}", "0:nvme")
    machine = tree.machine
    assert machine.claimants(tree.root / "dev/disk/by-id/nvme-OLD") == ("b259:1", "b259:2")


def test_where_udev_s_notes_cannot_be_seen_no_name_is_a_drive_s_own(tree: Tree) -> None:
    tree.by_id("sdb", "ata-DRIVE_A_SERIAL02", "b8:16")
    shutil.rmtree(tree.root / "links")
    machine = tree.machine
    with pytest.raises(TargetError, match="be seen here"):
        machine.claimants(tree.root / "dev/disk/by-id/ata-DRIVE_A_SERIAL02")
    assert all(not drive.by_id for drive in machine.drives)


@pytest.mark.parametrize("name", ["loop0", "dm-0", "md0", "zram0", "sr0", "nbd0"])
def test_what_is_no_drive_is_none(tree: Tree, name: str) -> None:
    tree.block(f"devices/virtual/block/{name}", "7:0", {"size": "8", "device/model": "x"})
    assert name not in {drive.name for drive in tree.machine.drives}
    with pytest.raises(UnknownName):
        tree.machine.drive(name)


def test_one_path_of_several_is_none(tree: Tree) -> None:
    place = f"{PCI}/0000:01:00.0/nvme/nvme0/nvme0c0n1"
    tree.block(place, "259:9", {"hidden": "1", "device/model": "x"})
    assert "nvme0c0n1" not in {drive.name for drive in tree.machine.drives}


def test_a_partition_is_no_drive(tree: Tree) -> None:
    with pytest.raises(UnknownName):
        tree.machine.drive("sda2")
    assert tree.machine.partitions("sda") == ("sda2",)


def test_the_system_s_drive_and_what_could_be_taken_for_it(tree: Tree) -> None:
    assert tree.machine.system_drives() == {"sda"}
    place, files = sata("d", 4, "SERIAL01", rate=1)  # says that it is the same drive
    tree.block(place, "8:48", files)
    assert tree.machine.system_drives() == {"sda", "sdd"}


def test_namespaces_beside_the_system_s(tree: Tree) -> None:
    tree.mounts("25 1 259:1 / / rw - ext4 /dev/nvme0n1 rw")
    assert tree.machine.system_drives() == {"nvme0n1", "nvme0n2"}


@pytest.mark.parametrize("point", ["/usr", "/boot", "/boot/efi", "/var", "/home"])
def test_a_drive_with_a_part_of_the_system(tree: Tree, point: str) -> None:
    tree.mounts(ROOT_LINE, f"26 25 8:16 / {point} rw - ext4 /dev/sdb rw")
    assert tree.machine.system_drives() == {"sda", "sdb"}


def test_the_system_on_something_that_is_made_of_two_drives(tree: Tree) -> None:
    """LUKS on RAID 1."""
    tree.block("devices/virtual/block/md0", "9:0", {"size": "8"})
    tree.block("devices/virtual/block/dm-0", "253:0", {"size": "8"})
    tree.made_of("md0", "sda2")
    tree.made_of("md0", "sdc")
    tree.made_of("dm-0", "md0")
    tree.mounts("25 1 253:0 / / rw - ext4 /dev/mapper/root rw")
    assert tree.machine.system_drives() == {"sda", "sdc"}
    assert tree.machine.family("sdc") == {"sda", "sda2", "sdc", "md0", "dm-0"}


def test_a_file_system_without_a_number_names_its_device(tree: Tree) -> None:
    tree.mounts("25 1 0:25 /@ / rw - btrfs /dev/sdb rw")
    assert tree.machine.system_drives() == {"sdb"}


@pytest.mark.parametrize(
    "line",
    [
        "25 1 0:25 / / rw - overlay overlay rw",
        "25 1 0:25 / / rw - zfs rpool/ROOT rw",
        "25 1 0:25 / / rw - nfs4 server:/root rw",
        "25 1 0:25 / / rw - rootfs /dev/root rw",
    ],
)
def test_a_system_of_which_no_drive_is_known_has_none_to_give(tree: Tree, line: str) -> None:
    tree.mounts(line)
    with pytest.raises(TargetError, match="no drive can be claimed"):
        tree.machine.system_drives()


def test_a_kernel_that_does_not_tell_its_mounts(tree: Tree) -> None:
    (tree.root / "proc/self/mountinfo").unlink()
    with pytest.raises(TargetError, match="no drive is known to be free"):
        tree.machine.system_drives()
    with pytest.raises(TargetError, match="no drive is known to be free"):
        tree.machine.occupants("sdb")


@pytest.fixture
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signatures are libblkid's matter."""
    monkeypatch.setattr(discovery, "signatures", lambda _node: [])


@pytest.mark.usefixtures("_plain")
def test_what_occupies_a_drive(tree: Tree) -> None:
    assert tree.machine.occupants("sdb") == []
    tree.block("devices/virtual/block/dm-0", "253:0", {"size": "8"})
    tree.made_of("dm-0", "sdb")
    tree.mounts(ROOT_LINE, "26 25 253:0 / /data rw - ext4 /dev/mapper/data rw")
    found = tree.machine.occupants("sdb")
    assert "dm-0: mounted at /data" in found
    assert "sdb: held by dm-0" in found
    assert tree.machine.occupants("sda") == ["sda2: mounted at /", "sda: partition sda2"]


@pytest.mark.usefixtures("_plain")
def test_swap(tree: Tree) -> None:
    swaps = "Filename Type Size Used Priority\n{} partition 1024 0 -2\n"
    tree.write("proc/swaps", swaps.format("/dev/sdc"))
    assert tree.machine.occupants("sdc") == ["sdc: swap"]
    (tree.root / "dev/mapper").mkdir()
    (tree.root / "dev/mapper/swap").symlink_to(tree.root / "dev/sdb")
    tree.write("proc/swaps", swaps.format("/dev/mapper/swap"))
    assert tree.machine.occupants("sdb") == ["sdb: swap"]
    assert tree.machine.occupants("sdc") == []


def test_what_cannot_be_read_is_not_empty(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert any("not readable" in line for line in tree.machine.occupants("sdb"))


@pytest.mark.parametrize(
    ("rate", "rpm"), [(1, None), (0, None), (0x400, None), (0x401, 0x401), (7200, 7200)]
)
def test_rotation_rates(tree: Tree, rate: int, rpm: int | None) -> None:
    tree.write(f"sys/{sata('c', 3, '', rate=1)[0]}/device/vpd_pgb1", page(0xB1, rate.to_bytes(2)))
    assert tree.machine.drive("sdc").rpm == rpm


@pytest.mark.parametrize(
    ("place", "rate", "told"),
    [
        (f"{PCI}/virtio1/block/vda", None, False),
        (f"{PCI}/usb2/2-1/host9/target9:0:0/9:0:0:0/block/sdz", None, False),
        (f"{PCI}/usb2/2-1/host9/target9:0:0/9:0:0:0/block/sdz", 0, False),
        (f"{PCI}/usb2/2-1/host9/target9:0:0/9:0:0:0/block/sdz", 1, True),
        (f"{PCI}/virtio1/host9/target9:0:0/9:0:0:0/block/sdz", 7200, True),
        (f"{PCI}/ata9/host9/target9:0:0/9:0:0:0/block/sdz", None, True),
        (f"{PCI}/0000:01:00.0/nvme/nvme3/nvme3n1", None, True),
    ],
)
def test_linux_s_default_is_no_word_of_the_drive_on_whether_it_rotates(
    tree: Tree, place: str, rate: int | None, told: bool
) -> None:
    """It takes what tells nothing for a disk."""
    tree.block(place, "9:9", {"size": "2048\n", "queue/rotational": "1\n", "device/model": "X\n"})
    if rate is not None:
        tree.write(f"sys/{place}/device/vpd_pgb1", page(0xB1, rate.to_bytes(2, "big")))
    drive = tree.machine.drive(Path(place).name)
    assert drive.rotational
    assert drive.rotation_told == told
    assert fingerprint.of_drive(drive)["rotational"] == ("1" if told else "unknown")


@pytest.mark.parametrize("said", [b"", b"\0\x83\0\x04ABCD", page(0x80, b"ABCDEFGH")[:8]])
def test_a_serial_number_page_that_is_none(tree: Tree, said: bytes) -> None:
    tree.write(f"sys/{sata('c', 3, '', rate=1)[0]}/device/vpd_pg80", said)
    assert not tree.machine.drive("sdc").serial
