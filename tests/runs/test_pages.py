"""The report and the notebooks' pages, as a browser shows them: nothing from elsewhere, no sideways
scrolling on a telephone or a screen, contents, what was not run folded.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from conftest import REPOSITORY, need

from harness.paths import Project
from harness.runs import claims, notebooks, report

WIDTHS = (390, 900, 1400)
SVG = '<?xml version="1.0"?><svg viewBox="0 0 9 9"><path d="M0 0h9"/></svg>'

# Frames of these widths, each of which says how wide its page is, and what becomes of a click.
MEASURE = """<!doctype html><body><script>
const found = {};
const measure = (width) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.style = `width:${width}px;height:900px;border:0`;
  frame.onload = () => {
    const page = frame.contentDocument;
    const figure = page.querySelector("figure > svg, .jp-OutputArea-output img");
    if (figure) figure.dispatchEvent(new MouseEvent("click", {bubbles: true}));
    found[width] = {
      scrolls: page.documentElement.scrollWidth,
      enlarged: page.querySelector("dialog").open,
      contents: page.querySelectorAll("nav.contents a").length,
    };
    done();
  };
  frame.src = PAGE;
  document.body.append(frame);
});
Promise.all(WIDTHS.map(measure)).then(() => { document.body.textContent = JSON.stringify(found); });
</script></body>"""


def measured(page: Path) -> dict[str, dict[str, int]]:
    """Per width what a browser says of the page; skips without one."""
    browser = need("chromium")
    outer = page.with_name("measure.html")
    script = MEASURE.replace("PAGE", json.dumps(page.name)).replace("WIDTHS", str(list(WIDTHS)))
    outer.write_text(script)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    options += ["--virtual-time-budget=20000", f"--user-data-dir={page.parent / 'browser'}"]
    done = subprocess.run(
        [browser, *options, "--dump-dom", outer.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    (said,) = re.findall(r"<body>(\{.*\})</body>", done.stdout)
    found: dict[str, dict[str, int]] = json.loads(said)
    return found


def checkout(folder: Path) -> Project:
    """A checkout with published results of one study on one tier, and a picture."""
    project = Project(folder / "checkout")
    for name in ("data/published", "data/results", "data/metrics", "hardware/profiles"):
        shutil.copytree(REPOSITORY / name, project.root / name)
    for name in ("params.yaml", "pyproject.toml", "dvc.yaml"):
        shutil.copy(REPOSITORY / name, project.root / name)
    (project.root / "notebooks").mkdir()
    picture = project.figures / "grace_hash_join" / "emulated" / "read_buffer.svg"
    picture.parent.mkdir(parents=True)
    picture.write_text(SVG)
    for path in project.results.glob("*.simulated.*"):
        path.unlink()
    return project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """That one, to be changed."""
    return checkout(tmp_path)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """That one, and its report, which takes a while to judge: for who only reads it."""
    project = checkout(tmp_path_factory.mktemp("unchanged"))
    report.write(project)
    return project


@pytest.fixture(scope="module")
def written(unchanged: Project) -> Path:
    """Its report."""
    return unchanged.report / "index.html"


@pytest.fixture
def notebook(project: Project) -> Path:
    """A page of a notebook with a wide table, a long line and a picture."""
    table = f"<table><thead><tr>{'<th>column_with_a_name</th>' * 20}</tr></thead><tbody>"
    table += f"<tr>{'<td>value of a cell</td>' * 20}</tr></tbody></table>"
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
    dot += "hgGAWjR9awAAAABJRU5ErkJggg=="
    outputs = [
        nbformat.v4.new_output("display_data", {"text/html": table}),
        nbformat.v4.new_output("display_data", {"image/png": dot}),
        nbformat.v4.new_output("stream", text="word" * 200),
        nbformat.v4.new_output(
            "display_data",
            {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "sliders need a kernel"},
        ),
    ]
    cells = [
        nbformat.v4.new_markdown_cell("# A question\n\n## An answer"),
        nbformat.v4.new_code_cell("x = 1 " + "+ 1 " * 200, outputs=outputs),
    ]
    executed = project.root / "executed.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), executed)
    return notebooks._render(executed, project.root / "page.html", project.root / "index.html")


def elsewhere(page: Path) -> list[str]:
    """What a browser would fetch from another machine."""
    fetched = r"(?:src|href|import|url)\s*[=(]\s*[\"']?(?:https?:)?//[^\"')\s>]+"
    links = re.sub(r"<a [^>]*>", "", page.read_text())
    return [url for url in re.findall(fetched, links) if "www.w3.org" not in url]


def test_what_was_not_run_is_folded_and_figures_say_where_they_are_from(
    unchanged: Project, written: Path
) -> None:
    project, text = unchanged, written.read_text()
    folded = re.findall(r"<details class=\"tier\"><summary>Tier (\w+): not run here", text)
    assert folded.count("simulated") == len(claims.load(project))
    assert 'href="../../data/figures/grace_hash_join/emulated/read_buffer.svg"' in text
    assert 'href="../../data/results/grace_hash_join.emulated.csv"' in text
    assert "<code>harness draw grace_hash_join --tier emulated</code>" in text
    figure = text.partition('id="grace_hash_join-emulated-read_buffer"')[2]
    caption = figure.partition("</figure>")[0]
    assert re.search(r"</svg> [^<]+: paper [^<]+, expected [^<]+, here [^<]+\)</li>", caption)
    assert (project.report / "../../data/results/grace_hash_join.emulated.csv").resolve().is_file()
    assert text.index('id="overview"') < text.index("</table>") < text.index("<svg")


def test_a_small_run_is_no_evidence_and_says_so(project: Project, written: Path) -> None:
    assert "At a reduced scale" not in written.read_text()
    for end in (".csv", ".about.json"):
        shutil.copy(
            project.results / f"grace_hash_join.emulated{end}",
            project.results / f"grace_hash_join.simulated{end}",
        )
    about = project.results / "grace_hash_join.simulated.about.json"
    for scale, warns in (("smoke", True), ("paper", False)):
        facts = json.loads(about.read_text())
        facts.pop("files", None)  # of another name
        about.write_text(json.dumps({**facts, "scale": scale}))
        assert ("At a reduced scale (smoke)" in report.write(project).read_text()) == warns


def test_a_page_says_in_words_what_only_a_kernel_can_show(notebook: Path) -> None:
    assert "sliders need a kernel" in notebook.read_text()


def test_pages_need_nothing_from_elsewhere(written: Path, notebook: Path) -> None:
    assert elsewhere(written) == []
    assert elsewhere(notebook) == []
    assert 'href="index.html">all papers' in notebook.read_text(), "and lead to the report"


@pytest.mark.builds
def test_the_report_in_a_browser(written: Path) -> None:
    found = measured(written)
    assert all(found[str(width)]["scrolls"] <= width for width in WIDTHS), found
    assert all(at["enlarged"] and at["contents"] > 10 for at in found.values())


@pytest.mark.builds
def test_a_notebook_s_page_in_a_browser(notebook: Path) -> None:
    found = measured(notebook)
    assert all(found[str(width)]["scrolls"] <= width for width in WIDTHS), found
    assert all(at["enlarged"] and at["contents"] == 3 for at in found.values())
