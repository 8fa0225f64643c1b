"""Figures and claims that any tier can answer, or that say what they would need."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from IPython.display import Markdown

from harness import experiments, lab
from harness.errors import UnknownName
from harness.experiments.base import Results
from harness.paths import Project
from harness.runs import claims, published
from harness.runs.session import Options, open_session

ROWS = [
    {"device": "file", "read": read, "elapsed_s": 1.0 + 0.01 * read, "users": 1}
    for read in (1, 2, 4, 8, 16, 32)
]


def grace(role: str) -> Results:
    """Of a file, as a drive of that kind."""
    table = pd.DataFrame(ROWS).assign(
        variant="paper",
        algorithm="grace",
        queue_depth=1,
        repetition=0,
        write_buffer_bytes=4096,
        role=role,
    )
    table["nominal_read_buffer_bytes"] = table["read"] * (1 << 20)
    return Results("hardware", table, {}, lambda _: None, scale="smoke")


@pytest.mark.parametrize("role", ["hdd", "ssd"])
def test_claims_are_judged_by_what_a_drive_is(project: Project, role: str) -> None:
    judged = claims.judge(project, "grace_hash_join", grace(role)).set_index("id")
    is_judged = judged.verdict != claims.NOT_JUDGED
    assert is_judged["ghj-fig1-hdd-read-buffer"] == (role == "hdd")
    assert is_judged["ghj-fig1-ssd-flat"] == (role == "ssd")
    assert not is_judged["ghj-fig1-ssd-over-hdd"], "which needs both"
    assert "a disk and a flash drive" in judged.needs["ghj-fig1-ssd-over-hdd"]
    assert "(at a reduced scale: smoke)" in claims.count(judged.reset_index())


@pytest.mark.parametrize(
    ("study", "device", "rotational", "role"),
    [
        ("grace_hash_join", "file", True, "hdd"),
        ("grace_hash_join", "mine", False, "ssd"),
        ("grace_hash_join", "file", None, "file"),
        ("sort_merge_join", "ssd", True, "hdd"),
        ("trim_fallocate", "ssd", False, "mx500"),
        ("trim_fallocate", "file", None, "file"),  # nobody says that it is flash
        ("trim_fallocate", "ssd", True, "ssd"),
        ("msdj_tpcc", "ssd", False, "ssd"),
    ],
)
def test_which_of_the_paper_s_drives_a_real_one_is(
    study: str, device: str, rotational: bool | None, role: str
) -> None:
    assert experiments.find(study).role(device, rotational=rotational) == role


def test_orderings_use_the_grid_that_there_is(project: Project) -> None:
    """A smaller one judges them; what the paper says of 16 clients it does not."""
    cells = [
        {"device": device, "clients": clients, "nominal_work_mem_bytes": size << 20}
        for device in ("hdd", "ssd")
        for clients in (1, 4)
        for size in (32, 512)
    ]
    table = pd.DataFrame(cells).assign(
        variant="paper", repetition=0, size_ratio_to_paper=0.01, sort_s=1.0, join_s=1.0
    )
    table["elapsed_s"] = table.clients ** (table.device == "hdd") + (
        table.nominal_work_mem_bytes < (64 << 20)
    ) * (table.device == "hdd")
    table["join_utilisation_ratio"] = 0.5
    found = claims.judge(
        project, "sort_merge_join", Results("hardware", table, {}, lambda _: None)
    ).set_index("id")
    assert found.value["smj-grows-with-clients"] == pytest.approx(2.5)
    assert found.value["smj-hdd-join"] == 1
    for name in ("smj-thirteen", "smj-average", "smj-withheld-total"):
        assert found.verdict[name] == claims.NOT_JUDGED


def test_every_claim_says_what_it_needs(project: Project) -> None:
    for paper in claims.load(project).values():
        assert all(claim.needs for claim in paper.claims), paper.title


def test_every_figure_says_what_it_needs(project: Project) -> None:
    """Those that claims name, and those that published results have."""
    for name in experiments.names():
        study = experiments.find(name)
        if name not in claims.load(project):
            continue
        named = {claim.figure for claim in claims.load(project)[name].claims} - {""}
        drawn = {path.stem for path in (project.figures / name).glob("*/*.svg")}
        assert named | drawn <= set(study.figure_needs), name


def test_a_figure_without_data_says_so_in_one_line(
    checkout: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout.root)
    session = lab.start("grace_hash_join", scale="smoke")
    try:
        said = session.figure("users")
        assert isinstance(said, Markdown)
        assert "2 or more users" in said.data
        assert "tier: simulated, scale: smoke" in said.data
        with pytest.raises(UnknownName, match=r"unknown figure 'user'; .* did you mean users"):
            session.figure("user")
    finally:
        session.close()


def test_a_file_s_kind_is_the_kernel_s_word_for_what_is_below(checkout: Project) -> None:
    options = Options(scale="smoke", target=checkout.root / "scratch")
    with open_session(checkout, "grace_hash_join", "hardware", options) as session:
        said = session._identity("file")["rotational"]
        role = {"1": "hdd", "0": "ssd"}.get(said, "file")
        assert session._role({"device": "file"}) == {"role": role}
    with open_session(checkout, "grace_hash_join", "simulated", Options()) as session:
        assert session._role({"device": "hdd"}) == {}


def test_what_is_published_is_judged_by_its_roles(checkout: Project, tmp_path: Path) -> None:
    place = checkout.results / "grace_hash_join.hardware.csv"
    place.parent.mkdir(parents=True)
    grace("ssd").table.assign(point="p").to_csv(place, index=False)
    judged = claims.judge(
        checkout, "grace_hash_join", published.results(checkout, "grace_hash_join", "hardware")
    )
    assert "ghj-fig1-ssd-flat" in set(judged[judged.verdict != claims.NOT_JUDGED].id)
