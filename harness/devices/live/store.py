"""Where a live device's data lies: a sparse file that is ours, or memory; and its model's state.

A store ends with a label that makes it ours and says which saved state of the model belongs to its
data: none while a device uses it. So a device that was killed cannot continue with a state older
than its data.

The file that somebody named for his data is his: it stays when the device ends, with or without a
saved state, and after a kill. Only a device that never came to be takes its new file with it. A
later device continues a store if it is given a place for the state, too; if there is no saved state
yet, its model knows nothing of the data.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from harness.errors import DataFolderError, TargetError
from harness.system import core_sources, new_files
from harness.units import format_bytes

_BEHIND_BYTES: Final = 64 << 20
"""Room behind the data: for what measures the path, and for the label."""

_LABEL_BYTES: Final = 4096
_MAGIC: Final = "flashlab store 1"
_LONGEST_HEAD_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Label:
    """What a store's last block says; `state` names the saved state that fits, if one does."""

    magic: str
    state: str


def check_folder(path: Path) -> None:
    """Raises TargetError unless a file may be made at `path`, or is there already."""
    if not path.parent.is_dir():
        raise TargetError(f"{path}: there is no folder {path.parent}: create it or choose another")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise TargetError(f"{path}: {path.parent} is not writable: choose another folder")
    if path.is_dir():
        raise TargetError(f"{path} is a folder: give the path of a file")


def check_path(path: Path, *, keep: bool) -> None:
    """Raises TargetError unless `path` is new or, with `keep`, a store of an earlier device."""
    check_folder(path)
    if not path.exists() and not path.is_symlink():
        return
    if path.is_symlink() or not stat.S_ISREG(path.stat().st_mode):
        raise TargetError(f"{path} is not a plain file: give the path of a file to make")
    if not keep:
        raise TargetError(
            f"{path} exists: choose a path that does not, or continue it by giving --state, too"
        )
    with path.open("rb") as file:
        if _read_label(file.fileno()) is None:
            raise TargetError(f"{path} was not made by this program: choose another path")


def check_state(path: Path, store: Path) -> None:
    """Raises TargetError unless a state may be saved at `path` and what is there may be one."""
    check_folder(path)
    if path == store:
        raise TargetError(f"{path}: state and store are two files: give them different paths")
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise TargetError(f"{path} is not a plain file: give the path of a file to make")
    if path.exists() and not store.exists():
        raise TargetError(
            f"{path} is there, but not its data, {store}: give the path of that store, or another "
            "--state"
        )


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


def open_file(
    path: Path, size_bytes: int, *, keep: bool, made: Callable[[int], None] = lambda _: None
) -> int:
    """A descriptor of the store at `path`, made if it does not exist, locked for this process.

    `made` is told the descriptor of a file that this call has made, before anything is in it.
    Raises TargetError if another device uses it, and for what `check_path` refuses; a file that
    this call has made goes then.
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
            _lay_out(fd, path, size_bytes, made)
        elif os.fstat(fd).st_size != size_bytes + _BEHIND_BYTES:
            raise TargetError(
                f"{path} is the store of a device of "
                f"{format_bytes(os.fstat(fd).st_size - _BEHIND_BYTES)}: give that --size, or "
                "another --store"
            )
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


def _lay_out(fd: int, path: Path, size_bytes: int, made: Callable[[int], None]) -> None:
    try:
        made(fd)
        os.ftruncate(fd, size_bytes + _BEHIND_BYTES)
        write_label(fd, "")
        _sync_folder(path.parent)
    except BaseException:
        delete(path, fd)
        raise


def delete(path: Path, fd: int) -> None:
    """Deletes a store, if what is at `path` is the file of this descriptor."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(fd), path.lstat()):
            path.unlink()


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


def part_of(path: Path) -> Path:
    """Where a state is written before it is whole: a name that nobody else knows before."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")


def save_state(
    path: Path, model: bytes, facts: dict[str, Any], store_fd: int, part: Path | None = None
) -> None:
    """Saves a model's state durably, and says in the store that it fits. `part`: see `part_of`.

    Raises DataFolderError; also if what has the name now is no saved state.
    """
    name = uuid4().hex
    head = {**facts, "name": name, "core": core_sources.version(), "crc": zlib.crc32(model)}
    part = part or part_of(path)
    try:
        with new_files.new_file(part) as file:
            file.write(json.dumps(head).encode() + b"\n" + model)
            file.flush()
            os.fsync(file.fileno())
        if os.path.lexists(path) and not _is_state(path):
            raise DataFolderError(
                f"{path} is no saved state of a device, and is not touched: this one's is {part}"
            )
        part.rename(path)
        _sync_folder(path.parent)
        write_label(store_fd, name)
    except OSError as error:
        if not isinstance(error, FileExistsError):  # that one is not ours
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        raise DataFolderError(f"the state was not saved to {path}: {error.strerror}") from error


def _is_state(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = json.loads(file.readline(_LONGEST_HEAD_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(head, dict) and {"name", "core", "crc"} <= head.keys()


def load_state(path: Path, facts: dict[str, Any], store_fd: int) -> bytes:
    """The model's state, if it fits this device (`facts`), this build, and the data in the store.

    Raises TargetError if not. It fits until `write_label` says something else.
    """
    try:
        head_line, _, model = path.read_bytes().partition(b"\n")
        head = json.loads(head_line)
        name = head["name"]
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror}: choose another --state") from error
    except (ValueError, TypeError, KeyError) as error:
        raise TargetError(
            f"{path} is not a saved state of a live device: choose another --state"
        ) from error
    if head.get("crc") != zlib.crc32(model):
        raise TargetError(
            f"{path} is damaged, its checksum is wrong: delete it to go on with a model that knows "
            "nothing of the data"
        )
    if head.get("core") != core_sources.version():
        raise TargetError(
            f"{path} was saved by another version of the models: delete it to go on with a model "
            "that knows nothing of the data"
        )
    for fact, value in facts.items():
        if head.get(fact) != value:
            raise TargetError(
                f"{path} is of a device with another {fact.removesuffix('_bytes')}: "
                f"{_shown(head.get(fact))}, not {_shown(value)}: create that one, or choose "
                "another --state and --store"
            )
    label = _read_label(store_fd)
    if label is None or label.state != name:
        raise TargetError(
            f"{path} does not fit the data: the device was not stopped cleanly. The data is whole; "
            "delete the state to go on with a model that knows nothing of it"
        )
    return model


def _shown(value: Any) -> str:
    """A fact, short: of a profile its digest's beginning."""
    return str(value)[:12]


def _sync_folder(folder: Path) -> None:
    """What was renamed in it stays so."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
