"""What is published is whole or not there, and a full disk is told in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import full_tmpfs, need

from harness.errors import DataFolderError, DiskFull
from harness.system.files import clear_unfinished, publication, write_atomically


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_file_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    for data in (b"old", b"new"):
        write_atomically(tmp_path / "file", data)
        assert (tmp_path / "file").read_bytes() == data
    assert _names(tmp_path) == ["file"]


def test_a_folder_is_made_only_if_that_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    with pytest.raises(DataFolderError, match="b/file: No such file"):
        write_atomically(path, b"x")
    assert _names(tmp_path) == []
    write_atomically(path, b"x", make_folder=True)
    assert path.read_bytes() == b"x"


def test_together_or_not_at_all(tmp_path: Path) -> None:
    """Old files stay until the end, and what is no more published goes with them."""
    shown = tmp_path / "shown"
    with publication() as files:
        files.empty(shown)
        for name in ("kept", "gone"):
            files.write(shown / name, b"old")
    with pytest.raises(ZeroDivisionError):
        _publish_and_fail(tmp_path)
    assert _names(tmp_path) == ["shown", "shown/gone", "shown/kept"]
    assert (shown / "kept").read_bytes() == b"old"
    (shown / "folder").mkdir()
    with publication() as files:
        files.empty(shown)
        files.write(shown / "kept", b"new")
        files.copy(shown / "gone", tmp_path / "copy")
        assert (shown / "kept").read_bytes() == b"old"
    assert _names(tmp_path) == ["copy", "shown", "shown/kept"]
    assert (shown / "kept").read_bytes() == b"new"
    assert (tmp_path / "copy").read_bytes() == b"old"


def _in_another_thread(which: signal.Signals) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(signal.raise_signal, which).result()


@pytest.mark.parametrize("send", [signal.raise_signal, _in_another_thread])
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_comes_after_all_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    which: signal.Signals,
    send: Callable[[signal.Signals], None],
) -> None:
    """Also one that another thread got: its handler runs in this one."""
    names = ["first", "second", "third"]
    for name in names:
        (tmp_path / name).write_bytes(b"old")
    replaced: list[Path] = []
    replace = Path.replace

    def replace_disturbed(self: Path, target: Path) -> Path:
        replaced.append(target)
        if len(replaced) == 2:
            send(which)
        return replace(self, target)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", replace_disturbed)
    before = signal.signal(which, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            _publish_new(tmp_path, names)
        assert signal.getsignal(which) is interrupt
    finally:
        signal.signal(which, before)
    assert [(tmp_path / name).read_bytes() for name in names] == [b"new"] * 3
    assert _names(tmp_path) == sorted(names)


def _publish_new(folder: Path, names: Sequence[str]) -> None:
    with publication() as files:
        for name in names:
            files.write(folder / name, b"new")


def _publish_and_fail(folder: Path) -> None:
    with publication() as files:
        files.write(folder / "new" / "table", b"new", make_folder=True)
        files.empty(folder / "shown")
        files.write(folder / "shown" / "kept", b"new")
        raise ZeroDivisionError


def _publish_too_much(first: Path, second: Path) -> None:
    with publication() as files:
        files.write(first, b"x")
        files.write(second, bytes(1 << 20), make_folder=True)


def _as_folder(path: Path) -> None:
    path.mkdir()


def _as_pipe(path: Path) -> None:
    os.mkfifo(path)


def _as_link_of_the_kernel_s(path: Path) -> None:
    path.symlink_to("/proc/self/fd/1")


def _as_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.parametrize(
    "make", [_as_folder, _as_pipe, _as_link_of_the_kernel_s, _as_link_to_a_device]
)
def test_only_files_are_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Root who names /dev/stdout, a device or a folder would lose it."""
    path = tmp_path / "there"
    make(path)
    before = path.lstat()
    with pytest.raises(DataFolderError, match="something else than a file"):
        write_atomically(path, b"x")
    assert path.lstat() == before
    assert _names(tmp_path) == ["there"]


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(DataFolderError, match="File name too long"):
        write_atomically(tmp_path / ("x" * 5000), b"x")
    longest = tmp_path / ("x" * 255)
    write_atomically(longest, b"x")
    assert _names(tmp_path) == [longest.name]


def test_what_dead_writers_left_goes_and_what_is_written_stays(tmp_path: Path) -> None:
    """A killed publication leaves its unfinished file; one that still runs loses nothing."""
    dies = (
        "import os, signal, sys; from pathlib import Path\n"
        "from harness.system.files import Publication\n"
        "Publication().write(Path(sys.argv[1]), b'half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", dies, tmp_path / "killed"], check=False)
    (left,) = _names(tmp_path)
    with publication() as files:
        files.write(tmp_path / "whole", b"whole")
        assert len(_names(tmp_path)) == 2
        clear_unfinished(tmp_path)
        (ours,) = _names(tmp_path)
        assert ours != left
    assert _names(tmp_path) == ["whole"]
    clear_unfinished(tmp_path)
    assert (tmp_path / "whole").read_bytes() == b"whole"


@pytest.mark.root
def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    need("mount")
    full = tmp_path / "full"
    full.mkdir()
    with full_tmpfs(full) as folder:
        (folder / "old").write_bytes(b"old")
        for path in (folder / "old", folder / "new"):
            with pytest.raises(DiskFull, match="free some and run again"):
                write_atomically(path, bytes(1 << 20))
        with pytest.raises(DiskFull):
            _publish_too_much(tmp_path / "beside", folder / "deep" / "new")
        assert (folder / "old").read_bytes() == b"old"
        assert _names(folder) == ["old"]
        assert not (tmp_path / "beside").exists()
