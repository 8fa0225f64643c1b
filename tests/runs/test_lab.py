"""What notebooks show of results that are published already."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from harness import lab
from harness.drives import fingerprint
from harness.experiments.base import Results
from harness.paths import Project


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("params.yaml", "dvc.yaml", "pyproject.toml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data" / "results"
    folder.mkdir(parents=True)
    return folder


def publish(folder: Path, machine: dict[str, str]) -> None:
    rows = [
        {"variant": "paper", "mode": "oj", "cuts": 10, "torn": 4},
        {"variant": "paper", "mode": "dj", "cuts": 10, "torn": 0},
        {"variant": "paper", "mode": "oj", "cuts": 5, "torn": 1},
        {"variant": "other", "mode": "oj", "cuts": 99, "torn": 99},
    ]
    pd.DataFrame(rows).to_csv(folder / "cuts.emulated.csv", index=False)
    about = {"devices": {"ssd": machine}}
    (folder / "cuts.emulated.about.json").write_text(json.dumps(about))


def test_what_was_recorded_is_summed_in_its_own_order(place: Path) -> None:
    publish(place, dict(fingerprint.machine()))
    found = lab.recorded("cuts", "emulated", "cuts", "torn", by=["mode"], how="sum")
    assert found.to_dict("list") == {
        "mode": ["oj", "dj"],
        "runs": [2, 1],
        "cuts": [15, 10],
        "torn": [5, 0],
        "measured": ["here", "here"],
    }


def test_what_another_machine_recorded_says_so(place: Path) -> None:
    machine = dict.fromkeys(fingerprint.machine(), "another")
    publish(place, machine)
    found = lab.recorded("cuts", "emulated", "torn", by=["mode"])
    assert set(found.measured) == {"by the authors"}
    assert list(found.torn) == [2.5, 0]
    assert list(found["torn, least"]) == [1, 0]
    assert list(found["torn, most"]) == [4, 0]


def test_what_was_not_recorded_is_an_empty_table(place: Path) -> None:
    found = lab.recorded("cuts", "emulated", "cuts", by=["mode"])
    assert place.is_dir()
    assert list(found) == ["mode", "runs", "cuts", "measured"]
    assert found.empty


def test_cells_beside_the_paper_s_are_texts(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers, what a cell is used for, and cells that are not on file."""
    monkeypatch.chdir(project.root)
    few = {"scale": "paper", "clients": "[1, 2]", "work_mems": "[4 MiB]", "variants": "{}"}
    session = lab.start("sort_merge_join", settings=few)
    try:
        points = [p for p in session.session.points if p.values["variant"] == "paper"]
        rows = [
            {**p.values, "elapsed_s": 1.0, "sort_s": 0.5, "join_s": 0.5}
            | {"sort_utilisation_ratio": 0.1, "join_utilisation_ratio": 0.2, "point": p.id}
            for p in points
        ]
        made_up = Results("simulated", pd.DataFrame(rows), {}, lambda _: None)
        session._shown = lab._Shown(session.session, made_up)
        cells = session.published_cells()
    finally:
        session.close()
    assert set(cells.use) == {"fitted", ""}  # two clients are not on file
    assert set(cells.elapsed_s) == {"1"}


def test_figures_are_drawn_and_claims_judged_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    session = lab.start("delayed_trim", settings={"scale": "smoke"})
    drawn: list[Results] = []
    try:
        experiment = session.session.experiment
        made_up = Results("simulated", pd.DataFrame({"kind": ["x"]}), {}, lambda _: None)
        session._shown = lab._Shown(session.session, made_up)

        def figures(_: object, results: Results) -> dict[str, object]:
            drawn.append(results)
            return {}

        monkeypatch.setattr(type(experiment), "figures", figures)
        for name in experiment.figure_needs:
            session.figure(name)
    finally:
        session.close()
    assert drawn == [made_up]


def test_what_this_notebook_is_about_to_publish_is_what_was_recorded(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record would else argue with the one before, or with an empty table."""
    publish(place, dict.fromkeys(fingerprint.machine(), "another"))
    own = pd.DataFrame([{"variant": "paper", "mode": "dj", "cuts": 3, "torn": 7}])
    running = SimpleNamespace(results=own, will_publish=lambda *of: of == ("cuts", "emulated"))
    monkeypatch.setattr(lab, "_LABS", [running])
    found = lab.recorded("cuts", "emulated", "torn", by=["mode"])
    assert found.to_dict("list") == {
        "mode": ["dj"],
        "runs": [1],
        "torn": [7],
        "measured": ["here"],
    }
    running.results = own.head(0)  # nothing has been run as yet
    assert set(lab.recorded("cuts", "emulated", "torn", by=["mode"]).measured) == {"by the authors"}


@pytest.mark.parametrize(("tier", "closed"), [("hardware", True), ("simulated", False)])
def test_who_starts_again_on_drives_gives_them_back_first(
    tier: str, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that is run again would else wait for its own first run."""
    ended = []
    running = SimpleNamespace(close=lambda: ended.append("before"))
    monkeypatch.setattr(lab, "_LABS", [running])
    monkeypatch.setattr(lab, "Lab", lambda *_, **__: ended.append("started"))
    lab.start("grace_hash_join", tier)
    assert ended == ["before", "started"][not closed :]
