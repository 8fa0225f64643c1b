"""Which devices `clean` ends: as folders and locks say it, without any device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.devices.live import front, registry
from harness.devices.live.registry import Creation
from harness.system import locks


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "ROOT", tmp_path / "flashlab")
    return tmp_path / "flashlab"


def begun(name: str) -> Creation:
    return registry.begin(name, "crucial_mx500_250gb", front.DEFAULT)


def test_a_living_device_of_a_living_run_stays_whatever_else_goes(root: Path) -> None:
    """The locks that a device's process and its run hold are held by this one."""
    owned, free, dead = begun("owned"), begun("free"), begun("dead")
    free.disown()
    os.close(dead.lock)
    assert registry.clean() == (
        [f"dead: removed {root / 'dead'}"],
        [],
    ), "its process has ended, though its run has not"
    done, failed = registry.clean(everything=True)
    assert failed == []
    assert done == [
        f"free: removed {root / 'free'}",
        "owned: left to the run that made it: `harness device remove --force owned` ends it",
    ]
    assert registry.list_names() == ["owned"]
    registry.remove_traces(owned.place)
    assert registry.list_names() == [], "who names it means it"
    os.close(owned.owner)


def test_a_device_whose_run_has_ended_goes(root: Path) -> None:
    abandoned = begun("abandoned")
    os.close(abandoned.owner)
    assert not abandoned.place.is_owned()
    assert registry.clean() == ([f"abandoned: removed {root / 'abandoned'}"], [])
    assert not locks.is_held(abandoned.place.lock)
