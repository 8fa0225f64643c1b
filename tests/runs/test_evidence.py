"""The page of all claims: what stands in it, and that it is of the present claims and verdicts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from conftest import REPOSITORY
from rich.console import Console

from harness import experiments, tiers
from harness.errors import DataFolderError
from harness.paths import Project
from harness.runs import claims, code, evidence, parameters, places, summary
from harness.runs.made_part import MadePart
from harness.tiers.options import Asked

CLAIMS = """
grace_hash_join:
  title: A paper
  reference: somebody, 2020
  relation: SELECT * FROM results WHERE variant = $variant AND $repetition IS NULL
  claims:
    - {id: held, place: figure 1, statement: time, words: about 10 s, measures: "elapsed | time",
       metric: SELECT avg(elapsed_s) FROM r, published: "10", expected: [8, 12], why: w}
    - {id: missed, place: figure 2, statement: bytes, because: "our files are\n smaller",
       metric: SELECT avg(read_bytes) FROM r, published: "9", expected: [8, 12], why: w}
    - {id: riddle, place: figure 3, statement: also bytes,
       metric: SELECT avg(read_bytes) FROM r, published: "9", expected: [8, 12], why: w}
    - {id: seen, place: figure 4, statement: "fitted to", fitted: true,
       metric: SELECT avg(elapsed_s) FROM r, published: "10", expected: [8, 12], why: w}
    - {id: sure, place: figure 5, statement: "any",
       metric: SELECT avg(elapsed_s) FROM r, published: "10", expected: [0, 1000], why: w}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    for folder in (project.published, project.results, project.metrics, tmp_path / "docs"):
        folder.mkdir(parents=True)
    (project.published / "claims.yaml").write_text(CLAIMS)
    table = pd.DataFrame([{"point": "a", "variant": "paper", "elapsed_s": 10.0, "read_bytes": 3.0}])
    table.to_csv(project.results / "grace_hash_join.simulated.csv", index=False)
    verdicts = {
        "held": {"value": 10.0, "verdict": claims.REPRODUCED},
        "missed": {"value": 3.0, "verdict": claims.NOT_REPRODUCED},
        "riddle": {"value": 3.0, "verdict": claims.NOT_REPRODUCED},
        "seen": {"value": 10.0, "verdict": claims.FITTED},
        "sure": {"value": 10.0, "verdict": claims.REPRODUCED},
    }
    (project.metrics / "grace_hash_join.simulated.json").write_text(json.dumps(verdicts))
    for page in (project.validation, project.readme):
        part = MadePart(page, evidence.COMMAND)
        page.write_text(f"before\n{part.begin}old\n{part.end}after\n")
    project.params.write_text("pipeline: {simulated: {grace_hash_join: 10_grace_hash_join}}\n")
    return project


def test_each_claim_has_its_words_measure_verdict_and_what_would_change_it(
    project: Project,
) -> None:
    evidence.update(project)
    lines = evidence.written(project.validation).splitlines()
    assert (
        '| figure 1 | "about 10 s" | elapsed \\| time | 10 | 8 .. 12 | 10, reproduced '
        "| yes: elapsed_s x 0.5 |"
    ) in lines
    assert any(line.startswith("| figure 4") and line.endswith("| fitted |") for line in lines)
    assert any(line.startswith("| figure 5") and line.endswith("| **no** |") for line in lines)


def test_what_is_not_reproduced_has_a_reason_or_unknown(project: Project) -> None:
    evidence.update(project)
    lines = evidence.written(project.validation).splitlines()
    assert [line for line in lines if line.startswith("- ")] == [
        "- figure 2, bytes (simulated 3, not reproduced): our files are smaller",
        "- figure 3, also bytes (simulated 3, not reproduced): unknown.",
    ]


def test_the_rest_of_the_page_stays(project: Project) -> None:
    evidence.update(project)
    page = project.validation.read_text()
    part = MadePart(project.validation, evidence.COMMAND)
    assert page.startswith(f"before\n{part.begin}### A paper")
    assert page.endswith(f"{part.end}after\n")


def test_results_that_changed_are_asked_anew(project: Project) -> None:
    evidence.update(project)
    path = project.results / "grace_hash_join.simulated.csv"
    path.write_text(path.read_text().replace("3.0", "9.0"))
    evidence.update(project)
    assert "yes: read_bytes x 0.5" in evidence.written(project.validation)


@pytest.mark.parametrize("changed", ["the paper's numbers", "what an interval is of", "the judge"])
def test_what_could_fail_is_found_anew_for_all_that_decides_it(
    project: Project, changed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = evidence._digest(project, "grace_hash_join", "simulated")
    assert evidence._digest(project, "grace_hash_join", "simulated") == before
    if changed == "the paper's numbers":
        (project.published / "grace_hash_join.csv").write_text("number\n1\n")
    elif changed == "the judge":
        other = tmp_path / "claims.py"
        other.write_text("another")
        monkeypatch.setattr(claims, "__file__", str(other))
    else:
        path = project.published / "claims.yaml"
        path.write_text(path.read_text().replace("[8, 12], why: w}", "[8, 12], why: w, each: x}"))
    assert evidence._digest(project, "grace_hash_join", "simulated") != before


def test_verdicts_by_older_claims_are_judged_anew(project: Project) -> None:
    path = project.published / "claims.yaml"
    path.write_text(path.read_text().replace("[8, 12], why: w}", "[2, 4], why: w}"))
    evidence.update(project)
    verdicts = json.loads((project.metrics / "grace_hash_join.simulated.json").read_text())
    assert verdicts["held"]["verdict"] == claims.NOT_REPRODUCED
    assert verdicts["missed"] == {"value": 3.0, "verdict": claims.REPRODUCED}


def test_a_metric_that_gives_another_number_and_the_same_verdict_is_judged_anew(
    project: Project,
) -> None:
    path = project.published / "claims.yaml"
    path.write_text(path.read_text().replace("avg(elapsed_s)", "avg(elapsed_s) + 1", 1))
    evidence.update(project)
    verdicts = json.loads((project.metrics / "grace_hash_join.simulated.json").read_text())
    assert verdicts["held"] == {"value": 11.0, "verdict": claims.REPRODUCED}


def test_a_page_without_a_place_for_it(project: Project) -> None:
    project.validation.write_text("nothing\n")
    with pytest.raises(DataFolderError, match=r"validation\.md"):
        evidence.update(project)


def test_the_overview_counts_what_could_have_failed(project: Project) -> None:
    evidence.update(project)
    [row] = [line for line in evidence.written(project.readme).splitlines() if "10_grace" in line]
    assert row == (
        "| [A paper](notebooks/10_grace_hash_join.ipynb) | simulated | 1 of 3 |  |  | 2 | 2 |  |"
    )


def counts(project: Project) -> dict[str, dict[str, int]]:
    folder = project.metrics / "verdicts"
    return {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}


def test_dvc_shows_one_row_per_paper_and_tier(project: Project) -> None:
    old = project.metrics / "verdicts" / "gone.simulated.json"
    old.parent.mkdir()
    old.write_text("{}")
    evidence.update(project)
    assert counts(project) == {
        "grace_hash_join.simulated.json": {
            "reproduced": 1,
            "direction_only": 0,
            "undecided": 0,
            "not_reproduced": 2,
            "no_evidence": 2,
            "not_judged": 0,
        }
    }


def test_dvc_shows_the_present_verdicts() -> None:
    """`harness claims --document` and `harness report` make it so; dvc.yaml names it."""
    project = Project(REPOSITORY)
    assert counts(project) == {
        f"{line.paper}.{line.tier}.json": line.counts
        for line in summary.lines(project)
        if line.is_of_tier
    }
    pipeline = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())
    assert [REPOSITORY / place for place in pipeline["metrics"]] == [project.metrics / "verdicts"]
    assert [REPOSITORY / place for place in pipeline["plots"]] == [project.figures]


@pytest.mark.parametrize("page", ["docs/validation.md", "README.md"])
def test_the_pages_are_of_the_present_claims_and_verdicts(page: str) -> None:
    """`harness claims --document` makes them so."""
    path = REPOSITORY / page
    assert evidence.written(path) == evidence.parts(Project(REPOSITORY))[path]


def test_pages_are_not_made_of_another_tier_s_results_alone(project: Project) -> None:
    """They would judge what could fail by these, and lose the simulated line."""
    before = project.validation.read_text()
    table = project.results / "grace_hash_join.simulated.csv"
    table.rename(project.results / "grace_hash_join.emulated.csv")
    with pytest.raises(
        DataFolderError, match=r"^no simulated results of grace_hash_join: make rep"
    ):
        evidence.update(project)
    assert project.validation.read_text() == before


def test_pages_do_not_lose_the_emulated_line_while_it_is_recorded_anew(project: Project) -> None:
    pipeline = "{simulated: {grace_hash_join: 10}, emulated: {grace_hash_join: 10}}"
    project.params.write_text(f"pipeline: {pipeline}\n")
    before = project.validation.read_text()
    with pytest.raises(DataFolderError, match=r"^no emulated results of grace_hash_join: git"):
        evidence.update(project)
    assert project.validation.read_text() == before


STACK_SAYS = {"held": 20.0, "missed": 9.0, "riddle": 9.0, "seen": 20.0, "sure": 20.0}


def run_on_a_stack(project: Project, model_elapsed_s: float | None) -> list[str]:
    """The page's open claims, if the real stack needs 20 s, and the model of that run this long."""
    table = pd.DataFrame([{"point": "a", "variant": "paper", "elapsed_s": 20.0, "read_bytes": 9.0}])
    stem = project.results / "grace_hash_join"
    table.to_csv(f"{stem}.emulated.csv", index=False)
    verdicts = {
        name: {"value": value, "verdict": claims.REPRODUCED} for name, value in STACK_SAYS.items()
    }
    verdicts["held"]["verdict"] = claims.NOT_REPRODUCED
    (project.metrics / "grace_hash_join.emulated.json").write_text(json.dumps(verdicts))
    if model_elapsed_s is not None:
        model = table.assign(elapsed_s=model_elapsed_s)
        model.to_csv(f"{stem}.agreement.modelled.csv", index=False)
        Path(f"{stem}.agreement.modelled.series.json").write_text("{}")
    evidence.update(project)
    lines = evidence.written(project.validation).splitlines()
    return [line for line in lines if line.startswith("- figure 1")]


@pytest.mark.parametrize(
    ("model_elapsed_s", "says"),
    [
        (None, "(emulated 20, not reproduced): unknown."),
        (
            21.0,
            (
                "(emulated 20, not reproduced, where the model of that run has 21, not reproduced):"
                " the run's size: its model says so, too, and that of the paper's size does not."
            ),
        ),
        (
            11.0,
            (
                "(emulated 20, not reproduced, where the model of that run has 11, reproduced): "
                "unknown; something real that its model does not have."
            ),
        ),
    ],
)
def test_the_model_of_the_same_run_tells_its_size_from_the_real_stack(
    project: Project, model_elapsed_s: float | None, says: str
) -> None:
    assert run_on_a_stack(project, model_elapsed_s) == [f"- figure 1, time {says}"]


def test_a_measurement_of_before_code_or_parameters_changed_says_so(project: Project) -> None:
    (project.metrics / "grace_hash_join.emulated.json").write_text(
        (project.metrics / "grace_hash_join.simulated.json").read_text()
    )
    project.params.write_text((REPOSITORY / "params.yaml").read_text())
    about = places.published(project, "grace_hash_join", "emulated").about
    present = code.run_of(experiments.find("grace_hash_join"), "emulated").digest()
    own = parameters.default(project, "grace_hash_join", "emulated").model_dump(mode="json")
    shutil.copytree(REPOSITORY / "hardware" / "profiles", project.profiles)
    chosen = parameters.of_tier(project, "grace_hash_join", "emulated")
    with tiers.find("emulated")(Asked(), chosen.bench, project) as bench:
        drives = {name: dict(bench.identity(name)) for name in bench.devices}
    others = {**drives, "hdd": {**drives["hdd"], "profile": "of another disk"}}
    for digest, values, devices, label in (
        (present, own, drives, "emulated"),
        ("of before", own, drives, "emulated, by an earlier code"),
        ("of before", own | {"users": [7]}, drives, "emulated, by an earlier code"),
        (present, own | {"users": [7]}, drives, "emulated, with other parameters"),
        (present, own, others, "emulated, with other parameters"),
    ):
        facts = {"code": digest, "parameters": values, "devices": devices}
        about.write_text(json.dumps(facts))
        text = summary.in_markdown(project)
        assert f"| {label} |" in text
        assert ("`make emulated` records it anew" in text) is (label != "emulated")
        terminal = Console(record=True, width=200)
        summary.print_to(project, terminal)
        marked = f"* {label.removeprefix('emulated, ')}: make emulated records it anew"
        assert (marked in terminal.export_text()) is (label != "emulated")
