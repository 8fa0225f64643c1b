"""A block device's queue settings: noted, changed, and put back as they were.

    was = block_queue.noted("sda")
    block_queue.put("sda", {"scheduler": "none"})
    block_queue.put_back("sda", was, ["scheduler"])

Settings hang on each other: another scheduler brings its own nr_requests and iosched/, a new limit
of sizes brings another read_ahead_kb. So all that may be written is noted, and what differs is put
back, the last change first. Linux,
Documentation/ABI/stable/sysfs-block.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.errors import TargetError, UnknownName

_BLOCK: Final = Path("/sys/block")
_NUMBERS: Final = Path("/sys/dev/block")
_CHOSEN: Final = re.compile(r"\[([^\]]+)\]")
_MAY_BE_WRITTEN: Final = 0o200
_PASSES: Final = 2
"""Writing one setting may change another one that was written before it."""


def drive_of(path: Path) -> Path:
    """The drive that a partition is on; any other block device is itself. Raises TargetError."""
    if not path.is_block_device():
        raise TargetError(f"{path} is not a block device")
    number = path.stat().st_rdev
    return Path("/dev") / folder_of(f"{os.major(number)}:{os.minor(number)}").name


def folder_of(number: str) -> Path:
    """The same by a block device's number, as in '8:1'; the drive's folder in sysfs."""
    entry = (_NUMBERS / number).resolve()
    return entry.parent if (entry / "partition").exists() else entry


def number_of(name: str) -> str:
    """A block device's number, as in '8:1'. Raises FileNotFoundError if the kernel has none."""
    return (_BLOCK / name / "dev").read_text().strip()


def discards(drive: Path) -> bool:
    """Whether the kernel sends discards to a whole drive, or to what stands for one."""
    limit = _BLOCK / drive.name / "queue" / "discard_max_bytes"
    return limit.is_file() and int(limit.read_text()) > 0


def sequence(name: str) -> str:
    """A number that no other device gets until the next boot (Linux 5.15); empty: it has gone."""
    try:
        return (_BLOCK / name / "diskseq").read_text().strip()
    except OSError:
        return ""


def noted(name: str) -> dict[str, str]:
    """All settings that can be written, and read to know what they were."""
    queue = _BLOCK / name / "queue"
    files = [*queue.glob("*"), *queue.glob("iosched/*")]
    writable = [file for file in sorted(files) if file.is_file() and _is_writable(file)]
    names = [str(file.relative_to(queue)) for file in writable]
    read = {setting: _read(name, setting) for setting in names}
    return {setting: value for setting, value in read.items() if value is not None}


def put(name: str, settings: Mapping[str, str]) -> None:
    """Changes settings, in their order: a scheduler before what it brings.

    Raises UnknownName, and TargetError if the kernel refuses a value, makes another of it, or would
    not take the present one back.
    """
    said = {}
    for setting, value in settings.items():
        _check(name, setting, value)
        said[setting] = _write(name, setting, value)
    for setting in _differing(name, settings, list(settings)):
        now = _read(name, setting)
        raise TargetError(
            f"{name}: queue/{setting} cannot be {settings[setting]!r}: "
            f"{said[setting] or f'the kernel makes {now!r} of it'}"
        )


def _check(name: str, setting: str, value: str) -> None:
    known = noted(name)
    if setting not in known:
        raise UnknownName(f"queue setting of {name}", setting, known)
    if setting == "discard_max_bytes" and value == "0":
        # The kernel then takes the granularity for 0, too, and refuses every other value.
        said = "the kernel does not take another value after 0"
    else:
        # A limit of the hardware may be above what can be written: once lowered, it stays low.
        said = _write(name, setting, known[setting])
    if said:
        raise TargetError(
            f"{name}: queue/{setting} is not changed from {known[setting]!r}, since it could not "
            f"be put back: {said}"
        )


def put_back(name: str, was: Mapping[str, str], changed: Sequence[str]) -> None:
    """What differs from what was noted, in the reverse order of the changes, then all the rest.

    Raises TargetError with what could not be put back.
    """
    order = [setting for setting in reversed(changed) if setting in was]
    order += [setting for setting in was if setting not in changed]
    if left := _differing(name, was, order):
        wanted = ", ".join(f"{setting} to {was[setting]!r}" for setting in left)
        raise TargetError(f"/sys/block/{name}/queue: not put back: {wanted}: do it by hand")


def _differing(name: str, wanted: Mapping[str, str], order: Sequence[str]) -> list[str]:
    """Writes what differs until nothing does; returns what still does then."""
    for _ in range(_PASSES):
        for setting in order:
            if _read(name, setting) != wanted[setting]:
                _write(name, setting, wanted[setting])
    return [setting for setting in order if _read(name, setting) != wanted[setting]]


def _is_writable(file: Path) -> bool:
    return bool(file.stat().st_mode & _MAY_BE_WRITTEN)


def _read(name: str, setting: str) -> str | None:
    """Of a choice, what is chosen."""
    try:
        text = (_BLOCK / name / "queue" / setting).read_text().strip()
    except OSError:
        return None
    chosen = _CHOSEN.search(text)
    return chosen[1] if chosen else text


def _write(name: str, setting: str, value: str) -> str:
    """What the kernel complained of, if it did."""
    try:
        (_BLOCK / name / "queue" / setting).write_text(value)
    except OSError as error:
        return error.strerror or str(error)
    return ""
