"""The import arrows of docs/architecture.md, no dead files, no published number in code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest
from conftest import REPOSITORY

HARNESS = REPOSITORY / "harness"
CORE = HARNESS / "core"

# Who may import whom. A name stands for the module or package harness.<name> and all below it.
BASE = {"errors", "units", "paths", "plots", "same_bits", "system", "_core"}
LOWER = BASE | {"workloads", "dbms", "devices", "drives", "probes"}
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "units": {"errors"},
    "paths": {"errors"},
    "plots": {"units"},
    "goals": set(),
    "same_bits": set(),
    "system": {"errors", "units", "_core"},
    "devices": BASE - {"plots"},
    "drives": BASE - {"plots", "_core"},
    "workloads": BASE - {"plots"},
    "dbms": BASE - {"plots"},
    "probes": BASE - {"plots"},
    "tiers": LOWER,
    "experiments": LOWER | {"goals", "tiers"},
    "calibration": LOWER,
    "runs": LOWER | {"tiers", "experiments"},
    "benchmarks": LOWER | {"goals", "calibration", "tiers", "experiments", "runs", "explore"},
    "commands": LOWER | {"calibration", "tiers", "experiments", "runs", "benchmarks"},
    "lab": LOWER | {"tiers", "experiments", "runs"},
    "explore": LOWER | {"tiers", "experiments", "runs"},
}
CORE_ARROWS: dict[str, set[str]] = {
    "base": set(),
    "disk": {"base"},
    "flash": {"base"},
    "host": {"base"},
    "io": {"base", "host"},
    "kernel": {"base", "host"},
    "dbms": {"base", "host", "kernel"},
    "join": {"base", "io"},
    "live": {"base", "host"},
    "bind": {"base", "dbms", "disk", "flash", "host", "io", "join", "kernel", "live"},
}


def imports(path: Path) -> set[str]:
    """Names below `harness` that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("harness.") for name in found if name.startswith("harness.")}


def owner(path: Path) -> str:
    return path.relative_to(HARNESS).parts[0].removesuffix(".py")


PYTHON = sorted(
    p for p in HARNESS.rglob("*.py") if p != HARNESS / "__init__.py" and CORE not in p.parents
)


@pytest.mark.parametrize("path", PYTHON, ids=lambda p: str(p.relative_to(HARNESS)))
def test_python_arrows(path: Path) -> None:
    mine = owner(path)
    assert mine in ARROWS, f"harness/{mine} is not in the architecture"
    for name in imports(path):
        target = name.split(".")[0]
        if target in ("__version__", mine):
            continue
        assert target in ARROWS[mine], f"{path.name} imports harness.{name}"


STUDIES = {path.parent.name for path in HARNESS.glob("experiments/*/__init__.py")}


def test_experiments_never_import_each_other() -> None:
    for path in (HARNESS / "experiments").rglob("*.py"):
        own = path.relative_to(HARNESS / "experiments").parts[0]
        for name in imports(path):
            segments = name.split(".")
            if segments[0] == "experiments" and len(segments) > 1:
                assert segments[1] not in STUDIES - {own}, f"{path} imports {name}"


def test_nothing_outside_names_a_study() -> None:
    """What is known of a study lies in its package; the one table of them is allowed."""
    templates = [path for path in HARNESS.rglob("templates/**/*") if path.is_file()]
    for path in [*PYTHON, *templates]:
        parts = path.relative_to(HARNESS).parts
        if parts[0] == "experiments" and (len(parts) > 2 or parts[1] == "__init__.py"):
            continue
        code = _without_docstrings(path)
        for study in STUDIES:
            assert not re.search(rf"\b{study}\b(?!\.[ch]\b)", code), f"{path.name} names {study}"


def _without_docstrings(path: Path) -> str:
    """The code alone: an example in a docstring knows nothing."""
    if path.suffix != ".py":
        return path.read_text()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            first.value = ast.Constant("")
    return ast.unparse(tree)


SOURCES = sorted([*CORE.rglob("*.hpp"), *CORE.rglob("*.cpp")])


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(CORE)))
def test_core_arrows(path: Path) -> None:
    mine = path.relative_to(CORE).parts[0]
    for include in re.findall(r'#include "([^"]+)"', path.read_text()):
        target = include.split("/")[0]
        if target == "generated":  # by the build
            continue
        assert (CORE / include).is_file(), include
        assert target == mine or target in CORE_ARROWS[mine], f"{path.name} includes {include}"


def test_only_bind_knows_python() -> None:
    for path in SOURCES:
        if path.parent.name != "bind":
            assert "Python.h" not in path.read_text()
            assert "nanobind" not in path.read_text()


def test_no_dead_files() -> None:
    """Every header is included and every module imported by somebody."""
    texts = "".join(p.read_text() for p in [*SOURCES, *REPOSITORY.glob("tests/core/*.cpp")])
    for path in CORE.rglob("*.hpp"):
        assert f'"{path.relative_to(CORE)}"' in texts, f"nobody includes {path.name}"
    others = [path for name in ("tests", "hardware") for path in (REPOSITORY / name).rglob("*.py")]
    everything = [*PYTHON, *others, HARNESS / "__init__.py"]
    code = "".join(p.read_text() for p in everything if p.is_file())
    imported = {
        part for p in everything if p.is_file() for n in imports(p) for part in n.split(".")
    }
    notebooks = "".join(p.read_text() for p in REPOSITORY.glob("notebooks/*.ipynb"))
    jobs = "".join(p.read_text() for p in (REPOSITORY / "hardware" / "cluster").iterdir())
    for path in PYTHON:
        name = path.stem if path.stem != "__init__" else path.parent.name
        used = name in imported or re.search(rf"\b(import|from)\b[^\n]*\b{name}\b", notebooks)
        named = re.search(rf'"harness\.[\w.]*\b{name}[":]', code)
        pyproject = name in (REPOSITORY / "pyproject.toml").read_text()
        probe = path.with_suffix(".bt").is_file()  # found by the folder that it lies in
        started = re.search(rf"-m harness\.[\w.]*\b{name}\b", jobs)
        found = used or named or pyproject or probe or started
        assert found, f"nobody imports {path.relative_to(HARNESS)}"


def test_no_static_state_in_functions() -> None:
    for path in SOURCES:
        for line in path.read_text().splitlines():
            indented_static = re.match(r"\s+static (?!constexpr|cast|assert)[^(]*(=|;)", line)
            assert not indented_static, f"{path.name}: {line.strip()}"


def test_the_environment_is_not_read_deep_inside() -> None:
    # PATH, a clean one for a clone, and what NumPy and the C library are asked for
    allowed = {
        "system/programs.py",
        "benchmarks/clones.py",
        "same_bits.py",
        "runs/sweeps/worker.py",
    }
    for path in PYTHON:
        if str(path.relative_to(HARNESS)) not in allowed:
            assert "os.environ" not in path.read_text(), path


def test_no_shell_strings() -> None:
    for path in PYTHON:
        assert "shell=True" not in path.read_text(), path


NOTEBOOKS = sorted(REPOSITORY.glob("notebooks/*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_argue_and_the_harness_computes(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) <= 20
    lines = sorted(len(cell.source.splitlines()) for cell in code)
    assert lines[len(lines) // 2] <= 3
    for cell in code:
        assert not cell.outputs
        assert cell.execution_count is None
        defined = [n for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.FunctionDef)]
        assert not defined
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9-]+-[a-z0-9-]+", name) for name in ids), (
        "ids have to be stable"
    )
