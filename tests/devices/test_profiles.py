"""Profiles: what is refused, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.devices import profiles
from harness.errors import BadProfile, UnknownName
from harness.paths import Project

DEVICES = ("seagate_250gb", "intel_x25e_32gb")


def edited(project: Project, folder: Path, edit: Any, name: str = "seagate_250gb") -> str:
    """Path of a copy of a profile, after an edit of its data."""
    data = yaml.safe_load((project.profiles / f"{name}.yaml").read_text())
    edit(data)
    path = folder / "edited.yaml"
    path.write_text(yaml.safe_dump(data))
    return str(path)


@pytest.mark.parametrize("name", DEVICES)
def test_every_value_says_where_it_is_from(project: Project, name: str) -> None:
    profile = profiles.load_device(project.profiles, name)
    for field in type(profile.parameters).model_fields:
        value = getattr(profile.parameters, field)
        if value is None:  # left to its default
            continue
        assert value.origin in ("source", "prior", "fitted")
        assert len(value.reason) > 5


def test_all_profiles_load(project: Project) -> None:
    for name in profiles.list_profiles(project.profiles):
        profiles.load_device(project.profiles, name)
    for name in profiles.list_profiles(project.profiles / "hosts"):
        profiles.load_host(project.profiles, name)


def test_the_digest_follows_the_values_not_the_texts(project: Project, tmp_path: Path) -> None:
    original = profiles.load_device(project.profiles, "seagate_250gb")
    retold = edited(project, tmp_path, lambda d: d.update(note="other words"))
    assert profiles.load_device(project.profiles, retold).digest() == original.digest()
    slower = {"outer_rate": "100 MB/s"}
    changed = profiles.load_device(project.profiles, "seagate_250gb", slower)
    assert changed.digest() != original.digest()


def refused(project: Project, path: str) -> str:
    with pytest.raises(BadProfile) as refusal:
        profiles.load_device(project.profiles, path)
    return str(refusal.value)


def test_unknown_key(project: Project, tmp_path: Path) -> None:
    def edit(data: Any) -> None:
        data["parameters"]["colour"] = {"value": 1, "prior": "?"}

    assert "colour" in refused(project, edited(project, tmp_path, edit))


def test_missing_unit(project: Project, tmp_path: Path) -> None:
    def edit(data: Any) -> None:
        data["parameters"]["average_seek"]["value"] = "8.5"

    message = refused(project, edited(project, tmp_path, edit))
    assert "average_seek" in message
    assert "8.5 ms" in message


def test_missing_origin(project: Project, tmp_path: Path) -> None:
    def edit(data: Any) -> None:
        del data["parameters"]["capacity"]["source"]

    assert "source, prior, fitted" in refused(project, edited(project, tmp_path, edit))


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("seagate_250gb", "heads", 0),
        ("seagate_250gb", "rpm", "1 rpm"),
        ("seagate_250gb", "outer_rate", "10 MB/s"),
        ("seagate_250gb", "average_seek", "0.1 ms"),
        ("seagate_250gb", "head_switch", "20 ms"),
        ("seagate_250gb", "scheduler", "lottery"),
        ("intel_x25e_32gb", "page", "100 B"),
        ("intel_x25e_32gb", "capacity", "1 GB"),
        ("intel_x25e_32gb", "channels", 0),
        ("intel_x25e_32gb", "write_buffer", "1 KiB"),
    ],
)
def test_impossible_geometry(
    project: Project, tmp_path: Path, name: str, parameter: str, value: object
) -> None:
    def edit(data: Any) -> None:
        data["parameters"][parameter]["value"] = value

    path = edited(project, tmp_path, edit, name)
    if parameter == "capacity":
        with pytest.raises(BadProfile, match="multiple of map_unit"):
            profiles.load_device(project.profiles, path)
    else:
        assert len(refused(project, path).splitlines()) == 1


def test_not_yaml(project: Project, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("a: [1")
    assert "not YAML" in refused(project, str(path))


def test_unknown_names_list_the_known_ones(project: Project) -> None:
    with pytest.raises(UnknownName, match="seagate_250gb"):
        profiles.load_device(project.profiles, "nonesuch")
    with pytest.raises(UnknownName, match="outer_rate"):
        profiles.load_device(project.profiles, "seagate_250gb", {"speed": "1 MB/s"})
    with pytest.raises(UnknownName, match="athlon_2010"):
        profiles.load_host(project.profiles, "nonesuch")
