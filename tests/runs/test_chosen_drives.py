"""What `make hardware` notes of the drives that it runs on: what one has given is no other's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lab_world import CLAIM

from harness.drives import conditions, guard
from harness.paths import Project
from harness.runs import chosen_drives, hardware_plan, roles
from harness.runs.hardware_plan import DrivePlan
from harness.system import leases

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


@pytest.mark.parametrize("changed", ["volatile_cache", "way", "cpu", "queue"])
def test_another_condition_is_another_choice(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are kept apart by these, so that `make hardware` has to look at them."""
    there = {"volatile_cache": "1", "way": "6.0 Gbps", "cpu": "performance", "queue": "none"}
    monkeypatch.setattr(guard, "find", lambda *_: (CLAIM, DRIVE))
    monkeypatch.setattr(conditions, "volatile_cache", lambda _: there["volatile_cache"])
    monkeypatch.setattr(conditions, "way", lambda _: {"link_speed": there["way"]})
    monkeypatch.setattr(conditions, "cpu", lambda: {"cpu_governor": there["cpu"]})
    monkeypatch.setattr(
        leases, "queue_of", lambda _: {"scheduler": there["queue"], "iostats": there["queue"]}
    )

    def chosen() -> str:
        chosen_drives.write(Project(tmp_path), tmp_path / "drives.json", {"ssd": "mine"}, {})
        return (tmp_path / "drives.json").read_text()

    first = chosen()
    there[changed] = "another"
    assert chosen() != first


def test_a_journal_apart_is_only_of_the_study_that_has_a_use_for_it() -> None:
    """Another's results would be named after it, and measured again without it."""
    given = {"ssd": "journal"}
    assert chosen_drives.journals_of("msdj_tpcc", given) == given
    assert chosen_drives.journals_of("delayed_trim", given) == {}
    plan = DrivePlan("ssd", 3, (), "ssd", 1 << 40)
    apart = replace(plan, name=hardware_plan.journal_of("ssd"))
    assert chosen_drives.unused_journals("msdj_tpcc", [plan], given) == ["ssd"]
    assert chosen_drives.unused_journals("msdj_tpcc", [plan, apart], given) == []
    assert chosen_drives.unused_journals("delayed_trim", [plan], given) == []
