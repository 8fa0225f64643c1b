"""Folders that belong to somebody else: whatever he puts there, nothing of ours is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import TargetError
from harness.system import given


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """What the owner of the folder may not reach, but whoever follows his links may."""
    file = tmp_path / "victim"
    file.write_text("ours")
    file.chmod(0o600)
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "his"
    made.mkdir()
    return made


@pytest.mark.parametrize("planted", ["link", "hard link", "file", "pipe"])
def test_a_file_of_ours_is_new_or_not_made(folder: Path, victim: Path, planted: str) -> None:
    make: dict[str, Callable[[Path], object]] = {
        "link": lambda path: path.symlink_to(victim),
        "hard link": lambda path: path.hardlink_to(victim),
        "file": lambda path: path.touch(),
        "pipe": os.mkfifo,
    }
    make[planted](folder / "server.log")
    with pytest.raises(TargetError, match=r"server\.log: File exists: choose a folder"):
        given.create(folder, "server.log")
    assert victim.read_text() == "ours"


def test_a_file_of_ours_has_the_mode_that_it_is_given(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        os.close(given.create(folder, "library.so", 0o755))
    finally:
        os.umask(before)
    assert (folder / "library.so").stat().st_mode & 0o777 == 0o755


def test_a_folder_that_is_a_link_is_none(folder: Path, victim: Path) -> None:
    link = folder / "link"
    link.symlink_to(victim.parent)
    for refused in (
        lambda: given.create(link, "new"),
        lambda: given.empty(link),
        lambda: given.give(link, (os.geteuid(), os.getegid())),
        lambda: list(given.files(link)),
    ):
        with pytest.raises(TargetError, match="has to be a folder, no link"):
            refused()
    assert not (victim.parent / "new").exists()
    assert victim.exists()


def test_links_and_pipes_are_not_read(folder: Path, victim: Path) -> None:
    (folder / "link").symlink_to(victim)
    os.mkfifo(folder / "pipe")  # who opens it would wait for a writer
    (folder / "file").write_text("his")
    assert given.read_text(folder / "link") is None
    assert given.read_text(folder / "pipe") is None
    assert given.read_text(folder / "missing") is None
    assert given.read_text(folder / "file") == "his"
    (folder / "below").mkdir()
    (folder / "below" / "more").write_text("his, too")
    (folder / "below" / "out").symlink_to(victim.parent)
    assert sorted(os.read(fd, 99) for fd in given.files(folder)) == [b"his", b"his, too"]


def test_of_a_link_the_link_is_deleted(folder: Path, victim: Path) -> None:
    outside = victim.parent / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (folder / "link").symlink_to(victim)
    (folder / "to a folder").symlink_to(outside)
    (folder / "below").mkdir()
    (folder / "below" / "link").symlink_to(outside)
    given.empty(folder)
    assert list(folder.iterdir()) == []
    assert victim.exists()
    assert (outside / "kept").exists()


@pytest.mark.root
def test_what_is_given_is_what_lies_in_the_folder_and_nowhere_else(
    folder: Path, victim: Path
) -> None:
    """A hard link is what a kernel without fs.protected_hardlinks lets him make."""
    outside = victim.parent / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (folder / "link").symlink_to(victim)
    (folder / "hard").hardlink_to(victim)
    (folder / "to a folder").symlink_to(outside)
    (folder / "below").mkdir()
    (folder / "below" / "file").touch()
    os.mkfifo(folder / "pipe")
    given.give(folder, (65534, 65520))
    for ours in (victim, outside, outside / "kept", folder / "link", folder / "pipe"):
        assert (ours.lstat().st_uid, ours.lstat().st_gid) == (0, 0), ours
    assert victim.stat().st_mode & 0o777 == 0o600
    for his in (folder / "below", folder / "below" / "file"):
        assert (his.stat().st_uid, his.stat().st_gid) == (65534, 65520)
    assert (folder.stat().st_uid, folder.stat().st_gid) == (0, 65520)
    assert folder.stat().st_mode & 0o777 == 0o770
