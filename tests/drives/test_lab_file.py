"""The lab file: what it holds is what was claimed, or nothing at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_world import CLAIM

from harness.drives import lab_file
from harness.errors import TargetError, UnknownName

OTHER = CLAIM.model_copy(update={"serial": "HD7K1CXR9F04", "token": "f" * 32})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lab.json"


def test_what_is_saved_is_found(path: Path) -> None:
    assert lab_file.load(path) == {}
    lab_file.save(path, {"ssd": CLAIM, "hdd": OTHER})
    assert lab_file.load(path) == {"ssd": CLAIM, "hdd": OTHER}
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UnknownName, match="ssd"):
        lab_file.find(path, "sdd")


@given(data=st.data())
def test_a_damaged_file_is_refused_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("lab") / "lab.json"
    lab_file.save(path, {"ssd": CLAIM, "hdd": OTHER})
    whole = path.read_bytes()
    begin = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(begin, len(whole)))
    put = data.draw(st.binary(max_size=20))
    path.write_bytes(whole[:begin] + put + whole[end:])
    found = None
    with contextlib.suppress(TargetError):
        found = lab_file.load(path)
    assert found in (None, {"ssd": CLAIM, "hdd": OTHER})


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", "[" * 100_000, '{"format": 1, "drives": {}, "digest": ""}'],
    ids=["empty", "list", "no keys", "null", "deep", "no digest"],
)
def test_what_is_no_lab_file(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(TargetError, match="damaged"):
        lab_file.load(path)


def test_a_key_that_is_there_twice(path: Path) -> None:
    """JSON takes the last one, and another reader the first."""
    lab_file.save(path, {"ssd": CLAIM})
    path.write_text(path.read_text().replace('"model"', '"serial": "SS2037E4B7C9", "model"', 1))
    with pytest.raises(TargetError, match="twice"):
        lab_file.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"by_id": "/dev/sda"},
        {"by_id": "/dev/disk/by-id/../../sda"},
        {"by_id": "/dev/disk/by-id/"},
        {"serial": "short"},
        {"size_bytes": 0},
        {"size_bytes": "1073741824"},
        {"token": "x"},
        {"more": 1},
    ],
    ids=str,
)
def test_a_claim_that_cannot_be(path: Path, change: dict[str, object]) -> None:
    """By its form alone, with a digest that fits."""
    drives = {"ssd": {**CLAIM.model_dump(), **change}}
    plain = json.dumps(drives, sort_keys=True).encode()
    digest = hashlib.sha256(plain).hexdigest()
    path.write_text(json.dumps({"format": 1, "drives": drives, "digest": digest}))
    path.chmod(0o600)
    with pytest.raises(TargetError, match="damaged"):
        lab_file.load(path)


def test_a_drive_is_in_it_once(path: Path) -> None:
    with pytest.raises(ValueError, match="twice"):
        lab_file.save(path, {"one": CLAIM, "two": CLAIM.model_copy(update={"token": "a" * 32})})
    assert not path.exists()


@pytest.mark.root
def test_nobody_else_may_write_it(path: Path) -> None:
    lab_file.save(path, {"ssd": CLAIM})
    path.chmod(0o620)
    with pytest.raises(TargetError, match="only yours"):
        lab_file.load(path)
    path.chmod(0o600)
    os.chown(path, 65534, 65534)
    with pytest.raises(TargetError, match="only yours"):
        lab_file.load(path)


def test_no_link_and_no_pipe(path: Path) -> None:
    lab_file.save(path, {"ssd": CLAIM})
    link = path.with_name("link.json")
    link.symlink_to(path)
    with pytest.raises(TargetError):
        lab_file.load(link)
    pipe = path.with_name("pipe.json")
    os.mkfifo(pipe, 0o600)
    with pytest.raises(TargetError, match="not a file"):
        lab_file.load(pipe)
