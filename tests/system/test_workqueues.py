"""Where the kernel's own work runs: whoever ends last puts back what was before the first."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import TargetError
from harness.system import workqueues


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "cpumask"
    file.write_text("0000000f,ffffffff\n")
    monkeypatch.setattr(workqueues, "_SETTING", file)
    return file


def test_it_is_bound_and_put_back(setting: Path, tmp_path: Path) -> None:
    note = tmp_path / "note"
    workqueues.bind(note, 35, [])
    assert setting.read_text() == "8,00000000"
    assert workqueues.put_back(note, [])
    assert setting.read_text() == "f,ffffffff"
    assert not note.exists()
    assert not workqueues.put_back(note, [])


def test_the_last_to_end_puts_it_back(setting: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    workqueues.bind(first, 1, [second])
    workqueues.bind(second, 1, [first])
    assert not workqueues.put_back(first, [second])
    assert setting.read_text() == "2"
    assert workqueues.put_back(second, [first])
    assert setting.read_text() == "f,ffffffff"


def test_who_was_killed_does_not_count_but_his_note_does(setting: Path, tmp_path: Path) -> None:
    dead, living = tmp_path / "dead", tmp_path / "living"
    workqueues.bind(dead, 1, [])
    workqueues.bind(living, 1, [dead])  # which finds it changed, and by whom
    assert workqueues.put_back(living, [])
    assert setting.read_text() == "f,ffffffff"
    assert not workqueues.put_back(dead, [])  # later, by `harness clean`
    assert setting.read_text() == "f,ffffffff"


def test_what_somebody_else_has_changed_since_is_his(setting: Path, tmp_path: Path) -> None:
    note = tmp_path / "note"
    workqueues.bind(note, 1, [])
    setting.write_text("3")
    assert not workqueues.put_back(note, [])
    assert setting.read_text() == "3"
    assert not note.exists()


@pytest.mark.parametrize("text", ["", "[", "7", '["3"]', '["", "2"]', '["zz", "2"]', '["0", "2"]'])
def test_a_note_that_is_none_changes_nothing(setting: Path, tmp_path: Path, text: str) -> None:
    note = tmp_path / "note"
    note.write_text(text)
    setting.write_text("2")
    assert not workqueues.put_back(note, [])
    assert setting.read_text() == "2"
    workqueues.bind(tmp_path / "other", 1, [note])
    assert workqueues.put_back(tmp_path / "other", [note])
    assert setting.read_text() == "2"


def test_a_setting_that_is_refused_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpumask").write_text("3")
    monkeypatch.setattr(workqueues, "_SETTING", tmp_path / "cpumask")

    def refuse(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(TargetError, match="does not take 2: Invalid argument"):
        workqueues._write("2")


def test_what_could_not_be_put_back_can_be_later(
    setting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "note"
    workqueues.bind(note, 1, [])

    def refuse(_: str) -> None:
        raise TargetError("the kernel does not take it")

    with monkeypatch.context() as refusing:
        refusing.setattr(workqueues, "_write", refuse)
        with pytest.raises(TargetError):
            workqueues.put_back(note, [])
    assert setting.read_text() == "2"
    assert workqueues.put_back(note, [])
    assert setting.read_text() == "f,ffffffff"
    assert not note.exists()


@given(st.integers(1, 1 << 200))
def test_masks_of_any_length_are_written_as_the_kernel_reads_them(mask: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        said: list[str] = []
        patched.setattr(Path, "write_text", lambda _, text: said.append(text))
        workqueues._write(f"{mask:x}")
    groups = said[0].split(",")
    assert int("".join(groups), 16) == mask
    assert all(len(group) == 8 for group in groups[1:])


@pytest.mark.root
def test_the_kernel_takes_what_it_said(tmp_path: Path) -> None:
    """One that is changed by a device beside us is changed back by that."""
    if not workqueues.available():
        pytest.skip("the kernel's processors for its own work cannot be set here")
    before = workqueues._SETTING.read_text()
    with workqueues._locked():
        workqueues._write(workqueues._read())
        assert workqueues._SETTING.read_text() == before
