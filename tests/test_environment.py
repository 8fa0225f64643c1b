"""Files that say the same thing twice say the same thing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from conftest import REPOSITORY
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

# What conda-forge calls by another name. Everything else has the name that it has on PyPI.
CONDA_NAMES = {"duckdb": "python-duckdb", "psycopg": "psycopg"}
SYSTEM_TOOLS = {"fio", "bpftrace", "postgresql", "cxx-compiler", "liburing", "git"}


def project_requirements() -> dict[str, Requirement]:
    pyproject = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    return {(r := Requirement(text)).name: r for text in pyproject["project"]["dependencies"]}


def conda_requirements() -> tuple[dict[str, str], dict[str, str]]:
    """Name to version condition: from conda-forge, and from PyPI inside the environment."""
    environment = yaml.safe_load((REPOSITORY / "environment.yml").read_text())
    conda: dict[str, str] = {}
    pip: dict[str, str] = {}
    for entry in environment["dependencies"]:
        target, texts = (pip, entry["pip"]) if isinstance(entry, dict) else (conda, [entry])
        for text in texts:
            name, condition = re.fullmatch(r"([\w\-.\[\]]+?)\s*([<>=!].*)?", text).groups()  # type: ignore[union-attr]
            target[name] = condition or ""
    return conda, pip


def test_conda_environment_is_in_step() -> None:
    conda, pip = conda_requirements()
    wanted = project_requirements()
    assert "python" in conda
    for name, requirement in wanted.items():
        given = conda.get(CONDA_NAMES.get(name, name), pip.get(name))
        assert given is not None, f"environment.yml lacks {name}"
        assert SpecifierSet(given) == requirement.specifier, f"{name}: {given}"
    known = {CONDA_NAMES.get(name, name) for name in wanted} | set(wanted)
    extra = (set(conda) | set(pip)) - known - SYSTEM_TOOLS - {"python", "pip", "-e ."}
    assert {name for name in extra if not name.startswith("-")} == {
        "nanobind",
        "scikit-build-core",
        "cmake",
        "ninja",
        "make",
    }


def test_the_lock_holds_and_names_only_the_public_index() -> None:
    lock = tomllib.loads((REPOSITORY / "uv.lock").read_text())
    locked = {p["name"]: p["version"] for p in lock["package"] if "version" in p}
    for name, requirement in project_requirements().items():
        assert requirement.specifier.contains(Version(locked[name]), prereleases=True), name
    hosts = {
        re.match(r"https?://([^/]+)/", url).group(1)  # type: ignore[union-attr]
        for url in re.findall(r'"(https?://[^"]+)"', (REPOSITORY / "uv.lock").read_text())
    }
    assert hosts <= {"pypi.org", "files.pythonhosted.org"}


def test_the_stub_is_that_of_the_compiled_core(tmp_path: Path) -> None:
    stub = tmp_path / "_core.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "harness._core"]
    subprocess.run([*command, "-o", str(stub)], check=True)
    subprocess.run(
        ["ruff", "format", "-q", "--isolated", "--line-length=100", str(stub)], check=True
    )
    committed = tmp_path / "committed.pyi"
    committed.write_text((REPOSITORY / "harness" / "_core.pyi").read_text())
    subprocess.run(
        ["ruff", "format", "-q", "--isolated", "--line-length=100", str(committed)], check=True
    )
    assert stub.read_text() == committed.read_text(), "run `make stub`"


def test_the_stub_of_the_parameters_is_that_of_the_compiled_core(tmp_path: Path) -> None:
    stub = tmp_path / "core_parameters.pyi"
    tool = REPOSITORY / "tools" / "parameters-stub"
    subprocess.run([sys.executable, str(tool), str(stub)], check=True)
    committed = REPOSITORY / "harness" / "devices" / "core_parameters.pyi"
    assert stub.read_text() == committed.read_text(), "run `make stub`"


def test_the_list_of_system_packages_is_the_only_one() -> None:
    listed = (REPOSITORY / "tools" / "system-packages.txt").read_text().splitlines()
    packages = [line.split("#")[0].strip() for line in listed if line.split("#")[0].strip()]
    assert packages == sorted(packages)
    for path in (REPOSITORY / "Makefile", REPOSITORY / ".ci" / "run"):
        assert "apt-get install" not in path.read_text()


def committed_files() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    return [REPOSITORY / name for name in names if name]


def test_no_large_file_is_committed() -> None:
    for path in committed_files():
        if path.is_file():
            assert path.stat().st_size < 2 << 20, path


@pytest.mark.parametrize("word", [r"/home/\w+/", r"/root/", r"(?<![\w.])/work/"])
def test_no_path_of_a_machine_is_committed(word: str) -> None:
    this = Path(__file__).resolve()
    for path in committed_files():
        if path.is_file() and path.resolve() != this and path.suffix not in (".png", ".parquet"):
            assert not re.search(word, path.read_text(errors="replace")), path


def test_distclean_deletes_through_no_link(tmp_path: Path) -> None:
    """Whoever keeps the databases on another disk has linked their folder."""
    raw = tmp_path / "data" / "raw"
    for folder in (raw / "tpch", tmp_path / "elsewhere", tmp_path / "build"):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    (raw / "postgres").symlink_to(tmp_path / "elsewhere")
    (raw / "input.dvc").touch()
    (tmp_path / "Makefile").write_text((REPOSITORY / "Makefile").read_text())
    subprocess.run(["make", "-s", "distclean"], cwd=tmp_path, check=True)
    assert (tmp_path / "elsewhere" / "file").exists()
    assert sorted(path.name for path in raw.iterdir()) == ["input.dvc", "postgres"]
    assert not (tmp_path / "build").exists()


@pytest.mark.root
def test_distclean_empties_no_file_system_that_is_mounted_at_a_place_of_it(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text((REPOSITORY / "Makefile").read_text())
    for place in ("build", "data/raw/postgres", ".dvc/cache"):
        point = tmp_path / place
        point.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(point)], check=True)
        try:
            (point / "file").touch()
            subprocess.run(["make", "-s", "distclean"], cwd=tmp_path, check=False)
            assert (point / "file").exists(), place
        finally:
            subprocess.run(["umount", str(point)], check=True)
