"""What `make hardware` notes of the drives that it runs on: what one has given is no other's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lab_world import CLAIM

from harness.drives import guard
from harness.paths import Project
from harness.runs import chosen_drives, roles

DRIVE = replace(roles.examples()["ssd"], serial="S5H1NX0R")


def test_another_drive_or_firmware_of_the_same_name_is_another_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = {"mine": (CLAIM, DRIVE)}
    monkeypatch.setattr(guard, "find", lambda name, *_: lab[name])

    def chosen() -> str:
        chosen_drives.write(Project(tmp_path), tmp_path / "drives.json", {"ssd": "mine"}, {})
        found = chosen_drives.chosen_drives_of("delayed_trim", tmp_path / "drives.json")
        assert found == {"drives": {"ssd": "mine"}, "journals": {}}
        return (tmp_path / "drives.json").read_text()

    first = chosen()
    assert chosen() == first
    assert DRIVE.serial not in first  # results may be shown
    lab["mine"] = (CLAIM, replace(DRIVE, serial="another"))
    assert chosen() != first
    lab["mine"] = (CLAIM, replace(DRIVE, firmware="another"))
    assert chosen() != first
    lab["mine"] = (CLAIM.model_copy(update={"claimed_at": "2030-01-01T00:00:00+00:00"}), DRIVE)
    assert chosen() != first
    lab["mine"] = (CLAIM, DRIVE)
    assert chosen() == first
