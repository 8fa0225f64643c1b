"""Nothing to do means nothing: pages are made anew if what they show has changed, and only then."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import yaml
from rich.console import Console

from harness.paths import Project
from harness.runs import fresh, overview

Make = Callable[[], str]


@pytest.fixture
def make(checkout: Project) -> Make:
    """Makes the overview of a checkout with one notebook of no study; returns what is printed."""
    for path in checkout.notebooks.glob("*.ipynb"):
        path.unlink()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(6 * 7)")])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
    nbformat.write(notebook, checkout.notebooks / "00_start_here.ipynb")

    def once() -> str:
        console = Console(file=io.StringIO(), width=120)
        overview.make(checkout, console)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    return once


def times(project: Project) -> dict[str, int]:
    """When each page was written."""
    return {path.name: path.stat().st_mtime_ns for path in project.report.glob("*.html")}


def test_pages_are_made_once(checkout: Project, make: Make) -> None:
    said = make()
    assert "claims that could have failed; which, and why: harness claims PAPER --failed" in said
    assert len(said.splitlines()) <= 20
    assert "42" in (checkout.report / "00_start_here.html").read_text()
    assert "not executed in this checkout" not in (checkout.report / "index.html").read_text()
    before = times(checkout)
    assert set(before) == {"00_start_here.html", "index.html"}
    assert make() == said
    assert times(checkout) == before


def test_a_changed_claim_makes_them_anew(checkout: Project, make: Make) -> None:
    make()
    before = times(checkout)
    path = checkout.published / "claims.yaml"
    claims = yaml.safe_load(path.read_text())
    next(iter(claims.values()))["title"] = "something else"
    path.write_text(yaml.safe_dump(claims))
    make()
    assert "something else" in (checkout.report / "index.html").read_text()
    after = times(checkout)
    assert all(after[name] > before[name] for name in before)


def test_a_page_that_was_deleted_comes_back(checkout: Project, make: Make) -> None:
    make()
    (checkout.report / "00_start_here.html").unlink()
    make()
    assert (checkout.report / "00_start_here.html").is_file()


def test_a_note_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    product = tmp_path / "product"
    product.write_text("")
    made = fresh.Made(tmp_path)
    made.note("product", "digest")
    assert made.is_fresh("product", "digest", product)
    assert not made.is_fresh("product", "other", product)
    (tmp_path / ".made.json").write_text("{")
    assert not made.is_fresh("product", "digest", product)
