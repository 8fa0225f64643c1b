"""Which file one is: harness/system/file_identity.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.system import file_identity


def test_the_numbers_are_those_of_stat(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        found = file_identity.of(file.fileno())
    facts = path.stat()
    assert found == file_identity.of(path)
    assert (found.major, found.minor) == (os.major(facts.st_dev), os.minor(facts.st_dev))
    assert found.inode == facts.st_ino
    assert found.is_unique
    assert 0 <= facts.st_mtime_ns - found.born_ns < 10_000_000_000


def test_another_file_of_that_inode_is_another_file(tmp_path: Path) -> None:
    """File systems give a number that has become free to the next file."""
    path = tmp_path / "file"
    path.write_text("first")
    first = file_identity.of(path)
    for _ in range(1000):
        path.unlink()
        path.write_text("later")
        later = file_identity.of(path)
        assert later != first
        if later.inode == first.inode:
            break


def test_writing_linking_and_renaming_leave_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("first")
    first = file_identity.of(path)
    path.write_text("more")
    path.chmod(0o600)
    (tmp_path / "link").hardlink_to(path)
    assert file_identity.of(path.rename(tmp_path / "moved")) == first
    assert file_identity.of(tmp_path / "link") == first


def test_a_link_is_itself_and_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert file_identity.of(tmp_path / "link") != file_identity.of(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        file_identity.of(tmp_path / "none")
