"""Is data on live devices ever lost or changed? fio, file systems, power cuts, records."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from harness.benchmarks import live_data
from harness.benchmarks.power_cuts import Losses, cut_often
from harness.devices.live import LiveDevice, LiveSpec, created
from harness.devices.live.recording import replay
from harness.errors import HarnessError
from harness.goals import Goal
from harness.paths import Project
from harness.system.programs import find_program

_COMMAND: Final = "make bench ONLY=live_device"
_FILES: Final = 100_000
_CUTS_EACH: Final = 40
_LYING_CUTS_EACH: Final = 5
_SPAN: Final = 3 << 30
_GIB: Final = 1 << 30


@dataclass(frozen=True)
class Drive:
    """A drive to be tested, and how."""

    name: str
    profile: str
    overrides: tuple[tuple[str, str], ...] = ()
    size_bytes: int = 2 << 30
    condition: str = "new"
    protected: bool = False

    def spec(self, project: Project, **more: object) -> LiveSpec:
        """As fast as the path lets it: what is asked here has nothing to do with time."""
        values: dict[str, object] = {"condition": self.condition, "slowdown": 1, "thin": True}
        values |= {"profile": self.profile, "overrides": dict(self.overrides)}
        values |= {"profiles": project.profiles, "size_bytes": self.size_bytes, **more}
        return LiveSpec.checked(**values)


_ONE_STREAM: Final = (("streams", "1"), ("placement", "none"))
DRIVES: Final = (
    Drive("X25-E", "intel_x25e_32gb"),
    Drive("MX500", "crucial_mx500_250gb"),
    Drive("PM953", "samsung_pm953_960gb", _ONE_STREAM, 4 << 30, protected=True),
    Drive(
        "PM953 without power-loss protection",
        "samsung_pm953_960gb",
        (*_ONE_STREAM, ("power_loss_protection", "false")),
        4 << 30,
    ),
    Drive("Seagate", "seagate_250gb"),
)
MX500: Final = DRIVES[1]
DISK: Final = DRIVES[-1]


def measure(project: Project, _console: Console) -> Iterator[Goal]:
    """All figures. Every device is gone afterwards."""
    for figures in (fio, _files, _cuts, _lies, _records):
        try:
            yield from figures(project)
        except HarnessError as error:
            name = figures.__name__.removeprefix("_")
            yield Goal(f"data safety: {name}", "", "", _COMMAND, missing=str(error))


def fio(project: Project) -> Iterator[Goal]:
    """More than 20 GiB."""
    # Most of it at once, the rest at the drives' own pace: a disk takes its time.
    parts = [(MX500, "none", _SPAN, 6), (MX500, "real", _SPAN // 2, 1)]
    parts += [(DISK, "none", _SPAN, 1), (DISK, "real", _SPAN // 12, 1)]
    errors, context, written = 0, {}, 0
    for drive, speed, span, loops in parts:
        with created(drive.spec(project, size_bytes=4 << 30, speed=speed)) as device:
            found = live_data.verify_with_fio(
                device.path, span, loops=loops, trims=drive is not DISK
            )
        errors += found.errors
        written += found.written_bytes
        context[f"{drive.name}, speed {speed}"] = {
            "written_gib": found.written_bytes / _GIB,
            "trims": found.trims,
            "said": found.said,
        }
    yield Goal("fio --verify=crc32c: errors", "errors", "== 0", _COMMAND, [errors], context=context)
    yield Goal("fio --verify=crc32c: written", "GiB", ">= 20", _COMMAND, [written / _GIB])


def _files(project: Project) -> Iterator[Goal]:
    for kind in ("ext4", "xfs"):
        spec = MX500.spec(project, size_bytes=8 << 30)
        with created(spec) as device, tempfile.TemporaryDirectory() as folder:
            wrong = files_survive(device, Path(folder), kind, _FILES)
        yield Goal(
            f"{kind}: 100,000 files, remount, check: complaints",
            "complaints",
            "== 0",
            _COMMAND,
            [len(wrong)],
            context={"said": wrong},
        )


def files_survive(device: LiveDevice, folder: Path, kind: str, files: int) -> list[str]:
    """Makes a file system with so many files; what is wrong after a remount and a check."""
    mount = folder / "mount"
    with live_data.file_system(device.path, mount, kind, "-o", "discard"):
        written = live_data.write_files(mount, files, seed=1)
    wrong = [said] if (said := live_data.check_file_system(device.path, kind)) else []
    with live_data.mounted(device.path, mount):
        if live_data.digest_files(mount, files) != written:
            wrong.append("files differ from what was written")
    return wrong


def _cuts(project: Project) -> Iterator[Goal]:
    found, context = Losses(), {}
    for drive in DRIVES:
        context[drive.name] = vars(once := cuts_of(project, drive, _CUTS_EACH, honest=True))
        found += once
    name = f"{found.cuts} power cuts under load: blocks"
    lost = found.lost + found.garbage + found.fio_lost
    yield Goal(f"{name} lost after a flush", "blocks", "== 0", _COMMAND, [lost], context=context)
    yield Goal(f"{name} lost without a flush", "blocks", "> 0", _COMMAND, [found.undone])


def _lies(project: Project) -> Iterator[Goal]:
    for drive in (MX500, DISK):
        found = cuts_of(project, drive, _LYING_CUTS_EACH, honest=False)
        yield Goal(
            f"{drive.name} whose flushes lie, {found.cuts} cuts: lost blocks found",
            "blocks",
            "> 0",
            _COMMAND,
            [found.lost + found.fio_lost],
            context=vars(found),
        )


def cuts_of(project: Project, drive: Drive, cuts: int, *, honest: bool, seed: int = 1) -> Losses:
    """Cuts a drive's power so often under load."""
    spec = drive.spec(project, honest_flush=honest)
    with created(spec) as device, tempfile.TemporaryDirectory() as folder:
        return cut_often(
            device, cuts, Path(folder), seed=seed, every_write_is_durable=drive.protected
        )


def _records(project: Project) -> Iterator[Goal]:
    different, context = 0, {}
    for drive in (MX500, DISK):
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder) / "record.parquet"
            with recorded(project, drive, record) as device:
                mixed_load(device, seconds=10, trims=drive is not DISK)
            replayed = replay(record)
        different += len(replayed.differences())
        context[drive.name] = {k: v for k, v in replayed.recorded.items() if v}
    yield Goal(
        "a record and its replay: counters that differ",
        "counters",
        "== 0",
        _COMMAND,
        [different],
        context=context,
    )


@contextmanager
def recorded(project: Project, drive: Drive, record: Path, **more: object) -> Iterator[LiveDevice]:
    """A device that is full, if it is flash, and records everything until it is removed."""
    condition = "new" if drive is DISK else "full"
    with created(drive.spec(project, condition=condition, record=record, **more)) as device:
        yield device


def mixed_load(device: LiveDevice, *, seconds: int, trims: bool) -> None:
    """Reads, writes and flushes of mixed sizes at depth 32, and trims."""
    command = [find_program("fio"), f"--filename={device.path}", "--direct=1", "--time_based"]
    command += ["--ioengine=libaio", f"--runtime={seconds}", "--random_generator=tausworthe64"]
    command += ["--name=mix", "--iodepth=32", "--rw=randrw", "--fsync=50"]
    command += ["--bssplit=4k/50:16k/20:64k/20:256k/10"]
    if trims:
        command += ["--name=trim", "--iodepth=4", "--rw=randtrim", "--bs=64k"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"fio: {done.stderr or done.stdout}")
