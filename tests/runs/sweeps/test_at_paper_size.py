"""The pipeline's machine at a paper's own size: a line of its own beside the tiers'."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml
from conftest import REPOSITORY
from sweep_files import note

from harness import experiments
from harness.errors import BadParameter
from harness.paths import Project
from harness.runs import claims, code, evidence, places, summary
from harness.runs.made_part import MadePart
from harness.runs.sweeps import at_paper_size, kept, recorded, unknowns
from harness.runs.sweeps.machines import Maker

CLAIMS = """
msdj_tpcc:
  title: A paper
  reference: somebody, 2020
  relation: SELECT * FROM results WHERE variant = $variant AND $repetition IS NULL
  claims:
    - {id: held, place: figure 1, statement: gain, words: about 10, measures: gain,
       metric: SELECT avg(gain) FROM r, published: "10", expected: [8, 12], why: w}
    - {id: large, place: figure 2, statement: loss, because: the buffer,
       metric: SELECT avg(loss) FROM r WHERE unshrunk, published: "9", expected: [8, 12], why: w}
    - {id: unseen, place: figure 3, statement: time,
       metric: SELECT avg(time) FROM r, published: "9", expected: [8, 12], why: w}
"""
UNKNOWNS = """
title: A paper
scale: small
unknowns:
  spare:
    what: spare area
    sets: {profile pm953.overprovision: "{}"}
    range: [0.07, 0.28]
    default: 0.145
    prior: p
    excluded: nothing
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The pipeline's run has one of its claims, and has no evidence for none."""
    project = Project(tmp_path)
    folders = (
        project.published,
        project.metrics,
        project.results,
        tmp_path / "docs",
        tmp_path / unknowns.FOLDER,
    )
    for folder in folders:
        folder.mkdir(parents=True)
    (project.published / "claims.yaml").write_text(CLAIMS)
    (tmp_path / unknowns.FOLDER / "msdj_tpcc.yaml").write_text(UNKNOWNS)
    judged = {
        "held": {"value": 10.0, "verdict": claims.REPRODUCED},
        "large": {"value": None, "verdict": claims.NOT_JUDGED},
        "unseen": {"value": None, "verdict": claims.NOT_JUDGED},
    }
    (project.metrics / "msdj_tpcc.simulated.json").write_text(json.dumps(judged))
    run_by(project, code.run_of(experiments.find("msdj_tpcc"), "simulated").digest())
    for page in (project.validation, project.readme):
        part = MadePart(page, evidence.COMMAND)
        page.write_text(f"before\n{part.begin}old\n{part.end}after\n")
    shutil.copytree(REPOSITORY / "hardware" / "profiles", project.profiles)
    params = yaml.safe_load((REPOSITORY / "params.yaml").read_text())
    little = {"msdj_tpcc": params["msdj_tpcc"], "pipeline": {"simulated": {"msdj_tpcc": "40"}}}
    project.params.write_text(yaml.safe_dump(little))
    return project


def run_by(project: Project, digest: str, scale: str = "medium, a twelfth") -> None:
    """The pipeline's run: by which code, and how large."""
    path = places.published(project, "msdj_tpcc", "simulated").about
    path.write_text(json.dumps({"code": digest, "scale": scale}))


def record(project: Project, scale: str, held: float, **about: object) -> Path:
    """A sweep's record of the default machine alone."""
    folder = project.root / "data" / "sweeps" / f"msdj_tpcc.{scale}.sobol"
    folder.mkdir(parents=True)
    machines = [{"machine": 0, "spare": 0.145, "state": "finished", "reason": "", "points": "p"}]
    pd.DataFrame(machines).to_parquet(folder / "machines.parquet")
    values = {"held": held, "large": -34.0, "unseen": float("nan")}
    rows = [{"machine": 0, "claim": name, "value": value} for name, value in values.items()]
    pd.DataFrame(rows).to_parquet(folder / "claims.parquet")
    known = unknowns.load(project, "msdj_tpcc")
    maker = Maker(project, "msdj_tpcc", known, scale)
    facts = {
        "default": maker.identity(maker.make(0, known.default)),
        "claims": kept.claims_digests(project, "msdj_tpcc"),
        "code": code.run_of(experiments.find("msdj_tpcc"), "simulated").digest(),
        "unknowns": known.digest,
        "design": "sobol",
        "scale": scale,
    }
    note(folder, **{**facts, **about})
    return folder


def test_a_claim_that_only_the_paper_s_size_answers_is_judged_there(project: Project) -> None:
    record(project, "paper", 9.0)
    title, verdicts = at_paper_size.verdicts(project, "msdj_tpcc")
    assert title == "simulated, the paper's size, one run"
    assert {name: each["verdict"] for name, each in verdicts.items()} == {
        "held": claims.REPRODUCED,
        "large": claims.NOT_REPRODUCED,
        "unseen": claims.NOT_JUDGED,
    }
    of_pipeline, at_size = summary.lines(project)
    assert (of_pipeline.tier, of_pipeline.reproduced) == ("simulated", "1 of 1")
    assert (at_size.tier, at_size.reproduced) == (title, "1 of 2")
    assert of_pipeline.section == at_size.section == "msdj_tpcc-simulated"
    text = evidence.text_of(project)
    assert f"| simulated | {title} | could fail |" in text
    assert "| not judged | -34, not reproduced |" in text
    assert f"({title} -34, not reproduced): the buffer" in text

    summary.write_counts(project)
    counted = [path.name for path in (project.metrics / "verdicts").iterdir()]
    assert counted == ["msdj_tpcc.simulated.json"]


def test_one_that_no_wrong_result_would_change_is_no_evidence_there_either(
    project: Project,
) -> None:
    record(project, "paper", 9.0)
    known = {"msdj_tpcc": {"simulated": {"of": "", "changed_by": {"held": "", "large": ""}}}}
    claims.could_fail_record(project).write_text(json.dumps(known))
    _, verdicts = at_paper_size.verdicts(project, "msdj_tpcc")
    assert [name for name, each in verdicts.items() if each["no_evidence"]] == ["held"]


def test_an_earlier_model_s_record_says_so_and_other_claims_is_none(project: Project) -> None:
    folder = record(project, "paper", 9.0, code="of before")
    title, _ = at_paper_size.verdicts(project, "msdj_tpcc")
    assert title == "simulated, the paper's size, one run, by an earlier model"
    asked = kept.claims_digests(project, "msdj_tpcc")
    note(folder, claims={**asked, "held": "of another query"})
    found = at_paper_size.recorded(project, "msdj_tpcc")
    assert found is not None
    assert dict(found.values) == {"large": -34.0}
    note(folder, claims="of an earlier version")
    assert at_paper_size.recorded(project, "msdj_tpcc") is None
    assert at_paper_size.verdicts(project, "msdj_tpcc") == ("", {})
    assert [line.tier for line in summary.lines(project)] == ["simulated"]


def test_a_record_of_another_machine_than_the_pipeline_s_is_an_earlier_model_s(
    project: Project,
) -> None:
    record(project, "paper", 9.0)
    params = yaml.safe_load(project.params.read_text())
    params["msdj_tpcc"]["simulated"]["parameters"]["buffer_pool"] = "40 GiB"
    project.params.write_text(yaml.safe_dump(params))
    title, _ = at_paper_size.verdicts(project, "msdj_tpcc")
    assert title == "simulated, the paper's size, one run, by an earlier model"


def test_a_claim_that_asks_for_something_else_now_has_no_value_in_a_sweep(
    project: Project,
) -> None:
    small = record(project, "small", 9.0)
    assert recorded.read(project, "msdj_tpcc", small).default == {"held": 9.0, "large": -34.0}
    (project.published / "claims.yaml").write_text(CLAIMS.replace("avg(gain)", "max(gain)"))
    assert recorded.read(project, "msdj_tpcc", small).default == {"large": -34.0}


def test_a_sample_s_scale_is_asked_at_the_paper_s_size_where_that_is_known(
    project: Project,
) -> None:
    small = record(project, "small", 9.0)
    beside_pipeline = recorded.read(project, "msdj_tpcc", small)
    assert beside_pipeline.larger == {"held": 10.0}
    assert beside_pipeline.of_another_scale == []

    whole = recorded.read(project, "msdj_tpcc", record(project, "paper", 13.0))
    assert whole.larger == {}
    shutil.rmtree(small.with_name("msdj_tpcc.paper.sobol"))
    record(project, "paper", 13.0, code="of before")
    assert recorded.read(project, "msdj_tpcc", small).larger == {"held": 10.0}

    shutil.rmtree(small.with_name("msdj_tpcc.paper.sobol"))
    record(project, "paper", 13.0)
    beside_whole = recorded.read(project, "msdj_tpcc", small)
    assert beside_whole.larger == {"held": 13.0, "large": -34.0}
    assert beside_whole.of_another_scale == ["held"]


def test_what_is_no_larger_or_of_another_code_says_nothing_of_a_scale(project: Project) -> None:
    small = record(project, "small", 9.0)
    assert recorded.read(project, "msdj_tpcc", small).larger
    now = code.run_of(experiments.find("msdj_tpcc"), "simulated").digest()
    run_by(project, now, "smoke")
    assert recorded.read(project, "msdj_tpcc", small).larger == {}
    run_by(project, now, "small")
    assert recorded.read(project, "msdj_tpcc", small).larger == {}
    run_by(project, "of before")
    assert recorded.read(project, "msdj_tpcc", small).larger == {}


def test_what_was_judged_by_other_variants_is_not_read(project: Project) -> None:
    small = record(project, "small", 9.0, as_paper=["paper"])
    assert recorded.read(project, "msdj_tpcc", small).default
    note(small, as_paper=["paper", "board"])
    with pytest.raises(BadParameter, match="as_paper"):
        recorded.read(project, "msdj_tpcc", small)


@pytest.mark.parametrize("earlier", ["code", "default"])
def test_a_sample_of_an_earlier_model_is_not_asked_for_its_scale(
    project: Project, earlier: str
) -> None:
    """What the pipeline's machine says now is no measure of it."""
    record(project, "paper", 13.0)
    now = recorded.read(project, "msdj_tpcc", record(project, "small", 9.0))
    assert now.is_present
    assert now.of_another_scale == ["held"]
    shutil.rmtree(project.root / "data" / "sweeps" / "msdj_tpcc.small.sobol")
    before = recorded.read(
        project, "msdj_tpcc", record(project, "small", 9.0, **{earlier: "of before"})
    )
    assert not before.is_present
    assert before.larger == {}
    assert before.of_another_scale == []
