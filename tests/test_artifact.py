"""docs/artifact.md has the parts that committees ask for, and its commands are true and marked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_lines import blocks, fault, is_destructive, strip
from conftest import REPOSITORY

from harness import experiments

PAGE = REPOSITORY / "docs" / "artifact.md"
GUIDES = sorted((REPOSITORY / "hardware").rglob("README.md"))
PAGES = [REPOSITORY / "README.md", PAGE, *GUIDES]


def commands(page: Path) -> list[str]:
    lines = [line for _, block in blocks(page) for line in block]
    return [line for line in lines if re.match(r"(\.venv/bin/|make |git |podman |docker )", line)]


def quoted(page: Path) -> list[str]:
    """Commands within sentences and tables."""
    found = re.findall(r"`((?:harness|make) [^`]+)`", page.read_text())
    return [line for line in found if not re.search(r"\.\.\.|\bX\b", line)]


@pytest.mark.parametrize("line", sorted({line for page in PAGES for line in commands(page)}))
def test_a_command_is_one(line: str) -> None:
    assert fault(line) == ""


def test_commands_are_found() -> None:
    assert all(len(commands(page)) >= 4 for page in PAGES[:2])
    assert sum(is_destructive(line) for line in commands(PAGE)) >= 4


def test_commands_within_sentences_name_what_there_is() -> None:
    for line in quoted(PAGE):
        assert not re.search(r"No such (command|option)|no target", fault(line)), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_what_overwrites_a_drive_stands_below_a_warning(page: Path) -> None:
    for before, lines in blocks(page):
        if any(is_destructive(strip(line)) for line in lines):
            assert before.startswith("**Destructive"), lines


def test_what_overwrites_is_found_in_every_guide_that_has_it() -> None:
    having = {
        page.parent.name
        for page in PAGES
        for _, lines in blocks(page)
        if any(is_destructive(line) for line in lines)
    }
    assert having == {"docs", "msdj", "openssd"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_what_overwrites_names_no_drive_that_may_be_another_tomorrow(page: Path) -> None:
    lines = [line for _, block in blocks(page) for line in block if is_destructive(line)]
    quoted = re.findall(r"`([^`\n]+)`", page.read_text())
    for line in (*lines, *filter(is_destructive, quoted)):
        assert not re.search(r"/dev/(nvme|sd|vd|mmcblk)", line), line


def test_what_overwrites_comes_last() -> None:
    text = PAGE.read_text()
    optional = text.index("## 6. Real drives: optional, and destructive")
    assert all(text.index(line) > optional for line in commands(PAGE) if is_destructive(line))


def test_the_parts_that_committees_ask_for_are_there() -> None:
    headings = re.findall(r"^## \d\. ([\w ]+)", PAGE.read_text(), flags=re.MULTILINE)
    wanted = ["Getting started", "Claims", "Functional", "Reproduced", "Reusable", "Real drives"]
    assert [heading.strip() for heading in headings] == [*wanted, "Not supported"]


def test_each_study_has_its_command() -> None:
    assert all(f"`harness run {name}" in PAGE.read_text() for name in experiments.names())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (".venv/bin/harness runn grace_hash_join", "No such command"),
        (".venv/bin/harness run grace_hash_join --scales smoke", "No such option"),
        (".venv/bin/harness hardware claim", "Missing"),
        ("make reproduced", "no target"),
        ("mkae", "who is that"),
        (".venv/bin/harness run grace_hash_join --scale smoke", ""),
    ],
)
def test_what_is_no_command_is_found(line: str, says: str) -> None:
    assert says in fault(line)
    assert bool(says) == bool(fault(line))
