"""Where a live device's data lies: a sparse file that is ours, or memory; and its model's state.

A store ends with a label that makes it ours and says which saved state of the model belongs to its
data: none while a device uses it. So a device that was killed cannot continue with a state older
than its data.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from harness import _core
from harness.errors import DataFolderError, TargetError

_BEHIND_BYTES: Final = 64 << 20
"""Room behind the data: for what measures the path, and for the label."""

_LABEL_BYTES: Final = 4096
_MAGIC: Final = "flashlab store 1"


@dataclass(frozen=True)
class Label:
    """What a store's last block says; `state` names the saved state that fits, if one does."""

    magic: str
    state: str


def check_path(path: Path, *, keep: bool) -> None:
    """Raises TargetError unless `path` is new or, with `keep`, a store of an earlier device."""
    if not path.parent.is_dir():
        raise TargetError(f"{path}: there is no folder {path.parent}: create it or choose another")
    if not path.exists() and not path.is_symlink():
        return
    if path.is_symlink() or not stat.S_ISREG(path.stat().st_mode):
        raise TargetError(f"{path} is not a plain file: give the path of a file to make")
    if not keep:
        raise TargetError(
            f"{path} exists: choose a path that does not, or give --state to continue it"
        )
    with path.open("rb") as file:
        if _read_label(file.fileno()) is None:
            raise TargetError(f"{path} was not made by this program: choose another path")


def free_bytes(path: Path) -> int:
    """Room for a store at `path`: what is free there, and what it already occupies."""
    facts = os.statvfs(path.parent)
    already = path.stat().st_blocks * 512 if path.exists() else 0
    return facts.f_bavail * facts.f_frsize + already


def open_memory(size_bytes: int) -> int:
    """A descriptor of memory that reads as zeros."""
    fd = os.memfd_create("flashlab-store")
    os.ftruncate(fd, size_bytes + _BEHIND_BYTES)
    return fd


def open_file(path: Path, size_bytes: int, *, keep: bool) -> int:
    """A descriptor of the store at `path`, made if it does not exist, locked for this process.

    Raises TargetError if another device uses it, and for what `check_path` refuses.
    """
    check_path(path, keep=keep)
    is_new = not path.exists()
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if is_new else 0)
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_new:
            os.ftruncate(fd, size_bytes + _BEHIND_BYTES)
            write_label(fd, "")
        elif os.fstat(fd).st_size != size_bytes + _BEHIND_BYTES:
            raise TargetError(f"{path} is the store of a device of another size")
    except BlockingIOError as error:
        os.close(fd)
        raise TargetError(f"{path} is the store of another live device: choose another") from error
    except OSError as error:
        os.close(fd)
        raise TargetError(f"{path}: {error.strerror}") from error
    except TargetError:
        os.close(fd)
        raise
    return fd


def write_label(fd: int, state: str) -> None:
    """Says which saved state fits the data from now on; empty: none."""
    text = json.dumps(asdict(Label(_MAGIC, state))).encode()
    os.pwrite(fd, text.ljust(_LABEL_BYTES), os.fstat(fd).st_size - _LABEL_BYTES)
    os.fsync(fd)


def _read_label(fd: int) -> Label | None:
    size = os.fstat(fd).st_size
    if size < _LABEL_BYTES:
        return None
    try:
        label = Label(**json.loads(os.pread(fd, _LABEL_BYTES, size - _LABEL_BYTES)))
    except (ValueError, TypeError):
        return None
    return label if label.magic == _MAGIC else None


def save_state(path: Path, model: bytes, facts: dict[str, Any], store_fd: int) -> None:
    """Saves a model's state durably, and says in the store that it fits."""
    name = uuid4().hex
    head = {**facts, "name": name, "core": _core.version, "crc": zlib.crc32(model)}
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as file:
            file.write(json.dumps(head).encode() + b"\n" + model)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
        write_label(store_fd, name)
    except OSError as error:
        raise DataFolderError(f"cannot save the state to {path}: {error.strerror}") from error


def load_state(path: Path, facts: dict[str, Any], store_fd: int) -> bytes:
    """The model's state, if it fits this device (`facts`), this build, and the data in the store.

    Raises TargetError if not. From here on no saved state fits the store, until the next one.
    """
    head_line, _, model = path.read_bytes().partition(b"\n")
    try:
        head = json.loads(head_line)
    except ValueError as error:
        raise TargetError(f"{path} is not a saved state of a live device") from error
    if head.get("crc") != zlib.crc32(model):
        raise TargetError(f"{path} is damaged: its checksum is wrong")
    if head.get("core") != _core.version:
        raise TargetError(f"{path} was saved by another version of the models: it cannot be used")
    for name, value in facts.items():
        if head.get(name) != value:
            raise TargetError(
                f"{path} is of a device with another {name}: {head.get(name)}, not {value}"
            )
    label = _read_label(store_fd)
    if label is None or label.state != head["name"]:
        raise TargetError(
            f"{path} does not fit the data: the device was not stopped cleanly. The data is whole; "
            "delete the state to go on with a model that knows nothing of it"
        )
    write_label(store_fd, "")
    return model
