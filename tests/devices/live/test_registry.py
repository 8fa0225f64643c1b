"""Which devices `clean` ends: as folders and locks say it, without any device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from live_world import small

from harness.devices.live import client, front, registry
from harness.devices.live.registry import Creation
from harness.errors import TargetError
from harness.system import leases, locks, workqueues


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


@pytest.mark.root
def test_nothing_is_measured_where_a_killed_device_has_bound_the_kernel_s_work(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the emulated tier, too: a run that was killed has left it, and nobody has cleaned."""
    cpumask = tmp_path / "cpumask"
    cpumask.write_text("f")
    monkeypatch.setattr(workqueues, "_SETTING", cpumask)
    monkeypatch.setattr(leases, "_DEVICES", root)
    monkeypatch.setattr(client, "_check_system", lambda _: None)
    killed = begun("killed")
    killed.place.bind_workqueues(1)
    assert cpumask.read_text() == "2"
    os.close(killed.lock)
    os.close(killed.owner)

    def begin(*_: object) -> Creation:
        raise TargetError(f"begun with {cpumask.read_text()}")

    monkeypatch.setattr(registry, "begin", begin)
    with pytest.raises(TargetError, match="begun with f"):
        client.create(small())


def test_a_device_whose_run_has_ended_goes(root: Path) -> None:
    abandoned = begun("abandoned")
    os.close(abandoned.owner)
    assert not abandoned.place.is_owned()
    assert registry.clean() == ([f"abandoned: removed {root / 'abandoned'}"], [])
    assert not locks.is_held(abandoned.place.lock)
