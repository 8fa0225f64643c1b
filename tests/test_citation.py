"""The papers are identified alike wherever they are: claims, citation file, README, notebooks."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
import yaml
from conftest import REPOSITORY
from pydantic import BaseModel, ConfigDict, Field

from harness.paths import Project
from harness.runs import claims

PAPERS = {
    name: paper.identification
    for name, paper in claims.load(Project(REPOSITORY)).items()
    if paper.identification is not None
}
OWN = {name: paper for name, paper in PAPERS.items() if not paper.same_as}


_DOI = r"^10\.\d{4,9}(\.\d+)?/[A-Za-z0-9:/_;\-.()\[\]\\]+$"


class Strict(BaseModel):
    """What we use of the Citation File Format 1.2.0, as its schema has it: no other keys."""

    model_config = ConfigDict(
        extra="forbid", strict=True, alias_generator=lambda name: name.replace("_", "-")
    )


class Person(Strict):
    given_names: str
    family_names: str
    affiliation: str = ""


class Entity(Strict):
    name: Annotated[str, Field(min_length=1)]


class Reference(Strict):
    type: Literal["article", "conference-paper", "unpublished"]
    title: Annotated[str, Field(min_length=1)]
    authors: Annotated[list[Person | Entity], Field(min_length=1)]
    notes: str
    conference: Entity | None = None
    journal: str = ""
    volume: int = 0
    issue: int = 0
    month: Annotated[int, Field(ge=1, le=12)] = 1
    year: int = 0
    start: int = 0
    end: int = 0
    doi: Annotated[str, Field(pattern=_DOI)] = "10.1000/-"


class Citation(Strict):
    cff_version: Literal["1.2.0"]
    title: str
    message: str
    type: Literal["software", "dataset"]
    authors: Annotated[list[Person | Entity], Field(min_length=1)]
    version: str
    license: str
    keywords: Annotated[list[str], Field(min_length=1)]
    references: list[Reference]


@pytest.fixture(scope="module")
def references() -> dict[str, Reference]:
    """By the study that their note begins with."""
    text = (REPOSITORY / "CITATION.cff").read_text()
    cited = Citation.model_validate(yaml.safe_load(text)).references
    return {reference.notes.split(".")[0]: reference for reference in cited}


def test_each_paper_is_cited_once(references: dict[str, Reference]) -> None:
    assert set(references) == set(OWN)


@pytest.mark.parametrize("name", OWN)
def test_what_is_cited_is_what_is_known(references: dict[str, Reference], name: str) -> None:
    known, cited = OWN[name], references[name]
    people = [f"{a.given_names} {a.family_names}" for a in cited.authors if isinstance(a, Person)]
    assert people == known.authors
    assert [a.name for a in cited.authors if isinstance(a, Entity)] == [
        "unknown" for _ in range(not known.authors)
    ]
    given: dict[str, Any] = cited.model_dump(exclude_unset=True)
    assert given.get("doi", "") == known.doi
    assert (cited.title == known.title) != ("The title is ours" in cited.notes)
    assert all(word in cited.notes for word in known.unknown)
    assert str(given.get("year", "")) in known.year
    for number in (given.get(key) for key in ("volume", "issue", "start", "end")):
        assert number is None or str(number) in known.said


@pytest.mark.parametrize("page", ["README.md", "docs/papers/README.md"])
def test_pages_say_whose_papers_they_are(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    assert [name for name, paper in OWN.items() if f": {paper.said}\n" not in text] == []


def test_each_notebook_says_whose_paper_it_is() -> None:
    firsts = [
        "".join(json.loads(path.read_text())["cells"][0]["source"])
        for path in (REPOSITORY / "notebooks").glob("*.ipynb")
    ]
    for name, paper in PAPERS.items():
        assert sum(f"**Paper.** {paper.said}" in first for first in firsts) == 1, name


def test_what_is_not_known_is_said() -> None:
    source = claims.Source(year="about 2011")
    assert source.said == "About 2011; authors, original title, venue, DOI unknown."
    whole = claims.Source(authors=["A B"], affiliation="C", title="T", venue="V", year="1", doi="D")
    assert whole.said == 'A B (C), "T", V, 1, doi:D.'
