"""One set of names for a run, wherever it is asked for; and which tier `auto` becomes."""

from __future__ import annotations

import inspect
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from harness import lab
from harness.commands import main
from harness.commands.console import pairs
from harness.errors import BadParameter, UnknownName
from harness.paths import Project
from harness.runs import asked, choice, notebooks, parameters
from harness.runs.asked import Wanted
from harness.runs.session import Options, open_session

Command = Callable[..., subprocess.CompletedProcess[str]]
NAMES = list(Wanted.model_fields)


def cells(path: Path) -> list[Any]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


@pytest.mark.parametrize(
    "section",
    ["[a]", "{scale: 1}", "{settings: users}", "{devices: [ssd]}", "text"],
)
def test_a_section_of_notebooks_that_cannot_be_is_one_error(
    checkout: Project, section: str
) -> None:
    params = yaml.safe_load(checkout.params.read_text())
    params["notebook"] = yaml.safe_load(section)
    checkout.params.write_text(yaml.safe_dump(params))
    with (
        pytest.raises(BadParameter, match=r"params\.yaml, notebook"),
        open_session(checkout, "device_models", "simulated"),
    ):
        pass


def test_every_study_s_notebook_has_the_same_parameters(project: Project) -> None:
    pipelines = parameters.pipelines(project).values()
    for name in {each for studies in pipelines for each in studies.values()}:
        own = cells(project.notebooks / f"{name}.ipynb")
        tagged = [cell for cell in own if "parameters" in cell.metadata.get("tags", ())]
        assert len(tagged) == 1, name
        assert asked.assigned(tagged[0].source) == NAMES
        start = next(cell.source for cell in own if "lab.start" in cell.source)
        assert f"lab.asked({', '.join(NAMES[1:])})" in start
        assert "tier, **asked" in start


def test_the_command_line_has_them_too() -> None:
    text = inspect.getsource(main.run)
    said = {name for name in NAMES if f'"--{name}"' in text or f"    {name}:" in text}
    assert said == set(NAMES)


@pytest.mark.parametrize(
    "given",
    [
        {"ssd": "mine", "hdd": "other"},
        "{ssd: mine, hdd: other}",
        "ssd=mine; hdd=other",
        "ssd=mine\nhdd=other",
    ],
)
def test_a_mapping_may_be_a_text(given: Any) -> None:
    assert Wanted.of({"drives": given}).drives == {"ssd": "mine", "hdd": "other"}


def test_settings_are_as_they_would_be_typed() -> None:
    given = {"repetitions": 1, "users": [1, 2], "variants": {}, "version": "9.4"}
    found = Wanted.of({"settings": given}).settings
    assert {name: yaml.safe_load(text) for name, text in found.items()} == {
        **given,
        "version": 9.4,
    }


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"scael": "smoke"}, UnknownName, "unknown parameter 'scael'; .* did you mean scale"),
        ({"drives": "mine"}, BadParameter, "write it as NAME=VALUE"),
        ({"drives": 5}, BadParameter, "drives"),
        ({"publish": "perhaps"}, BadParameter, "publish"),
    ],
)
def test_what_is_no_parameter(given: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Wanted.of(given)


def test_what_papermill_only_warns_of_is_an_error() -> None:
    asked.check_injected(["import x", "# Parameters\ntier = 'simulated'\nscale = None\n"])
    with pytest.raises(UnknownName, match="unknown parameter 'reps'"):
        asked.check_injected(["# Parameters\nreps = 3\n"])


@pytest.mark.builds  # a kernel
def test_by_papermill_from_the_shell(checkout: Project) -> None:
    """An unknown one ends it; known ones are what the run is made of."""
    notebook = checkout.notebooks / "05_device_models.ipynb"
    kept = nbformat.read(notebook, as_version=4)
    kept.cells = [cell for cell in kept.cells if cell.get("id") in ("dm-parameters", "dm-start")]
    kept.cells[-1].source = kept.cells[-1].source.replace("session.run()", "session.close()")
    nbformat.write(kept, notebook)
    base = ["papermill", "-k", "python3", str(notebook), "out.ipynb", "--no-progress-bar"]
    wrong = subprocess.run(
        [*base, "-p", "scael", "smoke"],
        cwd=checkout.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert wrong.returncode != 0
    assert "unknown parameter 'scael'" in wrong.stderr
    right = subprocess.run(
        [*base, "-p", "scale", "smoke", "-y", "{settings: {repetitions: 1}}"],
        cwd=checkout.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert right.returncode == 0, right.stderr
    assert "scale: smoke; results go to build/runs/" in (checkout.root / "out.ipynb").read_text()


def test_a_notebook_s_unknown_parameter(harness_here: Command, checkout: Project) -> None:
    for name, given in (("10_grace_hash_join", "scael=smoke"), ("00_start_here", "tier=emulated")):
        done = harness_here("notebook", name, "-p", given)
        assert done.returncode == 2
        assert "unknown parameter" in done.stderr


def test_the_pipelines_ask_by_the_same_names(checkout: Project) -> None:
    """What `dvc exp run -S notebook.scale=smoke` writes describes a run of that scale."""
    name = "grace_hash_join"
    params = yaml.safe_load(checkout.params.read_text())
    assert set(params["notebook"]) <= set(NAMES)
    with open_session(checkout, name, "simulated", Options(scale="smoke")) as session:
        assert session.place.page is not None
    params["notebook"]["scale"] = "smoke"
    checkout.params.write_text(yaml.safe_dump(params))
    assert asked.of_pipelines(checkout, {}).scale == "smoke"
    with open_session(checkout, name, "simulated", Options(scale="smoke")) as session:
        assert session.place.page is None
    with open_session(checkout, name, "simulated", Options()) as session:
        assert session.place.page is not None


@pytest.fixture
def not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_a_study_that_only_one_tier_has_needs_no_tier_named(checkout: Project) -> None:
    by_itself = {s: notebooks._only_tier(checkout, s) for s in ("msdj_crashes", "msdj_tpcc")}
    assert by_itself == {"msdj_crashes": {"tier": "emulated"}, "msdj_tpcc": {}}


def test_a_named_tier_is_that_tier(checkout: Project) -> None:
    for tier in ("simulated", "hardware"):
        assert choice.choose(checkout, "device_models", tier, Options()).tier == tier
        assert choice.choose(checkout, "device_models", tier, Options()).why == ""


@pytest.mark.usefixtures("not_root")
def test_the_simulation_steps_in_and_says_why(checkout: Project) -> None:
    found = choice.choose(checkout, "grace_hash_join", "auto", Options(scale="smoke"))
    assert (found.tier, found.options.scale) == ("simulated", "smoke")
    assert found.why == "auto: no drive or file named; not emulated: not root"
    wanted = Options(scale="smoke", target=Path("/nonesuch/file"))
    found = choice.choose(checkout, "grace_hash_join", "auto", wanted)
    assert found.tier == "simulated"
    assert "/nonesuch/file cannot be used: /nonesuch/file: there is no folder" in found.why
    assert found.options.target is None, "what a model cannot have is not asked of it"


def test_a_file_that_can_be_used_is_hardware(checkout: Project) -> None:
    wanted = Options(scale="smoke", target=checkout.root / "scratch")
    found = choice.choose(checkout, "grace_hash_join", "auto", wanted)
    assert (found.tier, found.options) == ("hardware", wanted)
    assert not (checkout.root / "scratch").exists(), "nothing is written for the choice"


def test_hardware_is_never_a_silent_simulation(harness_here: Command, checkout: Project) -> None:
    done = harness_here("run", "grace_hash_join", "--tier", "hardware", "--drive", "ssd=nobody")
    assert done.returncode == 2
    assert "nobody" in done.stderr
    assert not checkout.build.exists()


@pytest.mark.usefixtures("not_root")
def test_the_choice_is_in_the_first_output_the_stamp_and_the_record(
    checkout: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(checkout.root)
    session = lab.start("grace_hash_join", "auto", scale="smoke")
    try:
        why = "auto: no drive or file named; not emulated: not root"
        assert f"grace_hash_join, tier: simulated ({why}), scale: smoke" in capsys.readouterr().out
        assert why in session.session.results.stamp
        assert session.session._about()["why_tier"] == why
        assert session.session.place.page is not None, "it is nothing that a pipeline describes"
    finally:
        session.close()


def test_a_name_that_is_given_twice_is_refused() -> None:
    """The first value would be gone, and nobody would be told."""
    with pytest.raises(BadParameter, match="settings is given twice"):
        pairs(["settings=users=[1, 2]", "settings=repetitions=1"], "-p", once=True)
    assert pairs(["users=[1, 2]", "users=[1]"], "--set") == {"users": "[1]"}


def test_files_are_those_of_who_asks_and_not_of_the_kernel_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = Wanted.of(
        {"file": "scratch", "devices": {"ssd": "mine.yaml", "hdd": "generic"}}
    ).given()
    assert given["file"] == str(tmp_path / "scratch")
    assert given["devices"] == {"ssd": str(tmp_path / "mine.yaml"), "hdd": "generic"}
    monkeypatch.chdir("/")
    assert Wanted.of(given).given() == given


def test_a_notebook_is_given_what_nobody_asked_for_too() -> None:
    """Its own cell may have been saved with another tier, scale or target."""
    assert set(Wanted.of({}).given()) == set(Wanted.model_fields)
    assert Wanted.of({}).given()["tier"] == "simulated"
