"""Files that are whole, or not there, and made once; and what is in them, in digests."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from harness.errors import DataFolderError, DiskFull, HarnessError

_PART: Final = ".flashlab-part-"
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def write_atomically(path: Path, data: bytes, *, make_folder: bool = False) -> None:
    """The whole file or, after a crash or on a full disk, the old one; threads may write the same.

    Raises DiskFull or DataFolderError, and then leaves nothing.
    """
    with publication() as files:
        files.write(path, data, make_folder=make_folder)


@contextlib.contextmanager
def publication() -> Iterator[Publication]:
    """Files that appear together at the end of the block or, if it fails, not at all.

    Raises DiskFull or DataFolderError for what cannot be written, and then leaves nothing.
    """
    files = Publication()
    try:
        yield files
        files.publish()
    except BaseException:
        files.drop()
        raise


class Publication:
    """See `publication`. Until the end each file lies in its folder under a name of its own, and is
    locked, so that what a writer that died left behind can be told: see `clear_unfinished`.
    """

    def __init__(self) -> None:
        self._parts: dict[Path, Path] = {}
        self._locks = contextlib.ExitStack()
        self._emptied: list[Path] = []
        self._made: list[Path] = []

    def write(self, path: Path, data: bytes, *, make_folder: bool = False) -> None:
        """A file with these contents; it takes the place of a file only, never of a device."""
        self._add(path, lambda file: file.write(data), make_folder=make_folder)

    def copy(self, source: Path, path: Path) -> None:
        """A file with the contents of another one."""
        with told(source), source.open("rb") as original:
            self._add(path, lambda file: shutil.copyfileobj(original, file))

    def empty(self, folder: Path) -> None:
        """The folder, made if need be, will have this publication's files and nothing else."""
        self._make(folder)
        self._emptied.append(folder)

    def publish(self) -> None:
        """Every file takes its place; what else is in folders that are to be emptied goes.

        A signal that would end us ends us after that.
        """
        with _undisturbed():
            for path, part in self._parts.items():
                with told(path):
                    part.replace(path)
            for folder in self._emptied:
                with told(folder):
                    _delete_all_but(folder, self._parts)
            self._locks.close()

    def drop(self) -> None:
        """Nothing stays of what has not taken its place."""
        for part in self._parts.values():
            part.unlink(missing_ok=True)
        self._locks.close()
        for folder in reversed(self._made):
            with contextlib.suppress(OSError):  # something of it was published
                folder.rmdir()

    def _add(
        self, path: Path, fill: Callable[[BinaryIO], object], *, make_folder: bool = False
    ) -> None:
        if make_folder:
            self._make(path.parent)
        with told(path):
            _check_file(path)
            part, file = _begin(path.parent)
            self._parts[path] = part
            with contextlib.ExitStack() as opened:  # what fails is closed here, and told
                opened.enter_context(file)
                fill(file)
                file.flush()
                os.fsync(file.fileno())
                if path.parent not in self._emptied:  # there whatever is left goes: no lock needed
                    self._locks.push(opened.pop_all())

    def _make(self, folder: Path) -> None:
        with told(folder):
            missing = [each for each in (folder, *folder.parents) if not each.exists()]
            for each in reversed(missing):
                each.mkdir(exist_ok=True)
                self._made.append(each)
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def clear_unfinished(folder: Path) -> None:
    """Deletes what publications that died left there; one that is still written is locked."""
    for part in folder.glob(f"{_PART}*"):
        with contextlib.suppress(OSError), part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals that would end us come after the block.

    Python runs their handlers in the main thread, whichever thread gets the signal: a mask, which
    is one thread's, would not keep them away, and other threads need none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noted: list[int] = []
    with contextlib.ExitStack() as stack:
        stack.callback(_raise_signals, noted)
        for which in _ENDING:
            handler = signal.getsignal(which)
            if handler is not None:  # or it is not Python's, who could not set it again
                stack.callback(signal.signal, which, handler)
                signal.signal(which, lambda number, _: noted.append(number))
        yield


def _raise_signals(numbers: list[int]) -> None:
    for number in numbers:
        signal.raise_signal(number)


def _begin(folder: Path) -> tuple[Path, BinaryIO]:
    """A new file, and the lock on it, for as long as it is open."""
    while True:
        part = folder / f"{_PART}{secrets.token_hex(8)}"
        file = part.open("xb")
        with contextlib.suppress(OSError):  # a file system without locks: nothing is cleared there
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return part, file
        file.close()  # taken for a dead writer's before it was locked


def _check_file(path: Path) -> None:
    """A folder has no place for it; a device, or a link to one or to /dev/stdout, would be lost."""
    is_kernel_s = path.is_symlink() and path.readlink().is_relative_to("/proc")
    if is_kernel_s or (path.exists() and not stat.S_ISREG(path.stat().st_mode)):
        raise DataFolderError(f"cannot write {path}: there is something else than a file")


def _delete_all_but(folder: Path, kept: Iterable[Path]) -> None:
    for path in set(folder.iterdir()) - set(kept):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """What the system says while we write there is an operating error: see `failure`."""
    try:
        yield
    except OSError as error:
        raise failure(error, path) from error


def failure(error: OSError, path: Path) -> HarnessError:
    """DiskFull, or DataFolderError with what the system said."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no space left for {path}: free some and run again")
    return DataFolderError(f"cannot write to {path}: {error.strerror or error}")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder: whoever comes second waits, in other processes, too."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def digest_of(files: Iterable[tuple[str, Path]], also: str = "") -> str:
    """SHA-256 (hex) of a text, and of the names and contents of files in this order."""
    digest = hashlib.sha256(also.encode())
    for name, path in files:
        digest.update(f"{name} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """Of each file by its name SHA-256 (hex) of what is in it."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
