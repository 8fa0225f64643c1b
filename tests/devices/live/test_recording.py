"""A record's files, and a state's, are new ones: of devices in this process, without the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from live_world import small

from harness import _core
from harness.devices.live import store
from harness.devices.live.recording import Recording, initial_path
from harness.devices.live.registry import Unfinished
from harness.devices.profiles import core_parameters
from harness.errors import DataFolderError, TargetError
from harness.system import file_identity

SIZE = 256 << 20
SPEC = small(size_bytes=SIZE)


@pytest.fixture
def device() -> _core.LiveDevice:
    fd = os.memfd_create("store")
    os.truncate(fd, SIZE)
    parameters = core_parameters(SPEC.device_profile(), seed=1)
    return _core.LiveDevice(parameters, store_fd=fd, visible_bytes=SIZE)


def test_the_second_record_to_a_file_is_refused_and_the_first_is_whole(
    device: _core.LiveDevice, tmp_path: Path
) -> None:
    path = tmp_path / "record"
    first = Recording(device, path, SPEC)
    with pytest.raises(TargetError, match="File exists: choose another place"):
        Recording(device, path, SPEC)
    names = {"record.part", "record.initial"}
    assert {each.name for each in tmp_path.iterdir()} == names, "the first one's are there"
    first.close()
    assert {each.name for each in tmp_path.iterdir()} == {"record", "record.initial"}
    with pytest.raises(TargetError, match="something of that name exists"):
        Recording(device, path, SPEC)
    assert {each.name for each in tmp_path.iterdir()} == {"record", "record.initial"}


@pytest.mark.parametrize("name", ["record.part", "record.initial", "record"])
def test_a_record_follows_no_link_that_somebody_has_put_there(
    device: _core.LiveDevice, tmp_path: Path, name: str
) -> None:
    (tmp_path / "his").write_text("his")
    (tmp_path / name).symlink_to(tmp_path / "his")
    with pytest.raises(TargetError, match="choose another place"):
        Recording(device, tmp_path / "record", SPEC)
    assert (tmp_path / "his").read_text() == "his"
    assert {each.name for each in tmp_path.iterdir()} == {"his", name}


def test_a_record_s_files_are_locked_until_it_is_whole(
    device: _core.LiveDevice, tmp_path: Path
) -> None:
    """So that whoever has noted the same names, and is killed, does not have them deleted."""
    path = tmp_path / "record"
    noted: list[Unfinished] = []

    def made(file: Path, fd: int) -> None:
        assert not file.stat().st_size, "who is killed now leaves nothing of worth"
        noted.append(Unfinished(file, file_identity.of(fd)))

    recording = Recording(device, path, SPEC, made)
    assert [each.path for each in noted] == [path.with_name("record.part"), initial_path(path)]
    assert not any(each.is_there() for each in noted)
    recording.close()
    assert noted[1].is_there()


def test_a_record_does_not_take_a_name_that_somebody_else_has_taken_meanwhile(
    device: _core.LiveDevice, tmp_path: Path
) -> None:
    path = tmp_path / "record"
    recording = Recording(device, path, SPEC, lambda *_: None)
    path.write_text("his")
    with pytest.raises(DataFolderError, match=r"has come to be meanwhile.*record\.part"):
        recording.close()
    assert path.read_text() == "his"
    assert pq.read_metadata(path.with_name("record.part"))


def test_a_state_does_not_replace_what_is_none(tmp_path: Path) -> None:
    path = tmp_path / "state"
    fd = os.memfd_create("store")
    os.truncate(fd, 8192)
    try:
        path.write_text("his")
        with pytest.raises(DataFolderError, match="is not touched: this one's is") as told:
            store.save_state(path, b"model", {}, fd)
        assert path.read_text() == "his"
        path.unlink()
        [kept] = tmp_path.iterdir()
        assert str(kept) in str(told.value)
        kept.unlink()
        store.save_state(path, b"model", {}, fd)
        store.save_state(path, b"newer", {}, fd)
        assert store.load_state(path, {}, fd) == b"newer"
    finally:
        os.close(fd)


def test_a_state_is_written_under_a_name_that_nobody_knows(tmp_path: Path) -> None:
    victim = tmp_path / "his"
    victim.write_text("his")
    (tmp_path / f".state.{os.getpid()}").symlink_to(victim)
    assert store.part_of(tmp_path / "state") != store.part_of(tmp_path / "state")
    fd = os.memfd_create("store")
    os.truncate(fd, 8192)
    try:
        store.save_state(tmp_path / "state", b"model", {}, fd)
        assert store.load_state(tmp_path / "state", {}, fd) == b"model"
        planted = tmp_path / "guessed"
        planted.symlink_to(victim)
        with pytest.raises(DataFolderError, match="not saved"):
            store.save_state(tmp_path / "state", b"newer", {}, fd, planted)
    finally:
        os.close(fd)
    assert planted.is_symlink()
    assert victim.read_text() == "his"
