"""What papers leave open: complete, with reasons, and today's machine is one point in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from conftest import REPOSITORY

from harness.devices.profiles import load_device, load_host
from harness.errors import BadParameter, UnknownName
from harness.paths import Project, find_project
from harness.runs import claims, parameters
from harness.runs.sweeps import unknowns
from harness.runs.sweeps.machines import Maker

STUDIES = unknowns.names(find_project(REPOSITORY))


@pytest.mark.parametrize("study", STUDIES)
def test_the_default_machine_is_the_pipeline_s(
    project: Project, study: str, tmp_path: Path
) -> None:
    """What stands under `default` is what params.yaml and the profiles say, to the last value."""
    known = unknowns.load(project, study)
    made = Maker(project, study, known).make(0, known.default)
    bench = parameters.of_tier(project, study, "simulated").bench
    for device, data in made.profiles.items():
        (tmp_path / "device.yaml").write_bytes(data)
        found = load_device(tmp_path, str(tmp_path / "device.yaml"))
        assert found.digest() == load_device(project.profiles, bench.devices[device]).digest()
    (tmp_path / "host.yaml").write_bytes(made.host)
    host = load_host(tmp_path, str(tmp_path / "host.yaml"))
    assert host.digest() == load_host(project.profiles, bench.host).digest()
    nothing_set = known.model_copy(
        update={
            "unknowns": {
                n: u.model_copy(update={"sets": {}}) for n, u in known.unknowns.items() if u.sets
            }
        }
    )
    as_it_is = Maker(project, study, nothing_set).make(0, nothing_set.default)
    assert [each.cell for each in made.points] == [each.cell for each in as_it_is.points]
    assert made.points


@pytest.mark.parametrize("study", STUDIES)
def test_every_value_reaches_a_place_that_is_there(
    project: Project, study: str, tmp_path: Path
) -> None:
    """Both ends of each range, and each choice, give another machine than the default one."""
    known = unknowns.load(project, study)
    maker = Maker(project, study, known)
    default = maker.make(0, known.default)
    keys = [maker.key(default, point) for point in default.points]
    for name, each in known.unknowns.items():
        values: list[unknowns.Value] = [*each.choices] or [each.at(0.0), each.at(1.0)]
        for value in values:
            made = maker.make(1, known.default | {name: value})
            assert not made.refused, f"{name}={value}: {made.refused}"
            for data in made.profiles.values():
                (tmp_path / "device.yaml").write_bytes(data)
                load_device(tmp_path, str(tmp_path / "device.yaml"))
            changed = [maker.key(made, point) for point in made.points] != keys
            assert changed == (value != each.default), f"{name}={value} changes nothing"


@pytest.mark.parametrize("study", STUDIES)
def test_what_was_held_back_is_held_back(project: Project, study: str) -> None:
    """A published cell that no fit may see is in no claim that a nearest machine is chosen by."""
    known = unknowns.load(project, study)
    judged = {claim.id for claim in claims.load(project)[study].claims}
    assert set(known.held_back) <= judged
    path = project.published / f"{study}.csv"
    published = pd.read_csv(path) if path.is_file() else pd.DataFrame()
    withheld = "use" in published and (published["use"] == "withheld").any()
    assert bool(known.held_back) == withheld


GOOD: dict[str, Any] = {
    "what": "tR",
    "sets": {"profile drive.read_page": "{} us"},
    "range": [20, 200],
    "default": 45,
    "prior": "flash",
    "excluded": "nothing",
}


@pytest.mark.parametrize(
    "change",
    [
        {"prior": ""},
        {"source": "a document, too"},
        {"default": 300},
        {"default": "one"},
        {"range": [200, 20]},
        {"range": [0, 200], "form": "log"},
        {"sets": {}},
        {"sets": {"somewhere": "{}"}},
        {"sets": {"profile read_page": "{}"}},
        {"choices": {"one": {"host memory": "1 GiB"}}},
        {"exclude": "misspelt"},
    ],
)
def test_bad_unknowns_are_refused(checkout: Project, change: dict[str, Any]) -> None:
    def write(entry: dict[str, Any]) -> None:
        path = checkout.root / unknowns.FOLDER / "toy.yaml"
        path.write_text(yaml.safe_dump({"title": "T", "scale": "s", "unknowns": {"read": entry}}))

    write(GOOD)
    assert unknowns.load(checkout, "toy").default == {"read": 45}
    write(GOOD | change)
    with pytest.raises(BadParameter, match=r"toy\.yaml"):
        unknowns.load(checkout, "toy")


def test_a_study_without_unknowns(project: Project) -> None:
    with pytest.raises(UnknownName, match=STUDIES[0]):
        unknowns.load(project, "nothing")


def test_points_that_come_first(project: Project) -> None:
    """Before all others, each part in the grid's order; the same points, with the same keys."""
    study = STUDIES[0]
    known = unknowns.load(project, study)
    plain = Maker(project, study, known.model_copy(update={"first": {}}))
    grid = plain.make(0, known.default).points
    wanted = grid[-1].values["device"]
    assert grid[0].values["device"] != wanted
    maker = Maker(project, study, known.model_copy(update={"first": {"device": wanted}}))
    machine = maker.make(0, known.default)
    early = [point for point in grid if point.values["device"] == wanted]
    assert machine.points == early + [point for point in grid if point not in early]
    assert {maker.key(machine, p) for p in machine.points} == {plain.key(machine, p) for p in grid}


def test_a_first_point_that_is_not_there_is_no_refused_machine(project: Project) -> None:
    study = STUDIES[0]
    known = unknowns.load(project, study).model_copy(update={"first": {"device": "nothing"}})
    with pytest.raises(BadParameter, match="nothing"):
        Maker(project, study, known).make(0, known.default)


def test_a_place_that_is_not_there_is_no_refused_machine(project: Project) -> None:
    """A misspelt parameter is an error of the file, and not a machine that cannot be."""
    study = STUDIES[0]
    known = unknowns.load(project, study)
    [first, *_] = known.unknowns.values()
    for place in ("profile nothing.page", "device nothing", "host nothing", "setting a.b"):
        bad = first.model_copy(
            update={"choices": {}, "range": (0, 1), "sets": {place: "1"}, "default": 0}
        )
        changed = known.model_copy(update={"unknowns": {"bad": bad}})
        with pytest.raises((BadParameter, UnknownName)):
            Maker(project, study, changed).make(0, {"bad": 0})
