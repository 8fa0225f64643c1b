"""What is recorded can be had: from a folder that is a ready remote, into a clone with nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import LITTLE, REPOSITORY, describe, need

from harness.paths import Project
from harness.runs import summary

Command = Callable[..., subprocess.CompletedProcess[str]]
NAME = "grace_hash_join"
STAGE = f"simulated@{NAME}"
TWO = {**LITTLE, "read_buffers": ["4 MiB", "16 MiB"]}
VALIDATOR = "roc-validator==0.13.0"
OTHER_TERMS = {
    "ComputationalWorkflow": "https://bioschemas.org/ComputationalWorkflow",
    "File": "http://schema.org/MediaObject",
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
}
"""Terms of RO-Crate 1.1 that are not schema.org's under the same name."""

OUTS = ("results", "figures", "raw")


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """With the programs of this environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def done(folder: Path, *command: str) -> str:
    """What a command that has to work prints."""
    found = run(folder, *command)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def recorded(project: Project) -> dict[str, bytes]:
    """All that the stage has made and that git does not have."""
    stem = f"{NAME}.simulated"
    files = [
        *project.results.glob(f"{stem}.*"),
        *(project.figures / NAME / "simulated").iterdir(),
        *(project.raw / NAME / "simulated").iterdir(),
    ]
    return {str(path.relative_to(project.root)): path.read_bytes() for path in files}


@pytest.fixture
def origin(committed: Path, tmp_path: Path) -> Project:
    """A copy of it that is the test's own."""
    return Project(shutil.copytree(committed, tmp_path / "origin", symlinks=True))


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory, raw: Path, smoke: object) -> Path:
    """A clone of what is committed in which the stage has run, little of it, and is committed."""
    need("git")
    root = tmp_path_factory.mktemp("committed") / "origin"
    done(root.parent, "git", "clone", "--quiet", "--no-hardlinks", str(REPOSITORY), str(root))
    for name in (
        "params.yaml",
        "dvc.yaml",
        "data/dvc.yaml",
        "hardware/dvc.yaml",
        "tools/release-data",
    ):
        shutil.copy(REPOSITORY / name, root / name)
    project = Project(root)
    describe(project, NAME, "simulated", **TWO)
    done(root, "harness", "digests")
    shutil.copytree(raw / "tpch" / "smoke", project.raw / "tpch" / "smoke")
    done(root, "harness", "run", NAME)
    done(root, "dvc", "commit", "--force", "--quiet", STAGE)
    done(root, "git", "-c", "user.name=a", "-c", "user.email=b", "commit", "-qam", "run")
    return root


@pytest.mark.builds
def test_a_clone_pulls_what_was_recorded_and_draws_it_again(
    origin: Project, tmp_path: Path
) -> None:
    remote = tmp_path / "archive" / "remote"
    config = (origin.root / ".dvc" / "config").read_bytes()
    done(origin.root, "tools/release-data", str(remote), STAGE)
    assert (origin.root / ".dvc" / "config").read_bytes() == config
    assert not (origin.root / ".dvc" / "config.local").exists()
    clone = Project(tmp_path / "clone")
    done(tmp_path, "git", "clone", "--quiet", "--no-hardlinks", str(origin.root), str(clone.root))
    said = run(clone.root, "harness", "draw", NAME)
    assert said.returncode == 2
    assert "dvc pull" in said.stderr
    done(clone.root, "dvc", "remote", "add", "--quiet", "--local", "-d", "release", str(remote))
    done(clone.root, "dvc", "pull", "--quiet", STAGE)
    assert recorded(clone) == recorded(origin)
    assert any(name.endswith(".parquet") for name in recorded(clone))
    assert ", 0 are not" in done(clone.root, "harness", "draw", NAME)
    picture = next((clone.figures / NAME / "simulated").glob("*.svg"))
    drawn = picture.read_bytes()
    picture.unlink()
    assert run(clone.root, "harness", "draw", NAME).returncode == 1
    assert picture.read_bytes() == drawn
    stale = picture.with_name("nobody_draws_it.svg")
    stale.write_bytes(drawn)
    said = run(clone.root, "harness", "draw", NAME)
    assert said.returncode == 1
    assert stale.name in said.stdout


@pytest.mark.builds
def test_what_is_not_in_the_cache_is_said(origin: Project, tmp_path: Path) -> None:
    shutil.rmtree(origin.root / ".dvc" / "cache")
    found = run(origin.root, "tools/release-data", str(tmp_path / "remote"), STAGE)
    assert found.returncode == 2
    assert "make reproduce" in found.stderr


@pytest.fixture
def archive(origin: Project, tmp_path: Path) -> Path:
    """The folder of a release, unpacked where nothing else is."""
    file = tmp_path / "flashlab.tar"
    done(origin.root, "harness", "release", NAME, "--output", str(file))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("release-")]
    empty = tmp_path / "empty"
    with tarfile.open(file) as packed:
        packed.extractall(empty, filter="data")
    return empty / "flashlab"


@pytest.mark.slow
@pytest.mark.builds
def test_a_release_reproduces_in_an_empty_folder(origin: Project, archive: Path) -> None:
    clone = Project(archive.parent / "flashlab-sources")
    done(archive, "git", "clone", "--quiet", "repository.bundle", str(clone.root))
    done(
        clone.root,
        "dvc",
        "remote",
        "add",
        "--quiet",
        "--local",
        "-d",
        "release",
        str(archive / "remote"),
    )
    page = (archive / "README.md").read_text()
    [pull] = [line for line in page.splitlines() if line.startswith(".venv/bin/dvc pull")]
    assert STAGE in pull
    done(clone.root, *pull.removeprefix(".venv/bin/").split(), "--quiet")
    made = recorded(origin)
    assert recorded(clone) == made
    shutil.rmtree(clone.results)
    shutil.rmtree(clone.figures / NAME / "simulated")
    done(clone.root, "harness", "run", NAME)
    assert recorded(clone) == made


@pytest.mark.slow
@pytest.mark.builds
def test_each_figure_is_tied_to_what_made_it(origin: Project, archive: Path) -> None:
    crate = json.loads((archive / "ro-crate-metadata.json").read_text())
    entities: dict[str, dict[str, Any]] = {each["@id"]: each for each in crate["@graph"]}
    actions = [each for each in entities.values() if each["@id"].startswith(f"#{NAME}.")]
    actions = [each for each in actions if each["@type"] == "CreateAction"]
    figures = [str(path.relative_to(archive)) for path in (archive / "data/figures").rglob("*.*")]
    assert figures
    commit = done(origin.root, "git", "rev-parse", "HEAD").strip()
    for figure in figures:
        [action] = [each for each in actions if {"@id": figure} in each["result"]]
        given = [entities[each["@id"]] for each in action["object"]]
        values = {each["name"]: each.get("value") for each in given}
        assert entities[action["instrument"]["@id"]]["@id"].endswith(".ipynb")
        is_simulated = "/simulated/" in figure
        is_of_now = is_simulated or summary.label(origin, NAME, "emulated") == "emulated"
        assert any(name.startswith("hardware/profiles/") for name in values) == is_of_now
        assert entities[action["instrument"]["@id"]]["version"] == (
            commit if is_of_now else values["commit"]
        )
        assert {"commit", "machine", "scale"} <= set(values)
        assert {"seed", "repetition"} & set(values)
        if is_simulated:
            assert values["commit"] == commit
            assert values["scale"] == "smoke"
    assert all((archive / name).is_file() for name in ("uv.lock", "dvc.lock", "repository.bundle"))


def contexts(crate: dict[str, Any], folder: Path) -> list[str]:
    """Files with what the crate's terms stand for, by the addresses of RO-Crate's own, of which
    they are extracts: no network is asked. Most terms are schema.org's.
    """
    terms = {key for entity in crate["@graph"] for key in entity if not key.startswith("@")}
    for entity in crate["@graph"]:
        kinds = entity["@type"]
        terms |= {kinds} if isinstance(kinds, str) else set(kinds)
    meant = {term: f"http://schema.org/{term}" for term in terms} | OTHER_TERMS
    file = folder / "context.json"
    file.write_text(json.dumps({"@context": meant}))
    return [f"{address}={file}" for address in crate["@context"]]


@pytest.mark.slow
@pytest.mark.builds
def test_the_crate_is_valid(archive: Path, tmp_path: Path) -> None:
    """By the community's validator, which wants an older rich: in an environment of its own."""
    crate = json.loads((archive / "ro-crate-metadata.json").read_text())
    validate = [need("uv"), "run", "--no-project", "--quiet", "--with", VALIDATOR, "python"]
    if run(archive, *validate, "-c", "import rocrate_validator").returncode != 0:
        pytest.skip(f"{VALIDATOR} cannot be had")
    validate += [str(REPOSITORY / "tests" / "validate_crate.py"), str(archive)]
    for profile in ("process-run-crate", "workflow-run-crate"):
        done(archive, *validate, profile, *contexts(crate, tmp_path))
    [workflow] = [e for e in crate["@graph"] if "ComputationalWorkflow" in e["@type"]]
    workflow["@type"] = "File"
    (archive / "ro-crate-metadata.json").write_text(json.dumps(crate))
    assert run(archive, *validate, profile, *contexts(crate, tmp_path)).returncode == 1


@pytest.mark.builds
def test_no_release_without_present_results(origin: Project, tmp_path: Path) -> None:
    """One line, and no archive: something changed, other code, no results."""
    file = tmp_path / "flashlab.tar"
    release = ("harness", "release", NAME, "--output", str(file))

    def refused() -> str:
        found = run(origin.root, *release)
        assert found.returncode == 2, found.stdout
        assert not file.exists()
        [line] = found.stderr.strip().splitlines()
        return line

    (origin.root / "LICENSE").write_text("mine")
    assert "not committed (LICENSE)" in refused()
    done(origin.root, "git", "checkout", "--quiet", "LICENSE")
    digests = origin.code / f"{NAME}.simulated.json"
    digests.write_text(digests.read_text().replace("run", "ran"))
    done(origin.root, "git", "-c", "user.name=a", "-c", "user.email=b", "commit", "-qam", "other")
    assert "not of the present code: make reproduce" in refused()
    done(origin.root, "git", "checkout", "--quiet", "HEAD^")
    shutil.rmtree(origin.results)
    done(origin.root, "git", "checkout", "--quiet", "HEAD", "--", "data/results")
    assert f"results of {NAME} are missing" in refused()


def test_a_release_of_a_study_that_is_none() -> None:
    found = run(REPOSITORY, "harness", "release", "nothing")
    assert found.returncode == 2
    assert "grace_hash_join" in found.stderr


def test_remotes_of_the_usual_kinds_have_an_extra(project: Project) -> None:
    text = (project.root / "pyproject.toml").read_text()
    assert "dvc-s3" in text
    assert "dvc-ssh" in text
    locked = (project.root / "uv.lock").read_text()
    assert 'name = "dvc-s3"' in locked
    assert 'name = "dvc-ssh"' in locked
    assert set(yaml.safe_load(project.params.read_text())["pipeline"]["emulated"])
