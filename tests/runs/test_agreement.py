"""An emulated run beside the model of the same run: what each says of the claims."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from conftest import REPOSITORY

from harness.drives import fingerprint
from harness.errors import BadParameter
from harness.experiments.base import Cell, Measurement, Results
from harness.experiments.beside import Beside, JudgedAgreement, here_or_published, modelled
from harness.paths import Project
from harness.runs import agreement, agreement_page, claims
from harness.runs.study import StudyRuns

CLAIMS = """
toy:
  title: A paper
  reference: somebody, 2020
  relation: SELECT * FROM results WHERE $variant = 'paper' AND $repetition IS NULL
  claims:
    - {id: time, place: figure 1, statement: time,
       metric: SELECT sum(elapsed_s) FROM r, published: "3", expected: [2, 4], why: w}
    - {id: pace, place: figure 2, statement: pace,
       metric: SELECT max(pace) FROM r, published: "9", expected: [8, 12], why: w}
    - {id: locks, place: figure 3, statement: "what only a server knows",
       metric: SELECT max(locks) FROM r, published: "9", expected: [8, 12], why: w}
    - {id: worst, place: figure 4, statement: "of the repetitions",
       metric: SELECT max(elapsed_s) FROM repetitions, published: "9", expected: [8, 12], why: w}
    - {id: other, place: figure 5, statement: "not run",
       metric: SELECT NULL, published: "9", expected: [8, 12], why: w}
"""


@dataclass(frozen=True, kw_only=True)
class Load(Cell):
    clients: int


RUN = pd.DataFrame(
    [
        {"device": "ssd", "clients": 1, "elapsed_s": 1.0, "pace": 9, "locks": 9, "point": "01"},
        {"device": "ssd", "clients": 2, "elapsed_s": 5.0, "pace": 9, "locks": 8, "point": "02"},
    ]
).assign(scale="small")
EMULATED = Results("emulated", RUN, {"01": {"repetition_elapsed_s": [1.0, 9.5]}}, lambda _: None)
FOUND = {
    point: (
        Load(device="ssd", clients=clients),
        Measurement({"elapsed_s": 1.5, "waits": 1}, {"repetition_elapsed_s": [1.5, 2.0]}),
    )
    for clients, point in enumerate(("01", "02"), 1)
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    for folder in (project.published, project.results):
        folder.mkdir(parents=True)
    (project.published / "claims.yaml").write_text(CLAIMS)
    return project


def some(points: tuple[str, ...], scale: str) -> Results:
    """Results of these points, of one row each."""
    rows = [RUN.iloc[0].to_dict() | {"point": point} for point in points]
    return replace(EMULATED, table=pd.DataFrame(rows), scale=scale)


def published_of(results: Results) -> Any:
    """A study's runs, as far as they are asked for what is published."""
    return SimpleNamespace(name="toy", published=lambda _tier: results)


def both_say(project: Project, model: Results) -> pd.DataFrame:
    judged = (claims.judge(project, "toy", results) for results in (EMULATED, model))
    return agreement.claims_of(*judged)


def test_the_model_answers_by_its_own_numbers_and_not_what_it_has_none_for(
    project: Project,
) -> None:
    model = modelled(EMULATED, FOUND)
    assert list(model.table.clients) == [1, 2]
    assert list(model.table.columns)[-1] == "waits"
    assert list(model.table.scale) == ["small"] * 2
    found = both_say(project, model).set_index("id")
    assert list(found.index) == ["time", "pace", "locks", "worst"]
    assert tuple(found.loc["time", ["emulated", "modelled"]]) == (6.0, 3.0)
    verdicts = found[["emulated_verdict", "modelled_verdict"]]
    assert tuple(verdicts.loc["time"]) == (claims.NOT_REPRODUCED, claims.REPRODUCED)
    assert tuple(verdicts.loc["pace"]) == (claims.REPRODUCED, claims.NOT_JUDGED)
    assert tuple(verdicts.loc["locks"]) == (claims.REPRODUCED, claims.NOT_JUDGED)
    assert tuple(verdicts.loc["worst"]) == (claims.REPRODUCED, claims.NOT_REPRODUCED)


def test_a_point_that_the_model_does_not_have_is_left_out() -> None:
    model = modelled(EMULATED, {"02": FOUND["02"]})
    assert list(model.table.point) == ["02"]
    assert set(model.series) == {"02"}


@pytest.mark.parametrize(
    ("here", "published", "compared"),
    [
        (("01", "02"), (), "here"),
        (("01", "02"), ("01", "02"), "here"),
        (("03",), ("01", "02"), "here"),
        (("01",), ("01", "02"), "published"),
        ((), ("01", "02"), "published"),
    ],
)
def test_a_part_that_was_run_here_does_not_stand_for_the_whole(
    here: tuple[str, ...], published: tuple[str, ...], compared: str
) -> None:
    runs = published_of(some(published, "published"))
    assert here_or_published(runs, some(here, "here")).scale == compared


@pytest.mark.parametrize(
    ("there", "alike", "works"),
    [
        ({}, {"cpus"}, True),
        ({"cpus": "1000"}, {"cpus"}, False),
        ({"cpus": "1000"}, {"cpu", "kernel"}, True),
        ({"cpus": "1000"}, (), True),
        ({"kernel": "2.4.0"}, {"cpus", "kernel"}, False),
    ],
)
def test_another_machine_s_record_is_not_laid_beside_what_this_one_costs(
    there: dict[str, str], alike: Collection[str], works: bool
) -> None:
    runs = published_of(some(("01",), "published"))
    about = {"devices": {"ssd": fingerprint.machine() | there}}
    runs.recorded = lambda tier: about if tier == "emulated" else {}
    here = some((), "here")
    if works:
        assert here_or_published(runs, here, alike).scale == "published"
        return
    with pytest.raises(BadParameter, match="on another machine"):
        here_or_published(runs, here, alike)
    assert here_or_published(runs, some(("01",), "here"), alike).scale == "here"


def test_a_record_that_does_not_say_where_it_is_from_is_not_either() -> None:
    runs = published_of(some(("01",), "published"))
    runs.recorded = lambda _: {"devices": {"ssd": {}}}
    with pytest.raises(BadParameter, match="on another machine"):
        here_or_published(runs, some((), "here"), {"cpus"})


def test_where_nothing_was_run_and_nothing_is_published_there_is_nothing() -> None:
    with pytest.raises(BadParameter, match="emulated"):
        here_or_published(published_of(some((), "published")), some((), "here"))


def test_what_was_laid_beside_is_read_again_as_it_was(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.DataFrame([{"device": "ssd", "elapsed_s_ratio": 2.0}])
    laid = Beside(table, EMULATED, modelled(EMULATED, FOUND))
    judged = JudgedAgreement(lambda *_: table, 0.1, lambda _: laid)
    monkeypatch.setattr(agreement, "agreement_of", lambda _: judged)
    monkeypatch.setattr(StudyRuns, "published", lambda *_: EMULATED)
    _, found, path = agreement.write(project, "toy", publish=True)
    assert path == project.results / "toy.agreement.csv"
    again = agreement.modelled(project, "toy")
    assert json.loads(json.dumps(dict(again.series))) == {
        id_: each.series for id_, (_, each) in FOUND.items()
    }
    pd.testing.assert_frame_equal(found, both_say(project, again))


def test_another_run_of_this_machine_s_is_not_published_beside_the_published_one(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.DataFrame([{"device": "ssd", "elapsed_s_ratio": 2.0}])
    other = replace(EMULATED, table=EMULATED.table.assign(elapsed_s=9.0))
    laid = Beside(table, other, modelled(other, FOUND))
    judged = JudgedAgreement(lambda *_: table, 0.1, lambda _: laid)
    monkeypatch.setattr(agreement, "agreement_of", lambda _: judged)
    for there in (EMULATED, replace(EMULATED, table=RUN.iloc[:0])):
        monkeypatch.setattr(StudyRuns, "published", lambda *_, there=there: there)
        with pytest.raises(BadParameter, match="is not what is published"):
            agreement.write(project, "toy", publish=True)
    assert not (project.results / "toy.agreement.csv").exists()
    _, _, path = agreement.write(project, "toy", publish=False)
    assert path.is_file()


def test_a_part_of_what_is_published_is_not_published_as_the_whole(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.DataFrame([{"device": "ssd", "elapsed_s_ratio": 2.0}])
    part = replace(EMULATED, table=RUN.iloc[:1])
    laid = Beside(table, part, modelled(part, FOUND))
    judged = JudgedAgreement(lambda *_: table, 0.1, lambda _: laid)
    monkeypatch.setattr(agreement, "agreement_of", lambda _: judged)
    monkeypatch.setattr(StudyRuns, "published", lambda *_: EMULATED)
    with pytest.raises(BadParameter, match="or a part of it"):
        agreement.write(project, "toy", publish=True)
    assert not (project.results / "toy.agreement.csv").exists()


def test_two_tiers_that_were_not_compared_have_no_model_of_the_run(project: Project) -> None:
    assert agreement.modelled(project, "toy").table.empty


def test_what_is_picked_out_of_several_is_no_cell() -> None:
    table = pd.DataFrame(
        {
            "device": ["hdd", "ssd"],
            "elapsed_s_emulated": [1.1, 3.0],
            "elapsed_s_simulated": [1.0, 2.0],
            "elapsed_s_ratio": [1.1, 1.5],
            "read_latency_emulated_ns": [4.0, None],
            "read_latency_ratio": [1.0, None],
            "worst_repetition_elapsed_s_ratio": [9.0, 9.0],
        }
    )
    found = agreement.ratios(table)
    assert {what: list(cells) for what, cells in found.items()} == {
        "elapsed_s": [1.1, 1.5],
        "read_latency": [1.0],
    }


def test_the_page_counts_the_cells_of_what_is_published(project: Project) -> None:
    table = pd.DataFrame(
        {
            "device": ["hdd", "ssd"],
            "work_mem_bytes": [1 << 20, 4 << 20],
            "clients": [4, 9],
            "cpu_ms": [0.1, 0.2],
            "elapsed_s_emulated": [0.96, 26_000.4],
            "elapsed_s_emulated_low": [0.5, 20_000.0],
            "elapsed_s_simulated": [1.0, 20_000.0],
            "elapsed_s_ratio": [0.96, 1.3],
            "latency_emulated_ns": [1.0, 1.08],
            "latency_simulated_ns": [1.0, 1.0],
            "latency_ratio": [1.0, 1.08],
        }
    )
    heading = "| study | point | compared | emulated | simulated | ratio |"
    assert agreement_page.in_markdown(project).count("\n") == 5, "nothing has been compared"
    table.to_csv(agreement.published_table(project, "sort_merge_join"), index=False)
    assert agreement_page.in_markdown(project).splitlines()[2:] == [
        "| sort_merge_join | **all** | 4 | 1.040 | 0.960 | 1.300 | 2 | 3 | 3 |",
        "|  | elapsed s | 2 | 1.130 | 0.960 | 1.300 | 1 | 1 | 1 |",
        "|  | elapsed s, hdd | 1 | 0.960 | 0.960 | 0.960 | 1 | 1 | 1 |",
        "|  | elapsed s, ssd | 1 | 1.300 | 1.300 | 1.300 | 0 | 0 | 0 |",
        "|  | latency | 2 | 1.040 | 1.000 | 1.080 | 1 | 2 | 2 |",
        "|  | latency, hdd | 1 | 1.000 | 1.000 | 1.000 | 1 | 1 | 1 |",
        "|  | latency, ssd | 1 | 1.080 | 1.080 | 1.080 | 0 | 1 | 1 |",
        "",
        heading,
        "| --- | --- | --- | --- | --- | --- |",
        "| sort_merge_join | ssd, work mem 4 MiB, clients 9 | elapsed s | 26,000 | 20,000 | 1.30 |",
    ]
    table.head(1).to_csv(agreement.published_table(project, "grace_hash_join"), index=False)
    both, _, _ = agreement_page.in_markdown(project).partition(f"\n\n{heading}")
    last = both.splitlines()[-1]
    assert last == "| **all studies** |  | 6 | 1.000 | 0.960 | 1.300 | 4 | 5 | 5 |"


def test_of_cells_that_are_apart_the_farthest_comes_first(project: Project) -> None:
    ratios = [1.1001, 0.5, 1.9, 0.95]
    columns = {"time_emulated": ratios, "time_simulated": [1.0] * 4, "time_ratio": ratios}
    table = pd.DataFrame({"users": [1, 2, 3, 4], **columns})
    table.to_csv(agreement.published_table(project, "sort_merge_join"), index=False)
    far = agreement_page.in_markdown(project).splitlines()[-3:]
    assert [line.split(" | ")[1] for line in far] == ["users 2", "users 3", "users 1"]


def test_the_page_is_of_what_is_published() -> None:
    """`harness agreement --document` makes it so."""
    part = agreement_page.part(Project(REPOSITORY))
    assert part.read() == agreement_page.in_markdown(Project(REPOSITORY))
