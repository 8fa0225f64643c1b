"""The documentation names what is there: paths, links, and a first page that is short."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import pytest
from conftest import REPOSITORY
from test_architecture import ARROWS, CORE_ARROWS

PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted(REPOSITORY.glob("docs/**/*.md")),
    *sorted(REPOSITORY.glob("hardware/**/README.md")),
]
PREFIXES = ("", "harness/", "harness/core/")
"""What a path may leave out, besides the folder of its page."""
ENDINGS = ("", ".py", ".hpp", ".cpp", ".c")
"""And what a module's name leaves out: `drives/guard` is harness/drives/guard.py."""


@cache
def files() -> frozenset[str]:
    """What is in git, or would be if it were added, and all folders above it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    there = [PurePosixPath(name) for name in listed if (REPOSITORY / name).exists()]
    return frozenset(
        str(each) for path in there for each in (path, *path.parents) if str(each) != "."
    )


@cache
def is_made(name: str) -> bool:
    """Whether git ignores it, file or folder (there or not yet): something that a command makes."""
    asked = ["git", "check-ignore", name, f"{name.rstrip('/')}/"]
    ignored = subprocess.run(asked, cwd=REPOSITORY, check=False, stdout=subprocess.DEVNULL)
    return ignored.returncode == 0


def prose(page: Path) -> str:
    """Without blocks of code, which are other people's files too."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def named_paths(text: str) -> Iterator[str]:
    """Words in backticks that look like paths of ours: they begin with a folder of ours."""
    tops = {
        name.removeprefix(prefix).split("/")[0]
        for prefix in PREFIXES
        for name in files()
        if name.startswith(prefix)
    }
    for quoted in re.findall(r"`([^`\n]+)`", text):
        for word in quoted.split():
            path = re.sub(r"(::.*|[:,;.)]+)$", "", word.strip("()"))
            is_path = "/" in path and re.fullmatch(r"[\w./<>*{},\[\]-]+", path)
            if is_path and path.split("/")[0] in tops:
                yield path


def patterns(path: str) -> list[str]:
    """As regular expressions: <name> and NAME stand for anything, {a,b} for two paths, [ch] too."""
    if braces := re.search(r"\{([^}]*)\}", path):
        begin, end = path[: braces.start()], path[braces.end() :]
        return [p for each in braces[1].split(",") for p in patterns(begin + each + end)]
    parts = re.split(r"(<\w+>|\bNAME\b|\*+|\[\w+\])", path.rstrip("/"))
    made = "".join(
        part if part.startswith("[") else r"[^/]+" if i % 2 else re.escape(part)
        for i, part in enumerate(parts)
    )
    return [made]


def is_there(path: str, page: Path) -> bool:
    """Whether all that the path stands for is in the repository, or is made by a command."""
    here = page.parent.relative_to(REPOSITORY).as_posix()
    prefixes = [*PREFIXES, "" if here == "." else f"{here}/"]
    begin, end = ("|".join(map(re.escape, each)) for each in (prefixes, ENDINGS))
    whole = [re.compile(f"(?:{begin})(?:{pattern})(?:{end})") for pattern in patterns(path)]
    if all(any(pattern.fullmatch(name) for name in files()) for pattern in whole):
        return True
    return bool(re.fullmatch(r"[\w./-]+", path)) and is_made(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_paths_are_true(page: Path) -> None:
    wrong = sorted({path for path in named_paths(prose(page)) if not is_there(path, page)})
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose(page)):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_what_is_not_there_is_found() -> None:
    """The looking itself: what stands for something, and what stands for nothing."""
    assert is_made("data/raw/postgres")
    assert not is_made("data/raw/gone")
    page = REPOSITORY / "CONTRIBUTING.md"
    text = (
        "`harness/probes/scripts/NAME.{bt,py}` and `drives/guard`, `flash/policy/<name>.cpp`; "
        "`harness/gone.py`, `pytest tests/gone.py::test_x`, `drives/NAME.bt`; `fs/ext4`, `a/b`"
    )
    missing = [path for path in named_paths(text) if not is_there(path, page)]
    assert missing == ["harness/gone.py", "tests/gone.py", "drives/NAME.bt"]


def test_names_of_modules_are_true() -> None:
    """`harness.drives.guard.Guard`: a module, and a word in it."""
    for page in PAGES:
        for name in re.findall(r"`(harness(?:\.\w+)+)", prose(page)):
            parts = name.split(".")
            while parts and not is_there("/".join(parts), page):
                parts.pop()
            rest = name.split(".")[len(parts) :]
            module = REPOSITORY.joinpath(*parts)
            file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            assert all(re.search(rf"\b{word}\b", file.read_text()) for word in rest), name


def test_papers_that_are_cited_are_here() -> None:
    """Wherever in code or data somebody refers to a paper's digest."""
    cited = [
        (name, match[0])
        for name in sorted(files())
        if name.startswith(("harness/", "hardware/", "data/published/", "docs/", "notebooks/"))
        and (REPOSITORY / name).is_file()
        for match in re.finditer(
            r"(?:\w+/|\.\./)*\bpapers/\w+\.md", (REPOSITORY / name).read_text(errors="ignore")
        )
    ]
    assert cited
    for name, path in cited:
        from_page = (REPOSITORY / name).parent / path if name.endswith(".md") else None
        assert (REPOSITORY / path).is_file() or (from_page and from_page.is_file()), (name, path)


def test_architecture_shows_all_layers() -> None:
    first = (REPOSITORY / "docs/architecture.md").read_text()
    (layers,) = re.findall(r"## Layers\n+```\n(.*?)```", first, flags=re.DOTALL)
    shown = set(re.findall(r"\w+", layers))
    assert {*ARROWS, *CORE_ARROWS} <= shown


def test_architecture_begins_with_a_page_that_is_read() -> None:
    first = (REPOSITORY / "docs/architecture.md").read_text()
    assert len(first.split()) <= 1200
    for page in (REPOSITORY / "docs/architecture").glob("*.md"):
        assert f"architecture/{page.name}" in first, f"no way leads to {page.name}"
