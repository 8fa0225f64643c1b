"""The notebook of plausible machines: it reads what is recorded, and says what is missing."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import pytest
from conftest import REPOSITORY
from IPython.display import Image
from sweep_files import note
from test_answers import KNOWN, swept

from harness.paths import Project
from harness.runs.sweeps import recorded, shown, written
from harness.runs.sweeps.recorded import Recorded

FORMULAS = {
    "sum": (lambda a, b, c: a + b / 2 + c, 0, 1.2),
    "never": (lambda a, b, c: 5.0, 0, 1),
    "held": (lambda a, b, c: a, 0, 0.5),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    found = swept(FORMULAS, 128)
    about = {"finished": 128, "machines": 129, "refused": 0, "unfinished": 0, "scale": "smoke"}
    whole = Recorded(KNOWN, found.claims, found.machines, found.values, {**found.about, **about})
    monkeypatch.setattr(shown, "_every", lambda project: {Path("toy.smoke.sobol"): whole})
    return Project(tmp_path)


def test_each_part_shows_something(here: Project) -> None:
    sweep = shown.Sweep("toy", here)
    assert "128 of 129 machines" in sweep.origin
    assert sweep.lines().verdict["never"] == "out of reach"
    for figure in (sweep.shares(), sweep.map("sum")):
        assert isinstance(figure, Image)
    assert not plt.get_fignums()
    asked = sweep.decides()
    assert asked.index[0] in ("a", "c")
    assert asked.claims.iloc[0] >= 1
    assert (asked["goes with"] == "").all()
    assert len(sweep.nearest().columns) == 5
    assert not sweep.in_common().empty
    assert not sweep.left_out().empty
    assert isinstance(sweep.exclusions(), pd.DataFrame)
    assert shown.summary(here).loc["toy.smoke.sobol", "finished"] == 128


def test_a_sweep_of_an_earlier_model_says_so(
    here: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "earlier" not in shown.Sweep("toy", here).origin
    assert shown.summary(here).model.tolist() == ["of now"]
    found = shown.Sweep("toy", here).recorded
    assert found is not None
    earlier = replace(found, is_present=False)
    monkeypatch.setattr(shown, "_every", lambda project: {Path("toy.smoke.sobol"): earlier})
    assert shown.Sweep("toy", here).origin.endswith(", by an earlier model")
    assert shown.summary(here).model.tolist() == ["an earlier one"]


def test_an_unknown_that_goes_with_another_says_so(
    here: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shown.Sweep("toy", here).recorded
    assert found is not None
    machines = found.machines.assign(b=1 - found.machines.a)
    together = replace(found, machines=machines)
    monkeypatch.setattr(shown, "_every", lambda project: {Path("toy.smoke.sobol"): together})
    beside = shown.Sweep("toy", here).decides()["goes with"]
    assert beside.to_dict() == {"a": "b (-1.00)", "b": "a (-1.00)", "c": ""}


def test_the_present_model_s_sample_is_shown_and_no_list(
    here: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shown.Sweep("toy", here).recorded
    assert found is not None
    few = replace(found, about={**found.about, "finished": 64})
    earlier = replace(found, is_present=False)
    named = replace(found, about={**found.about, "design": "list", "finished": 999})
    every = {
        Path("data/toy.smoke.sobol"): earlier,
        Path("build/toy.smoke.sobol"): few,
        Path("toy.smoke.list"): named,
    }
    monkeypatch.setattr(shown, "_every", lambda project: every)
    assert shown.Sweep("toy", here).recorded is few
    assert shown.summary(here).loc["toy.smoke.sobol", "finished"] == 64


def test_what_is_asked_first_decides_what_may_come_out_either_way(here: Project) -> None:
    """Which machine always, or never, gives a claim's number is no question to its authors."""
    assert "never" not in ", ".join(shown.Sweep("toy", here).decides().which)


def test_the_default_machine_alone_is_no_sample() -> None:
    project = Project(REPOSITORY)
    assert "msdj_tpcc.paper.sobol" in [folder.name for folder in recorded.found(project)]
    assert shown.summary(project).index.str.startswith("msdj_tpcc.small.").any()
    assert not shown.summary(project).index.str.startswith("msdj_tpcc.paper.").any()


def test_nothing_recorded_says_what_makes_it(tmp_path: Path) -> None:
    sweep = shown.Sweep("msdj_tpcc", Project(tmp_path))
    assert "`harness sweep msdj_tpcc`" in sweep.origin
    for part in (sweep.lines, sweep.decides, sweep.nearest, sweep.left_out, sweep.exclusions):
        assert part().iloc[0, 0] == sweep.origin
    assert sweep.shares() == sweep.map("x") == sweep.origin
    assert shown.summary(Project(tmp_path)).empty


def test_answers_as_tables_are_the_same_bytes_again(here: Project, tmp_path: Path) -> None:
    found = shown.Sweep("toy", here).recorded
    assert found is not None
    first = written.write(found, tmp_path / "one")
    written.write(found, tmp_path / "two")
    of_all = {"shares", "lines", "decides", "entangled", "exclude"}
    assert of_all | {"nearest", "left_out", "in_common"} == set(first)
    for path in (tmp_path / "one" / "answers").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / "answers" / path.name).read_bytes()


def test_a_sweep_over_other_unknowns_is_not_read(checkout: Project) -> None:
    folder = checkout.build / "sweeps" / "msdj_tpcc.smoke.sobol"
    folder.mkdir(parents=True)
    pd.DataFrame({"machine": [0]}).to_parquet(folder / "machines.parquet")
    pd.DataFrame({"machine": [0]}).to_parquet(folder / "claims.parquet")
    note(folder, unknowns="other")
    assert recorded.found(checkout) == [folder]
    assert "other unknowns" in shown.Sweep("msdj_tpcc", checkout).origin


@pytest.mark.builds
def test_the_notebook_ends_without_sweeps(
    checkout: Project, harness_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    ran = harness_command("notebook", "60_plausible_machines")
    assert ran.returncode == 0, ran.stderr
    executed = nbformat.read(checkout.report / "60_plausible_machines.ipynb", as_version=4)
    assert "not swept here yet" in str(executed.cells)
